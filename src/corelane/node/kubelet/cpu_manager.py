"""The kubelet's static policy for one container, or for a pod as one piece: NUMA affinity, SMT check, CPUs.

Upstream: `policy_static.go` of cpumanager and `scope_*.go` of topologymanager (v1.36). Everything works on
masks: `available` are CPUs that may become exclusive, `reusable` those of earlier init containers.
"""

from collections.abc import Iterator, Mapping

from corelane.node import managers, memory_manager, zone_needs
from corelane.node.config import Inventory, pick
from corelane.node.ledger import NodeState
from corelane.node.managers import distances
from corelane.node.zone_needs import FREE, ZoneNeeds
from corelane.placement import hints, topologymanager
from corelane.placement.families import Family
from corelane.placement.memory_blocks import MemoryBlock, taken
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code, Refusal
from corelane.workload.request import (
    Amounts,
    ContainerKind,
    ContainerRequest,
    PodRequest,
    PodResources,
    QOSClass,
    peak,
)


def pod_cpus(request: PodRequest) -> int:
    """The exclusive CPUs that a pod needs at once, by which a pod-scope topology manager judges it."""
    return peak((container.kind, request.exclusive_cpus(container)) for container in request.containers)


def affinity(state: NodeState, available: int, reusable: int, n: int) -> NUMAAffinity:
    """The NUMA nodes for n CPUs, as the topology manager's policy merges and judges the hints for them.

    Raises Refusal when the policy does not admit.
    """
    options = state.config.numa
    if options.policy == "none" or not n:
        return NUMAAffinity(None, True, True)
    hint = hints.best_cpu_hint(
        state.topology,
        available,
        reusable,
        n,
        by_socket=state.config.options.align_by_socket,
        distances=distances(state) if options.prefer_closest_numa_nodes else None,
    )
    if options.policy == "single-numa-node" and not topologymanager.is_single(hint):
        hint = hints.Hint(None, False)
    merged = topologymanager.judge(hint, state.numa_nodes, options.policy)
    if not merged.admit:
        raise Refusal(Code.NOT_ALIGNED)
    return merged


def cpu_hints(state: NodeState, available: int, reusable: int, n: int) -> Family | None:
    """Return the CPU manager's hints for n CPUs beside other providers; None where it has no preference."""
    if not n:
        return None
    by_socket = state.config.options.align_by_socket
    return hints.cpu_family(state.topology, available, reusable, n, state.numa_nodes, by_socket=by_socket)


def check_smt(state: NodeState, available: int, n: int) -> None:
    """The check of full-pcpus-only, which comes before all others. Raises Refusal."""
    if not state.config.options.full_pcpus_only:
        return
    threads = state.topology.cpus_per_core
    if n % threads:
        raise Refusal(Code.SMT_NOT_MULTIPLE, n, threads)
    whole = available & ~state.topology.whole_cores(state.reserved.mask)
    if n > whole.bit_count():
        raise Refusal(Code.SMT_NOT_ENOUGH_CORES, whole.bit_count(), n, threads)


def near(state: NodeState, nodes: int) -> int:
    """The CPUs of these NUMA nodes (a mask of ids); with align-by-socket, of all sockets that they touch."""
    topology = state.topology
    cpus = sum(mask for node, mask in zip(topology.numa_ids, topology.numa, strict=True) if nodes >> node & 1)
    if state.config.options.align_by_socket:
        return sum(socket for socket in topology.sockets if socket & cpus)
    return cpus


def allocate(state: NodeState, pool: int, n: int, nodes: int | None) -> int:
    """N CPUs of the pool: as many as there are near the nodes, the rest from anywhere. Raises Refusal."""
    taken = 0
    try:
        if nodes is not None:
            aligned = pool & near(state, nodes)
            count = min(n, aligned.bit_count())
            taken = pick(state.config, state.topology, aligned, count, hinted=nodes.bit_count())
        missing = n - taken.bit_count()
        return taken | pick(state.config, state.topology, pool & ~taken, missing) if missing else taken
    except ValueError as error:
        raise Refusal(Code.ALLOCATION_FAILED, str(error)) from None


# Pods with pod-level resources under gate PodLevelResourceManagers and pod scope. Upstream: `AllocatePod` of
# cpumanager's and memorymanager's `policy_static.go` (v1.36, KEP-5526). The pod's piece is its bubble. Within
# it guaranteed containers get their own part; the others share what is left.


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


def pod_cpu_hints(state: NodeState, request: PodRequest, available: int) -> Hints:
    """Return the CPU manager's hints for the whole pod: impossible where some container gets nothing."""
    n = whole_cpus(state, request)
    if n and _cpu_fault(request, n):
        return []
    return cpu_hints(state, available, 0, n)


def memory_hints(handout: memory_manager.MemoryManager, request: PodRequest) -> list[Hints]:
    """Return the memory manager's hints for the whole pod, for each resource."""
    amounts = _amounts(request.level)
    if _memory_fault(request, amounts):
        return [[] for _ in amounts]
    return handout.hints(amounts)


def allocate_cpus(
    state: NodeState, request: PodRequest, available: int, affinity: NUMAAffinity
) -> tuple[int, dict[str, int]]:
    """The pod's CPUs as a mask, and each container's; nothing for a pod that has none. Raises Refusal."""
    n = whole_cpus(state, request)
    if not n:
        return 0, {}
    if fault := _cpu_fault(request, n):
        raise fault
    check_smt(state, available, n)
    bubble = allocate(state, available, n, affinity.nodes)
    try:
        return bubble, _cpus_shared_out(state, request, bubble)
    except ValueError as error:
        raise Refusal(Code.ALLOCATION_FAILED, str(error)) from None


def _cpus_shared_out(state: NodeState, request: PodRequest, bubble: int) -> dict[str, int]:
    amounts: dict[str, int] = {}
    pool = bubble
    for container in request.containers:
        if n := request.exclusive_cpus(container, gate=True):
            cpus = pick(state.config, state.topology, pool, n)
            amounts[container.name] = cpus
            pool &= ~(0 if container.kind is ContainerKind.INIT else cpus)
        elif container.kind is ContainerKind.INIT:
            amounts[container.name] = pool
    return {container.name: amounts.get(container.name, pool) for container in request.containers}


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
    sizes = _amounts(request.level)
    if fault := _memory_fault(request, sizes):
        raise fault
    where = handout.where(sizes, affinity)
    for name, size in sizes.items():
        handout.nodes = taken(handout.nodes, where, name, size)
    for name, amounts in _memory_shared_out(request, sizes).items():
        parts = {resource: size for resource, size in amounts.items() if size > 0}
        handout.blocks[name] = memory_manager.blocks_of(parts, where)
    handout.whole = memory_manager.blocks_of(sizes, where)
    return handout.whole


def _memory_shared_out(request: PodRequest, total: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    amounts: dict[str, Mapping[str, int]] = {}
    pool = dict(total)
    for container in request.containers:
        if own := _own(container):
            amounts[container.name] = own
            if container.kind is not ContainerKind.INIT:
                pool = {name: size - own.get(name, 0) for name, size in pool.items()}
        elif container.kind is ContainerKind.INIT:
            amounts[container.name] = pool
    return {container.name: amounts.get(container.name, pool) for container in request.containers}


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
    amounts = memory_manager.wanted(level) if level else {}
    return {name: size for name, size in amounts.items() if size > 0}


# What a pod needs at least.


def zone_needs_of(state: NodeState, request: PodRequest) -> ZoneNeeds:
    """Return the needs under policies static and none, as CPU, memory and device manager judge the pod."""
    more = managers.needed(state, request)
    if request.level is not None and applies(state, request):
        parts = [_as_one(state, request, more)]
        node = parts[0]
    else:
        sizes = [n for _, n in exclusive_sizes(state, request)]
        parts = [
            {FREE: n, **zone_needs.memory_and_devices(container, more)}
            for container, n in zip(request.containers, sizes, strict=True)
        ]
        node = zone_needs.peaks(
            [(container.kind, part) for container, part in zip(request.containers, parts, strict=True)]
        )
        if state.config.numa.scope == "pod":
            parts = [_of_pod(state, request, more)]
    return ZoneNeeds(
        {name: n for name, n in node.items() if name != FREE}, tuple(_aligned(state, part) for part in parts)
    )


def exclusive_sizes(state: NodeState, request: PodRequest) -> list[tuple[ContainerKind, int]]:
    """Return the CPUs that the kubelet's CPU manager allocates, by container, or to the pod as one piece."""
    if state.config.policy == "none":
        return [(container.kind, 0) for container in request.containers]
    if request.level is not None and applies(state, request):
        return [(ContainerKind.APP, whole_cpus(state, request))]
    gate = state.config.pod_level
    return [(each.kind, request.exclusive_cpus(each, gate=gate)) for each in request.containers]


def _of_pod(state: NodeState, request: PodRequest, more: managers.Managers | None) -> dict[str, int]:
    """Return what is aligned as a whole under scope `pod`."""
    amounts = {FREE: 0 if state.config.policy == "none" else pod_cpus(request)}
    if more and more.memory:
        amounts |= memory_manager.of_pod(request)
    if more and more.devices:
        amounts |= more.devices.of_pod(request)
    return amounts


def _as_one(state: NodeState, request: PodRequest, more: managers.Managers | None) -> Amounts:
    """Return what is allocated to a pod as a whole."""
    assert request.level is not None
    amounts = {FREE: whole_cpus(state, request)}
    if more and more.memory:
        amounts |= memory_manager.wanted(request.level)
    if more and more.devices:
        amounts |= more.devices.of_pod(request)
    return amounts


def _aligned(state: NodeState, part: Amounts) -> Amounts:
    """Return what of a part must come from one NUMA node."""
    if state.config.numa.policy == "single-numa-node":
        return part
    if state.config.numa.policy != "restricted":
        return {}
    return dict(_narrow(state, part))


def _narrow(state: NodeState, part: Amounts) -> Iterator[tuple[str, int]]:
    """Amounts that one NUMA node would hold if nothing ran: `restricted` admits no more nodes than that."""
    devices = state.config.devices
    memory = {name: n for name, n in part.items() if name != FREE and name not in devices}
    offered = [node.allocatable for node in state.memory.values()]
    together = any(all(here.get(name, 0) >= n for name, n in memory.items()) for here in offered)
    for name, n in part.items():
        if name == FREE:
            if n <= state.topology.numa_sizes[0] and not state.config.options.align_by_socket:
                yield name, n
        elif name in devices:
            if _near_one(devices, name, n, state):
                yield name, n
        elif together:
            yield name, n


def _near_one(devices: Inventory, name: str, n: int, state: NodeState) -> bool:
    near = devices[name].values()
    return any(sum(mask >> node.id & 1 for mask in near) >= n for node in state.machine.nodes)
