"""What an allocator weighed for a pod: each term of its objective, the runner-up's, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from corelane.cpuset import CPUSet
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Allocator",
    "Change",
    "Compared",
    "Objective",
    "Term",
    "captions",
    "plain",
    "plain_compared",
    "show",
    "show_compared",
]


@dataclass(frozen=True, slots=True)
class Term:
    """A term by its number in the objective, and its values; the runner-up's is None where there is none."""

    number: int
    name: str
    text: str
    value: int
    runner_up: int | None = None
    larger: bool = False
    """Whether larger is better."""

    @property
    def decides(self) -> bool:
        return self.runner_up not in (None, self.value)


@dataclass(frozen=True, slots=True)
class Change:
    """What would make a request fit: `kind` is fewer, release or soften; `pods` those in the way."""

    kind: str
    text: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    """The choice for the exclusive CPUs of a pod as a whole; without `cpus` nothing fitted, for `why`."""

    allocator: str
    cpus: CPUSet
    terms: tuple[Term, ...] = ()
    runner_up: CPUSet = field(default_factory=CPUSet)
    proven: bool = True
    unproven_term: str = ""
    bound: int | None = None
    """What the unproven term cannot beat."""
    why: str = ""
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    """In words, what decided, and what wishes came to."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """What one allocator answers for a pod: container to CPUs (a list string), or why it refuses."""

    name: str
    admitted: bool
    message: str
    containers: dict[str, str]
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of several allocators for one pod, each on the node that it has filled so far."""

    pod: str
    answers: tuple[Allocator, ...]


def plain(found: Objective | None) -> dict[str, Any] | None:
    """JSON with stable keys."""
    if found is None:
        return None
    return {
        "allocator": found.allocator,
        "cpus": str(found.cpus),
        "runnerUp": str(found.runner_up),
        "terms": list(map(_plain_term, found.terms)),
        "proven": found.proven,
        "unprovenTerm": found.unproven_term,
        "unprovenBound": found.bound,
        "why": found.why,
        "notes": list(found.notes),
        "changes": [asdict(change) | {"pods": list(change.pods)} for change in found.changes],
    }


def _plain_term(term: Term) -> dict[str, Any]:
    return {
        "number": term.number,
        "name": term.name,
        "text": term.text,
        "value": term.value,
        "runnerUp": term.runner_up,
        "better": "higher" if term.larger else "lower",
    }


def plain_compared(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """JSON with stable keys, a member for each pod."""
    return [
        {
            "pod": one.pod,
            "allocators": [
                {
                    "name": answer.name,
                    "admitted": answer.admitted,
                    "message": answer.message,
                    "containers": answer.containers,
                    "terms": {term.name: term.value for term in answer.terms},
                }
                for answer in one.answers
            ],
        }
        for one in found
    ]


def show(found: Objective, to: Console) -> None:
    """The terms in their order, the one that decided marked; or what would have to change."""
    if found.terms:
        against = f"runner-up {found.runner_up}" if found.runner_up else "runner-up"
        rows = list(_rows(found.terms, proper=found.allocator == "optimal"))
        tables.show(f"the objective, {found.allocator}", ("", "term", "chosen", against, ""), rows, to)
    for note in found.notes:
        to.print(note, markup=False)
    if found.changes:
        rows_of_changes = [(one.kind, one.text, ", ".join(one.pods)) for one in found.changes]
        tables.show("what would help", ("", "", "in the way"), rows_of_changes, to)


def _rows(terms: Sequence[Term], *, proper: bool) -> Iterator[tuple[str, ...]]:
    """`proper` where the objective is what the allocator went by."""
    decided = next((term.name for term in terms if term.decides and proper), "")
    for term in terms:
        other = "-" if term.runner_up is None else str(term.runner_up)
        mark = "decides" if term.name == decided else ""
        text = f"{term.text}{' (more is better)' if term.larger else ''}"
        yield str(term.number), text, str(term.value), other, mark


def captions(found: Objective) -> Iterator[str]:
    """The same in lines below a drawing."""
    against = f"; runner-up {found.runner_up}" if found.runner_up else ""
    if found.terms:
        yield f"{found.allocator}: {found.cpus}{against}"
    for term in found.terms:
        other = "" if term.runner_up is None else f" (runner-up {term.runner_up})"
        yield f"{term.number}. {term.text}: {term.value}{other}"
    yield from found.notes
    for change in found.changes:
        pods = f": {', '.join(change.pods)}" if change.pods else ""
        yield f"would help ({change.kind}): {change.text}{pods}"


def show_compared(found: Sequence[Compared], to: Console) -> None:
    """A table for each pod: allocators as columns, the terms in play as rows."""
    for one in found:
        names = [term.name for answer in one.answers for term in answer.terms]
        rows = [("CPUs", *map(_cpus, one.answers))]
        rows += [(name, *_values(one.answers, name)) for name in dict.fromkeys(names)]
        tables.show(one.pod, ("", *(answer.name for answer in one.answers)), rows, to)
        for answer in one.answers:
            if not answer.admitted:
                to.print(f"{answer.name} refuses: {answer.message}", markup=False)


def _cpus(answer: Allocator) -> str:
    if not answer.admitted:
        return "refused"
    if not answer.containers:
        return "shared"
    if len(answer.containers) == 1:
        return next(iter(answer.containers.values()))
    return "; ".join(f"{name} {cpus}" for name, cpus in answer.containers.items())


def _values(answers: Sequence[Allocator], name: str) -> Iterator[str]:
    for answer in answers:
        yield next((str(term.value) for term in answer.terms if term.name == name), "-")
