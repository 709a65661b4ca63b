"""Families of sets of NUMA nodes, as flags by set: what hints of many providers are merged over.

A machine with N nodes has 2 ** N sets of them; a family is a string of so many bytes, 1 for each set in it.
Set number i holds the nodes at the positions that are bits of i. Whole families combine in a few operations.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul

from corelane.cpuset import bits

MOST_NODES = 16


class TooManyNodes(ValueError):  # noqa: N818 - a plain statement
    """So many NUMA nodes that their sets cannot be listed."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            f"{nodes} NUMA nodes are more than {MOST_NODES}: their sets are too many to align several "
            "resources; use topology manager policy none, or do not align memory and devices"
        )


@dataclass(frozen=True, slots=True)
class Family:
    """The hints of one provider for one resource: `sets` are all of them, `preferred` those it prefers.

    `count` is the number of the machine's NUMA nodes, `anywhere` a preferred hint for no nodes in particular.
    """

    count: int
    sets: bytes
    preferred: bytes
    anywhere: bool = False
    narrowest: int = 0
    """The size of the smallest hint, 0 when none names nodes."""


def positions(ids: Sequence[int], nodes: int) -> int:
    """Return a mask of NUMA node ids as a mask of their positions in `ids`."""
    return sum(1 << i for i, node in enumerate(ids) if nodes >> node & 1)


def preferring(count: int, sets: bytes, size: int) -> Family:
    """The family of these sets, of which those of this size are preferred."""
    narrowest = smallest(count, sets) if 1 in sets else 0
    return Family(count, sets, both(sets, of_size(count, size)), narrowest=narrowest)


def smallest(count: int, sets: bytes) -> int:
    """The size of the smallest of these sets; of all nodes when there is none."""
    chosen = int.from_bytes(sets, "little") * 255 & int.from_bytes(sizes(count), "little")
    return min(chosen.to_bytes(len(sets), "little").translate(None, b"\0"), default=count)


@lru_cache(maxsize=17)
def sizes(count: int) -> bytes:
    """The number of nodes in each set."""
    if count > MOST_NODES:
        raise TooManyNodes(count)
    found = b"\0"
    for _ in range(count):
        found += found.translate(_INCREMENT)
    return found


_INCREMENT = bytes([*range(1, 256), 0])


@lru_cache(maxsize=32)
def of_size(count: int, size: int) -> bytes:
    """The family of all sets of this size."""
    return sizes(count).translate(bytes(int(i == size) for i in range(256)))


def sums(weights: Sequence[int]) -> list[int]:
    """Each set's sum of its nodes' weights."""
    sizes(len(weights))
    totals = [0]
    for weight in weights:
        totals += [total + weight for total in totals] if weight else totals
    return totals


def covering(weights: Sequence[int], need: int) -> bytes:
    """Return the family of the sets whose weights add up to `need` or more.

    All sets of the first eight nodes are ranked once; the sum of the other nodes gives the first rank that
    suffices.
    """
    sizes(len(weights))
    low = sums(weights[:8])
    ranked = sorted(range(len(low)), key=low.__getitem__)
    ascending = [low[index] for index in ranked]
    rows, row = [], bytearray(b"\1" * len(low))
    for index in ranked:
        rows.append(bytes(row))
        row[index] = 0
    rows.append(bytes(row))
    return b"".join(rows[bisect_left(ascending, need - rest)] for rest in sums(weights[8:]))


def both(*families: bytes) -> bytes:
    """The sets that are in all of these."""
    mask = int.from_bytes(families[0], "little")
    for family in families[1:]:
        mask &= int.from_bytes(family, "little")
    return mask.to_bytes(len(families[0]), "little")


def either(*families: bytes) -> bytes:
    """The sets that are in any of these."""
    mask = 0
    for family in families:
        mask |= int.from_bytes(family, "little")
    return mask.to_bytes(len(families[0]), "little")


@lru_cache(maxsize=32)
def without_and_with(count: int, node: int) -> tuple[bytes, bytes]:
    """The family of all sets without a node, and that of all with it."""
    off, on, times = b"\0" * (1 << node), b"\1" * (1 << node), 1 << count - node - 1
    return (on + off) * times, (off + on) * times


def touching(count: int, nodes: int) -> bytes:
    """The family of all sets with at least one of these nodes, a mask of positions."""
    return either(bytes(1 << count), *(without_and_with(count, node)[1] for node in bits(nodes)))


@lru_cache(maxsize=4)
def pair_sums(weights: tuple[tuple[int, ...], ...]) -> Sequence[int]:
    """For each set the sum of the weights of all its ordered pairs of nodes, each with itself included."""
    totals = [0]
    for node, row in enumerate(weights):
        others = sums([row[other] + weights[other][node] for other in range(node)])
        own = row[node]
        totals += [total + more + own for total, more in zip(totals, others, strict=True)]
    return totals


def members(family: bytes) -> Iterator[int]:
    """The sets in a family, ascending."""
    found = family.find(1)
    while found >= 0:
        yield found
        found = family.find(1, found + 1)


def overlaps(families: Sequence[bytes]) -> bytes:
    """The sets that are the intersection of one set of each family.

    Counts the choices by their intersection: the sums over all supersets multiply.
    """
    met = families[0]
    for family in families[1:]:
        choices = array("I", map(mul, _above(met), _above(family)))
        met = bytes(map(bool, _exactly(choices)))
    return met


def _above(family: bytes) -> "array[int]":
    """Count the supersets of each set in the family: counts of 32 bits, side by side in one number."""
    spread = bytearray(4 * len(family))
    spread[::4] = family
    packed = int.from_bytes(spread, "little")
    for shift, without in _halves(len(family)):
        packed += packed >> shift & without
    return array("I", packed.to_bytes(4 * len(family), "little"))


def _exactly(above: "array[int]") -> "array[int]":
    """Return the count of each set itself, given the sums over its supersets."""
    packed = int.from_bytes(above.tobytes(), "little")
    for shift, without in _halves(len(above)):
        packed -= packed >> shift & without
    return array("I", packed.to_bytes(4 * len(above), "little"))


def _halves(length: int) -> Iterator[tuple[int, int]]:
    """For each node how far apart sets with and without it are, and the counts of all sets without it."""
    step = 1
    while step < length:
        pattern = b"\xff" * (4 * step) + b"\0" * (4 * step)
        yield 32 * step, int.from_bytes(pattern * (length // (2 * step)), "little")
        step *= 2
