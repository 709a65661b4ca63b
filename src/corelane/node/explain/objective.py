"""The objective's terms for a pod's CPUs, the runner-up, and the smallest changes that would help.

It takes some ten times as long as an admission: for reports, and for the refusals of pods.
"""

from collections.abc import Iterator
from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.node.explain.pod_explanation import Objective, Remedy, TermValue
from corelane.node.ledger import NodeState
from corelane.node.pools import other_pods, pool_admission
from corelane.node.pools.binding import ALLOCATORS, Binding
from corelane.node.pools.koordinator_allocator import Unplaceable
from corelane.placement import optimal
from corelane.placement.optimal.result import Change, Infeasible, Placement
from corelane.reasons import Code, Reason, Refusal, label, sentence
from corelane.workload import PodRequest


def objective(state: NodeState, request: PodRequest, cpus: CPUSet) -> Objective | None:
    """Return the terms of a pod's exclusive CPUs, or why none were found; None if it binds to none.

    The runner-up of `optimal` is its own; that of `koordinator` is its next pick without these CPUs.
    """
    asked = _question(state, request)
    if asked is None:
        return None
    allocator = state.config.pools.allocator
    if not cpus:
        return _infeasible(state, asked)
    best = _answer(state, asked) if allocator == "optimal" else None
    if isinstance(best, Placement) and best.cpus == cpus.mask:
        other = best.runner_up.cpus if best.runner_up else 0
        notes = _notes(best)
        chosen = Objective(
            allocator,
            cpus,
            proven=best.proven,
            unproven_term=best.unproven_term,
            bound=best.bound,
            notes=notes,
        )
    else:
        other, chosen = _next_pick(state, asked, cpus.mask), Objective(allocator, cpus)
    values = _term_values(state, asked, cpus.mask, other)
    return replace(chosen, terms=tuple(values), runner_up=CPUSet.from_mask(other))


def term_values(state: NodeState, request: PodRequest, cpus: CPUSet) -> tuple[TermValue, ...]:
    """Return the objective's terms of any CPUs for a pod; none if it binds to none."""
    asked = _question(state, request)
    return tuple(_term_values(state, asked, cpus.mask, 0)) if asked and cpus else ()


def remedies(state: NodeState, request: PodRequest) -> str:
    """Return, as a sentence, the changes by which a refused pod would fit; "" if unknown."""
    asked = _question(state, request)
    answer = _answer(state, asked) if asked else None
    if not isinstance(answer, Infeasible):
        return ""
    return "; or ".join(sentence(_reason(state, change)) for change in answer.changes)


def _question(state: NodeState, request: PodRequest) -> Binding | None:
    """Return None also for a pod that is refused before any CPU is considered."""
    try:
        return pool_admission.binding_of(state, request)
    except Refusal:
        return None


def _answer(state: NodeState, asked: Binding) -> Placement | Infeasible:
    shape = optimal.from_machine(state.machine)
    return optimal.explain(shape, asked.demand, asked.available, asked.others)


def _notes(best: Placement) -> tuple[str, ...]:
    """Return the reasons behind the terms, which come first."""
    return tuple(sentence(reason) for reason in best.reasons if reason.code is not Code.TERM)


def _infeasible(state: NodeState, asked: Binding) -> Objective | None:
    """Return what would help, as `optimal` finds it for any allocator; None for refusals of other kinds."""
    answer = _answer(state, asked)
    if not isinstance(answer, Infeasible):
        return None
    remedies = tuple(_remedy(_reason(state, change)) for change in answer.changes)
    return Objective(state.config.pools.allocator, CPUSet(), why=answer.text, remedies=remedies)


def _remedy(reason: Reason) -> Remedy:
    also = reason.values[1] if reason.code is Code.DROP_REQUIREMENT else reason
    pods = also.values[0] if also and also.code is Code.MOVE_PODS else ()
    return Remedy(label(reason), sentence(reason), tuple(pod for pod, _ in pods))


def _reason(state: NodeState, change: Change) -> Reason:
    """Return a change with the names of the pods that it moves."""
    if change.holders:
        return Reason(Code.MOVE_PODS, (tuple(_moved(state, change).items()),))
    if change.requirement:
        also = _reason(state, change.also) if change.also else None
        return Reason(Code.DROP_REQUIREMENT, (change.requirement, also))
    return Reason(Code.REQUEST_FEWER_CPUS, (change.amount,))


def _moved(state: NodeState, change: Change) -> dict[str, int]:
    """Return the CPUs (a mask) of each pod to be moved."""
    uids = list(other_pods.holdings(state))
    moved = {uids[position] for position in change.holders}
    pods: dict[str, int] = {}
    for entry in state.entries.values():
        if entry.uid in moved:
            pods[entry.pod] = pods.get(entry.pod, 0) | entry.cpus.mask
    return pods


def _next_pick(state: NodeState, asked: Binding, cpus: int) -> int:
    """Return the allocator's pick if these CPUs were allocated; 0 if it finds none."""
    pick = ALLOCATORS[state.config.pools.allocator]
    demand = replace(asked.demand, cpus=cpus.bit_count())
    try:
        return pick(state, asked.available & ~cpus, demand, asked.others).cpus
    except Unplaceable:
        return 0


def _term_values(state: NodeState, asked: Binding, cpus: int, other: int) -> Iterator[TermValue]:
    shape = optimal.from_machine(state.machine)

    def values(mask: int) -> dict[str, int]:
        return dict(optimal.evaluate(shape, asked.demand, asked.available, mask, asked.others))

    chosen, second = values(cpus), values(other) if other else {}
    for term in optimal.TERMS:
        if term.name in chosen:
            value, against = chosen[term.name], second.get(term.name)
            yield TermValue(term.number, term.name, term.text, value, against, term.larger)
