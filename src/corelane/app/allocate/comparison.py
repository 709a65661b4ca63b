"""`corelane allocate --compare`: the same pods, one after the other, by each of the allocators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from corelane import node
from corelane.app.allocate import objectives
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeConfig, NodeState
from corelane.view.objective import Allocator, Compared
from corelane.workload import PodRequest

__all__ = ["compared", "variants"]


def variants(pooled: NodeState, kubelet: NodeConfig) -> dict[str, NodeState]:
    """The node, as nobody has touched it, under each allocator: policy `static` for the kubelet's."""

    def under(config: NodeConfig) -> NodeState:
        fitted, _ = node.rebase(pooled, pooled.machine, config)
        return fitted

    options = pooled.config.pools
    return {
        "kubelet": under(kubelet),
        "koordinator": under(replace(pooled.config, pools=replace(options, allocator="koordinator"))),
        "optimal": under(replace(pooled.config, pools=replace(options, allocator="optimal"))),
    }


def compared(states: Mapping[str, NodeState], requests: tuple[PodRequest, ...]) -> Iterator[Compared]:
    """What each answers for each pod; all are judged by the same objective."""
    states = dict(states)
    judge = states["optimal"].config
    for request in requests:
        answers = []
        for name, before in states.items():
            states[name], decision = node.admit(before, request)
            answers.append(_answer(name, replace(before, config=judge), request, decision))
        yield Compared(request.key, tuple(answers))


def _answer(name: str, judged: NodeState, request: PodRequest, decision: Decision) -> Allocator:
    given = CPUSet()
    for cpus in decision.assignments.values():
        given |= cpus
    return Allocator(
        name,
        decision.admitted,
        decision.message,
        {container: str(cpus) for container, cpus in decision.assignments.items()},
        objectives.terms(judged, request, given) if decision.admitted else (),
    )
