"""The hints of every provider for a request, and what the topology manager makes of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from corelane.cpuset import bits, format_list
from corelane.node import memory_manager
from corelane.node.explain.pod_explanation import HintMerge, HintSet, ProviderHints
from corelane.node.kubelet import podlevel
from corelane.node.ledger import NodeState
from corelane.node.managers import Managers, aligned
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Refusal
from corelane.workload import ContainerRequest, PodRequest

SHOWN: Final = 6
"""Sets of NUMA nodes reported of each provider."""


@dataclass(frozen=True, slots=True)
class ResourceHints:
    """The hints of one provider for an amount of one resource."""

    resource: str
    amount: int
    hints: Hints


def of_container(managers: Managers, container: ContainerRequest, cpus: ResourceHints) -> list[ResourceHints]:
    """Return the hints for one container in the kubelet's order: devices, CPUs, memory."""
    devices = managers.devices.wanted(container) if managers.devices else {}
    amounts = managers.memory_wanted(container) if managers.memory else {}
    hints = managers.memory.hints(amounts) if managers.memory else []
    return [*_devices(managers, devices), cpus, *_memory(amounts, hints)]


def of_pod(
    managers: Managers, request: PodRequest, cpus: ResourceHints, *, as_one: bool = False
) -> list[ResourceHints]:
    """Return the hints for all containers together, in pod scope, or for a pod placed as one piece."""
    devices = managers.devices.of_pod(request) if managers.devices else {}
    amounts: dict[str, int] = {}
    hints: list[Hints] = []
    if managers.memory and as_one and request.level:
        amounts, hints = memory_manager.wanted(request.level), podlevel.memory_hints(managers.memory, request)
    elif managers.memory and not as_one:
        amounts = memory_manager.of_pod(request)
        hints = managers.memory.hints(amounts)
    return [*_devices(managers, devices), cpus, *_memory(amounts, hints)]


def _devices(managers: Managers, counts: dict[str, int]) -> Iterator[ResourceHints]:
    for name, n in counts.items():
        if managers.devices:
            yield ResourceHints(name, n, managers.devices.hint(name, n))


def _memory(amounts: dict[str, int], hints: list[Hints]) -> Iterator[ResourceHints]:
    for i, (name, size) in enumerate(amounts.items()):
        yield ResourceHints(name, size, hints[min(i, len(hints) - 1)])


def merge(state: NodeState, hints: Iterable[ResourceHints]) -> HintMerge:
    """Return all hints, the best first, and the result of the topology manager."""
    hints = list(hints)
    try:
        affinity = aligned(state, [one.hints for one in hints])
    except Refusal:
        affinity = NUMAAffinity(None, False, False)
    return HintMerge(
        tuple(_reported(state, one) for one in hints),
        format_list(affinity.nodes or 0),
        affinity.preferred,
        affinity.admit,
    )


def _reported(state: NodeState, of: ResourceHints) -> ProviderHints:
    if of.hints is None:
        return ProviderHints(of.resource, of.amount, word="no preference")
    sets = list(_sets(state, of.hints)) if isinstance(of.hints, Family) else []
    if not sets:
        return ProviderHints(of.resource, of.amount, word="impossible")
    return ProviderHints(of.resource, of.amount, tuple(sets[:SHOWN]), len(sets))


def _sets(state: NodeState, family: Family) -> Iterator[HintSet]:
    """Yield the sets of NUMA nodes, preferred ones first, then by size."""
    ids = list(bits(state.numa_nodes))
    sets = [one for one in families.members(family.sets) if one and one < 1 << family.count]
    for one in sorted(sets, key=lambda one: (not family.preferred[one], one.bit_count(), one)):
        nodes = sum(1 << ids[i] for i in bits(one))
        yield HintSet(format_list(nodes), bool(family.preferred[one]))
