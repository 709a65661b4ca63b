"""Koordinator's annotations of a NodeResourceTopology, both ways.

`pod-cpu-allocs` lists the pods whose CPUs a kubelet manages, as upstream; our own ledger has its own key.
What a node keeps from pods is told as it holds there, be it from settings or from the Node's annotations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.translate import kubelets, machines, nodesettings
from corelane.kube.translate.annotations import annotation, boolean, cpus, items, listed, member, place, tree
from corelane.kube.translate.errors import TranslationError
from corelane.kube.translate.kubelets import KubeletSettings
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node.entries import Origin
from corelane.node.ledger import NodeState
from corelane.quantity import QuantityError

__all__ = [
    "OPTIONAL",
    "PodCPUs",
    "Pool",
    "aligned",
    "annotations",
    "basic_info",
    "by_place",
    "kubelet_settings",
    "kubelets_pods",
    "named",
    "places",
    "pod_allocations",
    "pools",
    "ratio",
]

OPTIONAL: Final = (keys.AMPLIFICATION,)
"""Annotations that say something by being there at all."""
_ONCE: Final = Fraction(1)
_RESERVATION: Final = ("resources", "reservedCPUs", "applyPolicy")
_BASIC_INFO: Final = ("cpuModel", "turboEnabled", "catL3CbmMask", "vendorID")
_POOL: Final = ("socket", "node", "cpuset")
_ALLOCATION: Final = ("namespace", "name", "uid", "cpuset", "cpu", "managedByKubelet")


@dataclass(frozen=True, slots=True)
class Pool:
    """A part of a pool, by the socket and the NUMA node that it lies in."""

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


def annotations(
    machine: Machine, state: NodeState, facts: CPUFacts, node_annotations: Mapping[str, str]
) -> dict[str, str]:
    """Everything that koordlet would publish of this node; `node_annotations` are those of the Node."""
    amplified = {keys.AMPLIFICATION: f'{{"cpu":{float(ratio(state)):.2f}}}'} if ratio(state) > 1 else {}
    return {
        keys.CPU_BASIC_INFO: _dump_basic_info(machine, facts),
        keys.CPU_TOPOLOGY: machines.detail(machine),
        keys.CPU_SHARED_POOLS: _dump_pools(machine, state.shared_pool),
        keys.BE_CPU_SHARED_POOLS: _dump_pools(machine, state.best_effort_pool),
        keys.CPU_MANAGER_POLICY: kubelets.dump(kubelet_settings(state)),
        keys.POD_CPU_ALLOCS: _dump_allocations(state),
        keys.RESERVATION: _dump_reservation(state, node_annotations),
        keys.SYSTEM_QOS: _dump_system(state, node_annotations),
        **amplified,
    }


def ratio(state: NodeState) -> Fraction:
    """How many times a CPU counts in what this node offers.

    Where the annotation that says so is on a NodeResourceTopology, Koordinator's scheduler takes its zones as
    amplified already; where it is not, it amplifies them itself by that of the Node.
    """
    return state.config.pools.amplification if state.config.policy == "pools" else _ONCE


def named(state: NodeState) -> int:
    """The CPUs, as a mask, that these annotations name as taken, which its scheduler leaves alone."""
    mask = kubelet_settings(state).reserved.mask
    for one in kubelets_pods(state):
        mask |= one.cpus.mask
    if state.config.policy == "pools":
        mask |= _withheld(state).mask | _exclusively_systems(state).mask
    return mask & state.usable.mask


def _withheld(state: NodeState) -> CPUSet:
    """CPUs that nobody uses under policy pools."""
    left_out = state.machine.isolated if state.config.pools.isolated_cpus == "exclude" else CPUSet()
    return (state.config.pools.withheld | left_out) & state.usable


def _exclusively_systems(state: NodeState) -> CPUSet:
    return state.config.pools.system & state.usable if state.config.pools.system_exclusive else CPUSet()


def _dump_reservation(state: NodeState, node_annotations: Mapping[str, str]) -> str:
    """As the Node says it, with the CPUs by name that its amount comes to; `{}` where nothing is kept."""
    said = nodesettings.read({}, node_annotations).reservation
    if state.config.policy == "pools":
        cpus, cpus_only = _withheld(state), state.config.pools.withheld_offered
    else:
        cpus, cpus_only = CPUSet.from_mask(said.withheld(state.topology) if said else 0), False
    where = annotation(keys.RESERVATION)
    told = tree(where, node_annotations[keys.RESERVATION], _RESERVATION) if said else {}
    policy = "ReservedCPUsOnly" if cpus_only else told.get("applyPolicy")
    amounts = {name: one for name, one in (told.get("resources") or {}).items() if _is_quantity(one)}
    parts = {"resources": amounts, "reservedCPUs": str(cpus), "applyPolicy": policy}
    return _json({name: part for name, part in parts.items() if part})


def _is_quantity(value: Any) -> bool:
    """Another makes upstream's reader drop the annotation, and with it the CPUs."""
    try:
        return isinstance(value, str | int) and quantity.parse(str(value)).nano >= 0
    except QuantityError:
        return False


def _dump_system(state: NodeState, node_annotations: Mapping[str, str]) -> str:
    """`null`, as upstream, where no CPUs are set aside."""
    if state.config.policy == "pools":
        cpus, exclusive = state.config.pools.system, state.config.pools.system_exclusive
    else:
        said = nodesettings.read({}, node_annotations)
        cpus, exclusive = said.system, said.system_exclusive
    return _json({"cpuset": str(cpus), "cpusetExclusive": exclusive} if cpus else None)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _dump_basic_info(machine: Machine, facts: CPUFacts) -> str:
    """False and empty fields are left out, as upstream does."""
    told = {
        "cpuModel": facts.model,
        "hyperThreadEnabled": any(cpus.bit_count() > 1 for _, cpus in machine.core_masks),
        "turboEnabled": facts.turbo,
        "catL3CbmMask": facts.cache_ways,
        "vendorID": facts.vendor,
    }
    return _json({name: value for name, value in told.items() if value})


def basic_info(published: Mapping[str, str]) -> CPUFacts:
    """What `cpu-basic-info` says of the CPUs. Raises TranslationError."""
    where = annotation(keys.CPU_BASIC_INFO)
    told = tree(where, published.get(keys.CPU_BASIC_INFO, ""), _BASIC_INFO)
    return CPUFacts(
        _text(where, told, "cpuModel"),
        _text(where, told, "vendorID"),
        bool(boolean(f"{where}.turboEnabled", told.get("turboEnabled"))),
        _text(where, told, "catL3CbmMask"),
    )


def _text(where: str, told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    if value is not None and not isinstance(value, str):
        raise TranslationError(f"{where}.{name}", value, "must be a string")
    return value or ""


def by_place(machine: Machine, pool: CPUSet) -> list[Pool]:
    """A pool's parts, by socket and NUMA node; parts without a CPU are left out."""
    parts = (
        Pool(socket, node, CPUSet.from_mask(package & inside & pool.mask))
        for socket, package in machine.socket_masks
        for node, inside in machine.numa_masks
    )
    return [part for part in parts if part.cpus]


def places(machine: Machine, zone: CPUSet) -> tuple[tuple[int, int], ...]:
    """The sockets and NUMA nodes of a zone (a set of NUMA nodes), as `cpuSharedPools` names them."""
    parts = by_place(machine, machine.usable)
    return tuple((part.socket, part.node) for part in parts if part.node in zone)


def _dump_pools(machine: Machine, pool: CPUSet) -> str:
    parts = by_place(machine, pool)
    return _json([{"socket": one.socket, "node": one.node, "cpuset": str(one.cpus)} for one in parts])


def pools(published: Mapping[str, str], key: str = keys.CPU_SHARED_POOLS) -> tuple[Pool, ...]:
    """The LS pool, or the BE pool under its `key`, as published. Raises TranslationError."""
    where = annotation(key)
    parts = items(where, listed(where, published.get(key, "")))
    return tuple(_pool(path, member(path, one, _POOL)) for path, one in parts)


def _pool(where: str, part: Mapping[str, Any]) -> Pool:
    return Pool(*place(where, part), cpus(f"{where}.cpuset", part.get("cpuset")))


def kubelet_settings(state: NodeState) -> KubeletSettings:
    """How the node's CPU and topology managers would look were they a kubelet's: static, or none.

    Reserved CPUs count under pools too, for they are what a kubelet's are: in the pool, and nobody's own.
    """
    config = state.config
    policy, scope = aligned(state)
    if config.policy != "static":
        reserved = state.reserved if config.policy == "pools" else CPUSet()
        return KubeletSettings(reserved=reserved, topology_policy=policy, topology_scope=scope)
    names = (name for name in config.options.__dataclass_fields__ if getattr(config.options, name) is True)
    options = {name.replace("_", "-"): "true" for name in names}
    return KubeletSettings("static", options, state.reserved, policy, scope)


def aligned(state: NodeState) -> tuple[str, str]:
    """How resources are aligned to NUMA nodes here, in the kubelet's words for policy and scope."""
    config = state.config
    if config.policy == "pools":
        return kubelets.WORDS[config.pools.numa], "pod"
    return (config.numa.policy if config.policy != "none" else "none"), config.numa.scope


def _dump_allocations(state: NodeState) -> str:
    """Null where there are none, as upstream."""
    allocations = kubelets_pods(state)
    if not allocations:
        return "null"
    return _json([dict(_members(one)) for one in allocations])


def _members(one: PodCPUs) -> Iterator[tuple[str, str | bool]]:
    """Without what is empty, as upstream: a kubelet may remember pods that are gone."""
    texts = {"namespace": one.namespace, "name": one.name, "uid": one.uid, "cpuset": str(one.cpus)}
    yield from ((name, text) for name, text in texts.items() if text)
    yield "managedByKubelet", True


def kubelets_pods(state: NodeState) -> list[PodCPUs]:
    """The pods that a kubelet gave CPUs, each with those of its containers together, by UID."""
    found: dict[tuple[str, str], int] = {}
    for entry in state.entries.values():
        if entry.origin is Origin.KUBELET and entry.exclusive:
            found[entry.uid, entry.pod] = found.get((entry.uid, entry.pod), 0) | entry.cpus.mask
    return [_pod_cpus(pod, uid, mask) for (uid, pod), mask in sorted(found.items())]


def _pod_cpus(pod: str, uid: str, mask: int) -> PodCPUs:
    """A pod that is known by its UID only has no namespace, and then is given no name."""
    namespace, _, name = pod.rpartition("/")
    return PodCPUs(namespace, name if namespace else "", uid, CPUSet.from_mask(mask))


def pod_allocations(published: Mapping[str, str]) -> tuple[PodCPUs, ...]:
    """The pods that `pod-cpu-allocs` names. The proposal's `cpu` and "true" are understood too.

    Raises TranslationError.
    """
    where = annotation(keys.POD_CPU_ALLOCS)
    parts = items(where, listed(where, published.get(keys.POD_CPU_ALLOCS, "")))
    return tuple(_allocation(path, member(path, one, _ALLOCATION)) for path, one in parts)


def _allocation(where: str, part: Mapping[str, Any]) -> PodCPUs:
    return PodCPUs(
        _text(where, part, "namespace"),
        _text(where, part, "name"),
        _text(where, part, "uid"),
        cpus(f"{where}.cpuset", part.get("cpuset", part.get("cpu"))),
        bool(boolean(f"{where}.managedByKubelet", part.get("managedByKubelet"))),
    )
