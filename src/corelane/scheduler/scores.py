"""The scores, 0 to 100 each: which of the nodes that can do does best.

| score | weight | says |
|---|---|---|
| NUMALocality | 4 | how few NUMA nodes each container's exclusive CPUs lie in |
| SnugFit | 2 | how little is left free in the NUMA nodes that the exclusive CPUs come from |
| PoolPressure | 2 | if it shares: how much CPU its pool has left (best effort: what is lent too) |
| TaintToleration | 3 | how few PreferNoSchedule taints are not tolerated |
| NodeAffinity | 2 | what part of the preferred terms is met |
| Allocated | 1 | how empty (or, for packing, how full) CPU and memory are |
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Final, Literal

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.node.pools.classes import pod_class
from corelane.scheduler import matching
from corelane.scheduler.cluster import NodeInfo
from corelane.scheduler.plugins import Cycle, Score

__all__ = ["Strategy", "scores"]

Strategy = Literal["LeastAllocated", "MostAllocated"]
_BEST: Final = 100.0
_WEIGHED: Final = ("cpu", "memory")


def numa_locality(cycle: Cycle, node: NodeInfo) -> float:
    """100 where every container stays within one NUMA node, 50 within two, and so on; the mean of them."""
    admitted = cycle.admitted.get(node.name)
    if admitted is None or not admitted[1].assignments:
        return _BEST
    state, decision = admitted
    spans = [_nodes_touched(state, cpus) for cpus in decision.assignments.values()]
    return _BEST * sum(1 / span for span in spans) / len(spans)


def _nodes_touched(state: NodeState, cpus: CPUSet) -> int:
    return max(1, state.topology.nodes_of(cpus.mask).bit_count())


def snug_fit(cycle: Cycle, node: NodeInfo) -> float:
    """Best fit: a NUMA node in use is filled up before another is begun, which leaves room for large pods."""
    admitted = cycle.admitted.get(node.name)
    if admitted is None or not admitted[1].assignments:
        return _BEST
    state, decision = admitted
    taken = reduce(or_, (cpus.mask for cpus in decision.assignments.values()))
    touched = reduce(or_, (numa for numa in state.topology.numa if numa & taken), 0)
    left = touched & state.free_exclusive.mask
    return _BEST * (1 - left.bit_count() / touched.bit_count())


def pool_pressure(cycle: Cycle, node: NodeInfo) -> float:
    """The part of the pod's pool that is not requested, with this pod in; 0 where no pool is known.

    What those request who lend their CPUs to best effort does not count against it.
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
    """Where the pod would run: no container of it has CPUs of its own."""
    assert cycle.info.request is not None
    if state.config.policy != "pools":
        return state.shared_pool
    return state.pool_of(pod_class(cycle.info.request, state.config.pools).sharing)


def taint_toleration(cycle: Cycle, node: NodeInfo) -> float:
    assert node.node is not None
    disliked = [taint for taint in matching.taints_of(node.node) if taint.effect == "PreferNoSchedule"]
    tolerations = cycle.info.pod.spec.tolerations
    return _BEST / (1 + sum(not matching.tolerated(taint, tolerations) for taint in disliked))


def node_affinity(cycle: Cycle, node: NodeInfo) -> float:
    assert node.node is not None
    return _BEST * matching.preferred_share(cycle.info.pod, node.node)


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
            wanted = node.requested.get(name, 0) + cycle.info.requests.get(name, 0)
            yield min(1.0, wanted / allocatable)


def scores(strategy: Strategy = "LeastAllocated") -> tuple[Score, ...]:
    """The table, for spreading pods over nodes or for packing them."""
    allocated = least_allocated if strategy == "LeastAllocated" else most_allocated
    return (
        Score("NUMALocality", 4, numa_locality),
        Score("SnugFit", 2, snug_fit),
        Score("PoolPressure", 2, pool_pressure),
        Score("TaintToleration", 3, taint_toleration),
        Score("NodeAffinity", 2, node_affinity),
        Score("Allocated", 1, allocated),
    )
