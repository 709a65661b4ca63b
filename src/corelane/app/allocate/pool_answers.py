"""The answer for one pod under policy `pools`: its containers' CPUs or pools, and what was weighed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from corelane import node
from corelane.app.allocate import objectives
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeState
from corelane.node.entries import Sharing
from corelane.view import allocate as view
from corelane.view.allocate import ContainerLine, Step
from corelane.view.objective import Objective
from corelane.workload import ContainerRequest, PodRequest

__all__ = ["answer"]

_POOLS = {Sharing.BEST_EFFORT: "best-effort pool", Sharing.SYSTEM: "system pool"}


def answer(
    before: NodeState, after: NodeState, request: PodRequest, decision: Decision
) -> tuple[list[ContainerLine], Objective | None]:
    """The pod's containers, and what was weighed for all its exclusive CPUs together."""
    lines, weighed = list(_lines(before, after, request, decision)), _weighed(before, request, decision)
    bound = [i for i, line in enumerate(lines) if line.cpus]
    if weighed and weighed.runner_up and len(bound) == 1:
        other = weighed.runner_up
        quality = view.quality(before.machine, other)
        lines[bound[0]] = replace(lines[bound[0]], runner_up=other, runner_up_quality=quality)
    return lines, weighed


def _lines(
    before: NodeState, after: NodeState, request: PodRequest, decision: Decision
) -> Iterator[ContainerLine]:
    """Each container with its CPUs or its pool, and the reasons; of a refused pod, why."""
    for container in request.containers:
        given = decision.assignments.get(container.name, CPUSet())
        yield ContainerLine(
            container.name,
            container.kind.value,
            len(given) or container.whole_cpus,
            given,
            tuple(_steps(before, request, container, decision)),
            quality=view.quality(before.machine, given) if given else None,
            pool=_pool(after, request, container) if decision.admitted and not given else "",
        )


def _steps(
    state: NodeState, request: PodRequest, container: ContainerRequest, decision: Decision
) -> Iterator[Step]:
    said = [one for one in decision.reasons if one.container in ("", container.name)]
    yield from (Step(one.step, one.text) for one in said)
    if not decision.admitted:
        yield Step("refused", decision.message)
    elif not said:
        yield Step("shared", node.why_shared(state, request, container))


def _pool(state: NodeState, request: PodRequest, container: ContainerRequest) -> str:
    """The pool and its CPUs, as far as the container may use them."""
    entry = state.entries[request.uid, container.name]
    name = _POOLS.get(entry.sharing, "shared pool")
    where = f" of NUMA node {entry.zone}" if entry.zone else ""
    return f"{name}{where} {state.runs_on(entry)}"


def _weighed(before: NodeState, request: PodRequest, decision: Decision) -> Objective | None:
    """The objective's terms for all exclusive CPUs of the pod together, or what would let it in."""
    given = CPUSet()
    for cpus in decision.assignments.values():
        given |= cpus
    return objectives.objective(before, request, given)
