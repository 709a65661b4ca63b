"""A node's published NUMA zones, and the pods that the published amounts do not count yet.

An exporter publishes every minute or so, and nobody knows the NUMA node that the kubelet will choose for a
pod. As scheduler-plugins' OverReserve cache, such a pod is therefore taken off every zone until a version of
the object counts it: free CPUs may be overlooked for that time, none is promised twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from corelane.placement.topologymanager import DEFAULT_MAX_NUMA_NODES, Policy, Scope
from corelane.workload.request import Amounts, summed

_NO_AMOUNTS: Final[Amounts] = MappingProxyType({})
_NO_PODS: Final[Mapping[str, Amounts]] = MappingProxyType({})
_NO_DISTANCES: Final[Mapping[int, int]] = MappingProxyType({})


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
    reserved = MappingProxyType(summed(assumed.values()))
    return replace(state, assumed=MappingProxyType(dict(assumed)), reserved=reserved)


# The fingerprint of a set of pods, by which an exporter names the pods that its zones count. Upstream:
# `podfingerprint` of k8stopologyawareschedwg (v0.2.2): XXH64 of the sorted hashes of all pods.


_PREFIX: Final = "pfp0v001"
_MASK: Final = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given by namespace and name, in any order."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    total = xxh64(b"".join(digest.to_bytes(8, "little") for digest in hashes))
    return f"{_PREFIX}{total:016x}"


@lru_cache(maxsize=1 << 16)
def _pod_hash(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash of bytes."""
    length, at = len(data), 0
    if length >= 32:
        total, at = _stripes(data, seed)
    else:
        total = seed + _P5 & _MASK
    total = total + length & _MASK
    while at + 8 <= length:
        total ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        total = _rotated(total, 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= length:
        total ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = _rotated(total, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        total ^= byte * _P5 & _MASK
        total = _rotated(total, 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """The hash of all whole 32-byte stripes, and where they end."""
    lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
    end = len(data) - len(data) % 32
    for at in range(0, end, 32):
        for lane in range(4):
            word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
            lanes[lane] = _round(lanes[lane], word)
    total = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for one in lanes:
        total = (total ^ _round(0, one)) * _P1 + _P4 & _MASK
    return total, end


def _round(total: int, word: int) -> int:
    return _rotated(total + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK
