"""A node's published NUMA zones, and the pods that the published amounts do not count yet.

An exporter publishes every minute or so, and nobody knows the NUMA node that the kubelet will choose for a
pod. As scheduler-plugins' OverReserve cache, such a pod is therefore taken off every zone until a version of
the object counts it: free CPUs may be overlooked for that time, none is promised twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from corelane.placement.topologymanager import Policy, Scope
from corelane.workload import Amounts

_NO_AMOUNTS: Final[Amounts] = MappingProxyType({})
_NO_PODS: Final[Mapping[str, Amounts]] = MappingProxyType({})
_NO_DISTANCES: Final[Mapping[int, int]] = MappingProxyType({})
DEFAULT_MAX_NUMA_NODES: Final = 8


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: resource to what the exporter says is available. CPU in milliCPU, others in units."""

    id: int
    available: Amounts
    distances: Mapping[int, int] = field(default_factory=lambda: _NO_DISTANCES)
    """NUMA node id to distance, as far as published."""


@dataclass(frozen=True, slots=True)
class CraneRules:
    """Settings of a node of gocrane's."""

    pins: bool = True
    """Whether gocrane's agent pins pods here, and not the kubelet."""
    aware: bool = True
    """Whether all CPUs of a pod come from one NUMA node, unless the pod says otherwise."""


@dataclass(frozen=True, slots=True)
class ZonesState:
    """Everything known of a node whose exporter publishes zones only."""

    zones: tuple[Zone, ...] = ()
    """In the order of the object."""
    policy: Policy = "none"
    """The kubelet's topology manager policy."""
    scope: Scope = "container"
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES
    crane: CraneRules | None = None
    """Where gocrane's rules hold, and not scheduler-plugins'; `available` is without placed pods then."""
    assumed: Mapping[str, Amounts] = field(default_factory=lambda: _NO_PODS)
    """Pod UID to its request, for pods that `zones` does not count yet."""
    reserved: Amounts = field(default_factory=lambda: _NO_AMOUNTS)
    """The sum of `assumed`."""

    @property
    def free(self) -> tuple[Zone, ...]:
        """The zones without the assumed pods, each taken off every zone, never below 0."""
        if not self.reserved:
            return self.zones
        return tuple(replace(zone, available=self._without_assumed(zone)) for zone in self.zones)

    def _without_assumed(self, zone: Zone) -> Amounts:
        return {
            name: max(0, amount - self.reserved[name]) if name in self.reserved else amount
            for name, amount in zone.available.items()
        }


def assume(state: ZonesState, uid: str, amounts: Amounts) -> ZonesState:
    """Return the state with a pod that the published zones do not count yet."""
    if uid in state.assumed:
        return state
    return _with_assumed(state, {**state.assumed, uid: amounts})


def forget(state: ZonesState, uid: str) -> ZonesState:
    """Return the state without an assumed pod; one that is not assumed changes nothing."""
    if uid not in state.assumed:
        return state
    return _with_assumed(state, {key: amounts for key, amounts in state.assumed.items() if key != uid})


def _with_assumed(state: ZonesState, assumed: Mapping[str, Amounts]) -> ZonesState:
    reserved: dict[str, int] = {}
    for amounts in assumed.values():
        for name, amount in amounts.items():
            reserved[name] = reserved.get(name, 0) + amount
    return replace(state, assumed=MappingProxyType(dict(assumed)), reserved=MappingProxyType(reserved))
