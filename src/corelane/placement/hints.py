"""NUMA hints for CPUs and devices, as the kubelet gives them to its topology manager.

A hint is a set of NUMA nodes (a mask of node ids) that could hold a request; it is preferred when no smaller
set could even on the idle machine. Upstream (v1.36): `generateCPUTopologyHints` in `policy_static.go` of the
CPU manager, and `topology_hints.go` of the device manager. A device is the mask of the ids of the NUMA nodes
that it is near to, 0 where nothing is known.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

from corelane.cpuset import bits
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.topology import Topology

Distances: TypeAlias = Mapping[int, Mapping[int, int]]
"""NUMA node id to node id to distance (10 is local)."""


class Hint(NamedTuple):
    """`nodes` is a mask of NUMA node ids, or None for any."""

    nodes: int | None
    preferred: bool


def cpu_hints(
    topology: Topology, available: int, reusable: int, n: int, *, by_socket: bool = False
) -> list[Hint]:
    """Every hint for n CPUs out of these, smallest sets first; there may be 2 ** nodes.

    `reusable` CPUs (of the pod's init containers) must lie inside. `by_socket` is align-by-socket: sets that
    touch no more sockets than needed are preferred too.
    """
    counts, required = _counts(topology, available | reusable), topology.nodes_of(reusable)
    is_preferred = _preference(topology, n, by_socket)
    return [
        Hint(_ids(topology, nodes), is_preferred(nodes))
        for size in range(1, len(counts) + 1)
        for nodes in _sets(counts, n, required, size)
    ]


def cpu_family(
    topology: Topology, available: int, reusable: int, n: int, nodes: int, *, by_socket: bool = False
) -> Family:
    """`cpu_hints` as a family over the `nodes` (a mask of ids) of the machine, some of which may have no CPU.

    Raises TooManyNodes beyond 16 nodes.
    """
    ids = list(bits(nodes))
    cpus = dict(zip(topology.numa_ids, topology.numa, strict=True))
    count = len(ids)
    sets = families.covering([(cpus.get(i, 0) & (available | reusable)).bit_count() for i in ids], n)
    for position, node in enumerate(ids):
        without, having = families.without_and_with(count, position)
        if node not in cpus:
            sets = families.both(sets, without)
        elif cpus[node] & reusable:
            sets = families.both(sets, having)
    family = families.preferring(count, sets, _fewest_idle(topology, n))
    if not by_socket:
        return family
    return replace(family, preferred=bytes(_by_socket(topology, family, ids, n)))


def _by_socket(topology: Topology, family: Family, ids: Sequence[int], n: int) -> bytearray:
    preferred, is_preferred = bytearray(family.preferred), _preference(topology, n, True)
    at = {ids.index(node): 1 << i for i, node in enumerate(topology.numa_ids)}
    for member in families.members(family.sets):
        preferred[member] = is_preferred(sum(at[i] for i in bits(member)))
    return preferred


def best_cpu_hint(
    topology: Topology,
    available: int,
    reusable: int,
    n: int,
    *,
    by_socket: bool = False,
    distances: Distances | None = None,
) -> Hint:
    """Return the merge of `cpu_hints` alone, without listing them; nodes are None when there is none.

    The narrowest preferred set, else the narrowest; of equals the closest if `distances` are given
    (prefer-closest-numa-nodes), then the one with the lowest mask.
    """
    counts, required = _counts(topology, available | reusable), topology.nodes_of(reusable)
    nodes = fewest_nodes(counts, n, required)
    if nodes is None:
        return Hint(None, False)
    size = nodes.bit_count()
    preferred = size == _fewest_idle(topology, n)
    if by_socket and not preferred:
        is_preferred = _preference(topology, n, by_socket)
        for larger in range(size, len(counts) + 1):
            if found := [other for other in _sets(counts, n, required, larger) if is_preferred(other)]:
                return Hint(_ids(topology, _closest(topology, found, distances)), True)
    if distances is not None and size > 1:
        nodes = _closest(topology, _sets(counts, n, required, size), distances)
    return Hint(_ids(topology, nodes), preferred)


def distance(nodes: int, distances: Distances) -> float:
    """The mean distance between the nodes of a mask of ids, each to itself included."""
    ids = [i for i in range(nodes.bit_length()) if nodes >> i & 1]
    return sum(distances[a][b] for a in ids for b in ids) / len(ids) ** 2


def _closest(topology: Topology, sets: Iterable[int], distances: Distances | None) -> int:
    if distances is None:
        return min(sets)
    return min(sets, key=lambda nodes: (distance(_ids(topology, nodes), distances), nodes))


def _counts(topology: Topology, cpus: int) -> list[int]:
    return [(node & cpus).bit_count() for node in topology.numa]


def _ids(topology: Topology, nodes: int) -> int:
    """A mask of positions as a mask of NUMA node ids."""
    return sum(1 << node for i, node in enumerate(topology.numa_ids) if nodes >> i & 1)


def _sets(counts: Sequence[int], n: int, required: int, size: int) -> Iterator[int]:
    """Masks of the sets of this size that hold n and everything required, in lexicographic order."""
    for chosen in combinations(range(len(counts)), size):
        nodes = sum(1 << i for i in chosen)
        if not required & ~nodes and sum(counts[i] for i in chosen) >= n:
            yield nodes


def _fewest_idle(topology: Topology, n: int) -> int:
    """Return the number of nodes that suffice if every CPU is free, reserved ones included."""
    missing = n
    for taken, size in enumerate(topology.numa_sizes, start=1):
        missing -= size
        if missing <= 0:
            return taken
    return len(topology.numa)


def _preference(topology: Topology, n: int, by_socket: bool) -> Callable[[int], bool]:
    fewest = _fewest_idle(topology, n)
    nodes_per_socket = topology.counters.numa // topology.counters.sockets if topology.counters.sockets else 0
    if not by_socket or not nodes_per_socket:
        return lambda nodes: nodes.bit_count() == fewest
    sockets = -(-fewest // nodes_per_socket)
    return lambda nodes: nodes.bit_count() == fewest or _sockets(topology, nodes) == sockets


def _sockets(topology: Topology, nodes: int) -> int:
    """Return the number of sockets that these nodes touch."""
    cpus = sum(mask for i, mask in enumerate(topology.numa) if nodes >> i & 1)
    return sum(1 for socket in topology.sockets if socket & cpus)


def fewest_nodes(free: Sequence[int], need: int, required: int = 0) -> int | None:
    """The smallest set of nodes whose free CPUs make up `need`, as a mask of positions; None if all do not.

    `free` has the count of each node; nodes in the mask `required` must be in the set. Among sets of the same
    size the one with the smallest mask wins: what upstream's best-effort merge of CPU hints comes to
    (`pkg/kubelet/cm/topologymanager/policy.go`), found without listing all combinations.
    """
    if not required:
        for node, count in enumerate(free):
            if count >= need:
                return 1 << node
    if sum(free) < need:
        return None
    return _without_the_highest(free, need, required)


def _without_the_highest(free: Sequence[int], need: int, required: int) -> int:
    """Drop nodes from the highest down, as long as a set of the smallest possible size remains."""
    nodes = list(range(len(free)))
    size = _fewest(free, nodes, need, required)
    for node in reversed(range(len(free))):
        if required >> node & 1:
            continue
        rest = [other for other in nodes if other != node]
        if _fewest(free, rest, need, required) == size:
            nodes = rest
    return sum(1 << node for node in nodes)


def _fewest(free: Sequence[int], nodes: Sequence[int], need: int, required: int) -> int | None:
    """Return how many of `nodes` suffice, required ones included; None if they do not."""
    missing = need - sum(free[node] for node in nodes if required >> node & 1)
    size = required.bit_count()
    for count in sorted((free[node] for node in nodes if not required >> node & 1), reverse=True):
        if missing <= 0:
            break
        missing -= count
        size += 1
    return size if missing <= 0 else None


def device_hints(
    devices: Sequence[int],
    free: Sequence[int],
    n: int,
    nodes: int,
    *,
    reusable: Sequence[int] = (),
    narrow: bool = False,
) -> Family | None:
    """The sets of nodes to which n of the `free` devices are near; preferred are the smallest of all.

    `devices` are all of the resource, used or not: by them the smallest possible size is judged. `nodes` is
    the mask of all ids of the machine. `reusable` devices, of the pod's init containers, must be near too.
    With `narrow`, as from 1.37 (kubernetes#138244), sets have no node but those that some device is near.
    None, no preference, when nothing is known of any device; an empty family when there are too few. Raises
    TooManyNodes beyond 16 nodes.
    """
    if not any(device & nodes for device in devices):
        return None
    ids = list(bits(nodes))
    count = len(ids)
    if len(free) + len(reusable) < n:
        return families.preferring(count, bytes(1 << count), count)
    placed = [device for device in reusable if device]
    sets = _near(ids, free, n - len(placed))
    for device in placed:
        sets = families.both(sets, families.touching(count, families.positions(ids, device)))
    if narrow:
        sets = families.both(sets, *_without_deviceless(ids, devices))
    possible = b"\0" + _near(ids, devices, n)[1:]
    return families.preferring(count, b"\0" + sets[1:], families.smallest(count, possible))


def _without_deviceless(ids: Sequence[int], devices: Sequence[int]) -> list[bytes]:
    """For each node that no device is near, the family of all sets without it."""
    near = 0
    for device in devices:
        near |= device
    return [
        families.without_and_with(len(ids), position)[0]
        for position, node in enumerate(ids)
        if not near >> node & 1
    ]


def _near(ids: Sequence[int], devices: Sequence[int], n: int) -> bytes:
    """The sets of nodes to which at least n of the devices are near."""
    at = Counter(families.positions(ids, device) for device in devices)
    single = [at.pop(1 << i, 0) for i in range(len(ids))]
    at.pop(0, None)
    if not at:
        return families.covering(single, n)
    near = families.sums(single)
    for places, many in at.items():
        near = [total + many if i & places else total for i, total in enumerate(near)]
    return bytes(map(n.__le__, near))
