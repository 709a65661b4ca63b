"""The topology manager: merges the hints of all providers into one set of NUMA nodes, and judges it.

Upstream: `pkg/kubelet/cm/topologymanager/policy*.go` (v1.36). Upstream folds over the cross product of all
hints; the order in which it compares is a total one, so the least of the distinct results is the same.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from corelane.cpuset import bits
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.hints import Distances, Hint

DEFAULT_MAX_NUMA_NODES: Final = 8

Policy: TypeAlias = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope: TypeAlias = Literal["container", "pod"]
Hints: TypeAlias = Sequence[Hint] | Family | None
"""A provider's hints for one resource: None is no preference, an empty list means that it is impossible."""


class NUMAAffinity(NamedTuple):
    """The merged hint, and whether the policy admits on it. `nodes` None leaves every node open."""

    nodes: int | None
    preferred: bool
    admit: bool


def merge(
    providers: Iterable[Hints], nodes: int, policy: Policy, *, distances: Distances | None = None
) -> NUMAAffinity:
    """Return the affinity that a policy makes of the hints of all resources on these NUMA nodes.

    `nodes` is the mask of all node ids, CPU-less ones included; a `Family` is over these in ascending order.
    `distances` is prefer-closest-numa-nodes. Raises TooManyNodes beyond 16 nodes, and ValueError for a hint
    that names other nodes.
    """
    if policy == "none":
        return NUMAAffinity(None, True, True)
    provided = [_family(hints, nodes) for hints in providers]
    if policy == "single-numa-node":
        provided = [_single(provider) for provider in provided]
        distances = None
    return judge(_best(provided, nodes, distances), nodes, policy)


def judge(best: Hint, nodes: int, policy: Policy) -> NUMAAffinity:
    """Return the affinity that a policy makes of the best hint."""
    chosen = nodes if best.nodes is None else best.nodes
    if policy == "single-numa-node" and chosen == nodes:
        return NUMAAffinity(None, best.preferred, best.preferred)
    return NUMAAffinity(chosen, best.preferred, best.preferred or policy == "best-effort")


def is_single(hint: Hint) -> bool:
    """Whether single-numa-node takes the hint into account."""
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def family(hints: Sequence[Hint] | None, nodes: int) -> Family:
    """A list of hints as a family. Raises TooManyNodes, and ValueError for a hint that names other nodes."""
    if hints is None:
        hints = [Hint(None, True)]
    ids = list(bits(nodes))
    position = {1 << node: 1 << i for i, node in enumerate(ids)}
    sets, preferred = bytearray(len(families.sizes(len(ids)))), bytearray(1 << len(ids))
    for hint in hints or [Hint(None, False)]:
        if hint.nodes is not None and hint.nodes & ~nodes:
            raise ValueError(f"a hint for NUMA nodes {hint.nodes:#x}, but the machine has {nodes:#x}")
        one = -1 if hint.nodes is None else sum(position[1 << node] for node in bits(hint.nodes))
        sets[one] = 1
        if hint.preferred and hint.nodes is not None:
            preferred[one] = 1
    anywhere = any(hint.nodes is None and hint.preferred for hint in hints)
    narrowest = min((hint.nodes.bit_count() for hint in hints if hint.nodes is not None), default=0)
    return Family(len(ids), bytes(sets), bytes(preferred), anywhere, narrowest)


def _family(hints: Hints, nodes: int) -> Family:
    """As a family, in which no hint at all is one for any nodes that is not preferred."""
    if isinstance(hints, Family):
        return hints if 1 in hints.sets else family([], nodes)
    return family(hints, nodes)


def _single(provided: Family) -> Family:
    """Only preferred hints for one node, or for any."""
    preferred = families.both(provided.preferred, families.of_size(provided.count, 1))
    sets = bytearray(preferred)
    if provided.anywhere:
        sets[-1] = 1
    return Family(provided.count, bytes(sets), preferred, provided.anywhere, int(1 in preferred))


def _best(provided: Sequence[Family], nodes: int, distances: Distances | None) -> Hint:
    if not all(1 in provider.sets for provider in provided):
        return Hint(None, False)
    ids = list(bits(nodes))
    order = _Order(ids, distances)
    chosen = order.first(_agreed(provided, len(ids)), range(1, len(ids) + 1))
    preferred = chosen is not None
    if chosen is None:
        chosen = order.first_overlap(provided, max(provider.narrowest for provider in provided))
    if chosen is None:
        return Hint(None, False)
    return Hint(sum(1 << ids[i] for i in bits(chosen)), preferred)


def _agreed(provided: Sequence[Family], count: int) -> bytes:
    """The sets on which all providers agree as preferred: the very same one, wherever they care."""
    if caring := [provider.preferred for provider in provided if not provider.anywhere]:
        return families.both(*caring)
    agreed = bytearray(families.either(bytes(1 << count), *(provider.preferred for provider in provided)))
    agreed[-1] = 1
    return bytes(agreed)


class _Order:
    """Which of two sets is better: with fewer nodes, then closer ones if distances count, then the lowest."""

    __slots__ = ("apart", "count")

    def __init__(self, ids: Sequence[int], distances: Distances | None) -> None:
        self.count = len(ids)
        self.apart: Sequence[int] | None = None
        if distances is not None:
            self.apart = families.pair_sums(tuple(tuple(distances[a][b] for b in ids) for a in ids))
            """Of sets of one size, the nearest have the lowest sum of distances."""

    def first(self, sets: bytes, sizes: Iterable[int]) -> int | None:
        """The best of these sets, by these sizes in turn; None when there is none of such size."""
        for size in sizes:
            found = families.both(sets, families.of_size(self.count, size))
            if 1 in found:
                apart = self.apart
                if apart is None or size < 2:
                    return found.find(1)
                return min(families.members(found), key=lambda one: (apart[one], one))
        return None

    def first_overlap(self, provided: Sequence[Family], size: int) -> int | None:
        """The best overlap: of the size size, else the largest that is smaller, else the smallest."""
        limiting = [provider.sets for provider in provided if provider.sets.find(1) != len(provider.sets) - 1]
        if not limiting:
            return len(families.sizes(self.count)) - 1
        obvious = self.first(_obvious(limiting), [size])
        if obvious is not None and obvious == self.first(_possible(limiting, self.count), [size]):
            return obvious
        downwards, upwards = range(size, 0, -1), range(size + 1, self.count + 1)
        return self.first(families.overlaps(limiting), [*downwards, *upwards])


def _obvious(provided: Sequence[bytes]) -> bytes:
    """Hints of one provider where all others would take any nodes: each is an overlap."""
    picky = [sets for sets in provided if not sets[-1]]
    if len(picky) > 1:
        return bytes(len(provided[0]))
    return picky[0] if picky else families.either(*provided)


def _possible(provided: Sequence[bytes], count: int) -> bytes:
    """All sets but those that lack a node which every hint of every provider has."""
    possible = b"\1" * (1 << count)
    for node in range(count):
        without, having = families.without_and_with(count, node)
        if all(1 not in families.both(sets, without) for sets in provided):
            possible = families.both(possible, having)
    return possible
