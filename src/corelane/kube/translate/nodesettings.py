"""What an operator says about a node in its labels and annotations, and what follows for policy `pools`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.translate.annotations import amount, annotation, boolean, cpus, label, member, tree, word
from corelane.kube.translate.errors import TranslationError
from corelane.kube.translate.kubelets import KubeletSettings
from corelane.node import policies
from corelane.node.config import Policy
from corelane.node.policies import NodePolicies
from corelane.node.pools.options import AllocatorName, PoolOptions
from corelane.placement.kubelet import picker
from corelane.placement.topology import Topology
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy

__all__ = ["NodeSettings", "Reservation", "pool_options", "read"]

_T = TypeVar("_T")
_BINDS: Final = {"FullPCPUsOnly": BindPolicy.FULL_PCPUS, "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS}
_ALL_AT_ONE: Final[Mapping[str, Fraction]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reservation:
    """CPUs that pods do not get: these, else so many (in milliCPU); and bytes of memory."""

    cpus: CPUSet = field(default_factory=CPUSet)
    milli: int = 0
    memory: int = 0
    cpus_only: bool = False
    """Only CPUs that pods would have alone are kept; what may be requested stays as it is."""

    def withheld(self, topology: Topology) -> int:
        """The CPUs, as a mask: those named, else as many as the amount comes to, picked as by the kubelet."""
        if self.cpus:
            return self.cpus.mask & topology.all
        count = min(-(-self.milli // 1000), topology.all.bit_count())
        return picker.take_valid(topology, topology.all, count, picker.Strategy())


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Labels and annotations of a Node, understood; what could not be is in `faults` and counts as absent."""

    policies: NodePolicies = field(default_factory=NodePolicies)
    reservation: Reservation | None = None
    system: CPUSet = field(default_factory=CPUSet)
    """Where SYSTEM pods run."""
    system_exclusive: bool = True
    amplification: Mapping[str, Fraction] = field(default_factory=lambda: _ALL_AT_ONE)
    """Resource to how many times it counts, where that is more than once."""
    policy: Policy | None = None
    """Ours: how the node's CPUs are given, None where the labels do not say."""
    allocator: AllocatorName | None = None
    """Ours: who picks CPUs under policy pools."""
    faults: tuple[TranslationError, ...] = ()


def read(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NodeSettings:
    """What a Node's labels and annotations say; a broken one spoils only itself."""
    faults: list[TranslationError] = []

    def attempt(reading: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return reading()
        except TranslationError as error:
            faults.append(error)
            return otherwise

    found = NodePolicies(
        attempt(lambda: _bind(labels), None),
        attempt(lambda: _strategy(labels.get(keys.NODE_NUMA_STRATEGY, "")), None),
        attempt(lambda: _numa(labels), None),
    )
    system = attempt(lambda: _system(annotations.get(keys.SYSTEM_QOS, "")), (CPUSet(), True))
    return NodeSettings(
        found,
        attempt(lambda: _reservation(annotations.get(keys.RESERVATION, "")), None),
        *system,
        attempt(lambda: _amplification(annotations.get(keys.AMPLIFICATION, "")), _ALL_AT_ONE),
        attempt(lambda: _named(labels, keys.NODE_POLICY, get_args(Policy)), None),
        attempt(lambda: _named(labels, keys.NODE_ALLOCATOR, get_args(AllocatorName)), None),
        tuple(faults),
    )


def _named(labels: Mapping[str, str], key: str, words: tuple[str, ...]) -> Any:
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


def _first(labels: Mapping[str, str], *spellings: str) -> tuple[str, str]:
    """A label under the first of its spellings that says something."""
    return next(((key, labels[key]) for key in spellings if labels.get(key)), (spellings[0], ""))


def _strategy(text: str) -> NUMAStrategy | None:
    return word(label(keys.NODE_NUMA_STRATEGY), text, NUMAStrategy)


def _numa(labels: Mapping[str, str]) -> NUMAPolicy | None:
    """The label as the code spells it, else as the proposal does, else gocrane's awareness.

    Empty is not said, so the kubelet's policy holds; `None` says that nothing is aligned.
    """
    key, text = _first(labels, keys.NODE_NUMA_POLICY, keys.NODE_NUMA_ALIGNMENT)
    if text:
        return word(label(key), text, NUMAPolicy, ("None",)) or NUMAPolicy.NONE
    aware = boolean(label(keys.CRANE_AWARENESS), labels.get(keys.CRANE_AWARENESS) or None)
    if aware is None:
        return None
    return NUMAPolicy.SINGLE_NUMA_NODE if aware else NUMAPolicy.NONE


def _reservation(text: str) -> Reservation | None:
    where = annotation(keys.RESERVATION)
    told = tree(where, text, ("resources", "reservedCPUs", "applyPolicy"))
    if not told:
        return None
    apply = told.get("applyPolicy")
    if apply not in (None, "", "Default", "ReservedCPUsOnly"):
        raise TranslationError(f"{where}.applyPolicy", apply, "use Default or ReservedCPUsOnly")
    amounts = member(f"{where}.resources", told.get("resources"))
    return Reservation(
        cpus(f"{where}.reservedCPUs", told.get("reservedCPUs")),
        amount(f"{where}.resources.cpu", amounts.get("cpu", "0"), quantity.milli),
        amount(f"{where}.resources.memory", amounts.get("memory", "0"), quantity.value),
        cpus_only=apply == "ReservedCPUsOnly",
    )


def _system(text: str) -> tuple[CPUSet, bool]:
    where = annotation(keys.SYSTEM_QOS)
    told = tree(where, text, ("cpuset", "cpusetExclusive"))
    exclusive = boolean(f"{where}.cpusetExclusive", told.get("cpusetExclusive"))
    return cpus(f"{where}.cpuset", told.get("cpuset")), exclusive is not False


def _amplification(text: str) -> Mapping[str, Fraction]:
    where = annotation(keys.AMPLIFICATION)
    told = {name: value for name, value in tree(where, text).items() if value is not None}
    ratios = {name: _ratio(f"{where}.{name}", value) for name, value in told.items()}
    return {name: ratio for name, ratio in ratios.items() if ratio > 1}


def _ratio(where: str, value: Any) -> Fraction:
    """Exact to what was written, up to a millionth: 1.1 is 11/10, not the binary fraction next to it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1000:
        raise TranslationError(where, value, "must be a number such as 1.50, above 0 and below 1000")
    return Fraction(str(value)).limit_denominator(1_000_000)


def pool_options(
    settings: NodeSettings, kubelets: KubeletSettings, profile: PoolOptions, topology: Topology
) -> PoolOptions:
    """The options of a node under policy `pools`: what its labels say, else its kubelet, else the profile."""
    named = NodePolicies(profile.node_bind, profile.strategy, profile.numa)
    found = policies.merged(settings.policies, kubelets.policies, named)
    options = replace(
        profile,
        allocator=settings.allocator or profile.allocator,
        node_bind=found.bind,
        strategy=found.strategy,
        numa=found.numa or NUMAPolicy.NONE,
        amplification=settings.amplification.get("cpu", profile.amplification),
    )
    if settings.reservation:
        withheld = settings.reservation.withheld(topology) | profile.withheld.mask
        offered = settings.reservation.cpus_only
        options = replace(
            options,
            withheld=CPUSet.from_mask(withheld),
            withheld_offered=offered,
            withheld_memory=0 if offered else settings.reservation.memory,
        )
    if settings.system:
        options = replace(options, system=settings.system, system_exclusive=settings.system_exclusive)
    return options
