"""Scores of the nodes that passed all filters, 0 to 100 each; the weighted sum decides.

| score | weight | measures |
|---|---|---|
| NUMALocality | 4 | how few NUMA nodes each container's exclusive CPUs are on |
| SnugFit | 2 | how little is left free on the NUMA nodes of the exclusive CPUs |
| PoolPressure | 2 | for pods without exclusive CPUs: how much CPU their pool has left |
| TaintToleration | 3 | how few PreferNoSchedule taints are not tolerated |
| NodeAffinity | 2 | the share of the preferred terms that match |
| Allocated | 1 | how empty (or, for packing, how full) CPU and memory are |
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, Literal

from corelane.cpuset import CPUSet
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.node.pools.classes import pod_class
from corelane.scheduler.filters import Cycle, term_matches, tolerated
from corelane.scheduler.node_cache import NodeInfo

Strategy = Literal["LeastAllocated", "MostAllocated"]
_BEST: Final = 100.0
_WEIGHED: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Score:
    """`score` returns 0 to 100 for a node that passed all filters."""

    name: str
    weight: float
    score: Callable[[Cycle, NodeInfo], float]


def numa_locality(cycle: Cycle, node: NodeInfo) -> float:
    """The mean over containers: 100 for CPUs on one NUMA node, 50 on two, and so on."""
    admitted = cycle.admitted.get(node.name)
    if admitted is None or not admitted[1].assignments:
        return _BEST
    state, decision = admitted
    spans = [_nodes_touched(state, cpus) for cpus in decision.assignments.values()]
    return _BEST * sum(1 / span for span in spans) / len(spans)


def _nodes_touched(state: NodeState, cpus: CPUSet) -> int:
    return max(1, state.topology.nodes_of(cpus.mask).bit_count())


def snug_fit(cycle: Cycle, node: NodeInfo) -> float:
    """Best fit: NUMA nodes in use are filled before others, which keeps whole ones free for large pods."""
    admitted = cycle.admitted.get(node.name)
    if admitted is None or not admitted[1].assignments:
        return _BEST
    state, decision = admitted
    taken = reduce(or_, (cpus.mask for cpus in decision.assignments.values()))
    touched = reduce(or_, (numa for numa in state.topology.numa if numa & taken), 0)
    left = touched & state.free_exclusive.mask
    return _BEST * (1 - left.bit_count() / touched.bit_count())


def pool_pressure(cycle: Cycle, node: NodeInfo) -> float:
    """The share of the pod's pool that is not requested, this pod included; 0 without a ledger.

    Requests for exclusive CPUs that best effort may use as well do not count.
    """
    admitted = cycle.admitted.get(node.name)
    if admitted is None:
        return 0.0
    if admitted[1].assignments:
        return _BEST
    state = admitted[0]
    shared = state.requested - 1000 * len(state.exclusive)
    return _BEST * max(0.0, 1 - shared / (1000 * len(_pool(cycle, state))))


def _pool(cycle: Cycle, state: NodeState) -> CPUSet:
    """The pool of a pod without exclusive CPUs."""
    assert cycle.info.request is not None
    if state.config.policy != "pools":
        return state.shared_pool
    return state.pool_of(pod_class(cycle.info.request, state.config.pools).sharing)


def taint_toleration(cycle: Cycle, node: NodeInfo) -> float:
    tolerations = cycle.info.pod.spec.tolerations
    soft = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
    return _BEST / (1 + sum(not tolerated(taint, tolerations) for taint in soft))


def node_affinity(cycle: Cycle, node: NodeInfo) -> float:
    assert node.node is not None
    return _BEST * preferred_share(cycle.info.pod, node.node)


def preferred_share(pod: Pod, node: Node) -> float:
    """Return the share of the weights of the pod's preferred terms that match the node; 0 without terms."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    preferred = affinity.preferred if affinity else ()
    total = sum(term.weight for term in preferred)
    matched = sum(term.weight for term in preferred if term_matches(term.preference, node))
    return matched / total if total > 0 else 0.0


def least_allocated(cycle: Cycle, node: NodeInfo) -> float:
    return _BEST * (1 - _allocated(cycle, node))


def most_allocated(cycle: Cycle, node: NodeInfo) -> float:
    return _BEST * _allocated(cycle, node)


def _allocated(cycle: Cycle, node: NodeInfo) -> float:
    shares = list(_shares(cycle, node))
    return sum(shares) / len(shares) if shares else 0.0


def _shares(cycle: Cycle, node: NodeInfo) -> Iterator[float]:
    for name in _WEIGHED:
        if allocatable := node.allocatable.get(name, 0):
            requested = node.requested.get(name, 0) + cycle.info.requests.get(name, 0)
            yield min(1.0, requested / allocatable)


def scores(strategy: Strategy = "LeastAllocated") -> tuple[Score, ...]:
    """Return the table of scores, for spreading pods over nodes or for packing them."""
    allocated = least_allocated if strategy == "LeastAllocated" else most_allocated
    return (
        Score("NUMALocality", 4, numa_locality),
        Score("SnugFit", 2, snug_fit),
        Score("PoolPressure", 2, pool_pressure),
        Score("TaintToleration", 3, taint_toleration),
        Score("NodeAffinity", 2, node_affinity),
        Score("Allocated", 1, allocated),
    )
