"""Judges readings of the kernel and the ledger, taken around the kills of an agent (see `killed_agent`)."""

from corelane.cpuset import CPUSet


def judge(
    snapshots: list[dict], names: dict[str, str], everything: str, drifts: list[tuple[float, float, str]] = ()
) -> list[str]:
    """Return where two containers had one exclusive CPU, and where a running exclusive container was moved.

    A container counts once it has been narrowed: without NRI it starts on all CPUs. One that the test moved,
    from a time to a time, counts again once it has been narrowed, or is back on its own CPUs.
    """
    found, narrowed, excused, owns = written_before_saved(snapshots, names, everything), set(), set(), {}
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


def written_before_saved(snapshots: list[dict], names: dict[str, str], everything: str) -> list[str]:
    """Return writes of cpusets that the ledger on disk did not allow at that moment.

    The lowest CPU is reserved, as it is by default: it is in the shared pool, and in no exclusive set.
    """
    found, machine = [], CPUSet.parse(everything)
    for shot in snapshots:
        path, _, text = shot.get("about", "").partition("/cpuset.cpus ")
        name = names.get(path.rpartition("/")[2])
        if shot.get("step") != "cgroup:before" or not text or name is None:
            continue
        owned = {owner: CPUSet.parse(cpus) for owner, cpus in shot["ledger"].items()}
        pool = machine - CPUSet(cpu for cpus in owned.values() for cpu in cpus)
        cpus = CPUSet.parse(text)
        if cpus != owned.get(name) and not (cpus <= pool and min(machine) in cpus):
            found.append(f"{shot['at']:.3f} {name} gets CPUs {text} against the ledger on disk: {shot}")
    return found
