"""The zones of koordlet's NodeResourceTopology as Koordinator's scheduler reads them: what may be allocated.

`topology_options.go` and `amplifyNUMANodeResources` of its plugin NodeNUMAResource: allocatable, less a whole
CPU for each CPU that is reserved, then amplified by the Node's ratios unless the object has its own.
"""

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from corelane import quantity
from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology, TopologyZone
from corelane.kube.translate import node_labels
from corelane.kube.translate.fields import TranslationError
from corelane.node.amplification import amplify
from corelane.node.koordinator_options import KoordinatorOptions
from corelane.node.ledger import NodeState
from corelane.quantity import QuantityError
from corelane.workload import Amounts

_NODE: Final = "Node"
_PREFIX: Final = "node-"
_ONCE: Final = Fraction(1)


def options(
    published: NodeResourceTopology, state: NodeState, ratios: Mapping[str, Fraction], allocatable: int
) -> KoordinatorOptions:
    """Return what the zones of the object offer on a node in this state, without pods that are recorded.

    `ratios` are those of the Node, `allocatable` its milliCPU. Raises TranslationError.
    """
    own = published.metadata.annotations.get(keys.AMPLIFICATION)
    if own is not None:
        read = node_labels.node_labels({}, {keys.AMPLIFICATION: own})
        if read.faults:
            raise read.faults[0]
        ratios, amplified = read.amplification, {}
    else:
        amplified = dict(ratios)
    taken = state.topology.all & ~state.free_exclusive.mask
    zones = {}
    for index, zone in enumerate(published.zones):
        number = zone.name.removeprefix(_PREFIX)
        if zone.type == _NODE and number != zone.name and number.isascii() and number.isdecimal():
            amounts = _allocatable(f"zones[{index}]", zone)
            if amounts.get("cpu"):
                amounts["cpu"] -= 1000 * (taken & _cpus_of(state, int(number))).bit_count()
            zones[int(number)] = _amplified(amounts, amplified)
    in_order = MappingProxyType({node: zones[node] for node in sorted(zones)})
    return KoordinatorOptions(in_order, ratios.get("cpu", _ONCE), allocatable)


def _allocatable(path: str, zone: TopologyZone) -> dict[str, int]:
    amounts = {}
    for index, resource in enumerate(zone.resources):
        where = f"{path}.resources[{index}].allocatable"
        try:
            read = quantity.milli if resource.name == "cpu" else quantity.value
            amounts[resource.name] = read(str(resource.allocatable))
        except QuantityError as error:
            raise TranslationError(where, resource.allocatable, str(error)) from error
    return amounts


def _cpus_of(state: NodeState, node: int) -> int:
    topology = state.topology
    return topology.numa[topology.numa_ids.index(node)] if node in topology.numa_ids else 0


def _amplified(amounts: Mapping[str, int], ratios: Mapping[str, Fraction]) -> Amounts:
    """Upstream amplifies CPU, memory and ephemeral storage."""
    return MappingProxyType(
        {
            name: amplify(amount, ratios[name]) if name in ratios and name in _AMPLIFIED else amount
            for name, amount in amounts.items()
        }
    )


_AMPLIFIED: Final = ("cpu", "memory", "ephemeral-storage")
