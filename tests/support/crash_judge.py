"""Judges readings of the kernel and the ledger, taken around the kills of an agent (see `killed_agent`)."""

from corelane.cpuset import CPUSet


def judge(
    snapshots: list[dict], names: dict[str, str], everything: str, drifts: list[tuple[float, float, str]] = ()
) -> list[str]:
    """Return where two containers had one exclusive CPU, and where a running exclusive container was moved.

    A container counts once it has been narrowed: without NRI it starts on all CPUs. One that the test moved,
    from a time to a time, counts again once it has been narrowed, or is back on its own CPUs.
    """
    found, narrowed, excused, owns = [], set(), set(), {}
    waiting = sorted(drifts, key=lambda drift: drift[1])
    for shot in sorted(snapshots, key=lambda shot: shot["at"]):
        while waiting and waiting[0][1] <= shot["at"]:
            narrowed.discard(waiting[0][2])
            excused.add(waiting.pop(0)[2])
        moving = {ident for begin, _, ident in waiting if begin - 0.1 <= shot["at"]}
        steady = {
            ident: CPUSet.parse(cpus)
            for ident, cpus in shot["first"].items()
            if cpus and shot["second"].get(ident) == cpus and ident in names and ident not in moving
        }
        owned = {name: CPUSet.parse(cpus) for name, cpus in shot["ledger"].items()}
        for ident, cpus in steady.items():
            if str(cpus) != everything:
                narrowed.add(ident)
            if cpus == owns.get(ident):
                excused.discard(ident)
            elif ident in owns and ident not in excused:
                found.append(f"{shot['at']:.3f} {names[ident]} moved from {owns[ident]} to {cpus}: {shot}")
            if cpus == owned.get(names[ident]):
                owns[ident] = cpus
        for ident, cpus in steady.items():
            if owns.get(ident) != cpus:
                continue
            found += [
                f"{shot['at']:.3f} {names[other]} is on CPUs of {names[ident]}: {shot}"
                for other in narrowed & steady.keys()
                if names[other] != names[ident] and not cpus.isdisjoint(steady[other])
            ]
    return found
