"""`corelane allocate --compare`: the same pods, one after the other, by each of the allocators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from corelane import node
from corelane.app import allocate_objective
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeConfig, NodeState
from corelane.view.objective import Allocator, Compared
from corelane.workload import Ask

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


def compared(states: Mapping[str, NodeState], asks: tuple[Ask, ...]) -> Iterator[Compared]:
    """What each answers for each pod; all are judged by the same objective."""
    states = dict(states)
    judge = states["optimal"].config
    for ask in asks:
        answers = []
        for name, before in states.items():
            states[name], decision = node.admit(before, ask)
            answers.append(_answer(name, replace(before, config=judge), ask, decision))
        yield Compared(ask.key, tuple(answers))


def _answer(name: str, judged: NodeState, ask: Ask, decision: Decision) -> Allocator:
    given = CPUSet()
    for cpus in decision.assignments.values():
        given |= cpus
    return Allocator(
        name,
        decision.admitted,
        decision.message,
        {container: str(cpus) for container, cpus in decision.assignments.items()},
        allocate_objective.terms(judged, ask, given) if decision.admitted else (),
    )
