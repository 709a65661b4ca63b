"""The memory and device managers during the admission of one pod, where it needs them, and all hints merged.

The CPU manager is `static`. Providers speak and allocate in the kubelet's order: devices, CPUs, memory.
"""

from corelane.node import devices, memory
from corelane.node.kubelet import podlevel, static
from corelane.node.ledger import NodeState
from corelane.placement.memory import Nodes
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.workload import ContainerRequest, PodRequest, QOSClass

__all__ = ["Managers", "needed"]


class Managers:
    """Either manager is None where it has nothing to say of the pod."""

    __slots__ = ("devices", "memory", "request", "state")

    def __init__(
        self,
        state: NodeState,
        request: PodRequest,
        memory_of: memory.Handout | None,
        devices_of: devices.Handout | None,
    ) -> None:
        self.state, self.request = state, request
        self.memory, self.devices = memory_of, devices_of

    def affinity(self, container: ContainerRequest, cpus: Hints) -> NUMAAffinity:
        """The NUMA nodes for one container. Raises Refusal."""
        devices_ = self.devices.hints(self.devices.wanted(container)) if self.devices else []
        memory_ = self.memory.hints(self.memory_wanted(container)) if self.memory else []
        return static.aligned(self.state, [*devices_, cpus, *memory_])

    def pod_affinity(self, cpus: Hints) -> NUMAAffinity:
        """The NUMA nodes for all containers, under pod scope. Raises Refusal."""
        return self.aligned_pod(cpus, self.memory.hints(memory.of_pod(self.request)) if self.memory else [])

    def whole_affinity(self, cpus: Hints) -> NUMAAffinity:
        """The NUMA nodes for a pod that is placed as one piece. Raises Refusal."""
        return self.aligned_pod(cpus, podlevel.memory_hints(self.memory, self.request) if self.memory else [])

    def aligned_pod(self, cpus: Hints, memory_: list[Hints]) -> NUMAAffinity:
        devices_ = self.devices.hints(self.devices.of_pod(self.request)) if self.devices else []
        return static.aligned(self.state, [*devices_, cpus, *memory_])

    def memory_wanted(self, container: ContainerRequest) -> dict[str, int]:
        """What a container is to have of its own: of a pod with resources as a whole, if guaranteed."""
        if self.request.level is not None and not container.guaranteed:
            return {}
        return memory.wanted(container)

    def allocate_devices(self, container: ContainerRequest, affinity: NUMAAffinity) -> None:
        """Raises Refusal."""
        if self.devices and (wanted := self.devices.wanted(container)):
            self.devices.allocate(container, wanted, affinity)

    def allocate_memory(self, container: ContainerRequest, affinity: NUMAAffinity) -> None:
        """Raises Refusal; as upstream even for a container that wants none, where all must be exact."""
        if self.memory is None:
            return
        wanted = self.memory_wanted(container)
        if wanted or self.state.config.exact:
            self.memory.allocate(container, wanted, affinity)

    def memory_refused(self) -> Nodes | None:
        """The memory of the node once what was handed out came back: within groups it may lie elsewhere."""
        if self.memory is None:
            return None
        parts = [block for of in self.memory.blocks.values() for block in of]
        blocks = self.memory.whole or parts
        return memory.returned(self.memory.nodes, blocks)


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
        memory.Handout(state.memory) if keeps_memory else None,
        _devices(state) if hands_out else None,
    )


def _keeps_memory(state: NodeState, request: PodRequest) -> bool:
    return request.qos is QOSClass.GUARANTEED and (request.level is None or state.config.pod_level)


def _devices(state: NodeState) -> devices.Handout:
    narrow = state.config.options.version != "1.36"
    return devices.Handout(state.config.devices, state.entries.values(), state.numa_nodes, narrow=narrow)
