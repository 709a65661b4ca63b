"""What the ledger is made of: an entry per container, with its CPUs, who chose them, and how far it is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from corelane.cpuset import CPUSet
from corelane.workload import ContainerKind, QOSClass

__all__ = ["Entry", "Key", "Origin", "Phase", "claimed_before", "exclusive_mask"]

Key: TypeAlias = tuple[str, str]
"""Pod UID and container name."""


class Phase(StrEnum):
    """How far an entry has come on its way from a decision to the kernel and out again."""

    RESERVED = "reserved"
    APPLIED = "applied"
    CONFIRMED = "confirmed"
    RELEASING = "releasing"


class Origin(StrEnum):
    """Who decided an entry's CPUs."""

    KUBELET = "kubelet"
    SCHEDULER = "scheduler"
    CORELANE = "corelane"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class Entry:
    """One container on this node; without `cpus` it runs in the shared pool. CPU request in milliCPU."""

    uid: str
    container: str
    pod: str
    """`namespace/name`."""
    cpus: CPUSet = field(default_factory=CPUSet)
    exclusive: bool = False
    mems: CPUSet | None = None
    """NUMA nodes that its memory is bound to; None leaves that to the kernel."""
    cls: str = QOSClass.BEST_EFFORT.value
    kind: ContainerKind = ContainerKind.APP
    origin: Origin = Origin.CORELANE
    allocator: str = ""
    phase: Phase = Phase.RESERVED
    cpu_request: int = 0

    @property
    def key(self) -> Key:
        return self.uid, self.container


def exclusive_mask(entries: Iterable[Entry]) -> int:
    """The CPUs that some entry has alone."""
    mask = 0
    for entry in entries:
        mask |= entry.cpus.mask
    return mask


def claimed_before(entries: Iterable[Entry]) -> Iterator[tuple[Entry, int]]:
    """Each entry with the CPUs, as a mask, that an earlier one already has: with those it may not share them.

    Within a pod a plain init container is gone before the others start, so it may share with them.
    """
    everybody = 0
    pods: dict[str, int] = {}
    lasting: dict[str, int] = {}
    for entry in entries:
        mask, uid = entry.cpus.mask, entry.uid
        of_others = everybody & ~pods.get(uid, 0)
        beside = 0 if entry.kind is ContainerKind.INIT else lasting.get(uid, 0)
        yield entry, mask & (of_others | beside)
        everybody |= mask
        pods[uid] = pods.get(uid, 0) | mask
        if entry.kind is not ContainerKind.INIT:
            lasting[uid] = lasting.get(uid, 0) | mask
