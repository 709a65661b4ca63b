"""The device manager, and all managers of one admission: which a pod needs, and how their hints agree.

Hints are merged and resources allocated in the kubelet's order: devices, CPUs, memory. Upstream:
`pkg/kubelet/cm/devicemanager` (v1.36). Where upstream takes any device, here the first in the inventory's
order are taken; preferences of a device plugin are not asked for.
"""

from collections.abc import Iterable, Mapping

from corelane.machine.model import default_distances
from corelane.node import memory_manager
from corelane.node.config import Inventory
from corelane.node.entries import Entry
from corelane.node.ledger import NodeState
from corelane.placement import hints, topologymanager
from corelane.placement.hints import device_hints
from corelane.placement.memory_blocks import Nodes
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code, Refusal
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass, peak


def held(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """The devices of each resource that some container has."""
    ids_by_name: dict[str, set[str]] = {}
    for entry in entries:
        for resource, ids in entry.devices.items():
            ids_by_name.setdefault(resource, set()).update(ids)
    return ids_by_name


class DeviceManager:
    """The device manager during the admission of one pod: free, reusable and allocated devices."""

    __slots__ = ("given", "inventory", "narrow", "nodes", "reusable", "used")

    def __init__(
        self, inventory: Inventory, entries: Iterable[Entry], nodes: int, *, narrow: bool = False
    ) -> None:
        self.inventory, self.nodes, self.narrow = inventory, nodes, narrow
        self.used = held(entries)
        self.reusable: dict[str, set[str]] = {}
        """Devices of init containers, which later ones take over."""
        self.given: dict[str, dict[str, tuple[str, ...]]] = {}
        """Container name to resource to devices."""

    def wanted(self, container: ContainerRequest) -> dict[str, int]:
        """Return a container's request, as far as this node knows the resource."""
        return {name: n for name, n in container.devices.items() if name in self.inventory}

    def of_pod(self, request: PodRequest) -> dict[str, int]:
        """The devices that the whole pod needs at once."""
        each = [(container.kind, self.wanted(container)) for container in request.containers]
        names = {name for _, of in each for name in of}
        return {name: peak((kind, of.get(name, 0)) for kind, of in each) for name in sorted(names)}

    def hints(self, amounts: Mapping[str, int]) -> list[Hints]:
        """One for each resource."""
        return [self.hint(name, n) for name, n in amounts.items()]

    def hint(self, name: str, n: int) -> Hints:
        all_, ids = self.inventory[name], self.reusable.get(name, set())
        free = [all_[device] for device in self.free(name)]
        reusable = [all_[device] for device in sorted(ids)]
        return device_hints(list(all_.values()), free, n, self.nodes, reusable=reusable, narrow=self.narrow)

    def free(self, name: str) -> list[str]:
        used = self.used.get(name, set())
        return [device for device in self.inventory[name] if device not in used]

    def allocate(
        self, container: ContainerRequest, amounts: Mapping[str, int], affinity: NUMAAffinity
    ) -> None:
        """Allocate the requested devices to a container, near the affinity's nodes first. Raises Refusal."""
        given = {name: self.picked(name, n, affinity.nodes) for name, n in amounts.items()}
        self.given[container.name] = {name: ids for name, ids in given.items() if ids}
        for name, ids in given.items():
            self.used.setdefault(name, set()).update(ids)
            reusable = self.reusable.setdefault(name, set())
            if container.kind is ContainerKind.INIT:
                reusable.update(ids)
            else:
                reusable.difference_update(ids)

    def picked(self, name: str, n: int, nodes: int | None) -> tuple[str, ...]:
        all_ = self.inventory[name]
        if not all_:
            raise Refusal(Code.DEVICES_UNHEALTHY, name)
        reusable = self.reusable.get(name, set())
        taken = [device for device in all_ if device in reusable][:n]
        free, missing = self.free(name), n - len(taken)
        if len(free) < missing:
            raise Refusal(Code.DEVICES_UNAVAILABLE, name, missing, len(free))
        if nodes is not None:
            free.sort(key=lambda device: _distance(all_[device], nodes))
        return tuple(taken + free[:missing])


def _distance(near: int, nodes: int) -> int:
    """First what is near the nodes, then what is near others, last what is known to be near none."""
    if near & nodes:
        return 0
    return 1 if near else 2


class Managers:
    """Either manager is None where it has nothing to say of the pod."""

    __slots__ = ("devices", "memory", "request", "state")

    def __init__(
        self,
        state: NodeState,
        request: PodRequest,
        memory_of: memory_manager.MemoryManager | None,
        devices_of: DeviceManager | None,
    ) -> None:
        self.state, self.request = state, request
        self.memory, self.devices = memory_of, devices_of

    def affinity(self, container: ContainerRequest, cpus: Hints) -> NUMAAffinity:
        """The NUMA nodes for one container. Raises Refusal."""
        devices_ = self.devices.hints(self.devices.wanted(container)) if self.devices else []
        memory_ = self.memory.hints(self.memory_wanted(container)) if self.memory else []
        return aligned(self.state, [*devices_, cpus, *memory_])

    def pod_affinity(self, cpus: Hints) -> NUMAAffinity:
        """The NUMA nodes for all containers, under pod scope. Raises Refusal."""
        return self.aligned_pod(
            cpus, self.memory.hints(memory_manager.of_pod(self.request)) if self.memory else []
        )

    def aligned_pod(self, cpus: Hints, memory_: list[Hints]) -> NUMAAffinity:
        """Return the NUMA nodes for a pod, from its hints for CPUs and memory. Raises Refusal."""
        devices_ = self.devices.hints(self.devices.of_pod(self.request)) if self.devices else []
        return aligned(self.state, [*devices_, cpus, *memory_])

    def memory_wanted(self, container: ContainerRequest) -> dict[str, int]:
        """Return what a container has for itself: of a pod with resources as a whole, if guaranteed."""
        if self.request.level is not None and not container.guaranteed:
            return {}
        return memory_manager.wanted(container)

    def allocate_devices(self, container: ContainerRequest, affinity: NUMAAffinity) -> None:
        """Raises Refusal."""
        if self.devices and (amounts := self.devices.wanted(container)):
            self.devices.allocate(container, amounts, affinity)

    def allocate_memory(self, container: ContainerRequest, affinity: NUMAAffinity) -> None:
        """Raises Refusal; as upstream even for a container that requests none, where all must be exact."""
        if self.memory is None:
            return
        amounts = self.memory_wanted(container)
        if amounts or self.state.config.exact:
            self.memory.allocate(container, amounts, affinity)

    def memory_refused(self) -> Nodes | None:
        """The memory of the node once what was handed out came back: within groups it may lie elsewhere."""
        if self.memory is None:
            return None
        parts = [block for of in self.memory.blocks.values() for block in of]
        blocks = self.memory.whole or parts
        return memory_manager.returned(self.memory.nodes, blocks)


def needed(state: NodeState, request: PodRequest) -> Managers | None:
    """The managers that have a say in this admission; None where there are none."""
    inventory = state.config.devices
    keeps_memory = bool(state.memory) and _keeps_memory(state, request)
    hands_out = bool(inventory) and any(
        name in inventory for container in request.containers for name in container.devices
    )
    if not keeps_memory and not hands_out:
        return None
    return Managers(
        state,
        request,
        memory_manager.MemoryManager(state.memory) if keeps_memory else None,
        _devices(state) if hands_out else None,
    )


def _keeps_memory(state: NodeState, request: PodRequest) -> bool:
    return request.qos is QOSClass.GUARANTEED and (request.level is None or state.config.pod_level)


def _devices(state: NodeState) -> DeviceManager:
    narrow = state.config.options.version != "1.36"
    return DeviceManager(state.config.devices, state.entries.values(), state.numa_nodes, narrow=narrow)


def aligned(state: NodeState, said: Iterable[Hints]) -> NUMAAffinity:
    """The NUMA nodes on which several providers agree. Raises Refusal when the policy does not admit."""
    options = state.config.numa
    if options.policy == "none":
        return NUMAAffinity(None, False, True)
    nodes = distances(state) if options.prefer_closest_numa_nodes else None
    merged = topologymanager.merge(said, state.numa_nodes, options.policy, distances=nodes)
    if not merged.admit:
        raise Refusal(Code.NOT_ALIGNED)
    return merged


def distances(state: NodeState) -> hints.Distances:
    """The machine's, completed by what Linux assumes where firmware says nothing."""
    nodes = state.machine.nodes
    usual = {node.id: default_distances(node.id, (other.id for other in nodes)) for node in nodes}
    return {node.id: usual[node.id] | dict(node.distances) for node in nodes}
