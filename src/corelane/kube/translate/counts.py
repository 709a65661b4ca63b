"""A machine from a NodeResourceTopology that only counts: as many CPUs in each NUMA node as its zone says.

Such come from node-feature-discovery and resource-topology-exporter. Which ids, cores and sockets they are is
not told but assumed, so this is for looking at and for trying out requests, never for a scheduler.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube.node import NodeResourceTopology, Zone
from corelane.kube.translate.annotations import amount
from corelane.kube.translate.errors import TranslationError
from corelane.machine.model import Machine, NUMANode, from_rows
from corelane.machine.spec import MAX_CPUS

__all__ = ["NodeZone", "assumed", "machine"]

NodeZone: TypeAlias = tuple[str, int, Zone]
"""Where a NUMA node's zone stands in the object, the node's id, and the zone."""
NOTE: Final = (
    "the zones tell how many CPUs each NUMA node has, not which: assumed are ids from node to node, "
    "a core for every CPU and a socket for every node"
)


def machine(published: NodeResourceTopology, zones: Iterable[NodeZone], nodes: Iterable[NUMANode]) -> Machine:
    """The machine; `nodes` bring memory and distances. Raises TranslationError where no zone has CPUs."""
    counts = dict(count for path, numa, zone in zones for count in _counts(path, numa, zone))
    return assumed(published.metadata.name, counts, nodes)


def assumed(name: str, counts: Mapping[int, int], nodes: Iterable[NUMANode]) -> Machine:
    """A machine with so many CPUs in each NUMA node. Raises TranslationError where there are none."""
    total = sum(counts.values())
    if not 0 < total <= MAX_CPUS:
        raise TranslationError("zones", total, f"the NUMA nodes must have 1 to {MAX_CPUS} CPUs in all")
    places = [numa for numa, count in counts.items() for _ in range(count)]
    rows = ((cpu, cpu, numa, numa, numa) for cpu, numa in enumerate(places))
    found = from_rows(name, rows, source="NodeResourceTopology")
    cpus = {node.id: node.cpus for node in found.nodes}
    known = {node.id: replace(node, cpus=cpus.get(node.id, CPUSet())) for node in nodes}
    return replace(found, nodes=tuple(known[numa] for numa in sorted(known)), notes=(NOTE,))


def _counts(path: str, numa: int, zone: Zone) -> Iterator[tuple[int, int]]:
    for i, resource in enumerate(zone.resources):
        if resource.name == "cpu":
            where = f"{path}.resources[{i}].capacity"
            yield numa, amount(where, resource.capacity, quantity.milli) // 1000
