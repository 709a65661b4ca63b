"""Settings of a node: its labels and annotations, its kubelet's settings, and the pool options of both.

The kubelet's settings are read from a NodeResourceTopology, as koordlet and other agents publish them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate.fields import (
    TranslationError,
    amount,
    annotation,
    boolean,
    choice,
    cpus,
    json_object,
    label,
    member,
)
from corelane.node.config import AllocatorName, Policy, PoolOptions
from corelane.node.pools import classes
from corelane.node.pools.classes import NodePolicies
from corelane.placement.kubelet import picker
from corelane.placement.topology import Topology
from corelane.placement.topologymanager import DEFAULT_MAX_NUMA_NODES, Scope
from corelane.placement.topologymanager import Policy as KubeletPolicy
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy

_MOST_MAX_NUMA_NODES: Final = 1024
POLICY: Final = "topologyManagerPolicy"
SCOPE: Final = "topologyManagerScope"
MAX_NUMA_NODES: Final = "topologyManagerMaxNUMANodes"

_T = TypeVar("_T")
_BINDS: Final = {"FullPCPUsOnly": BindPolicy.FULL_PCPUS, "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS}
_NO_RATIOS: Final[Mapping[str, Fraction]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reservation:
    """CPUs withheld from pods, by id or else by amount (in milliCPU), and bytes of memory."""

    cpus: CPUSet = field(default_factory=CPUSet)
    milli: int = 0
    memory: int = 0
    cpus_only: bool = False
    """Whether the CPUs are only withheld from exclusive use, and what is allocatable does not change."""

    def withheld(self, topology: Topology) -> int:
        """Return the CPUs as a mask: those named, else as many as the kubelet would pick for the amount."""
        if self.cpus:
            return self.cpus.mask & topology.all
        count = min(-(-self.milli // 1000), topology.all.bit_count())
        return picker.take_valid(topology, topology.all, count, picker.Strategy())


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """Settings in the labels and annotations of a Node; invalid ones are in `faults` and count as absent."""

    policies: NodePolicies = field(default_factory=NodePolicies)
    reservation: Reservation | None = None
    system: CPUSet = field(default_factory=CPUSet)
    """CPUs of SYSTEM pods."""
    system_exclusive: bool = True
    amplification: Mapping[str, Fraction] = field(default_factory=lambda: _NO_RATIOS)
    """Resource to amplification ratio, where it is above 1."""
    policy: Policy | None = None
    """corelane's policy for the node's CPUs; None where no label names it."""
    allocator: AllocatorName | None = None
    """corelane's allocator under policy pools."""
    faults: tuple[TranslationError, ...] = ()


def node_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NodeLabels:
    """Read a Node's labels and annotations; an invalid one does not affect the others."""
    faults: list[TranslationError] = []

    def attempt(reading: Callable[[], _T], default: _T) -> _T:
        try:
            return reading()
        except TranslationError as error:
            faults.append(error)
            return default

    strategy, ratios = labels.get(keys.NODE_NUMA_STRATEGY, ""), annotations.get(keys.AMPLIFICATION, "")
    node_policies = NodePolicies(
        attempt(lambda: _bind(labels), None),
        attempt(lambda: choice(label(keys.NODE_NUMA_STRATEGY), strategy, NUMAStrategy), None),
        attempt(lambda: _numa(labels), None),
    )
    system = attempt(lambda: _system(annotations.get(keys.SYSTEM_QOS, "")), (CPUSet(), True))
    return NodeLabels(
        node_policies,
        attempt(lambda: _reservation(annotations.get(keys.RESERVATION, "")), None),
        *system,
        attempt(lambda: _amplification(ratios), _NO_RATIOS),
        attempt(lambda: _own_label(labels, keys.NODE_POLICY, get_args(Policy)), None),
        attempt(lambda: _own_label(labels, keys.NODE_ALLOCATOR, get_args(AllocatorName)), None),
        tuple(faults),
    )


def _own_label(labels: Mapping[str, str], key: str, words: tuple[str, ...]) -> Any:
    text = labels.get(key, "")
    if text not in ("", *words):
        raise TranslationError(label(key), text, f"use {', '.join(words[:-1])} or {words[-1]}")
    return text or None


def _bind(labels: Mapping[str, str]) -> BindPolicy | None:
    key, text = _first(labels, keys.NODE_BIND_POLICY, keys.NODE_BIND_POLICY_PROPOSED)
    if text in ("", "None"):
        return None
    if text not in _BINDS:
        raise TranslationError(label(key), text, "use None, FullPCPUsOnly or SpreadByPCPUs")
    return _BINDS[text]


def _first(texts: Mapping[str, str], *spellings: str) -> tuple[str, str]:
    """The first of these keys with a text, and the text; the first key and "" where there is none."""
    return next(((key, texts[key]) for key in spellings if texts.get(key)), (spellings[0], ""))


def _numa(labels: Mapping[str, str]) -> NUMAPolicy | None:
    """The label as upstream's code spells it, else as the proposal does, else gocrane's awareness.

    Empty is absent, so that the kubelet's policy holds; `None` aligns nothing.
    """
    key, text = _first(labels, keys.NODE_NUMA_POLICY, keys.NODE_NUMA_ALIGNMENT)
    if text:
        return choice(label(key), text, NUMAPolicy, ("None",)) or NUMAPolicy.NONE
    aware = boolean(label(keys.CRANE_AWARENESS), labels.get(keys.CRANE_AWARENESS) or None)
    if aware is None:
        return None
    return NUMAPolicy.SINGLE_NUMA_NODE if aware else NUMAPolicy.NONE


def _reservation(text: str) -> Reservation | None:
    where = annotation(keys.RESERVATION)
    members = json_object(where, text, ("resources", "reservedCPUs", "applyPolicy"))
    if not members:
        return None
    apply = members.get("applyPolicy")
    if apply not in (None, "", "Default", "ReservedCPUsOnly"):
        raise TranslationError(f"{where}.applyPolicy", apply, "use Default or ReservedCPUsOnly")
    amounts = member(f"{where}.resources", members.get("resources"))
    return Reservation(
        cpus(f"{where}.reservedCPUs", members.get("reservedCPUs")),
        amount(f"{where}.resources.cpu", amounts.get("cpu"), quantity.milli),
        amount(f"{where}.resources.memory", amounts.get("memory"), quantity.value),
        cpus_only=apply == "ReservedCPUsOnly",
    )


def _system(text: str) -> tuple[CPUSet, bool]:
    where = annotation(keys.SYSTEM_QOS)
    members = json_object(where, text, ("cpuset", "cpusetExclusive"))
    exclusive = boolean(f"{where}.cpusetExclusive", members.get("cpusetExclusive"))
    return cpus(f"{where}.cpuset", members.get("cpuset")), exclusive is not False


def _amplification(text: str) -> Mapping[str, Fraction]:
    where = annotation(keys.AMPLIFICATION)
    ratios = {}
    for name, value in json_object(where, text).items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1000:
            why = "must be a number such as 1.50, above 0 and below 1000"
            raise TranslationError(f"{where}.{name}", value, why)
        # The decimal number as written: 1.1 is 11/10, not the binary fraction next to it.
        ratios[name] = Fraction(str(value)).limit_denominator(1_000_000)
    return {name: ratio for name, ratio in ratios.items() if ratio > 1}


# The kubelet's settings.

_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_KUBELET_NUMA: Final[Mapping[str, NUMAPolicy]] = {
    "best-effort": NUMAPolicy.BEST_EFFORT,
    "restricted": NUMAPolicy.RESTRICTED,
    "single-numa-node": NUMAPolicy.SINGLE_NUMA_NODE,
}
KUBELET_POLICIES: Final[Mapping[NUMAPolicy, str]] = {NUMAPolicy.NONE: "none"} | {
    policy: word for word, policy in _KUBELET_NUMA.items()
}
"""Koordinator's topology policies in the kubelet's words."""
_SCOPES: Final[Mapping[str, str]] = {"container": "ContainerLevel", "pod": "PodLevel"}
_TOPOLOGY_POLICIES: Final = {
    f"{numa}{level}": (policy, scope)
    for policy, numa in _KUBELET_NUMA.items()
    for scope, level in (*_SCOPES.items(), ("container", ""))
}
"""Words of `topologyPolicies`; the older ones do not name the scope."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Settings of a kubelet's CPU manager and topology manager."""

    policy: str = "none"
    """CPU manager policy: `none` or `static`."""
    options: Mapping[str, str] = field(default_factory=lambda: _NO_OPTIONS)
    """`cpuManagerPolicyOptions`."""
    reserved: CPUSet = field(default_factory=CPUSet)
    topology_policy: str = "none"
    topology_scope: str = "container"

    @property
    def policies(self) -> NodePolicies:
        """The policies that follow for all pods of the node, by the proposal's rules."""
        return NodePolicies(
            BindPolicy.FULL_PCPUS if self._has("full-pcpus-only") else None,
            NUMAStrategy.DISTRIBUTE_EVENLY if self._has("distribute-cpus-across-numa") else None,
            _KUBELET_NUMA.get(self.topology_policy),
        )

    def _has(self, option: str) -> bool:
        return self.policy == "static" and bool(boolean(option, self.options.get(option)))


def published_kubelet(published: NodeResourceTopology) -> KubeletSettings:
    """Read the settings of a node's kubelet from a NodeResourceTopology; every part is optional.

    The CPU manager's are in Koordinator's annotation. The topology manager's are in attributes (v1alpha2),
    else in `topologyPolicies`. Raises TranslationError.
    """
    key, text = _first(
        published.metadata.annotations, keys.CPU_MANAGER_POLICY, *keys.CPU_MANAGER_POLICY_PROPOSED
    )
    words = (word for word in published.topology_policies if word in _TOPOLOGY_POLICIES)
    policy, scope = _TOPOLOGY_POLICIES.get(next(words, ""), ("none", "container"))
    by_words = TopologyManager(cast("KubeletPolicy", policy), cast("Scope", scope))
    cpu_manager, manager = _cpu_manager(key, text), with_attributes(published, by_words)
    return KubeletSettings(*cpu_manager, manager.policy, manager.scope)


@lru_cache(256)
def _cpu_manager(key: str, text: str) -> tuple[str, Mapping[str, str], CPUSet]:
    """Policy, options and reserved CPUs; most nodes of a cluster have the same."""
    where = annotation(key)
    members = json_object(where, text, ("policy", "options", "reservedCPUs"))
    policy = members.get("policy")
    if policy not in (None, "", "none", "static"):
        raise TranslationError(f"{where}.policy", policy, "use none or static")
    options = {}  # texts, as in the kubelet's configuration; a JSON boolean becomes its text
    for name, option in member(f"{where}.options", members.get("options")).items():
        if not isinstance(option, str | bool):
            raise TranslationError(f"{where}.options.{name}", option, 'must be a string such as "true"')
        options[name] = str(option).lower() if isinstance(option, bool) else option
    for name in ("full-pcpus-only", "distribute-cpus-across-numa"):
        boolean(f"{where}.options.{name}", options.get(name))
    return policy or "none", options, cpus(f"{where}.reservedCPUs", members.get("reservedCPUs"))


def topology_policies(policy: str, scope: str) -> list[str]:
    """Return the words of `topologyPolicies` for a topology manager's policy and scope, koordlet's first.

    Koordinator's scheduler takes the first word that it knows: for whole pods only SingleNUMANodePodLevel,
    else the older words, without scope. Other readers take the first word.
    """
    if policy not in _KUBELET_NUMA:
        return ["None"]
    numa = _KUBELET_NUMA[policy]
    word = f"{numa}{_SCOPES.get(scope, _SCOPES['container'])}"
    older = scope == "pod" and numa is not NUMAPolicy.SINGLE_NUMA_NODE
    return [word, numa.value] if older else [word]


def dump_kubelet(settings: KubeletSettings) -> str:
    """Return the CPU manager's annotation as koordlet writes it, without empty parts."""
    members: dict[str, Any] = {"policy": settings.policy}
    if settings.options:
        members["options"] = dict(sorted(settings.options.items()))
    if settings.reserved:
        members["reservedCPUs"] = str(settings.reserved)
    return msgspec.json.encode(members).decode()


# Both together.


def pool_options(
    labels: NodeLabels, kubelet: KubeletSettings, profile: PoolOptions, topology: Topology
) -> PoolOptions:
    """Return a node's options under policy `pools`: its labels', else its kubelet's, else the profile's."""
    of_profile = NodePolicies(profile.node_bind, profile.strategy, profile.numa)
    merged = classes.merged(labels.policies, kubelet.policies, of_profile)
    options = replace(
        profile,
        allocator=labels.allocator or profile.allocator,
        node_bind=merged.bind,
        strategy=merged.strategy,
        numa=merged.numa,
        amplification=labels.amplification.get("cpu", profile.amplification),
    )
    if labels.reservation:
        withheld = labels.reservation.withheld(topology) | profile.withheld.mask
        offered = labels.reservation.cpus_only
        options = replace(
            options,
            withheld=CPUSet.from_mask(withheld),
            withheld_offered=offered,
            withheld_memory=0 if offered else labels.reservation.memory,
        )
    if labels.system:
        options = replace(options, system=labels.system, system_exclusive=labels.system_exclusive)
    return options


class TopologyManager(NamedTuple):
    """A kubelet's topology manager as published; `problems` are values that count as absent."""

    policy: KubeletPolicy = "none"
    scope: Scope = "container"
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES
    problems: tuple[str, ...] = ()


def with_attributes(published: NodeResourceTopology, manager: TopologyManager) -> TopologyManager:
    """Return the settings with those that attributes override; invalid ones are ignored, and named."""
    for index, attribute in enumerate(published.attributes):
        name, text = attribute.name, attribute.value
        if name == POLICY and text in get_args(KubeletPolicy):
            manager = manager._replace(policy=text)  # type: ignore[arg-type]
        elif name == SCOPE and text in get_args(Scope):
            manager = manager._replace(scope=text)  # type: ignore[arg-type]
        elif name == MAX_NUMA_NODES and re.fullmatch(r"\+?[0-9]{1,9}", text, re.ASCII) and int(text) > 1:
            manager = manager._replace(max_numa_nodes=min(int(text), _MOST_MAX_NUMA_NODES))
        elif name in _EXPECTED:
            why = f"{name} must be {_EXPECTED[name]}; it is ignored"
            problem = TranslationError(f"attributes[{index}].value", text, why)
            manager = manager._replace(problems=(*manager.problems, str(problem)))
    return manager


_EXPECTED: Final = {
    POLICY: "none, best-effort, restricted or single-numa-node",
    SCOPE: "container or pod",
    MAX_NUMA_NODES: "an integer above 1",
}
