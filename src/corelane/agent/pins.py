"""Which CPUs a container may be told to use now, so that an exclusive one never meets others there.

The ledger says what is to be; the kernel follows step by step. The rule that keeps the steps safe: a
container is let onto a CPU only when nobody who must not share it may still be there. So a new exclusive
container waits until the shared ones are seen to have left its CPUs, and the shared ones return only when
its last process is gone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from corelane.agent.pods import NO_CPUS, Container, Pod
from corelane.cpuset import CPUSet
from corelane.node import Entry, NodeState


@dataclass(frozen=True, slots=True)
class Lane:
    """What the ledger grants one container."""

    cpus: CPUSet
    exclusive: bool
    mems: CPUSet | None = None


def granted(ledger: NodeState, uid: str, container: str) -> Lane | None:
    """The container's part of the ledger; None if it has none."""
    entry = ledger.entries.get((uid, container))
    if entry is None:
        return None
    return Lane(entry.cpus or ledger.shared_pool, entry.exclusive, entry.mems)


@dataclass(slots=True)
class Occupation:
    """CPUs on which something may be running: by containers that have them alone, and by all others."""

    exclusive: CPUSet = NO_CPUS
    shared: CPUSet = NO_CPUS

    def add(self, cpus: CPUSet, *, exclusive: bool) -> None:
        if exclusive:
            self.exclusive |= cpus
        else:
            self.shared |= cpus


def occupation(pods: Iterable[Pod], ledger: NodeState, *, but: Container | None = None) -> Occupation:
    """What every live container may be using at this moment."""
    found = Occupation()
    for pod in pods:
        for container in pod.containers.values():
            if container.live and container is not but:
                found.add(container.may_use, exclusive=is_exclusive(pod, container, ledger))
    return found


def is_exclusive(pod: Pod, container: Container, ledger: NodeState) -> bool:
    """Whether nobody else may run where it runs.

    Where nothing is known of its claim, as after the loss of the ledger, it is taken to have one.
    """
    entry = ledger.entries.get((pod.uid, container.name))
    return entry is None or entry.exclusive


def start_cpus(lane: Lane, occupied: Occupation) -> CPUSet:
    """Where a container may start now; empty if it has to wait."""
    if not lane.exclusive:
        return lane.cpus - occupied.exclusive
    free = lane.cpus.isdisjoint(occupied.exclusive | occupied.shared)
    return lane.cpus if free else NO_CPUS


def to_move(pods: Iterable[Pod], ledger: NodeState) -> Iterator[tuple[Container, Lane]]:
    """The running containers whose CPUs should change now, each with where to.

    None that has an answer outstanding: what it may use is not known until then.
    """
    pods = list(pods)
    held = occupation(pods, ledger).exclusive
    pool = ledger.shared_pool - held
    for pod in pods:
        for container in pod.containers.values():
            entry = ledger.entries.get((pod.uid, container.name))
            if entry is None or pod.untouched or not container.movable:
                continue
            if entry.exclusive:
                lane = _own_lane(container, entry, pods, ledger)
            else:
                lane = Lane(entry.cpus - held if entry.cpus else pool, exclusive=False, mems=entry.mems)
            if lane.cpus and (lane.cpus != container.applied or container.drifted):
                yield container, lane


def _own_lane(container: Container, entry: Entry, pods: list[Pod], ledger: NodeState) -> Lane:
    """The lane of an exclusive container; empty as long as others may be on CPUs that it has yet to get."""
    lane = Lane(entry.cpus, exclusive=True, mems=entry.mems)
    if entry.cpus == container.applied:
        return lane
    return replace(lane, cpus=start_cpus(lane, occupation(pods, ledger, but=container)))


def check(pods: Iterable[Pod], ledger: NodeState) -> None:
    """Assert that no container was told to use CPUs which another has alone."""
    exclusive = shared = 0
    for pod in pods:
        for container in pod.containers.values():
            told = (container.applied | (container.pending or NO_CPUS)).mask if container.live else 0
            assert not told & exclusive, f"{pod.plan.key} {container.name}: on another container's CPUs"
            if is_exclusive(pod, container, ledger):
                assert not told & shared, f"{pod.plan.key} {container.name}: others are on its CPUs"
                exclusive |= told
            else:
                shared |= told
