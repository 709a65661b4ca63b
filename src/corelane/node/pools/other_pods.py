"""Other pods with exclusive CPUs: which CPUs they hold, and what their affinities bar or prefer."""

from collections.abc import Iterator, Mapping

from corelane.node.ledger import NodeState
from corelane.node.placed_pods import PlacedPod
from corelane.placement.optimal.demand import AntiAffinity, Occupancy, PodAffinityTerm
from corelane.workload import ExclusivePolicy, PodCPUAffinity, PodRequest


def holdings(state: NodeState) -> dict[str, int]:
    """Pod UID to the CPUs that it is bound to, as a mask; pods in the pools are left out."""
    masks: dict[str, int] = {}
    for entry in state.entries.values():
        if entry.cpus:
            masks[entry.uid] = masks.get(entry.uid, 0) | entry.cpus.mask
    return masks


def names_of(state: NodeState, cpus: int) -> list[str]:
    """The pods (`namespace/name`) that are bound to any of these CPUs, each once."""
    return list(dict.fromkeys(entry.pod for entry in state.entries.values() if entry.cpus.mask & cpus))


def occupancy(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Occupancy:
    """Who holds which CPUs, and where those who are there bar this pod."""
    same = {ExclusivePolicy.PCPU_LEVEL: 0, ExclusivePolicy.NUMA_NODE_LEVEL: 0}
    anti_affinity: list[AntiAffinity] = []
    for uid, placed_pod in state.placed_pods.items():
        cpus = held.get(uid, 0)
        if not cpus or uid == request.uid:
            continue
        if placed_pod.exclusive_policy in same:
            same[placed_pod.exclusive_policy] |= cpus
        if placed_pod.exclusive and placed_pod.exclusive.required:
            anti_affinity.append(AntiAffinity(placed_pod.exclusive.level, cpus))
        anti_affinity += [
            AntiAffinity(one.level, cpus) for one in _against(placed_pod, request) if one.required
        ]
    return Occupancy(
        holders=tuple(held.values()),
        same_core=same[ExclusivePolicy.PCPU_LEVEL],
        same_numa=same[ExclusivePolicy.NUMA_NODE_LEVEL],
        anti_affinity=tuple(anti_affinity),
    )


def neighbours(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> tuple[PodAffinityTerm, ...]:
    """Return the affinity terms of the pod, and those of placed pods that concern it.

    The first pod of a group that requires its own kind nearby is admitted anywhere, as in Kubernetes.
    """
    return (*_wished(state, request, held), *_disliked(state, request, held))


def _wished(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Iterator[PodAffinityTerm]:
    for one in request.placement_spec.affinities:
        cpus = 0
        for uid, placed_pod in state.placed_pods.items():
            if (
                uid != request.uid
                and placed_pod.namespace == request.namespace
                and one.others.matches(placed_pod.labels)
            ):
                cpus |= held.get(uid, 0)
        first = not cpus and not one.avoid and one.others.matches(request.labels)
        if cpus or (one.required and not one.avoid and not first):
            yield PodAffinityTerm(one.avoid, one.level, cpus, one.required, _in_words(one))


def _in_words(one: PodCPUAffinity) -> str:
    return str(one.others) or "any pod"


def _disliked(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Iterator[PodAffinityTerm]:
    for uid, placed_pod in state.placed_pods.items():
        cpus = held.get(uid, 0)
        if not cpus or uid == request.uid:
            continue
        if placed_pod.exclusive and not placed_pod.exclusive.required:
            yield PodAffinityTerm(
                True, placed_pod.exclusive.level, cpus, name="pods that prefer exclusive units"
            )
        for one in _against(placed_pod, request):
            if not one.required:
                yield PodAffinityTerm(True, one.level, cpus, name="pods that prefer to avoid this pod")


def _against(placed_pod: PlacedPod, request: PodRequest) -> Iterator[PodCPUAffinity]:
    """Return the placed pod's anti-affinities that select this pod."""
    if placed_pod.namespace == request.namespace:
        yield from (one for one in placed_pod.avoids if one.others.matches(request.labels))
