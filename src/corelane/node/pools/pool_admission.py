"""Admission under policy `pools`: the pod's class, then its CPUs or its zone, then what is left to others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from corelane.cpuset import CPUSet, bits
from corelane.node import config, memory_manager, zone_needs
from corelane.node.entries import Entry, Key, Origin, Sharing
from corelane.node.ledger import Decision, NodeState, frozen
from corelane.node.managers import Managers, needed
from corelane.node.pools.binding import Binding, Bound, bind
from corelane.node.pools.classes import (
    NodePolicies,
    PodClass,
    Policies,
    placed_pod,
    pod_class,
    resolve,
)
from corelane.node.pools.zones import STRICT, ZoneAssignment, assign_zone, fewest_idle
from corelane.node.zone_needs import ZoneNeeds
from corelane.placement.optimal.demand import Resource
from corelane.placement.topologymanager import NUMAAffinity
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import NUMAPolicy
from corelane.workload.request import ContainerRequest, PodRequest


def why_shared(state: NodeState, request: PodRequest, container: ContainerRequest) -> Reason:
    """Return why a container is not bound to CPUs."""
    try:
        decided = pod_class(request, state.config.pools)
    except Refusal as refusal:
        return replace(refusal.reason, container=container.name)
    return _why(request, decided, container)


def _why(request: PodRequest, decided: PodClass, container: ContainerRequest) -> Reason:
    if container.name in request.shared and not decided.common:
        return Reason(Code.RESIZED_IN_POOL, (), container.name)
    if not decided.own or container.name in decided.own:
        return replace(decided.why, container=container.name)
    if container.cpu_request % 1000 or not container.cpu_request:
        code = Code.CPU_REQUEST_NOT_INTEGER if container.cpu_request else Code.NO_CPU_REQUEST
        return Reason(code, (container.cpu_request,), container.name)
    if container.cpu_limit == container.cpu_request:
        return Reason(Code.NOT_A_REGULAR_CONTAINER, (), container.name)
    return Reason(Code.CPU_LIMIT_NOT_REQUEST, (container.cpu_request, container.cpu_limit), container.name)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The decision on a pod."""

    request: PodRequest
    pod_class: PodClass
    policies: Policies
    bound: Bound
    held: ZoneAssignment
    more: Managers | None
    """Devices and memory that were handed out; None where neither was asked for."""


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Give a pod that is not in the ledger its CPUs or its pool. Raises Refusal."""
    class_of_pod = pod_class(request, state.config.pools)
    policies = policies_of(state, request, class_of_pod)
    more = needed(state, request) if state.memory or state.config.devices else None
    wanted = _resources(more, request) if more else ()
    if class_of_pod.bound:
        bound = bind(state, request, class_of_pod, policies, wanted)
        held = ZoneAssignment(_zone_beside(state, request, bound, policies.numa))
        nodes = _nodes_of(state, bound.all)
    else:
        bound, held = Bound({}), assign_zone(state, request, class_of_pod, policies.numa, wanted)
        nodes = held.zone.mask if held.zone else 0
    if more is not None:
        affinity = NUMAAffinity(nodes or None, preferred=False, admit=True)
        for container in request.containers:
            more.allocate_devices(container, affinity)
            more.allocate_memory(container, affinity)
    pod = _Admitted(request, class_of_pod, policies, bound, held, more)
    after = _after(state, pod)
    _check_what_is_left(state, after)
    return after, _decision(after, pod)


def _nodes_of(state: NodeState, cpus: int) -> int:
    """The NUMA nodes (a mask of ids) that have any of these CPUs."""
    numa = zip(state.topology.numa_ids, state.topology.numa, strict=True)
    return sum(1 << node for node, mask in numa if mask & cpus)


def binding_of(state: NodeState, request: PodRequest) -> Binding | None:
    """Return what an allocator is asked for a pod; None where it is bound to no CPU. Raises Refusal."""
    decided = pod_class(request, state.config.pools)
    policies = policies_of(state, request, decided)
    if not decided.bound:
        return None
    more = needed(state, request)
    return Binding(state, request, decided, policies, _resources(more, request) if more else ())


def policies_of(state: NodeState, request: PodRequest, decided: PodClass) -> Policies:
    """Koordinator's policies that hold for the pod here. Raises Refusal where pod and node contradict."""
    options = state.config.pools
    here = NodePolicies(options.node_bind, options.strategy, options.numa)
    topology = state.topology
    resolved = resolve(
        request.placement_spec,
        here,
        options.bind,
        cpus=decided.cpus(request),
        threads=topology.cpus_per_core,
        most_threads=topology.threads,
        as_code=state.config.exact,
    )
    if isinstance(resolved, Reason):
        raise Refusal(resolved.code, *resolved.values)
    return resolved


def _zone_beside(state: NodeState, request: PodRequest, bound: Bound, numa: NUMAPolicy) -> CPUSet | None:
    """Where siblings without own CPUs stay on a node that aligns: on the NUMA nodes of those with."""
    if numa not in STRICT or len(bound.cpus) == len(request.containers):
        return None
    pool = _nodes_of(state, state.shared_pool.mask & ~bound.all)
    return CPUSet.from_mask(_nodes_of(state, bound.all) & pool) or None


def _check_what_is_left(before: NodeState, after: NodeState) -> None:
    """Refuse what would leave best effort with fewer CPUs than its minimum, or the shared pool with none.

    Koordinator does not look at that: nothing is refused where its answer is wanted exactly.
    """
    if after.bound == before.bound or before.config.exact:
        return
    least, left = after.config.pools.be_minimum, len(after.best_effort_pool)
    if left < least and left < len(before.best_effort_pool):
        raise Refusal(Code.BEST_EFFORT_EXHAUSTED, after.best_effort_pool.mask, least)
    if not after.shared_pool or (_is_open(before) and not _is_open(after)):
        raise Refusal(Code.SHARED_POOL_EXHAUSTED, before.shared_pool.mask)


def _is_open(state: NodeState) -> bool:
    """Whether the shared pool has a CPU that settings do not close to it."""
    return bool(state.shared_pool.mask & ~state.config.closed(state.machine))


def _after(state: NodeState, pod: _Admitted) -> NodeState:
    request, sharing, cpus = pod.request, pod.pod_class.sharing, CPUSet.from_mask(pod.bound.all)
    entries: dict[Key, Entry] = dict(state.entries)
    for container in request.containers:
        entries[request.uid, container.name] = _entry(state, pod, container)
    placed_pods = state.placed_pods
    if cpus or pod.held.zone:
        placed_pods = frozen({**placed_pods, request.uid: placed_pod(request, pod.held.burst)})
    kept = pod.more.memory.nodes if pod.more and pod.more.memory else None
    return replace(
        state,
        entries=MappingProxyType(entries),
        pods=frozen({**state.pods, request.uid: request.cpu_request}),
        placed_pods=placed_pods,
        exclusive=state.exclusive if sharing is Sharing.POOL else state.exclusive | cpus,
        shared_with_be=state.shared_with_be | cpus
        if sharing is Sharing.SHARED_WITH_BE
        else state.shared_with_be,
        bound=state.bound | cpus,
        memory=state.memory if kept is None else frozen(kept),
        requested=state.requested + request.cpu_request,
        generation=state.generation + 1,
    )


def _entry(state: NodeState, pod: _Admitted, container: ContainerRequest) -> Entry:
    found, cpus = pod.pod_class, pod.bound.cpus.get(container.name, 0)
    proposed = pod.request.proposal.get(container.name)
    pool = Sharing.POOL if found.bound else found.sharing
    return Entry(
        uid=pod.request.uid,
        container=container.name,
        pod=pod.request.key,
        cpus=CPUSet.from_mask(cpus),
        sharing=found.sharing if cpus else pool,
        common=bool(cpus and found.common),
        zone=None if cpus else pod.held.zone,
        cls=found.qos.value,
        kind=container.kind,
        origin=Origin.SCHEDULER if cpus and proposed and proposed.mask == cpus else Origin.CORELANE,
        allocator=state.config.pools.allocator if cpus else "",
        cpu_request=container.cpu_request,
        **(_more(pod.more, container) if pod.more else {}),
    )


def _decision(after: NodeState, pod: _Admitted) -> Decision:
    return Decision(
        True,
        assignments=frozen({name: CPUSet.from_mask(cpus) for name, cpus in pod.bound.cpus.items()}),
        zone=pod.held.zone,
        shared=after.shared_pool,
        repicked=pod.bound.repicked or pod.held.repicked,
        bind=pod.policies.bind if pod.pod_class.common else None,
        bind_required=pod.policies.bind_required,
        explanation=lambda: _reasons(after, pod),
    )


def _reasons(after: NodeState, pod: _Admitted) -> Iterator[Reason]:
    for container in pod.request.containers:
        name = container.name
        yield _why(pod.request, pod.pod_class, container)
        if name in pod.bound.cpus:
            yield from (replace(note, container=name) for note in pod.policies.notes)
        yield from (reason for reason in pod.bound.reasons if reason.container == name)
        if pod.held.why:
            yield replace(pod.held.why, container=name)
        entry = after.entries[pod.request.uid, name]
        for resource, ids in entry.devices.items():
            yield Reason(Code.DEVICES, (resource, ids), entry.container)
        for block in entry.memory:
            yield Reason(Code.MEMORY, (block.resource, block.size, block.nodes.mask), entry.container)


def _resources(more: Managers, request: PodRequest) -> tuple[Resource, ...]:
    """Return what the pod requests besides CPUs, and where it is free."""
    return (*_devices(more, request), *_memory(more, request))


def _devices(more: Managers, request: PodRequest) -> Iterator[Resource]:
    if more.devices is None:
        return
    for name, n in more.devices.of_pod(request).items():
        all_ = more.devices.inventory[name]
        free = _count((all_[device] for device in more.devices.free(name)), more.devices.nodes)
        yield Resource(name, n, free, _count(all_.values(), more.devices.nodes))


def _count(near: Iterable[int], nodes: int) -> dict[int, int]:
    """NUMA node to the devices near it; one of which nothing is known counts everywhere."""
    counts = dict.fromkeys(bits(nodes), 0)
    for mask in near:
        for node in bits(mask or nodes):
            counts[node] += 1
    return counts


def _memory(more: Managers, request: PodRequest) -> Iterator[Resource]:
    if more.memory is None:
        return
    nodes = more.memory.nodes
    for name, size in memory_manager.of_pod(request).items():
        free = {node: one.free.get(name, 0) for node, one in nodes.items()}
        yield Resource(name, size, free, {node: one.allocatable.get(name, 0) for node, one in nodes.items()})


def _more(more: Managers, container: ContainerRequest) -> dict[str, Any]:
    """Return the members of an entry about devices and memory."""
    blocks = more.memory.blocks.get(container.name, ()) if more.memory else ()
    devices = more.devices.given.get(container.name, {}) if more.devices else {}
    return {"mems": memory_manager.mems(blocks), "memory": blocks, "devices": devices}


def check_amplified(state: NodeState, request: PodRequest) -> None:
    """Raises Refusal where a pod does not fit a node with amplified CPUs; one that binds counts amplified."""
    ratio = state.config.pools.amplification
    used = config.requested(state.requested, len(state.bound), ratio)
    binds = pod_class(request, state.config.pools).bound
    if not config.fits(state.allocatable, used, request.cpu_request, ratio, binds=binds):
        counts = float(ratio) if binds else 0.0
        raise Refusal(Code.OUT_OF_AMPLIFIED_CPU, request.cpu_request, used, state.allocatable, counts)


# What a pod needs at least.


def zone_needs_of(state: NodeState, request: PodRequest, found: PodClass, numa: NUMAPolicy) -> ZoneNeeds:
    """Return the needs of a pod that is bound to no CPU, under a NUMA policy."""
    more = needed(state, request)
    if more is None:
        return ZoneNeeds()
    milli = request.cpu_request
    one_node = found.confined or numa is NUMAPolicy.SINGLE_NUMA_NODE
    one_node |= numa is NUMAPolicy.RESTRICTED and fewest_idle(state, milli) == 1
    strict = found.confined or numa in STRICT
    aligned = one_node and strict and found.sharing is Sharing.POOL
    return ZoneNeeds(
        zone_needs.totals(request, more), (zone_needs.aligned_resources(request, more),) if aligned else ()
    )


def zone_needs_of_bound(state: NodeState, request: PodRequest, binding: Binding) -> ZoneNeeds:
    """Return the needs of a pod that is bound to CPUs."""
    demand, more = binding.demand, needed(state, request)
    cpus = zone_needs.cpus_by_layout(demand.cpus, demand.bind if demand.bind_required else None, request)
    resources = {resource.name: resource.wanted for resource in demand.resources}
    one_node = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE
    if demand.numa is NUMAPolicy.RESTRICTED:
        one_node = demand.cpus <= state.topology.numa_sizes[0]
        if state.config.pools.allocator == "optimal":
            one_node &= all(each.wanted <= max(_capacity(each), default=0) for each in demand.resources)
    totals = zone_needs.totals(request, more) if more else {}
    return ZoneNeeds({**cpus, **totals}, ({**cpus, **resources},) if one_node else ())


def _capacity(resource: Resource) -> Iterable[int]:
    return (resource.free if resource.capacity is None else resource.capacity).values()
