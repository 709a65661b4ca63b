"""Least needs of a pod on a node, and on one of its NUMA nodes: necessary conditions.

A pod that the node admits finds all of this, whatever else runs there. Each policy says it beside the rules
that it approximates (`zone_needs_of`). What is not certain is left out: what init containers leave to others,
sets of several NUMA nodes, preferences. The scheduler compares these amounts with what every node has left
before it asks a ledger.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane.node import managers, memory_manager
from corelane.workload import BindPolicy, TopologyLevel
from corelane.workload.request import Amounts, ContainerKind, ContainerRequest, PodRequest, peak

FREE: Final = "CPUs"
"""CPUs that may become exclusive."""
WHOLE: Final = "CPUs of whole cores"
"""Of these, the ones on cores of which every CPU is free."""
CORES: Final = "cores"
"""Cores with a CPU that may become exclusive."""
L3: Final = "CPUs of whole L3 domains"
"""CPUs that may become exclusive in L3 domains where no pod has any."""


@dataclass(frozen=True, slots=True)
class ZoneNeeds:
    """Amounts by the names above, or of the resource."""

    node: Amounts = field(default_factory=dict)
    """Of the node as a whole."""
    zones: tuple[Amounts, ...] = ()
    """Each of these of some NUMA node, which may be the same for several."""


def memory_and_devices(container: ContainerRequest, more: managers.Managers | None) -> Amounts:
    """The memory and devices of a container."""
    amounts = dict(more.memory_wanted(container)) if more and more.memory else {}
    return amounts | (more.devices.wanted(container) if more and more.devices else {})


def cpus_by_layout(n: int, required: BindPolicy | None, request: PodRequest) -> dict[str, int]:
    """CPUs by how they must lie."""
    amounts = {FREE: n}
    if required is BindPolicy.FULL_PCPUS:
        amounts[WHOLE] = n
    elif required is BindPolicy.SPREAD_BY_PCPUS:
        amounts[CORES] = n
    exclusive = request.placement_spec.exclusive
    if exclusive is not None and exclusive.required and exclusive.level is TopologyLevel.L3:
        amounts[L3] = n
    return amounts


def totals(request: PodRequest, more: managers.Managers) -> Amounts:
    """Memory and devices of all containers."""
    return peaks([(container.kind, memory_and_devices(container, more)) for container in request.containers])


def aligned_resources(request: PodRequest, more: managers.Managers) -> Amounts:
    """Memory and devices that are aligned."""
    amounts = memory_manager.of_pod(request) if more.memory else {}
    return amounts | (more.devices.of_pod(request) if more.devices else {})


def peaks(each: Iterable[tuple[ContainerKind, Amounts]]) -> dict[str, int]:
    each = list(each)
    names = dict.fromkeys(name for _, amounts in each for name in amounts)
    return {name: peak((kind, amounts.get(name, 0)) for kind, amounts in each) for name in names}


def simplified(zones: Iterable[Amounts]) -> tuple[list[Amounts], int]:
    """Return the needs of NUMA nodes that no other one includes, and the CPUs of those that name no more."""
    parts = [{name: n for name, n in part.items() if n > 0} for part in zones]
    alone = max((part[FREE] for part in parts if part.keys() == {FREE}), default=0)
    several = [part for part in parts if part.keys() - {FREE}]
    return [part for i, part in enumerate(several) if not _included(part, i, several)], alone


def _included(part: Mapping[str, int], place: int, parts: list[dict[str, int]]) -> bool:
    """Whether another part needs all that this one needs; of equal ones the first stays."""
    return any(
        i != place
        and all(other.get(name, 0) >= n for name, n in part.items())
        and (i < place or dict(other) != dict(part))
        for i, other in enumerate(parts)
    )
