"""Parts of the ledger: an entry per container (CPUs, origin, phase), and rules about other pods."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from corelane.cpuset import CPUSet
from corelane.placement.memory_blocks import MemoryBlock
from corelane.workload import (
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    Operator,
    PodCPUAffinity,
    Selector,
    TopologyLevel,
)
from corelane.workload.request import Amounts, ContainerKind, QOSClass

Key: TypeAlias = tuple[str, str]
"""Pod UID and container name."""
WHOLE_POD: Final = "*"
"""Container name of an entry that stands for a whole pod."""


class Phase(StrEnum):
    """Phases of an entry, from a decision to the kernel and out again."""

    RESERVED = "reserved"
    APPLIED = "applied"
    CONFIRMED = "confirmed"
    RELEASING = "releasing"


class Origin(StrEnum):
    """Component that decided an entry's CPUs."""

    KUBELET = "kubelet"
    SCHEDULER = "scheduler"
    CORELANE = "corelane"
    ADOPTED = "adopted"


class Sharing(StrEnum):
    """Sharing of the CPUs that a container runs on with other pods."""

    ALONE = "alone"
    """Exclusive in the kubelet's sense, and Koordinator's LSE."""
    SHARED_WITH_BE = "lent"
    """Exclusive, shared with BE only: Koordinator's LSR."""
    POOL = "pool"
    """The shared pool, of all containers without exclusive CPUs."""
    BEST_EFFORT = "best-effort"
    """The BE pool: the shared pool, and exclusive CPUs shared with BE."""
    SYSTEM = "system"
    """The CPUs set aside for Koordinator's SYSTEM pods; where there are none, the shared pool."""

    @property
    def exclusive(self) -> bool:
        """Whether its CPUs are taken from the shared pool."""
        return self in (Sharing.ALONE, Sharing.SHARED_WITH_BE)

    def compatible_with(self, other: "Sharing") -> bool:
        """Whether two containers that share so may meet on a CPU; the same both ways."""
        return other not in _APART[self]


_APART: Final[Mapping[Sharing, frozenset[Sharing]]] = MappingProxyType(
    {
        Sharing.ALONE: frozenset(Sharing),
        Sharing.SHARED_WITH_BE: frozenset(Sharing) - {Sharing.BEST_EFFORT},
        Sharing.POOL: frozenset({Sharing.ALONE, Sharing.SHARED_WITH_BE}),
        Sharing.BEST_EFFORT: frozenset({Sharing.ALONE}),
        Sharing.SYSTEM: frozenset({Sharing.ALONE, Sharing.SHARED_WITH_BE}),
    }
)


@dataclass(frozen=True, slots=True)
class Bubble:
    """Resources allocated to a pod as a whole, for its containers to share out (KEP-5526)."""

    cpus: CPUSet = field(default_factory=CPUSet)
    memory: tuple[MemoryBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One container on this node; without `cpus` it runs in a pool. CPU request in milliCPU.

    With `cpus` and sharing POOL it is bound to CPUs that others in the pool use too.
    """

    uid: str
    container: str
    pod: str
    """`namespace/name`."""
    cpus: CPUSet = field(default_factory=CPUSet)
    sharing: Sharing = Sharing.POOL
    common: bool = False
    """Its CPUs are the pod's: all containers of the pod that say so have the same."""
    zone: CPUSet | None = None
    """NUMA nodes to whose part of its pool it is held; None is all of the pool."""
    mems: CPUSet | None = None
    """NUMA nodes that its memory is bound to; None leaves that to the kernel."""
    cls: str = QOSClass.BEST_EFFORT.value
    kind: ContainerKind = ContainerKind.APP
    origin: Origin = Origin.CORELANE
    allocator: str = ""
    phase: Phase = Phase.RESERVED
    cpu_request: int = 0
    memory: tuple[MemoryBlock, ...] = ()
    """Memory that the memory manager reserves for it on `mems`."""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=partial(MappingProxyType, {}))
    """Extended resource to the ids of the devices that it has."""
    bubble: Bubble | None = None
    """The pod's, of which its CPUs and memory are a part; free again with the last of its containers."""
    lost: CPUSet = field(default_factory=CPUSet)
    """CPUs that it had when they went off-line; it gets them back with them, unless another has them then."""
    lost_sharing: Sharing | None = None
    """Sharing of its CPUs until it lost the last one."""

    @property
    def key(self) -> Key:
        return self.uid, self.container

    @property
    def exclusive(self) -> bool:
        """Whether it has CPUs that are not in the shared pool."""
        return self.sharing.exclusive

    @property
    def placed(self) -> bool:
        """Whether it is bound to CPUs or held to NUMA nodes, of which others must know."""
        return bool(self.cpus) or self.zone is not None


def exclusive_mask(entries: Iterable[Entry]) -> int:
    """The CPUs that are some entry's or its pod's, and not in the shared pool."""
    mask = 0
    for entry in entries:
        if entry.exclusive:
            mask |= entry.cpus.mask
        if entry.bubble:
            mask |= entry.bubble.cpus.mask
    return mask


def shared_with_be_mask(entries: Iterable[Entry]) -> int:
    """Return the exclusive CPUs that are shared with BE, as a mask."""
    mask = 0
    for entry in entries:
        if entry.sharing is Sharing.SHARED_WITH_BE:
            mask |= entry.cpus.mask
    return mask


def bound_mask(entries: Iterable[Entry]) -> int:
    """Return the CPUs that some container is bound to, exclusive or in the shared pool, as a mask."""
    mask = 0
    for entry in entries:
        mask |= entry.cpus.mask
        if entry.bubble:
            mask |= entry.bubble.cpus.mask
    return mask


def claimed_before(entries: Iterable[Entry]) -> Iterator[tuple[Entry, int]]:
    """Each entry with the CPUs, as a mask, that an earlier one already has: with those it may not share them.

    Within a pod a plain init container is gone before the others start, so it may share with them; and
    containers with the pod's common CPUs, or in its bubble, share these.
    """
    everybody = 0
    first: dict[str, int] = {}
    lasting: dict[str, int] = {}
    common: dict[str, int] = {}
    for entry in entries:
        mask, uid = entry.cpus.mask, entry.uid
        if entry.bubble:
            mask |= entry.bubble.cpus.mask
        of_others = everybody & ~first.get(uid, 0)
        beside = 0 if entry.kind is ContainerKind.INIT or entry.bubble else lasting.get(uid, 0)
        if entry.kind is not ContainerKind.INIT and not (entry.common and mask == common.get(uid)):
            beside |= common.get(uid, 0)
        yield entry, mask & (of_others | beside)
        everybody |= mask
        first[uid] = first.get(uid, 0) | mask & ~of_others
        remaining = common if entry.common else lasting
        if entry.common or entry.kind is not ContainerKind.INIT:
            remaining[uid] = remaining.get(uid, 0) | mask


_NO_AMOUNTS: Final[Mapping[int, Amounts]] = MappingProxyType({})
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod with CPUs or a zone: its labels, and its rules about other pods nearby."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    exclusive_policy: ExclusivePolicy = ExclusivePolicy.NONE
    exclusive: Exclusivity | None = None
    avoids: tuple[PodCPUAffinity, ...] = ()
    """Its affinities that keep other pods away, pods admitted later included."""
    burst: int = 0
    """MilliCPU up to which it may burst within its zone: ConstrainedBurst's limit."""
    amounts: Mapping[int, Amounts] = field(default_factory=lambda: _NO_AMOUNTS)
    """As `PodRequest.numa_amounts`; no ledger has them."""


def plain_placed_pod(placed_pod: PlacedPod) -> dict[str, Any]:
    """Return the pod as JSON values, without empty fields."""
    exclusive = placed_pod.exclusive
    fields = {
        "namespace": placed_pod.namespace,
        "labels": dict(placed_pod.labels),
        "exclusivePolicy": placed_pod.exclusive_policy.value,
        "exclusive": exclusive and {"level": exclusive.level.value, "required": exclusive.required},
        "avoids": [_plain_affinity(avoid) for avoid in placed_pod.avoids],
        "burst": placed_pod.burst,
    }
    return {name: value for name, value in fields.items() if value or name == "namespace"}


def _plain_affinity(affinity: PodCPUAffinity) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "level": affinity.level.value,
        "labels": dict(affinity.others.labels),
        "required": affinity.required,
    }
    if affinity.others.expressions:
        fields["expressions"] = [_plain_requirement(rule) for rule in affinity.others.expressions]
    return fields


def _plain_requirement(rule: LabelRequirement) -> dict[str, Any]:
    return {"key": rule.key, "operator": rule.operator.value, "values": list(rule.values)}


def placed_pod_of_plain(value: Any) -> PlacedPod:
    """Return the pod of the fields of `plain`. Raises KeyError, TypeError, ValueError or AttributeError."""
    exclusive = value.get("exclusive")
    return PlacedPod(
        namespace=value["namespace"],
        labels=_labels(value.get("labels", {})),
        exclusive_policy=ExclusivePolicy(value.get("exclusivePolicy", "")),
        exclusive=exclusive and Exclusivity(TopologyLevel(exclusive["level"]), bool(exclusive["required"])),
        avoids=tuple(map(_affinity, value.get("avoids", []))),
        burst=int(value.get("burst", 0)),
    )


def _affinity(value: Any) -> PodCPUAffinity:
    others = Selector(_labels(value["labels"]), tuple(map(_requirement, value.get("expressions", []))))
    return PodCPUAffinity(
        avoid=True, level=TopologyLevel(value["level"]), others=others, required=bool(value["required"])
    )


def _requirement(value: Any) -> LabelRequirement:
    return LabelRequirement(str(value["key"]), Operator(value["operator"]), tuple(map(str, value["values"])))


def _labels(value: Any) -> Mapping[str, str]:
    return MappingProxyType({str(key): str(label) for key, label in value.items()})
