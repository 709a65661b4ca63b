"""CPUs to which a container may be pinned now, without sharing a CPU with incompatible containers.

The ledger holds the target; the kernel follows step by step. One rule keeps every step safe: a container is
given a CPU only after all incompatible containers have left it. So a new exclusive container waits until
containers of the shared pool have left its CPUs, as the kernel confirms, and these return only after its last
process has exited. Containers of one pod that have CPUs in common do not wait for each other.

The second half records what the runtime applied and what the kernel reports.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from corelane.agent.pod_records import NO_CPUS, ContainerProgress, PodRecord, StatusReason
from corelane.cpuset import CPUSet, named
from corelane.node import NodeState, Sharing


@dataclass(frozen=True, slots=True)
class CPUAllocation:
    """CPUs, and memory nodes, that the ledger allocates to one container.

    Containers of one `group` may share CPUs: those of a pod that has its CPUs in common.
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
    return CPUAllocation(ledger.runs_on(entry), entry.sharing, entry.mems, uid if entry.common else "")


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
    pods: Iterable[PodRecord],
    ledger: NodeState,
    *,
    excluded: ContainerProgress | None = None,
    observed: bool = True,
) -> OccupiedCPUs:
    """Return the CPUs that live containers may be using; only those ordered, unless `observed`."""
    occupied = OccupiedCPUs()
    for pod in pods:
        for container in pod.containers.values():
            if container.live and container is not excluded:
                cpus = container.possible_cpus if observed else ordered_cpus(container)
                occupied.add(cpus, *sharing_of(pod, container, ledger))
    return occupied


def ordered_cpus(container: ContainerProgress) -> CPUSet:
    """Return the CPUs that this agent ordered for a container, applied or pending."""
    return container.applied | (container.pending or NO_CPUS)


def sharing_of(pod: PodRecord, container: ContainerProgress, ledger: NodeState) -> tuple[Sharing, str]:
    """Return a container's sharing and group; without a ledger entry it shares with no other container."""
    entry = ledger.entries.get((pod.uid, container.name))
    if entry is None:
        return Sharing.ALONE, ""
    return entry.sharing, pod.uid if entry.common else ""


def start_cpus(allocation: CPUAllocation, occupied: OccupiedCPUs) -> CPUSet:
    """Return the CPUs on which a container may start now; empty if it has to wait."""
    taken = occupied.conflicting(allocation.sharing, allocation.group)
    if not allocation.sharing.exclusive:
        return allocation.cpus - taken
    return allocation.cpus if allocation.cpus.isdisjoint(taken) else NO_CPUS


def due_moves(
    pods: Iterable[PodRecord], ledger: NodeState
) -> Iterator[tuple[ContainerProgress, CPUAllocation]]:
    """Yield the running containers whose CPUs should change now, each with its new CPUs.

    A container with an outstanding answer is left out: its CPUs are uncertain until then.
    """
    pods = list(pods)
    occupied, ordered = occupied_cpus(pods, ledger), occupied_cpus(pods, ledger, observed=False)
    for pod in pods:
        for container in pod.containers.values():
            target = allocation_of(ledger, pod.uid, container.name)
            if target is None or pod.unmanaged or not container.movable:
                continue
            if not target.sharing.exclusive:
                target = replace(target, cpus=_reachable(container, target, occupied, ordered))
            elif target.cpus != container.applied:
                others = (
                    occupied_cpus(pods, ledger, excluded=container, observed=observed)
                    for observed in (True, False)
                )
                reachable = _reachable(container, target, *others)
                target = replace(target, cpus=target.cpus if reachable == target.cpus else NO_CPUS)
            if target.cpus and (target.cpus != container.applied or container.drifted):
                yield container, target


def _reachable(
    container: ContainerProgress, target: CPUAllocation, occupied: OccupiedCPUs, ordered: OccupiedCPUs
) -> CPUSet:
    """Return the CPUs of its allocation that a running container may be moved to now.

    Left out are CPUs ordered for incompatible containers. CPUs onto which these merely drifted are allowed if
    the container may run there already: two containers that drifted onto each other's CPUs would otherwise
    wait for each other for ever.
    """
    drifted = occupied.conflicting(target.sharing, target.group) - container.possible_cpus
    return target.cpus - drifted - ordered.conflicting(target.sharing, target.group)


def assert_no_conflict(pods: Iterable[PodRecord], ledger: NodeState) -> None:
    """Assert that no CPU is ordered for two containers that must not share it."""
    ordered = OccupiedCPUs()
    for pod in pods:
        for container in pod.containers.values():
            if not container.live:
                continue
            cpus = ordered_cpus(container)
            sharing, group = sharing_of(pod, container, ledger)
            shared = cpus & ordered.conflicting(sharing, group)
            assert not shared, f"{pod.plan.key} {container.name}: CPUs {shared} are ordered for others, too"
            ordered.add(cpus, sharing, group)


# -- a container's record as its CPUs are ordered, applied and read back


class Confirmation(Enum):
    """Result of comparing the kernel's allowed CPUs with the applied ones."""

    UNREAD = auto()
    CONFIRMED = auto()
    DRIFTED = auto()


def note_waiting(container: ContainerProgress, cpus: CPUSet) -> bool:
    """Record that the start waits for other containers to leave these CPUs; return whether that is new."""
    reason = StatusReason("WaitingForCPUs", f"other containers are still leaving {named(cpus.mask)}")
    new = container.waiting != reason
    container.waiting = reason
    return new


def note_move_ordered(container: ContainerProgress, cpus: CPUSet) -> None:
    """Record that these CPUs are ordered; the answer includes a reading of /proc."""
    container.pending = cpus
    container.drifted = container.unread = False


def note_applied(container: ContainerProgress, cpus: CPUSet, allowed: CPUSet) -> None:
    """Record that the runtime applied `cpus`, and that /proc showed `allowed` right after."""
    container.applied, container.pending, container.seen = cpus, None, allowed
    container.drifted = False
    container.narrowed = allowed != cpus


def note_pin_failure(container: ContainerProgress, retry_at: float) -> None:
    """Record that the runtime failed to apply CPUs: the container may run on the old or the new ones."""
    container.seen |= container.pending or NO_CPUS
    container.pending = None
    container.retry_at = retry_at


def note_allowed(container: ContainerProgress, allowed: CPUSet) -> None:
    """Record a reading of /proc without a change.

    A process may narrow its own affinity, so a set that became narrower is applied again only once.
    """
    container.seen = allowed
    narrower = allowed < container.applied
    container.drifted = bool(allowed) and (
        not allowed <= container.applied or (narrower and not container.narrowed)
    )
    container.narrowed = narrower


def is_unchanged(container: ContainerProgress, allowed: CPUSet) -> bool:
    """Whether a reading of /proc shows no change, and no correction is outstanding."""
    settled = container.confirmed if allowed else not container.confirmed
    return settled and allowed == container.seen and container.pending is None and not container.drifted


def is_first_report(container: ContainerProgress, cpus: CPUSet, observed: object) -> bool:
    """Record a problem with the container's CPUs; return whether it is new: corrections are retried."""
    before = len(container.reported_problems)
    container.reported_problems.add((cpus, observed))
    return len(container.reported_problems) > before


def confirm(container: ContainerProgress) -> Confirmation:
    """Compare the last reading of /proc with the applied CPUs, and record whether it confirms them."""
    container.confirmed = bool(container.seen) and container.seen <= container.applied
    if not container.seen:
        return Confirmation.UNREAD
    if not container.confirmed:
        return Confirmation.DRIFTED
    container.reported_problems.clear()
    return Confirmation.CONFIRMED
