"""What changed in the cluster, in the words of queueing hints (upstream: `fwk.ClusterEvent`)."""

from collections.abc import Callable
from enum import Flag, auto
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.summaries import NodeSummary


class ChangeKind(Flag):
    """Kinds of change that can make a pod schedulable."""

    __hash__ = object.__hash__  # Members are unique objects; that of enum is a function in Python.

    NOTHING = 0
    NODE_ADDED = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    """Taints, those derived from conditions included, and `spec.unschedulable`."""
    TOPOLOGY = auto()
    """A node's agent published another machine or ledger."""
    POD_ADDED = auto()
    """A pod runs on a node from now on."""
    POD_REMOVED = auto()
    """A pod ended or was deleted, or its binding failed."""
    POD_CHANGED = auto()
    """Labels or requests of a pod with a node changed."""
    POD_ITSELF = auto()
    """The pending pod was changed."""
    CLAIM = auto()
    """A PersistentVolumeClaim was added or changed."""
    VOLUME = auto()
    """A PersistentVolume was added or changed."""
    STORAGE_CLASS = auto()
    NAMESPACE = auto()
    """Labels of a namespace changed."""
    CSI_NODE = auto()
    """The CSI drivers of a node, and their limits; also when the object is deleted."""
    CSI_DRIVER = auto()
    """A CSIDriver was added, changed or deleted."""
    STORAGE_CAPACITY = auto()
    """Free storage that a CSI driver publishes."""
    VOLUME_ATTACHMENT = auto()
    """A VolumeAttachment was added, changed or deleted."""
    SERVICE = auto()
    """The selector of a Service changed; also when the object is deleted."""
    NODE_REMOVED = auto()
    """A node is gone, and with it what its pods and labels counted for on other nodes."""
    WATCHED = auto()
    """Objects of some kind can be watched again."""
    NODE = NODE_ADDED | NODE_REMOVED | NODE_ALLOCATABLE | NODE_LABELS | NODE_TAINTS


@cache
def members(kinds: ChangeKind) -> tuple[ChangeKind, ...]:
    """Return the single kinds; iterating over a Flag takes ten times as long."""
    return tuple(kinds)


class ClusterChange(Struct, frozen=True):
    """One change: its kinds, the node it is about ("" for none), and the object before and after.

    The object is the Node for NODE kinds, a PodInfo for those of pods, else as its informer shows it.
    `before` and `after` say what the node offers, for all kinds that are about a node; `before` is None for
    a new one, and where several changes are looked at as one; `after` is None for a node that is gone.
    """

    kind: ChangeKind
    node: str = ""
    old: Any = None
    new: Any = None
    before: NodeSummary | None = None
    after: NodeSummary | None = None
    merged: bool = False
    """Several changes of a node, looked at as one: what was in between is not known."""


Hint: TypeAlias = Callable[[PodInfo, ClusterChange], bool]
"""Whether a change can make a pod fit that the plugin rejected. Must be cheap; in doubt True."""


def added(_pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether an object was added or changed: without it no pod fits that did not before."""
    return change.new is not None or change.old is None


def always(_pod: PodInfo, _change: ClusterChange) -> bool:
    """Return True: every change of the kind can help."""
    return True
