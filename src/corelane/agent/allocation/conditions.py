"""The pod condition `corelane.io/Pinned`: the kernel confines every running container to its CPUs."""

from collections.abc import Iterable

from corelane.agent.allocation.records import PodCPUs, RunCPUs


def pinned_condition(pod: PodCPUs) -> tuple[str, str]:
    """Return reason and message why a pod is not pinned; both empty if it is."""
    if pod.unplaced is not None:
        where = "left where it runs" if pod.unmanaged else "runs in the shared pool"
        return pod.unplaced.reason, f"{where}: {pod.unplaced.message}"
    return lost(pod) or unconfirmed(pod.runs)


def lost(pod: PodCPUs) -> tuple[str, str] | None:
    """Return reason and message if running containers have fewer exclusive CPUs than at their admission."""
    running = {run.container for run in pod.runs}
    texts = [
        f"{name}: {now} of {admitted} exclusive CPUs left{'' if now else ', runs in the shared pool'}"
        for name, (admitted, now) in pod.shortfall.items()
        if name in running
    ]
    return ("CPUsLost", "; ".join(texts)) if texts else None


def unconfirmed(runs: Iterable[RunCPUs]) -> tuple[str, str]:
    """Return reason and message if the CPUs of some run are not confirmed.

    A run that is being moved counts as confirmed: else every move would change every pod's status.
    """
    live = list(runs)
    unsettled = [run for run in live if not run.confirmed and _is_unsettled(run)]
    if unsettled and all(run.beside for run in unsettled):
        return "NotExclusive", "; ".join(f"{run.container}: {run.beside}" for run in unsettled)
    if unsettled:
        names = " ".join(run.container for run in unsettled)
        faults = "".join(f"; {run.container}: {fault}" for run in unsettled if (fault := _fault(run)))
        return "NotConfirmed", f"CPUs not yet confirmed by the kernel for containers: [{names}]{faults}"
    return ("", "") if live else ("NothingRuns", "no container is running")


def _is_unsettled(run: RunCPUs) -> bool:
    return run.drifted or run.pooled or run.overlapped or bool(run.fault) or not run.seen


def _fault(run: RunCPUs) -> str:
    if run.fault or not run.overlapped:
        return run.fault
    return run.beside or "another container is still on its exclusive CPUs"
