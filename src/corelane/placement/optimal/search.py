"""The best choice: spans of NUMA nodes in order, in them the fewest L3 domains, in these the lowest score."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from corelane.placement.optimal.alone import Alone
from corelane.placement.optimal.bounds import Caps, aim, most
from corelane.placement.optimal.combining import Combined
from corelane.placement.optimal.filling import Budget, BudgetSpentError
from corelane.placement.optimal.lowest import lower
from corelane.placement.optimal.problem import Problem, most_of
from corelane.placement.optimal.rough import rough
from corelane.placement.optimal.spans import Rank, Span, choices

__all__ = ["Found", "search"]


class Found(NamedTuple):
    """The CPUs chosen, with the values of terms 2 to 4 and the score of terms 5 to 9.

    `fewest` is a number of L3 domains below which there is no choice of this rank.
    """

    rank: Rank
    score: int
    cpus: int
    fewest: int
    proven: bool = True


def search(problem: Problem, budget: Budget) -> Found | None:
    """The best choice, or None when the demand does not fit."""
    for rank, spans in choices(problem):
        found = _in_spans(problem, rank, spans, budget)
        if found is not None:
            return found
    return None


def _in_spans(problem: Problem, rank: Rank, spans: Sequence[Span], budget: Budget) -> Found | None:
    """The best choice of a rank: numbers of L3 domains in turn, and in each growing numbers of broken cores.

    The fewest that there could be of either are mostly possible, and keep the search small.
    """
    bounds = [(_fewest_domains(problem, span), span) for span in spans]
    unbroken = _unbroken(problem)
    caps = Caps(problem.caps, unbroken)
    for domains in range(min(bound for bound, _ in bounds), len(problem.caps) + 1):
        within = [span for bound, span in bounds if bound <= domains]
        least = min(_least_broken(problem, span, domains, unbroken) for span in within)
        for broken in (least, least + 1, least + 2, least + 4, None):
            filled: list[Alone | Combined] = []
            wanted = aim(problem, domains, broken)
            try:
                for span in within:
                    look = Alone if span.count == 1 else Combined
                    filled.append(look(problem, span, wanted, caps, budget))
            except BudgetSpentError:
                return Found(rank, *(_best(filled) or rough(problem, spans[0])), domains, proven=False)
            best = _best(filled)
            if best is not None:
                return Found(rank, *best, domains)
    return None


def _unbroken(problem: Problem) -> list[int]:
    """The most CPUs that each domain can give without breaking the bind policy."""
    spread = problem.rules.spread
    sizes = [1 if spread else kind.size if kind.usable == kind.size else 0 for kind in problem.kinds]
    return most_of(sizes, problem.counts)


def _least_broken(problem: Problem, span: Span, domains: int, unbroken: Sequence[int]) -> int:
    """A number of cores of which no choice of the span can do without breaking the bind policy.

    A core that breaks it gives at most all its threads but one (more than it should).
    """
    n, threads, size = problem.demand.cpus, problem.shape.threads, problem.shape.core_size
    inside = problem.shape.inside
    if threads == 1:
        return 0
    groups = [(node,) for node in span.nodes] if span.count == 1 else [span.nodes]
    unbroken_most = max(
        most((unbroken[i] for node in group for i in inside[node]), domains) for group in groups
    )
    odd = int(not problem.rules.spread and size > 1 and n % size > 0)
    return max(odd, -(-(n - unbroken_most) // (threads - 1)))


def _best(filled: Iterable[Alone | Combined]) -> tuple[int, int] | None:
    """The lowest score, and the lowest CPUs that reach it."""
    some = [one for one in filled if one.score is not None]
    if not some:
        return None
    score = min(one.score for one in some if one.score is not None)
    cpus = 0
    for one in some:
        if one.score == score:
            mask = one.lowest()
            cpus = lower(cpus, mask) if cpus else mask
    return score, cpus


def _fewest_domains(problem: Problem, span: Span) -> int:
    """A number of L3 domains that no choice in the span can do without."""
    if span.count == 1:
        return min(_enough(problem, problem.shape.inside[node]) for node in span.nodes)
    most: list[dict[int, int]] = [{0: 0}] + [{} for _ in range(span.count)]
    for node in span.nodes:
        must = span.musts >> node & 1
        ways = [(j, cap) for j, cap in enumerate(_prefixes(problem, span, node)) if j and cap >= span.low]
        for used in range(span.count, -1, -1):
            before = most[used - 1] if used else {}
            here = {} if must else most[used]
            for domains, cpus in before.items():
                for j, cap in ways:
                    here[domains + j] = max(here.get(domains + j, 0), cpus + cap)
            most[used] = here
    enough = (domains for domains, cpus in most[-1].items() if cpus >= problem.demand.cpus)
    return min(enough, default=len(problem.caps) + 1)


def _prefixes(problem: Problem, span: Span, node: int) -> list[int]:
    """The most CPUs of 0, 1, 2 … of a node's domains that the span allows it to give."""
    caps = sorted((problem.caps[i] for i in problem.shape.inside[node]), reverse=True)
    return [min(total, span.high) for total in accumulate(caps, initial=0)]


def _enough(problem: Problem, domains: Iterable[int]) -> int:
    missing, count = problem.demand.cpus, 0
    for cap in sorted((problem.caps[i] for i in domains), reverse=True):
        if missing <= 0:
            break
        missing -= cap
        count += 1
    return count if missing <= 0 else len(problem.caps) + 1
