"""Which CPUs a container may be told to use now, so that it never meets there whom it must not.

The ledger says what is to be; the kernel follows step by step. The rule that keeps the steps safe: a
container is let onto a CPU only when nobody who must not share it may still be there. So a new exclusive
container waits until the shared ones are seen to have left its CPUs, and the shared ones return only when
its last process is gone. Containers of one pod that have CPUs in common do not wait for each other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from corelane.agent.pods import NO_CPUS, Container, Pod
from corelane.cpuset import CPUSet
from corelane.node import NodeState, Sharing


@dataclass(frozen=True, slots=True)
class CPUAllocation:
    """What the ledger grants one container."""

    cpus: CPUSet
    sharing: Sharing
    mems: CPUSet | None = None
    group: str = ""
    """Those of one group, of a pod that has its CPUs in common, may meet on them."""


def granted(ledger: NodeState, uid: str, container: str) -> CPUAllocation | None:
    """The container's part of the ledger; None if it has none."""
    entry = ledger.entries.get((uid, container))
    if entry is None:
        return None
    return CPUAllocation(ledger.runs_on(entry), entry.sharing, entry.mems, uid if entry.common else "")


@dataclass(slots=True)
class Occupation:
    """CPUs on which something may be running, by how those who run there share them, and their group."""

    cpus: dict[tuple[Sharing, str], CPUSet] = field(default_factory=dict)

    def add(self, cpus: CPUSet, sharing: Sharing, group: str = "") -> None:
        key = sharing, group
        self.cpus[key] = self.cpus.get(key, NO_CPUS) | cpus

    def against(self, sharing: Sharing, group: str = "") -> CPUSet:
        """Where one that shares so could meet somebody whom it must not."""
        met = NO_CPUS
        for (other, others), cpus in self.cpus.items():
            if not sharing.compatible_with(other) and not (group and group == others):
                met |= cpus
        return met


def occupation(
    pods: Iterable[Pod], ledger: NodeState, *, but: Container | None = None, strays: bool = True
) -> Occupation:
    """What every live container may be using at this moment; without `strays`, what it was told to use."""
    found = Occupation()
    for pod in pods:
        for container in pod.containers.values():
            if container.live and container is not but:
                cpus = container.may_use if strays else told(container)
                found.add(cpus, *sharing_of(pod, container, ledger))
    return found


def told(container: Container) -> CPUSet:
    """The CPUs that a container was let onto by us."""
    return container.applied | (container.pending or NO_CPUS)


def sharing_of(pod: Pod, container: Container, ledger: NodeState) -> tuple[Sharing, str]:
    """With whom it may meet, and its group; if nothing is known of it, as when the ledger is lost, nobody."""
    entry = ledger.entries.get((pod.uid, container.name))
    if entry is None:
        return Sharing.ALONE, ""
    return entry.sharing, pod.uid if entry.common else ""


def start_cpus(lane: CPUAllocation, occupied: Occupation) -> CPUSet:
    """Where a container may start now; empty if it has to wait."""
    taken = occupied.against(lane.sharing, lane.group)
    if not lane.sharing.exclusive:
        return lane.cpus - taken
    return lane.cpus if lane.cpus.isdisjoint(taken) else NO_CPUS


def to_move(pods: Iterable[Pod], ledger: NodeState) -> Iterator[tuple[Container, CPUAllocation]]:
    """The running containers whose CPUs should change now, each with where to.

    None that has an answer outstanding: what it may use is not known until then.
    """
    pods = list(pods)
    occupied, ordered = occupation(pods, ledger), occupation(pods, ledger, strays=False)
    for pod in pods:
        for container in pod.containers.values():
            lane = granted(ledger, pod.uid, container.name)
            if lane is None or pod.untouched or not container.movable:
                continue
            if not lane.sharing.exclusive:
                lane = replace(lane, cpus=_reachable(container, lane, occupied, ordered))
            elif lane.cpus != container.applied:
                others = [occupation(pods, ledger, but=container, strays=strays) for strays in (True, False)]
                reachable = _reachable(container, lane, *others)
                lane = replace(lane, cpus=lane.cpus if reachable == lane.cpus else NO_CPUS)
            if lane.cpus and (lane.cpus != container.applied or container.drifted):
                yield container, lane


def _reachable(
    container: Container, lane: CPUAllocation, occupied: Occupation, ordered: Occupation
) -> CPUSet:
    """Where in its lane a running container may be told to go.

    Not where one was told to be whom it must not meet. Where such a one merely strayed, it may stay, if it
    may run there already: else two that strayed onto each other's CPUs would wait for one another for ever.
    """
    strayed = occupied.against(lane.sharing, lane.group) - container.may_use
    return lane.cpus - strayed - ordered.against(lane.sharing, lane.group)


def check(pods: Iterable[Pod], ledger: NodeState) -> None:
    """Assert that no container was told to use CPUs where it meets one that it must not."""
    ordered = Occupation()
    for pod in pods:
        for container in pod.containers.values():
            if not container.live:
                continue
            cpus = told(container)
            sharing, group = sharing_of(pod, container, ledger)
            met = cpus & ordered.against(sharing, group)
            assert not met, f"{pod.plan.key} {container.name}: others are on CPUs {met}, or have them alone"
            ordered.add(cpus, sharing, group)
