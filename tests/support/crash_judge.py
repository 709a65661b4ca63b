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
    # A reading takes a while where the machine is busy: it counts from its end, and is judged by what was
    # known at its beginning.
    moments = [(shot["at"], 2, number, shot) for number, shot in enumerate(snapshots)]
    moments += [(shot.get("done", shot["at"]), 1, number, shot) for number, shot in enumerate(snapshots)]
    moments += [(end, 0, number, ident) for number, (_, end, ident) in enumerate(drifts)]
    for _, kind, _, what in sorted(moments, key=lambda moment: moment[:3]):
        if kind == 0:
            narrowed.discard(what)
            excused.add(what)
            continue
        steady = _steady(what, names, drifts)
        owned = {name: CPUSet.parse(cpus) for name, cpus in what["ledger"].items()}
        owners = owns | {ident: cpus for ident, cpus in steady.items() if cpus == owned.get(names[ident])}
        guests = narrowed | {ident for ident, cpus in steady.items() if str(cpus) != everything}
        if kind == 1:
            narrowed, owns = guests, owners
            excused -= {ident for ident, cpus in steady.items() if cpus == owns.get(ident)}
            continue
        for ident, cpus in steady.items():
            if ident in owns and cpus != owns[ident] and ident not in excused:
                found.append(f"{what['at']:.3f} {names[ident]} moved from {owns[ident]} to {cpus}: {what}")
            found += [
                f"{what['at']:.3f} {names[other]} is on CPUs of {names[ident]}: {what}"
                for other in guests & steady.keys()
                if owners.get(ident) == cpus
                and names[other] != names[ident]
                and not cpus.isdisjoint(steady[other])
            ]
    return found


def _steady(shot: dict, names: dict[str, str], drifts: list[tuple[float, float, str]]) -> dict[str, CPUSet]:
    """Return the CPUs that both readings show, of containers that the test did not move meanwhile."""
    moving = {
        ident for begin, end, ident in drifts if begin <= shot.get("done", shot["at"]) and shot["at"] <= end
    }
    return {
        ident: CPUSet.parse(cpus)
        for ident, cpus in shot["first"].items()
        if cpus and shot["second"].get(ident) == cpus and ident in names and ident not in moving
    }


def written_before_saved(snapshots: list[dict], names: dict[str, str], everything: str) -> list[str]:
    """Return writes of exclusive CPUs that the ledger on disk did not have at that moment.

    The lowest CPU is reserved, as it is by default: a set without it is exclusive. Sets of the pool may
    follow from an older ledger: the next owner waits until they are applied.
    """
    found, lowest = [], min(CPUSet.parse(everything))
    for shot in snapshots:
        path, _, text = shot.get("about", "").partition("/cpuset.cpus ")
        name = names.get(path.rpartition("/")[2])
        if shot.get("step") != "cgroup:before" or not text or name is None or lowest in CPUSet.parse(text):
            continue
        if text != shot["ledger"].get(name):
            found.append(f"{shot['at']:.3f} {name} gets CPUs {text} against the ledger on disk: {shot}")
    return found
