"""What the optimal allocator answers: a placement with the value of each term, or why nothing fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from corelane.reasons import Reason, sentence
from corelane.workload.placement_spec import NUMAStrategy


class Term(NamedTuple):
    """A term of the objective: its number and its short stable name; `text` says what the value counts.

    Terms of one kind have one number, and a letter in the order in which they decide.
    """

    number: str
    name: str
    text: str
    larger: bool = False
    """Whether larger values are better."""


TERMS: Final = (
    Term("2a", "uneven", "CPUs by which the NUMA nodes differ beyond one core"),
    Term("2b", "numa-nodes", "NUMA nodes"),
    Term("3", "elsewhere", "resources not local"),
    Term("4", "distance", "maximum NUMA distance"),
    Term("5", "l3-domains", "L3 domains"),
    Term("6", "bind", "cores against the bind policy"),
    Term("7a", "exclusive", "units shared against exclusivity"),
    Term("7b", "fallback", "cores shared despite NUMANodeLevel"),
    Term("7c", "affinity", "units against the pod CPU affinity"),
    Term("8", "allocated", "squared free CPUs left by NUMA node (MostAllocated)", larger=True),
    Term("8", "balance", "squared free CPUs left by NUMA node (LeastAllocated)"),
    Term("9", "room", "whole-core capacity score", larger=True),
)
"""Terms 2 to 9 in the order in which they decide; of 8 at most one is in play, and 10 is the CPUs."""

Values = tuple[tuple[str, int], ...]
"""(name, value) of every term in play, in the order of `TERMS`."""

_LARGER = frozenset(term.name for term in TERMS if term.larger)


@dataclass(frozen=True, slots=True)
class Alternative:
    """An answer that was not chosen."""

    cpus: int
    terms: Values


class Placement(NamedTuple):
    """The CPUs chosen, as a mask, and why.

    Not `proven` means that the search ran out of steps: `unproven_term` is then the first term whose value
    may not be the best, and `bound` a value that it cannot beat (None for term 10, "ids").
    `runner_up` is the best answer that leaves out at least one of the L3 domains chosen or, where none does,
    at least one of the cores; None when not computed, or there is none.
    """

    cpus: int
    terms: Values
    proven: bool = True
    unproven_term: str = ""
    bound: int | None = None
    runner_up: Alternative | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def values(self) -> dict[str, int]:
        return dict(self.terms)


@dataclass(frozen=True, slots=True)
class Change:
    """What would make a demand fit: `kind` is fewer, release or soften.

    `amount` CPUs requested instead (fewer); the positions of `holders` to be moved, and their `cpus`
    (release); or the `rule` to be dropped or only preferred (soften). Where that is not enough, `also` is
    what else it takes.
    """

    kind: str
    amount: int = 0
    holders: tuple[int, ...] = ()
    cpus: int = 0
    rule: Reason | None = None
    also: Change | None = None

    @property
    def requirement(self) -> str:
        """The rule as a sentence."""
        return sentence(self.rule) if self.rule else ""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Why nothing fits: the first hard requirement that fails, and what would help, smallest first."""

    requirement: str
    reason: Reason
    changes: tuple[Change, ...] = ()

    @property
    def text(self) -> str:
        return sentence(self.reason)


def rank(terms: Values) -> tuple[int, ...]:
    """A key that sorts values of the same demand from best to worst, ids left aside."""
    return tuple(-value if name in _LARGER else value for name, value in terms)


@lru_cache
def names(strategy: NUMAStrategy | None) -> tuple[str, ...]:
    """The terms that a demand with this strategy has."""
    only = {
        "uneven": NUMAStrategy.DISTRIBUTE_EVENLY,
        "allocated": NUMAStrategy.MOST_ALLOCATED,
        "balance": NUMAStrategy.LEAST_ALLOCATED,
    }
    return tuple(term.name for term in TERMS if only.get(term.name, strategy) is strategy)
