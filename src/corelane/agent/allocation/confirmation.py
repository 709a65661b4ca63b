"""A run's record as its CPUs are ordered, applied by the runtime, and read back from the kernel."""

from collections.abc import Iterable
from enum import Enum, auto

from corelane.agent.allocation.records import NO_CPUS, PodCPUs, RunCPUs
from corelane.cpuset import CPUSet


class Confirmation(Enum):
    """Result of comparing the kernel's allowed CPUs with the applied ones."""

    OUTSTANDING = auto()
    CONFIRMED = auto()
    DRIFTED = auto()


def note_started(run: RunCPUs, run_id: str) -> None:
    """Record that the ordered run is up."""
    run.id = run_id
    run.applied, run.pending = run.pending or NO_CPUS, None
    run.unread, run.adopted = True, False


def note_created(run: RunCPUs, allowed: CPUSet) -> None:
    """Record that a run, created by the runtime as answered, was seen; without `allowed` it is read next."""
    if not allowed or allowed == run.pending:
        run.applied = run.pending or NO_CPUS
    run.pending, run.seen = None, allowed
    run.creating, run.unread = False, True


def note_move_ordered(run: RunCPUs, cpus: CPUSet) -> None:
    """Record that these CPUs are ordered; the answer includes a reading of /proc."""
    run.pending = cpus
    run.drifted = run.unread = False


def note_applied(
    run: RunCPUs, cpus: CPUSet, allowed: CPUSet, *, in_cpuset: bool = False, retry_at: float = 0.0
) -> None:
    """Record that the runtime applied `cpus`, and that the kernel showed `allowed` right after.

    A cpuset (`in_cpuset`) that is narrower than what was written to it is written again at `retry_at`.
    """
    run.applied, run.pending, run.seen, run.fault, run.adopted = cpus, None, allowed, "", False
    run.narrowed = allowed != cpus
    run.drifted = in_cpuset and bool(allowed) and allowed < cpus
    if run.drifted:
        run.retry_at = retry_at


def note_in_place(run: RunCPUs) -> None:
    """Record that the kernel already confines a run to the CPUs that it is to have."""
    run.applied, run.adopted = run.seen, True
    run.drifted = run.narrowed = run.pooled = False
    run.fault = ""


def note_pin_failure(run: RunCPUs, retry_at: float, why: str) -> None:
    """Record that the runtime failed to apply CPUs: the container may run on the old or the new ones."""
    run.fault = why
    run.drifted = run.pending == run.applied and not run.seen <= run.applied
    run.seen |= run.pending or NO_CPUS
    run.pending = run.attempted = None
    run.retry_at = retry_at


def note_allowed(run: RunCPUs, allowed: CPUSet, *, in_cpuset: bool = False) -> None:
    """Record what the kernel shows without a change.

    A process may narrow its own affinity, so a set that became narrower is applied again only once. A cpuset
    (`in_cpuset`) is narrowed by others only, or by CPUs that went off-line and came back (version 1).
    """
    run.seen = allowed
    narrower = allowed < run.applied
    again = narrower and (in_cpuset or not run.narrowed)
    run.drifted = bool(allowed) and (not allowed <= run.applied or again)
    run.narrowed = narrower


def is_loss(run: RunCPUs, allowed: CPUSet, usable: CPUSet) -> bool:
    """Whether a reading differs only by CPUs that are gone: the ledger has them no more, and a move follows.

    Where all of them are gone the container runs on what the cgroup above has.
    """
    left = run.applied & usable
    return left != run.applied and (not left or allowed == left)


def is_unchanged(run: RunCPUs, allowed: CPUSet) -> bool:
    """Whether a reading of /proc shows no change, and no correction is outstanding."""
    settled = run.confirmed if allowed else not run.confirmed
    return settled and allowed == run.seen and run.pending is None and not run.drifted


def is_first_report(run: RunCPUs, cpus: CPUSet, observed: object) -> bool:
    """Record a problem with the run's CPUs; return whether it is new: corrections are retried."""
    before = len(run.reported_problems)
    run.reported_problems.add((cpus, observed))
    return len(run.reported_problems) > before


def confirm(run: RunCPUs) -> Confirmation:
    """Compare the last reading with the applied CPUs, and record whether it confirms them.

    A container in the shared pool that is to have exclusive CPUs is not confirmed there.
    """
    agrees = run.seen <= run.applied and not run.drifted
    run.confirmed = bool(run.seen) and agrees and not run.pooled
    if not run.seen or (agrees and run.pooled):
        return Confirmation.OUTSTANDING
    if not agrees:
        return Confirmation.DRIFTED
    run.reported_problems.clear()
    return Confirmation.CONFIRMED


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
    problems = ((run, run.drifted or run.pooled or run.overlapped or run.fault) for run in live)
    unsettled = [run for run, problem in problems if not run.confirmed and (problem or not run.seen)]
    if unsettled and all(run.beside for run in unsettled):
        return "NotExclusive", "; ".join(f"{run.container}: {run.beside}" for run in unsettled)
    if unsettled:
        names = " ".join(run.container for run in unsettled)
        faults = "".join(f"; {run.container}: {fault}" for run in unsettled if (fault := _fault(run)))
        return "NotConfirmed", f"CPUs not yet confirmed by the kernel for containers: [{names}]{faults}"
    return ("", "") if live else ("NothingRuns", "no container is running")


def _fault(run: RunCPUs) -> str:
    if run.fault or not run.overlapped:
        return run.fault
    return run.beside or "another container is still on its exclusive CPUs"
