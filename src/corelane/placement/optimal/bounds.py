"""Bounds that keep a search small: what L3 domains can give at most, and which scores are worth following."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from corelane.placement.optimal.problem import Problem

__all__ = ["Aim", "Caps", "aim", "most", "most_from"]


class Caps(NamedTuple):
    """The most CPUs of each of some domains, and the most without breaking the bind policy."""

    all: Sequence[int]
    unbroken: Sequence[int]


class Aim(NamedTuple):
    """Choices from so many L3 domains, that break so many cores; None of them bounds nothing.

    `limits` are the highest scores worth following, by how many of the domains are left to be chosen.
    """

    domains: int
    broken: int | None
    limits: Sequence[int]

    def useful(self, problem: Problem, nodes: Iterable[int], caps: Caps) -> Caps:
        """The caps of the nodes' domains, 0 for those that cannot be among so few that give all.

        With the largest of the others they give too little, or too little of it without breaking more cores.
        """
        inside = [i for node in nodes for i in problem.shape.inside[node]]
        n, others, whole = problem.demand.cpus, self.domains - 1, 0
        need = n - most([caps.all[i] for i in inside], others)
        if self.broken is not None and problem.shape.threads > 1:
            spare = self.broken * (problem.shape.threads - 1)
            whole = n - spare - most([caps.unbroken[i] for i in inside], others)
        every, unbroken = [0] * len(caps.all), [0] * len(caps.all)
        for i in inside:
            if caps.all[i] >= need and caps.unbroken[i] >= whole:
                every[i], unbroken[i] = caps.all[i], caps.unbroken[i]
        return Caps(every, unbroken)


def aim(problem: Problem, domains: int, broken: int | None) -> Aim:
    """What to aim at, with the limits that follow."""
    layout = problem.rules.layout
    highest = (layout.domains if broken is None else (broken + 1) * layout.bind) - 1
    return Aim(domains, broken, [used * layout.domains + highest for used in range(domains, -1, -1)])


def most(amounts: Iterable[int], count: int) -> int:
    """The most that so many of the amounts come to."""
    return sum(sorted(amounts, reverse=True)[:count])


def most_from(units: Iterable[Iterable[int]], beside: Iterable[int], domains: int) -> list[list[int]]:
    """For each unit the most CPUs that 0, 1, 2 … domains before it, or beside, can give.

    A unit is the most CPUs of each of its domains.
    """
    largest = sorted(beside, reverse=True)[:domains]
    sums = []
    for caps in units:
        total = [0, *accumulate(largest)]
        sums.append(total + [total[-1]] * (domains - len(largest)))
        largest.extend(caps)
        largest.sort(reverse=True)
        del largest[domains:]
    return sums
