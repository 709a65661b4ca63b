"""CPUs to which a container may be pinned now, without sharing a CPU with incompatible containers.

The ledger holds the target; the kernel follows step by step. One rule keeps every step safe: a container is
given a CPU only after all incompatible containers have left it. So a new exclusive container waits until
containers of the shared pool have left its CPUs, as the kernel confirms, and these return only after its last
process has exited. Containers of one pod that have CPUs in common do not wait for each other.

Memory nodes and CPU quota follow from the allocation as CPUs do. Exclusive CPUs come without a quota (as with
the kubelet's DisableCPUQuotaWithExclusiveCPUs); back in the shared pool a container gets its quota and all
memory nodes back. What was lifted is seen in the kernel, not remembered, so it is put back after a restart of
the agent, too. Quotas that another program set stay.

Last come a run's record as its CPUs are ordered, applied by the runtime and read back from the kernel, and
the condition that follows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from corelane.agent.allocation.records import NO_CPUS, PodCPUs, RunCPUs
from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.machine.model import Machine
from corelane.node.entries import Sharing
from corelane.node.ledger import NodeState
from corelane.runtime.base import KEEP, Keep, ObservedResources, ResourceUpdate
from corelane.workload.request import ContainerKind

POOL: Final = Sharing.POOL


@dataclass(frozen=True, slots=True)
class CPUAllocation:
    """CPUs, and memory nodes, that the ledger allocates to one container.

    Containers of one `group` may share CPUs: those of a pod that has its CPUs in common, and the old and the
    new run of one container.
    """

    cpus: CPUSet
    sharing: Sharing
    mems: CPUSet | None = None
    group: str = ""


def allocation_of(ledger: NodeState, uid: str, container: str) -> CPUAllocation | None:
    """Return the container's allocation in the ledger; None if there is none."""
    entry = ledger.entries.get((uid, container))
    if entry is None:
        return None
    group = uid if entry.common else f"{uid}/{container}"
    return CPUAllocation(ledger.runs_on(entry), entry.sharing, entry.mems, group)


@dataclass(slots=True)
class OccupiedCPUs:
    """CPUs on which containers may be running, by their sharing and group."""

    cpus: dict[tuple[Sharing, str], CPUSet] = field(default_factory=dict)

    def add(self, cpus: CPUSet, sharing: Sharing, group: str = "") -> None:
        key = sharing, group
        self.cpus[key] = self.cpus.get(key, NO_CPUS) | cpus

    def conflicting(self, sharing: Sharing, group: str = "") -> CPUSet:
        """Return the CPUs with containers that are incompatible with this sharing and group."""
        conflicts = NO_CPUS
        for (other, other_group), cpus in self.cpus.items():
            if not sharing.compatible_with(other) and not (group and group == other_group):
                conflicts |= cpus
        return conflicts


def occupied_cpus(
    runs: Iterable[RunCPUs], ledger: NodeState, *, excluded: RunCPUs | None = None, observed: bool = True
) -> OccupiedCPUs:
    """Return the CPUs that these runs may be using; only those ordered, unless `observed`."""
    occupied = OccupiedCPUs()
    for run in runs:
        if run is not excluded:
            for cpus, sharing, group in occupancy(run, ledger, observed=observed):
                occupied.add(cpus, sharing, group)
    return occupied


def occupancy(run: RunCPUs, ledger: NodeState, *, observed: bool) -> Iterator[tuple[CPUSet, Sharing, str]]:
    """Yield the CPUs that a run may be using, or that are ordered for it, with its sharing and group there.

    Without a ledger entry it shares with no other container, unless it started in the shared pool.
    """
    cpus = run.possible_cpus if observed else run.ordered_cpus
    target = allocation_of(ledger, run.uid, run.container)
    own = target.cpus if target and run.pooled else NO_CPUS if run.pooled else cpus
    sharing, group = (target.sharing, target.group) if target else (Sharing.ALONE, "")
    if cpus & own:
        yield cpus & own, sharing, group
    if cpus - own:
        yield cpus - own, Sharing.POOL, ""


def note_exclusive_again(runs: Iterable[RunCPUs], before: NodeState, after: NodeState) -> None:
    """Record that runs are still in the shared pool although a changed ledger gives them exclusive CPUs."""
    for run in runs:
        old, new = (allocation_of(ledger, run.uid, run.container) for ledger in (before, after))
        if old and new and new.sharing.exclusive and not old.sharing.exclusive:
            run.pooled |= not run.possible_cpus <= new.cpus


def start_cpus(allocation: CPUAllocation, occupied: OccupiedCPUs) -> CPUSet:
    """Return the CPUs on which a container may start now; empty if it has to wait."""
    taken = occupied.conflicting(allocation.sharing, allocation.group)
    if not allocation.sharing.exclusive:
        return allocation.cpus - taken
    return allocation.cpus if allocation.cpus.isdisjoint(taken) else NO_CPUS


def due_moves(pods: Iterable[PodCPUs], ledger: NodeState) -> list[tuple[RunCPUs, CPUAllocation]]:
    """Return the runs whose CPUs should change now, each with its new CPUs.

    A run with an outstanding answer is left out: its CPUs are uncertain until then. Where nothing can move
    and nothing is outstanding, runs may be on each other's CPUs, as after the loss of a ledger; then some
    give way (see `_way_out`).
    """
    pods = list(pods)
    runs = [run for pod in pods for run in pod.runs]
    movable = [run for pod in pods if not pod.unmanaged for run in pod.runs if run.movable]
    targets = [(run, target) for run in movable if (target := allocation_of(ledger, run.uid, run.container))]
    moves = list(_moves(targets, runs, ledger))
    if moves or any(run.pending is not None for run in runs):
        return moves
    waiting = [(run, target) for run, target in targets if not run.possible_cpus <= target.cpus]
    return _way_out(waiting, runs, ledger) if len(waiting) > 1 else []


def overlaps(run: RunCPUs, runs: Iterable[RunCPUs], ledger: NodeState) -> bool:
    """Whether an incompatible container may still be on the CPUs of a run that has them exclusively."""
    target = allocation_of(ledger, run.uid, run.container)
    if target is None or not target.sharing.exclusive:
        return False
    others = occupied_cpus(runs, ledger, excluded=run)
    return not target.cpus.isdisjoint(others.conflicting(target.sharing, target.group))


def _moves(
    targets: list[tuple[RunCPUs, CPUAllocation]], runs: list[RunCPUs], ledger: NodeState
) -> Iterator[tuple[RunCPUs, CPUAllocation]]:
    occupied = occupied_cpus(runs, ledger)
    for run, target in targets:
        if not target.sharing.exclusive:
            taken = occupied.conflicting(target.sharing, target.group)
            target = replace(target, cpus=target.cpus - taken)
        elif target.cpus != run.applied and overlaps(run, runs, ledger):
            continue
        if target.cpus and (target.cpus != run.applied or run.drifted):
            yield run, target


def _way_out(
    waiting: list[tuple[RunCPUs, CPUAllocation]], runs: list[RunCPUs], ledger: NodeState
) -> list[tuple[RunCPUs, CPUAllocation]]:
    """Return moves that end a circle of runs which wait for each other's CPUs.

    CPUs of the shared pool belong to the pool, although an exclusive container that has to leave them is
    still there. Next come exclusive containers that only lose CPUs, unless a container stays on the rest; at
    last one on the CPUs of another goes to the pool for the time being.
    """
    ordered = occupied_cpus(runs, ledger, observed=False)
    pooled = [
        (run, replace(target, cpus=target.cpus - ordered.conflicting(target.sharing, target.group)))
        for run, target in waiting
        if not target.sharing.exclusive
    ]
    if moves := [(run, target) for run, target in pooled if target.cpus and target.cpus != run.applied]:
        return moves
    exclusive = [(run, target) for run, target in waiting if target.sharing.exclusive]
    waits = {id(run) for run, _ in waiting}
    staying = occupied_cpus((run for run in runs if id(run) not in waits), ledger)
    if moves := list(_narrowing(exclusive, staying, runs, ledger)):
        return moves
    pool = ledger.shared_pool - ordered.conflicting(POOL)
    evacuations = [
        (run, replace(target, cpus=pool))
        for run, target in exclusive
        if run.possible_cpus & (ledger.exclusive - target.cpus) and pool != run.applied
    ]
    return evacuations[:1] if pool else []


def _narrowing(
    exclusive: list[tuple[RunCPUs, CPUAllocation]],
    taken: OccupiedCPUs,
    runs: list[RunCPUs],
    ledger: NodeState,
) -> Iterator[tuple[RunCPUs, CPUAllocation]]:
    """Yield moves to CPUs that a run is on already, and that are neither `taken` nor ordered for another run.

    The other run may be of the same pod: an init container whose end has not been seen yet.
    """
    for run, target in exclusive:
        others = occupied_cpus(runs, ledger, excluded=run, observed=False)
        conflicts = others.conflicting(target.sharing, target.group)
        conflicts |= taken.conflicting(target.sharing, target.group)
        if target.cpus <= run.seen and target.cpus.isdisjoint(conflicts):
            taken.add(target.cpus, target.sharing, target.group)
            yield run, target


def _is_init(run: RunCPUs, ledger: NodeState) -> bool:
    entry = ledger.entries.get((run.uid, run.container))
    return entry is not None and entry.kind is ContainerKind.INIT


def assert_no_conflict(pods: Iterable[PodCPUs], ledger: NodeState) -> None:
    """Assert that no CPU is ordered for a container while one that must not share it has it.

    An init container passes its CPUs on: one whose end has not been seen yet may still be recorded. One that
    started in the shared pool, and was admitted since, waits there for others to leave its CPUs. Two that
    were found on the same CPUs, as after the loss of a ledger, are no order of this agent's.
    """
    ordered, everywhere = OccupiedCPUs(), OccupiedCPUs()
    for pod in pods:
        for run in pod.runs:
            if len(pod.runs) > 1 and _is_init(run, ledger):
                continue
            parts = list(occupancy(run, ledger, observed=False))
            if run.pooled:
                parts = [part for part in parts if part[1] is POOL]
            others = ordered if run.adopted else everywhere
            for cpus, sharing, group in parts:
                shared = cpus & others.conflicting(sharing, group)
                where = f"{pod.pod.key} {run.container}"
                assert not shared, f"{where}: CPUs {shared} are ordered for others, too"
            for part in parts:
                everywhere.add(*part)
                if not run.adopted:
                    ordered.add(*part)


@dataclass(frozen=True, slots=True)
class ResourcePolicy:
    """What this agent sets besides CPUs; the rest is the kubelet's, or nobody's.

    `mems`: memory nodes (not beside a kubelet with memoryManagerPolicy Static). `quota`: CFS quotas (not
    beside a kubelet with cpuCFSQuota false, which sets none).
    """

    mems: bool = True
    quota: bool = True


def memory_nodes(machine: Machine) -> CPUSet:
    """Return the NUMA nodes that have memory; all nodes where no memory is known."""
    with_memory = CPUSet(node.id for node in machine.nodes if node.memory)
    return with_memory or CPUSet(node.id for node in machine.nodes)


def due_change(
    observed: ObservedResources | None,
    target: CPUAllocation,
    *,
    limit: int,
    nodes: CPUSet,
    policy: ResourcePolicy,
) -> ResourceUpdate | None:
    """Return the change of memory nodes and quota that is due; None if there is none.

    `limit` is the container's CPU limit in milliCPU, 0 without one; `nodes` are all memory nodes. Those of a
    container are unknown where affinity alone confines it.
    """
    if observed is None:
        return ResourceUpdate(mems=target.mems) if policy.mems and target.mems else None
    mems = target.mems or nodes
    change = ResourceUpdate(
        mems=mems if policy.mems and observed.mems and observed.mems != mems else None,
        quota_us=_quota(observed, limit, exclusive=target.sharing.exclusive) if policy.quota else KEEP,
    )
    return None if change == ResourceUpdate() else change


def _quota(observed: ObservedResources, limit: int, *, exclusive: bool) -> int | Keep | None:
    if exclusive:
        return KEEP if observed.quota_us is None else None
    if not limit or not observed.cgroup or observed.quota_us is not None:
        return KEEP
    return cfs.quota_us(limit, observed.period_us)


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
