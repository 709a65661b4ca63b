"""A node's decision on a pod, without its admission: the decision of `admit`, and its steps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from corelane.cpuset import CPUSet
from corelane.node.admission import admit, why_shared
from corelane.node.entries import Sharing
from corelane.node.explain import pod_explanation as objectives
from corelane.node.explain import static_steps
from corelane.node.explain.pod_explanation import (
    ContainerExplanation,
    PodExplanation,
    Step,
    TermValue,
    locality,
)
from corelane.node.ledger import Decision, NodeState
from corelane.reasons import label, sentence
from corelane.workload.request import ContainerRequest, PodRequest

_POOLS = {Sharing.BEST_EFFORT: "BE pool", Sharing.SYSTEM: "system pool"}


def explain(
    state: NodeState, request: PodRequest, notes: tuple[str, ...] = ()
) -> tuple[NodeState, PodExplanation]:
    """Admit a pod as `admit` does; return the node after it, and the explanation with these notes."""
    after, decision = admit(state, request)
    if state.config.policy == "pools":
        decided = _under_pools(state, after, request, decision)
    else:
        explained, merge = static_steps.explain(state, request, decision)
        decided = PodExplanation(state, request, decision, tuple(explained), merge=merge)
    containers = [_with_belongings(container, after, request) for container in decided.containers]
    if not decision.admitted:
        containers = [_without_cpus(container) for container in containers]
    return after, replace(decided, containers=tuple(containers), notes=notes)


def _without_cpus(container: ContainerExplanation) -> ContainerExplanation:
    """A refused pod gets nothing, whatever its first containers could have."""
    return replace(container, cpus=CPUSet(), locality=None, runner_up=CPUSet(), runner_up_locality=None)


def _with_belongings(
    container: ContainerExplanation, after: NodeState, request: PodRequest
) -> ContainerExplanation:
    """Add the memory and the devices that the container has in the end."""
    entry = after.entries.get((request.uid, container.name))
    if entry is None:
        return container
    return replace(container, memory=entry.memory, devices=entry.devices)


def _under_pools(
    before: NodeState, after: NodeState, request: PodRequest, decision: Decision
) -> PodExplanation:
    containers = list(_containers(before, after, request, decision))
    objective = objectives.objective(before, request, _all_cpus(decision))
    bound = [i for i, container in enumerate(containers) if container.cpus]
    if objective and objective.runner_up and len(bound) == 1:
        other = objective.runner_up
        containers[bound[0]] = replace(
            containers[bound[0]], runner_up=other, runner_up_locality=locality(before.machine, other)
        )
    return PodExplanation(before, request, decision, tuple(containers), objective=objective)


def _containers(
    before: NodeState, after: NodeState, request: PodRequest, decision: Decision
) -> Iterator[ContainerExplanation]:
    """Yield each container with its CPUs or its pool, and the reasons."""
    for container in request.containers:
        cpus = decision.assignments.get(container.name, CPUSet())
        yield ContainerExplanation(
            container.name,
            container.kind.value,
            len(cpus) or (0 if request.level else container.whole_cpus),
            cpus,
            tuple(_steps(before, request, container, decision)),
            locality=locality(before.machine, cpus) if cpus else None,
            pool=_pool(after, request, container) if decision.admitted and not cpus else "",
        )


def _steps(
    state: NodeState, request: PodRequest, container: ContainerRequest, decision: Decision
) -> Iterator[Step]:
    reasons = [reason for reason in decision.reasons if reason.container in ("", container.name)]
    yield from (Step(label(reason), sentence(reason)) for reason in reasons)
    if not decision.admitted:
        yield Step("refused", decision.message)
    elif not reasons:
        yield Step("shared", sentence(why_shared(state, request, container)))


def _pool(state: NodeState, request: PodRequest, container: ContainerRequest) -> str:
    """Name the pool and those of its CPUs that the container may use."""
    entry = state.entries[request.uid, container.name]
    name = _POOLS.get(entry.sharing, "shared pool")
    where = f" of NUMA node {entry.zone}" if entry.zone else ""
    return f"{name}{where} {state.runs_on(entry)}"


def _all_cpus(decision: Decision) -> CPUSet:
    union = CPUSet()
    for cpus in decision.assignments.values():
        union |= cpus
    return union


@dataclass(frozen=True, slots=True)
class AllocatorAnswer:
    """The answer of one allocator for a pod: container to CPUs, or the refusal; and the objective's terms."""

    allocator: str
    decision: Decision
    terms: tuple[TermValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers of several allocators for one pod, each on the node that it has filled so far."""

    pod: str
    answers: tuple[AllocatorAnswer, ...]


def compare(states: Mapping[str, NodeState], requests: tuple[PodRequest, ...]) -> Iterator[Comparison]:
    """Admit the pods in order under each allocator; all are judged by the objective of `optimal`."""
    states = dict(states)
    judge = states["optimal"].config
    for request in requests:
        answers = []
        for name, before in states.items():
            states[name], decision = admit(before, request)
            judged = replace(before, config=judge)
            terms = objectives.term_values(judged, request, _all_cpus(decision)) if decision.admitted else ()
            answers.append(AllocatorAnswer(name, decision, terms))
        yield Comparison(request.key, tuple(answers))
