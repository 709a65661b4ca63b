"""Physical cores as bit masks, each known by its lowest CPU (its lead), and grouped by how their threads lie.

On most machines all cores have one pattern, so that a question about all of them is a few shifts.
"""

from collections.abc import Iterable
from typing import NamedTuple

from corelane.cpuset import bits

__all__ = ["Pattern", "Patterned", "patterns_of", "without_leads"]


class Pattern(NamedTuple):
    """All cores whose threads lie alike: `leads` has their lowest CPUs, `offsets` the threads' distances."""

    leads: int
    offsets: tuple[int, ...]


class Patterned:
    """What is told of the cores of any machine that has their patterns."""

    __slots__ = ()

    shapes: tuple[Pattern, ...]
    """Without the offset 0, that of the lead itself."""

    def cores_of(self, cpus: int) -> int:
        """The lead of every core that has a CPU in `cpus`."""
        found = 0
        for leads, offsets in self.shapes:
            found |= cpus & leads
            for offset in offsets:
                found |= cpus >> offset & leads
        return found

    def threads_of(self, leads: int) -> int:
        """All CPUs of the cores with these leads."""
        found = leads
        for own, offsets in self.shapes:
            cores = leads & own
            for offset in offsets:
                found |= cores << offset
        return found

    def whole_cores(self, cpus: int) -> int:
        """All CPUs of every core that has one in `cpus`."""
        return self.threads_of(self.cores_of(cpus))

    def one_of_each(self, cpus: int) -> int:
        """The lowest of these CPUs on every core."""
        found = 0
        for leads, offsets in self.shapes:
            found |= cpus & leads
            missing = leads & ~cpus
            for offset in offsets:
                have = cpus >> offset & missing
                found |= have << offset
                missing ^= have
        return found


def patterns_of(cores: Iterable[int]) -> tuple[Pattern, ...]:
    """The patterns of these cores (the masks of their CPUs), each with all cores that have it."""
    found: dict[tuple[int, ...], int] = {}
    for core in cores:
        lead = (core & -core).bit_length() - 1
        offsets = tuple(bits(core >> lead))
        found[offsets] = found.get(offsets, 0) | 1 << lead
    return tuple(Pattern(leads, offsets) for offsets, leads in sorted(found.items()))


def without_leads(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The same without the offset 0."""
    return tuple(Pattern(leads, offsets[1:]) for leads, offsets in patterns)
