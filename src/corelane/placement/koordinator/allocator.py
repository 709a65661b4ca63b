"""Koordinator's CPU allocator: from a topology, the free CPUs, a number and policies to a set, bit for bit.

`cpu_accumulator.go` of its scheduler plugin NodeNUMAResource (at a7a1b76b) over bit masks, quirks included; a
`Request` may ask for what the proposal says instead, where that commit does otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from corelane.placement import balance
from corelane.placement.koordinator import cpu_picker
from corelane.placement.koordinator.cpu_picker import NOTHING_HELD, Cores, Held, Request, pick
from corelane.placement.topology import Topology, node_order
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, NUMAStrategy

__all__ = ["NOTHING_HELD", "Held", "Request"]

_MANY: Final = "not enough cpus available to satisfy request"
_REQUIRED: Final = "insufficient CPUs to satisfy required cpu bind policy "


class NotSatisfied(ValueError):  # noqa: N818 - an answer as much as an error
    """The CPUs that are available cannot serve the request; the text is upstream's.

    `lack` is what is missing: "cpus", cores as the "bind" policy requires, or "numa" resources.
    """

    def __init__(self, text: str, lack: str) -> None:
        super().__init__(text)
        self.lack = lack


def held(records: Iterable[tuple[int, int, ExclusivePolicy]], most: int = 1) -> Held:
    """Return what pods hold, of (CPU, references, exclusive policy); a CPU may have `most` references."""
    cores = nodes = 0
    references = [0] * (most - 1)
    for cpu, count, exclusive in records:
        bit = 1 << cpu
        cores |= bit if exclusive is ExclusivePolicy.PCPU_LEVEL else 0
        nodes |= bit if exclusive is ExclusivePolicy.NUMA_NODE_LEVEL else 0
        for i in range(min(count, len(references))):
            references[i] |= bit
    return Held(cores, nodes, tuple(references))


def take(
    topology: Topology,
    available: int,
    n: int,
    request: Request,
    others: Held = NOTHING_HELD,
    *,
    preferred: int = 0,
) -> int:
    """The mask of n of the `available` CPUs, the `preferred` (those of a reservation, say) before others.

    As upstream, FullPCPUs may answer with up to one core more than asked for, where an odd number comes from
    several sockets; `take_valid` does not. Raises NotSatisfied.
    """
    return _take(topology, available, n, request, others, preferred, exact=False)


def take_valid(
    topology: Topology,
    available: int,
    n: int,
    request: Request,
    others: Held = NOTHING_HELD,
    *,
    preferred: int = 0,
) -> int:
    """As `take`, but always exactly n CPUs. Raises NotSatisfied."""
    return _take(topology, available, n, request, others, preferred, exact=True)


def _take(
    topology: Topology, available: int, n: int, request: Request, others: Held, preferred: int, *, exact: bool
) -> int:
    cores = cpu_picker.of(topology)
    free = usable(topology, available, request)
    if n < 1:
        return 0
    if n > free.bit_count():
        raise NotSatisfied(_MANY, "cpus")
    if request.as_proposed:
        others, request = _fall_back(cores, free, n, request, others)
    taken, preferred_free = 0, preferred & free
    if preferred_free:
        taken = _pick(
            topology, preferred_free, min(n, preferred_free.bit_count()), request, others, exact=exact
        )
        n -= taken.bit_count()
    if n > 0:
        taken |= _pick(topology, free & ~preferred_free, n, request, others, exact=exact)
    if request.required and not _is_satisfied(cores, taken, request.bind):
        raise NotSatisfied(f"{_REQUIRED}{request.bind}", "bind")
    return taken


def usable(topology: Topology, available: int, request: Request) -> int:
    """The CPUs of the machine that a required bind policy leaves: those of full cores, or one a core."""
    free = available & topology.all
    if not request.required:
        return free
    cores = cpu_picker.of(topology)
    return cores.full_cores(free) if request.bind is BindPolicy.FULL_PCPUS else cores.one_of_each(free)


def _is_satisfied(cores: Cores, taken: int, bind: BindPolicy) -> bool:
    touched = cores.cores_of(taken)
    if bind is BindPolicy.FULL_PCPUS:
        return cores.threads_of(touched) == taken
    return touched.bit_count() == taken.bit_count()


def _fall_back(cores: Cores, free: int, n: int, request: Request, others: Held) -> tuple[Held, Request]:
    """NUMANodeLevel becomes PCPULevel where every NUMA node with n free CPUs is held by such a pod."""
    if request.exclusive is not ExclusivePolicy.NUMA_NODE_LEVEL or not others.nodes:
        return others, request
    if any((free & c.node).bit_count() >= n for c in cores.nodes if not c.node & others.nodes):
        return others, request
    held = replace(others, cores=others.cores | others.nodes, nodes=0)
    return held, replace(request, exclusive=ExclusivePolicy.PCPU_LEVEL)


def _pick(topology: Topology, free: int, n: int, request: Request, others: Held, *, exact: bool) -> int:
    if request.as_proposed and request.strategy is NUMAStrategy.DISTRIBUTE_EVENLY:
        return _evenly(topology, free, n, request, others)
    return pick(cpu_picker.of(topology), free, n, request, others, exact=exact)


def _evenly(topology: Topology, free: int, n: int, request: Request, others: Held) -> int:
    """Like shares from the fewest NUMA nodes that have them (KEP-2902), each picked as by itself."""
    cores = cpu_picker.of(topology)
    nodes = node_order(topology, free)
    whole = request.bind is BindPolicy.FULL_PCPUS and n % cores.threads == 0
    for offered in (cores.full_cores(free), free) if whole else (free,):
        counts = [(node & offered).bit_count() for node in nodes]
        if shares := _shares(counts, n, cores.threads if whole else 1):
            picks = zip(nodes, shares, strict=True)
            return sum(pick(cores, node & free, share, request, others, exact=True) for node, share in picks)
    return pick(cores, free, n, request, others, exact=True)


def _shares(free: list[int], n: int, group: int) -> list[int]:
    """Return the number of CPUs from each node, in whole groups; empty where there is no even way."""
    plan = balance.plan(free, n, group, 1, alias=False)
    if plan is None:
        return []
    shares = [plan.share if i in plan.nodes else 0 for i in range(len(free))]
    rest = n - sum(shares)
    while rest:
        bearing = [i for i in plan.bearers if free[i] - shares[i] >= group][: rest // group]
        if not bearing:
            return []
        for i in bearing:
            shares[i] += group
        rest -= group * len(bearing)
    return shares


def split(available: Mapping[int, int], requested: int, *, unit: int = 1) -> dict[int, int]:
    """Return, by NUMA node, even parts of the CPUs requested in multiples of `unit`, poorest nodes first.

    Raises NotSatisfied where the nodes do not have the CPUs in such parts.
    """
    parts, rest = {}, requested
    poorest_first = sorted(available, key=lambda node: (available[node], node))
    for visited, node in enumerate(poorest_first):
        last = visited == len(poorest_first) - 1
        even = rest if last else rest // (len(poorest_first) - visited)
        parts[node] = min(available[node], even) // unit * unit
        rest -= parts[node]
    if rest:
        raise NotSatisfied("Insufficient NUMA cpu", "numa")
    return {node: part for node, part in sorted(parts.items()) if part}


def take_on(
    topology: Topology,
    available: int,
    n: int,
    nodes: Sequence[int],
    request: Request,
    others: Held = NOTHING_HELD,
) -> int:
    """Return the mask of n CPUs, evenly from the NUMA nodes (their ids) that a hint chose.

    Raises NotSatisfied.

    As `allocateResourcesByHint` of the plugin means it: upstream looks up what a node has by its place in a
    list that is being sorted, so that a request which fits may be rejected; here nodes are visited by what
    they have.
    """
    inside = {node: topology.numa[topology.numa_ids.index(node)] & available for node in nodes}
    counts = {node: usable(topology, cpus, request).bit_count() for node, cpus in inside.items()}
    whole = request.required and request.bind is BindPolicy.FULL_PCPUS
    taken = 0
    for node, share in split(counts, n, unit=topology.cpus_per_core if whole else 1).items():
        taken |= take_valid(topology, inside[node], share, request, others)
    return taken
