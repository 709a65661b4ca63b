"""Koordinator's annotations of a NodeResourceTopology, both ways, and the node state that they describe.

The node agent koordlet publishes them. `pod-cpu-allocs` lists the pods whose CPUs a kubelet manages, as
upstream; corelane's ledger has its own key. The CPUs withheld from pods are those in force on the node, from
settings or from the Node's annotations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology, TopologyZone
from corelane.kube.translate import machine_annotation, node_labels
from corelane.kube.translate.fields import (
    TranslationError,
    annotation,
    boolean,
    cpus,
    items,
    json_list,
    json_object,
    member,
    socket_and_node,
)
from corelane.kube.translate.node_labels import KubeletSettings, NodeLabels
from corelane.kube.translate.topology_zones import amplification
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import NodeConfigError, StaticOptions, TopologyOptions
from corelane.node.config import KoordinatorOptions, NodeConfig, PoolOptions, amplify
from corelane.node.entries import WHOLE_POD, Entry, Origin, Sharing
from corelane.node.ledger import NodeState, new, usable_topology, with_entries
from corelane.placement.topologymanager import Policy, Scope
from corelane.quantity import QuantityError
from corelane.workload import NUMAPolicy, PodQOS

OPTIONAL: Final = (keys.AMPLIFICATION, keys.CPU_MANAGER_POLICY, keys.POD_CPU_ALLOCS)
"""Annotations whose presence has a meaning."""
_ONCE: Final = Fraction(1)


@dataclass(frozen=True, slots=True)
class PoolPart:
    """The part of a pool on one socket and NUMA node."""

    socket: int
    node: int
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class PodCPUs:
    """A pod and the CPUs of all its containers together."""

    namespace: str
    name: str
    uid: str
    cpus: CPUSet
    managed_by_kubelet: bool = True


@dataclass(frozen=True, slots=True)
class KubeletReport:
    """What is published of a kubelet: its settings, None for nothing at all, and its pods with own CPUs."""

    settings: KubeletSettings | None = None
    pods: tuple[PodCPUs, ...] = ()


def report_of_ledger(state: NodeState) -> KubeletReport:
    """Return the report of a node without a kubelet: corelane stands for it."""
    return KubeletReport(kubelet_settings(state), tuple(kubelet_pods(state)))


def annotations(
    machine: Machine,
    state: NodeState,
    facts: CPUFacts,
    node_annotations: Mapping[str, str],
    report: KubeletReport,
) -> dict[str, str]:
    """Return what koordlet would publish of this node; `node_annotations` are those of the Node."""
    ratio = amplification(state)
    amplified = {keys.AMPLIFICATION: f'{{"cpu":{float(ratio):.2f}}}'} if ratio > 1 else {}
    of_config = state.config.policy == "pools"
    source = state.config.pools if of_config else node_labels.node_labels({}, node_annotations)
    system = {"cpuset": str(source.system), "cpusetExclusive": source.system_exclusive}
    kubelet = {}
    if report.settings is not None:
        kubelet[keys.CPU_MANAGER_POLICY] = node_labels.dump_kubelet(report.settings)
        kubelet[keys.POD_CPU_ALLOCS] = _json([dict(_members(pod)) for pod in report.pods] or None)
    basic_info = {  # without false and empty members, as upstream's
        "cpuModel": facts.model,
        "hyperThreadEnabled": any(cpus.bit_count() > 1 for _, cpus in machine.core_masks),
        "turboEnabled": facts.turbo,
        "catL3CbmMask": facts.cache_ways,
        "vendorID": facts.vendor,
    }
    return {
        keys.CPU_BASIC_INFO: _json({name: value for name, value in basic_info.items() if value}),
        keys.CPU_TOPOLOGY: machine_annotation.detail(machine),
        keys.CPU_SHARED_POOLS: _dump_pool(machine, state.shared_pool),
        keys.BE_CPU_SHARED_POOLS: _dump_pool(machine, state.best_effort_pool),
        **kubelet,
        keys.RESERVATION: _dump_reservation(state, node_annotations),
        keys.SYSTEM_QOS: _json(system if source.system else None),
        **amplified,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def taken_cpus(state: NodeState, report: KubeletReport) -> int:
    """Return the CPUs, as a mask, that these annotations name as taken, for Koordinator's scheduler."""
    mask = report.settings.reserved.mask if report.settings else 0
    for pod in report.pods:
        mask |= pod.cpus.mask
    if state.config.policy == "pools":
        mask |= _withheld(state).mask
        mask |= state.config.pools.system.mask if state.config.pools.system_exclusive else 0
    return mask & state.usable.mask


def _withheld(state: NodeState) -> CPUSet:
    """CPUs that no pod uses under policy pools."""
    isolated = state.machine.isolated if state.config.pools.isolated_cpus == "exclude" else CPUSet()
    return (state.config.pools.withheld | isolated) & state.usable


def _dump_reservation(state: NodeState, node_annotations: Mapping[str, str]) -> str:
    """The Node's reservation with the ids of its CPUs; `{}` where none are withheld."""
    reservation = node_labels.node_labels({}, node_annotations).reservation
    if state.config.policy == "pools":
        withheld, cpus_only = _withheld(state), state.config.pools.withheld_offered
    else:
        mask = reservation.withheld(state.topology) if reservation else 0
        withheld, cpus_only = CPUSet.from_mask(mask), False
    where, members = annotation(keys.RESERVATION), ("resources", "reservedCPUs", "applyPolicy")
    own = json_object(where, node_annotations[keys.RESERVATION], members) if reservation else {}
    policy = "ReservedCPUsOnly" if cpus_only else own.get("applyPolicy")
    amounts = {name: text for name, text in (own.get("resources") or {}).items() if _is_quantity(text)}
    parts = {"resources": amounts, "reservedCPUs": str(withheld), "applyPolicy": policy}
    return _json({name: part for name, part in parts.items() if part})


def _is_quantity(value: Any) -> bool:
    """Upstream's reader drops an annotation with any other value, and with it the CPUs."""
    try:
        return isinstance(value, str | int) and quantity.parse(str(value)).nano >= 0
    except QuantityError:
        return False


def _text(where: str, members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise TranslationError(f"{where}.{name}", value, "must be a string")
    return value or ""


def pool_parts(machine: Machine, pool: CPUSet) -> list[PoolPart]:
    """Return a pool's parts by socket and NUMA node, without empty ones."""
    parts = (
        PoolPart(socket, node, CPUSet.from_mask(package & inside & pool.mask))
        for socket, package in machine.socket_masks
        for node, inside in machine.numa_masks
    )
    return [part for part in parts if part.cpus]


def places(machine: Machine, zone: CPUSet) -> tuple[tuple[int, int], ...]:
    """Return socket and id of each NUMA node in `zone`, as `cpuSharedPools` names them."""
    parts = pool_parts(machine, machine.usable)
    return tuple((part.socket, part.node) for part in parts if part.node in zone)


def _dump_pool(machine: Machine, pool: CPUSet) -> str:
    parts = pool_parts(machine, pool)
    return _json([{"socket": part.socket, "node": part.node, "cpuset": str(part.cpus)} for part in parts])


def pools(published: Mapping[str, str], key: str = keys.CPU_SHARED_POOLS) -> tuple[PoolPart, ...]:
    """Read the LS pool, or the BE pool under its `key`. Raises TranslationError."""
    where = annotation(key)
    parts = items(where, json_list(where, published.get(key, "")))
    named = ((path, member(path, part, ("socket", "node", "cpuset"))) for path, part in parts)
    return tuple(
        PoolPart(*socket_and_node(path, part), cpus(f"{path}.cpuset", part.get("cpuset")))
        for path, part in named
    )


def kubelet_settings(state: NodeState) -> KubeletSettings:
    """Return the settings of a kubelet that would manage CPUs as this node does: static, or none.

    Under pools, too, there are reserved CPUs, as of a kubelet: in the pool, and never exclusive.
    """
    config = state.config
    policy, scope = numa_alignment(state)
    if config.policy != "static":
        reserved = state.reserved if config.policy == "pools" else CPUSet()
        return KubeletSettings(reserved=reserved, topology_policy=policy, topology_scope=scope)
    names = (name for name in config.options.__dataclass_fields__ if getattr(config.options, name) is True)
    options = {name.replace("_", "-"): "true" for name in names}
    return KubeletSettings("static", options, state.reserved, policy, scope)


def numa_alignment(state: NodeState) -> tuple[str, str]:
    """Return the node's topology manager policy and scope, in the kubelet's words."""
    config = state.config
    if config.policy == "pools":
        return node_labels.KUBELET_POLICIES[config.pools.numa or NUMAPolicy.NONE], "pod"
    return (config.numa.policy if config.policy != "none" else "none"), config.numa.scope


def _members(pod: PodCPUs) -> Iterator[tuple[str, str | bool]]:
    """Empty members are left out, as upstream: a kubelet's state may name pods that no longer exist."""
    texts = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "cpuset": str(pod.cpus)}
    yield from ((name, text) for name, text in texts.items() if text)
    yield "managedByKubelet", True


def kubelet_pods(state: NodeState) -> list[PodCPUs]:
    """Return the pods with exclusive CPUs of a kubelet's, each with those of all its containers, by UID."""
    masks: dict[tuple[str, str], int] = {}
    for entry in state.entries.values():
        if entry.origin is Origin.KUBELET and entry.exclusive:
            masks[entry.uid, entry.pod] = masks.get((entry.uid, entry.pod), 0) | entry.cpus.mask
    pods = []
    for (uid, pod), mask in sorted(masks.items()):
        namespace, _, name = pod.rpartition("/")  # without a namespace only the UID is known
        pods.append(PodCPUs(namespace, name if namespace else "", uid, CPUSet.from_mask(mask)))
    return pods


def pod_allocations(published: Mapping[str, str]) -> tuple[PodCPUs, ...]:
    """Read `pod-cpu-allocs`, the proposal's `cpu` and "true" included. Raises TranslationError."""
    where = annotation(keys.POD_CPU_ALLOCS)
    members = ("namespace", "name", "uid", "cpuset", "cpu", "managedByKubelet")
    parts = items(where, json_list(where, published.get(keys.POD_CPU_ALLOCS, "")))
    return tuple(_allocation(path, member(path, part, members)) for path, part in parts)


def _allocation(where: str, part: Mapping[str, Any]) -> PodCPUs:
    return PodCPUs(
        _text(where, part, "namespace"),
        _text(where, part, "name"),
        _text(where, part, "uid"),
        cpus(f"{where}.cpuset", part.get("cpuset", part.get("cpu"))),
        bool(boolean(f"{where}.managedByKubelet", part.get("managedByKubelet"))),
    )


# Zones as Koordinator's scheduler reads them: `topology_options.go` and `amplifyNUMANodeResources` of its
# plugin NodeNUMAResource: allocatable, less a whole CPU for each CPU that is reserved, then amplified by the
# Node's ratios unless the object has its own.


_NODE: Final = "Node"
_PREFIX: Final = "node-"


def zone_options(
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
        amplified = {name: ratio for name, ratio in ratios.items() if name in _AMPLIFIED}
    taken = state.topology.all & ~state.free_exclusive.mask
    cpus_of = dict(zip(state.topology.numa_ids, state.topology.numa, strict=True))
    zones = {}
    for index, zone in enumerate(published.zones):
        number = zone.name.removeprefix(_PREFIX)
        if zone.type == _NODE and number != zone.name and number.isascii() and number.isdecimal():
            amounts = _allocatable(f"zones[{index}]", zone)
            if amounts.get("cpu"):
                amounts["cpu"] -= 1000 * (taken & cpus_of.get(int(number), 0)).bit_count()
            more = {name: amplify(amounts[name], amplified[name]) for name in amounts if name in amplified}
            zones[int(number)] = MappingProxyType(amounts | more)
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


_AMPLIFIED: Final = ("cpu", "memory", "ephemeral-storage")


# The state of a node: Koordinator's pools, or the kubelet's policy. Where the kubelet's CPU manager is
# static, it chooses the CPUs; a replay of its algorithm with its options, reserved CPUs, policy and scope
# tells what it will choose. The pods whose CPUs koordlet reports are in both.


_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_KNOWN: Final[Mapping[str, str]] = {
    "BestEffort": "best-effort",
    "Restricted": "restricted",
    "SingleNUMANodePodLevel": "single-numa-node",
}
"""Words of `topologyPolicies` that Koordinator's scheduler reads."""
_UPSTREAM_OPTIONS: Final = PoolOptions(
    allocator="koordinator", guaranteed_default=PodQOS.LS, be_minimum=0, system_exclusive=True
)


def pools_state(
    published: NodeResourceTopology,
    machine: Machine,
    labels: Mapping[str, str],
    node_annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    allocatable: int = 0,
) -> NodeState:
    """Return pools by upstream's rules, without the CPUs of kubelet, reservation and SYSTEM pods.

    `labels` and `node_annotations` are the Node's; of these only the amplification ratios count, which
    Koordinator's scheduler reads there, beside `allocatable` milliCPU. Raises TranslationError.
    """
    annotations = dict(published.metadata.annotations)
    annotations[keys.AMPLIFICATION] = node_annotations.get(keys.AMPLIFICATION, "")
    settings = node_labels.node_labels(labels, annotations)
    if settings.faults:
        raise settings.faults[0]
    # A kubelet without static CPU manager aligns no CPUs, so that no other word stands for a rejection.
    policy = next((_KNOWN[word] for word in published.topology_policies if word in _KNOWN), "none")
    kubelet = replace(node_labels.published_kubelet(published), topology_policy=policy, topology_scope="pod")
    cpus = usable_topology(machine)
    options = _upstreams_cpus(node_labels.pool_options(settings, kubelet, _UPSTREAM_OPTIONS, cpus), settings)
    reserved = kubelet.reserved & machine.usable
    config = NodeConfig("pools", reserved or None, pools=options, exact=True)
    state = with_kubelets_pods(NodeState(machine, config, cpus, reserved), published)
    zones = zone_options(published, state, settings.amplification, allocatable)
    return replace(state, config=replace(config, koordinator=zones))


def _upstreams_cpus(options: PoolOptions, settings: NodeLabels) -> PoolOptions:
    """Only CPUs named by id are withheld, and those of SYSTEM pods only where they are exclusive."""
    withheld = settings.reservation.cpus if settings.reservation else CPUSet()
    system = options.system if options.system_exclusive else CPUSet()
    return replace(options, withheld=withheld, system=system)


def static_state(published: NodeResourceTopology, machine: Machine, reserved_count: int = 0) -> NodeState:
    """Return the state that a kubelet with static CPU manager is in.

    `reserved_count` CPUs are reserved where the object names none. The pool options have what the kubelet's
    settings are in Koordinator's words, for pods that require something. Raises TranslationError, also for
    options of the kubelet that no replay knows.
    """
    kubelet = node_labels.published_kubelet(published)
    policies = kubelet.policies
    try:
        config = NodeConfig(
            "static",
            kubelet.reserved & machine.usable or None,
            None if kubelet.reserved else reserved_count or None,
            StaticOptions.parse(kubelet.options),
            pools=PoolOptions(node_bind=policies.bind, strategy=policies.strategy, numa=policies.numa),
            numa=TopologyOptions(
                cast("Policy", kubelet.topology_policy), cast("Scope", kubelet.topology_scope)
            ),
            exact=True,
        )
        return with_kubelets_pods(new(machine, config), published)
    except NodeConfigError as error:
        where = annotation(keys.CPU_MANAGER_POLICY)
        raise TranslationError(where, node_labels.dump_kubelet(kubelet), str(error)) from error


def with_kubelets_pods(state: NodeState, published: NodeResourceTopology) -> NodeState:
    """Return the state with the exclusive CPUs that koordlet reports of a kubelet's pods."""
    entries, pods = {}, {}
    static = state.config.policy == "static"
    for pod in pod_allocations(published.metadata.annotations):
        if cpus := pod.cpus & state.usable:
            entry = Entry(
                pod.uid,
                WHOLE_POD,
                f"{pod.namespace}/{pod.name}",
                cpus,
                Sharing.ALONE,
                cls="Guaranteed" if static else PodQOS.LSR.value,
                origin=Origin.KUBELET,
                cpu_request=1000 * len(cpus),
            )
            entries[entry.key], pods[pod.uid] = entry, entry.cpu_request
    return with_entries(state, entries, pods) if entries else state
