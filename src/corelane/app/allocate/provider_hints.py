"""What every hint provider says of a request, and what the topology manager makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from corelane.cpuset import bits, format_list
from corelane.node import NodeState, memory
from corelane.node.kubelet import podlevel, static
from corelane.node.kubelet.static import Refusal
from corelane.node.managers import Managers
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.view.allocate import HintSet, Merge, ProviderHints
from corelane.workload import ContainerRequest, PodRequest

__all__ = ["Provided", "merge", "of_container", "of_pod", "of_whole_pod"]

SHOWN: Final = 6
"""How many sets of NUMA nodes are shown of each provider."""


@dataclass(frozen=True, slots=True)
class Provided:
    """What one provider says of so much of one resource."""

    resource: str
    wanted: int
    hints: Hints


def of_container(managers: Managers, container: ContainerRequest, cpus: Provided) -> list[Provided]:
    """In the kubelet's order: devices, CPUs, memory."""
    devices = managers.devices.wanted(container) if managers.devices else {}
    wanted = managers.memory_wanted(container) if managers.memory else {}
    said = managers.memory.hints(wanted) if managers.memory else []
    return [*_devices(managers, devices), cpus, *_memory(wanted, said)]


def of_pod(managers: Managers, request: PodRequest, cpus: Provided) -> list[Provided]:
    """Of all containers together, under pod scope."""
    devices = managers.devices.of_pod(request) if managers.devices else {}
    wanted = memory.of_pod(request) if managers.memory else {}
    said = managers.memory.hints(wanted) if managers.memory else []
    return [*_devices(managers, devices), cpus, *_memory(wanted, said)]


def of_whole_pod(managers: Managers, request: PodRequest, cpus: Provided) -> list[Provided]:
    """Of a pod that is placed as one piece."""
    devices = managers.devices.of_pod(request) if managers.devices else {}
    wanted = memory.wanted(request.level) if managers.memory and request.level else {}
    said = podlevel.memory_hints(managers.memory, request) if managers.memory else []
    return [*_devices(managers, devices), cpus, *_memory(wanted, said)]


def _devices(managers: Managers, wanted: dict[str, int]) -> Iterator[Provided]:
    for name, n in wanted.items():
        if managers.devices:
            yield Provided(name, n, managers.devices.hint(name, n))


def _memory(wanted: dict[str, int], said: Iterable[Hints]) -> Iterator[Provided]:
    said = list(said)
    for i, (name, size) in enumerate(wanted.items()):
        yield Provided(name, size, said[min(i, len(said) - 1)])


def merge(state: NodeState, said: Iterable[Provided]) -> Merge:
    """All hints, the best first, and the winner."""
    said = list(said)
    try:
        affinity = static.aligned(state, [one.hints for one in said])
    except Refusal:
        affinity = NUMAAffinity(None, False, False)
    return Merge(
        tuple(_shown(state, one) for one in said),
        format_list(affinity.nodes or 0),
        affinity.preferred,
        affinity.admit,
    )


def _shown(state: NodeState, said: Provided) -> ProviderHints:
    found = said.hints
    if found is None:
        return ProviderHints(said.resource, said.wanted, word="does not care")
    sets = list(_sets(state, found)) if isinstance(found, Family) else []
    if not sets:
        return ProviderHints(said.resource, said.wanted, word="impossible")
    return ProviderHints(said.resource, said.wanted, tuple(sets[:SHOWN]), len(sets))


def _sets(state: NodeState, family: Family) -> Iterator[HintSet]:
    """Preferred ones first, then the narrow ones."""
    ids = list(bits(state.numa_nodes))
    found = [one for one in families.members(family.sets) if one and one < 1 << family.count]
    for one in sorted(found, key=lambda one: (not family.preferred[one], one.bit_count(), one)):
        nodes = sum(1 << ids[i] for i in bits(one))
        yield HintSet(format_list(nodes), bool(family.preferred[one]))
