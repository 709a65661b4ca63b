"""Physical cores over bit masks: which have how many free threads, for all cores of a machine at once.

A core stands for itself as its lowest CPU (its lead); whatever is asked of cores is answered by shifting the
free CPUs so that siblings fall on their leads.
"""

from corelane.placement.topology import Topology

__all__ = ["by_free_threads", "full", "full_by_average", "full_by_own_size", "in_rounds", "lowest"]


def lowest(mask: int, n: int) -> int:
    """The n lowest bits of a mask that has at least n: by halving, and the last of them in its digits."""
    taken = base = 0
    while n > 40:
        half = mask.bit_length() >> 1
        low = mask & (1 << half) - 1
        count = low.bit_count()
        if count > n:
            mask = low
        else:
            taken |= low << base
            mask >>= half
            base += half
            n -= count
    if n > 2:
        digits = bin(mask)
        width = len(digits) - len(digits.rsplit("1", n)[0])
        return taken | (mask & (1 << width) - 1) << base
    for _ in range(n):
        low = mask & -mask
        taken |= low << base
        mask ^= low
    return taken


def by_free_threads(topology: Topology, free: int) -> list[int]:
    """Element i has the cores with exactly i + 1 free threads."""
    counts = [0] * topology.threads
    for leads, offsets in topology.shapes:
        if len(offsets) == 1:
            low, high = free & leads, free >> offsets[0] & leads
            counts[0] |= low ^ high
            counts[1] |= low & high
        else:
            for i, cores in enumerate(_exactly(free, leads, offsets)):
                counts[i] |= cores
    return counts


def _exactly(free: int, leads: int, offsets: tuple[int, ...]) -> list[int]:
    """The same for the cores of one shape: a bit-sliced count."""
    counts = [free & leads]
    none = leads ^ counts[0]
    for offset in offsets:
        is_free = free >> offset & leads
        counts.append(counts[-1] & is_free)
        for i in range(len(counts) - 2, 0, -1):
            counts[i] = counts[i] & ~is_free | counts[i - 1] & is_free
        counts[0] = counts[0] & ~is_free | none & is_free
        none &= ~is_free
    return counts


def full(free: int, leads: int, offsets: tuple[int, ...]) -> int:
    """The cores of one shape of which every thread is free."""
    leads &= free
    for offset in offsets:
        leads &= free >> offset
    return leads


def full_by_own_size(topology: Topology, free: int) -> list[tuple[int, int]]:
    """Fully free cores and their size, smallest first."""
    found: dict[int, int] = {}
    for leads, offsets in topology.shapes:
        size = len(offsets) + 1
        found[size] = found.get(size, 0) | full(free, leads, offsets)
    return [(cores, size) for size, cores in sorted(found.items()) if cores]


def full_by_average(topology: Topology, free: int) -> list[tuple[int, int]]:
    """Cores with as many free CPUs as the average core has CPUs, and their size: 0 where sizes differ."""
    average, cores, sizes = topology.cpus_per_core, 0, set()
    for leads, offsets in topology.shapes:
        if len(offsets) + 1 >= average and (found := _exactly(free, leads, offsets)[average - 1]):
            cores |= found
            sizes.add(len(offsets) + 1)
    return [(cores, sizes.pop() if len(sizes) == 1 else 0)] if cores else []


def in_rounds(topology: Topology, free: int, n: int) -> int:
    """The first n of the free CPUs when each core gives its lowest in turn, cores with the fewest first."""
    taken, by_size = 0, by_free_threads(topology, free)
    for given in range(topology.threads):
        for cores in by_size[given:]:
            cores = lowest(cores, n) if cores.bit_count() > n else cores
            cpus = _lowest_of_each(topology, free, cores)
            taken |= cpus
            free &= ~cpus
            n -= cores.bit_count()
    return taken


def _lowest_of_each(topology: Topology, free: int, cores: int) -> int:
    """The lowest free CPU of each of these cores."""
    found = cores & free
    for leads, offsets in topology.shapes:
        missing = cores & leads & ~free
        for offset in offsets:
            have = free >> offset & missing
            found |= have << offset
            missing ^= have
    return found
