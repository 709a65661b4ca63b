"""Pods with resources as a whole under gate PodLevelResourceManagers and pod scope: one piece, shared out.

Upstream: `AllocatePod` of cpumanager's and memorymanager's `policy_static.go` (v1.36, KEP-5526). The pod's
piece is its bubble. Within it guaranteed containers get their own part; the others share what is left.
"""

from collections.abc import Iterator, Mapping

from corelane.node import memory_manager
from corelane.node.config import pick
from corelane.node.kubelet import cpu_manager
from corelane.node.ledger import NodeState
from corelane.placement.memory_blocks import MemoryBlock, taken
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code, Refusal
from corelane.workload import ContainerKind, ContainerRequest, PodRequest, PodResources, QOSClass


def applies(state: NodeState, request: PodRequest) -> bool:
    """Whether a pod is admitted as one piece."""
    numa = state.config.numa
    return (
        request.level is not None and state.config.pod_level and numa.scope == "pod" and numa.policy != "none"
    )


def whole_cpus(state: NodeState, request: PodRequest) -> int:
    """The size of the bubble in CPUs, 0 where the pod shares the node's pool."""
    if request.level is None or request.qos is not QOSClass.GUARANTEED or state.config.policy == "none":
        return 0
    return request.level.whole_cpus


def cpu_hints(state: NodeState, request: PodRequest, available: int) -> Hints:
    """What the CPU manager says of the whole pod: that it is impossible where some container gets nothing."""
    n = whole_cpus(state, request)
    if n and _cpu_fault(request, n):
        return []
    return cpu_manager.cpu_hints(state, available, 0, n)


def memory_hints(handout: memory_manager.MemoryManager, request: PodRequest) -> list[Hints]:
    """What the memory manager says of the whole pod, for each resource."""
    wanted = _amounts(request.level)
    if _memory_fault(request, wanted):
        return [[] for _ in wanted]
    return handout.hints(wanted)


def allocate_cpus(
    state: NodeState, request: PodRequest, available: int, affinity: NUMAAffinity
) -> tuple[int, dict[str, int]]:
    """The pod's CPUs as a mask, and each container's; nothing for a pod that has none. Raises Refusal."""
    n = whole_cpus(state, request)
    if not n:
        return 0, {}
    if fault := _cpu_fault(request, n):
        raise fault
    cpu_manager.check_smt(state, available, n)
    bubble = cpu_manager.allocate(state, available, n, affinity.nodes)
    try:
        return bubble, _cpus_shared_out(state, request, bubble)
    except ValueError as error:
        raise Refusal(Code.ALLOCATION_FAILED, str(error)) from None


def _cpus_shared_out(state: NodeState, request: PodRequest, bubble: int) -> dict[str, int]:
    found: dict[str, int] = {}
    pool = bubble
    for container in request.containers:
        if n := request.exclusive_cpus(container, gate=True):
            cpus = pick(state.config, state.topology, pool, n)
            found[container.name] = cpus
            pool &= ~(0 if container.kind is ContainerKind.INIT else cpus)
        elif container.kind is ContainerKind.INIT:
            found[container.name] = pool
    return {container.name: found.get(container.name, pool) for container in request.containers}


def _cpu_fault(request: PodRequest, total: int) -> Refusal | None:
    """Return why some container would be left without CPUs; None where none is."""
    lasting, shared = 0, False
    for container in request.containers:
        n = request.exclusive_cpus(container, gate=True)
        if container.kind is ContainerKind.INIT:
            if not n and lasting >= total:
                return Refusal(Code.POD_LEVEL_INIT_WITHOUT_RESOURCE, "cpus")
        else:
            lasting, shared = lasting + n, shared or not n
    if shared and lasting >= total:
        return Refusal(Code.POD_LEVEL_SHARED_WITHOUT_CPUS)
    return None


def allocate_memory(
    handout: memory_manager.MemoryManager, request: PodRequest, affinity: NUMAAffinity
) -> tuple[MemoryBlock, ...]:
    """Give the pod its memory and each container its part of it; the pod's blocks. Raises Refusal."""
    wanted = _amounts(request.level)
    if fault := _memory_fault(request, wanted):
        raise fault
    where = handout.where(wanted, affinity)
    for name, size in wanted.items():
        handout.nodes = taken(handout.nodes, where, name, size)
    for name, amounts in _memory_shared_out(request, wanted).items():
        parts = {resource: size for resource, size in amounts.items() if size > 0}
        handout.blocks[name] = memory_manager.blocks_of(parts, where)
    handout.whole = memory_manager.blocks_of(wanted, where)
    return handout.whole


def _memory_shared_out(request: PodRequest, total: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    found: dict[str, Mapping[str, int]] = {}
    pool = dict(total)
    for container in request.containers:
        if own := _own(container):
            found[container.name] = own
            if container.kind is not ContainerKind.INIT:
                pool = {name: size - own.get(name, 0) for name, size in pool.items()}
        elif container.kind is ContainerKind.INIT:
            found[container.name] = pool
    return {container.name: found.get(container.name, pool) for container in request.containers}


def _memory_fault(request: PodRequest, total: Mapping[str, int]) -> Refusal | None:
    """Return why some container would be left without memory; None where none is."""
    lasting: dict[str, int] = {}
    shared = False
    for container in request.containers:
        own = _own(container)
        if container.kind is ContainerKind.INIT:
            if not own and (name := next(_used_up(total, lasting), "")):
                return Refusal(Code.POD_LEVEL_INIT_WITHOUT_RESOURCE, name)
            continue
        shared = shared or not own
        for name, size in own.items():
            lasting[name] = lasting.get(name, 0) + size
    if shared and (name := next(_used_up(total, lasting), "")):
        return Refusal(Code.POD_LEVEL_SHARED_WITHOUT_MEMORY, name)
    return None


def _used_up(total: Mapping[str, int], lasting: Mapping[str, int]) -> Iterator[str]:
    return (name for name, size in total.items() if lasting.get(name, 0) >= size)


def _own(container: ContainerRequest) -> dict[str, int]:
    """The memory that a container has to itself."""
    return memory_manager.wanted(container) if container.guaranteed else {}


def _amounts(level: PodResources | None) -> dict[str, int]:
    found = memory_manager.wanted(level) if level else {}
    return {name: size for name, size in found.items() if size > 0}
