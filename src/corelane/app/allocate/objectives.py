"""Why a pod has these CPUs under policy `pools`: the objective's terms, the runner-up, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.node.errors import Refusal
from corelane.node.pools import admission, pod_affinity
from corelane.node.pools.allocators import ALLOCATORS, Unplaceable
from corelane.node.pools.binding import Question
from corelane.placement import optimal
from corelane.placement.optimal import shape as shapes
from corelane.placement.optimal.result import Change as Helps
from corelane.placement.optimal.result import Infeasible
from corelane.view.objective import Change, Objective, Term
from corelane.workload import PodRequest

__all__ = ["objective", "terms"]


def objective(state: NodeState, request: PodRequest, given: CPUSet) -> Objective | None:
    """What was weighed for a pod that was given these CPUs, none if it was refused; None if it binds none.

    `optimal`'s answer stands beside its runner-up; that of `koordinator` beside what it would pick next.
    """
    asked = question(state, request)
    if asked is None:
        return None
    if not given:
        return _refused(state, asked)
    allocator = state.config.pools.allocator
    best = _answer(state, asked) if allocator == "optimal" else None
    if isinstance(best, optimal.Placement) and best.cpus == given.mask:
        other = best.runner_up.cpus if best.runner_up else 0
        found = Objective(
            allocator,
            given,
            proven=best.proven,
            unproven_term=best.unproven_term,
            bound=best.bound,
            notes=_notes(best),
        )
    else:
        other, found = _next(state, asked, given.mask), Objective(allocator, given)
    values = _terms(state, asked, given.mask, other)
    return replace(found, terms=tuple(values), runner_up=CPUSet.from_mask(other))


def _notes(best: optimal.Placement) -> tuple[str, ...]:
    """What is told beside the terms, which come first."""
    texts = [reason.text for reason in best.reasons]
    steps = [reason.step for reason in best.reasons]
    return tuple(texts[steps.index("decided") :]) if "decided" in steps else ()


def question(state: NodeState, request: PodRequest) -> Question | None:
    """None also for a pod that is refused before any CPU is looked at: its message says all."""
    try:
        return admission.question(state, request)
    except Refusal:
        return None


def terms(state: NodeState, request: PodRequest, given: CPUSet) -> tuple[Term, ...]:
    """The objective's terms of CPUs that somebody chose for a pod; none where it binds none."""
    asked = question(state, request)
    return tuple(_terms(state, asked, given.mask, 0)) if asked and given else ()


def _answer(state: NodeState, asked: Question) -> optimal.Placement | Infeasible:
    shape = shapes.from_machine(state.machine)
    return optimal.place(shape, asked.demand, asked.free, asked.others, explain=True)


def _refused(state: NodeState, asked: Question) -> Objective | None:
    """What would help, as `optimal` finds it whoever was asked; None where the refusal has other reasons."""
    answer = _answer(state, asked)
    if not isinstance(answer, Infeasible):
        return None
    helps = tuple(_change(state, change) for change in answer.changes)
    return Objective(state.config.pools.allocator, CPUSet(), why=answer.text, changes=helps)


def _change(state: NodeState, change: Helps) -> Change:
    cpus = change.cpus | (change.also.cpus if change.also else 0)
    pods = pod_affinity.names_of(state, cpus) if cpus else []
    return Change(change.kind, change.text, tuple(pods))


def _next(state: NodeState, asked: Question, given: int) -> int:
    """What the allocator would pick if others had these CPUs; 0 where nothing."""
    pick = ALLOCATORS[state.config.pools.allocator]
    try:
        return pick(
            state, asked.free & ~given, replace(asked.demand, cpus=given.bit_count()), asked.others
        ).cpus
    except Unplaceable:
        return 0


def _terms(state: NodeState, asked: Question, given: int, other: int) -> Iterator[Term]:
    mine, theirs = _values(state, asked, given), _values(state, asked, other) if other else {}
    for term in optimal.TERMS:
        if term.name in mine:
            value, against = mine[term.name], theirs.get(term.name)
            yield Term(term.number, term.name, term.text, value, against, term.larger)


def _values(state: NodeState, asked: Question, cpus: int) -> Mapping[str, int]:
    shape = shapes.from_machine(state.machine)
    return dict(optimal.evaluate(shape, asked.demand, asked.free, cpus, asked.others))
