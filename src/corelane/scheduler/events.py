"""The scheduler's events: changed objects, outcomes of instructions, and time. `now` is in seconds."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from corelane.kube.disruption import PodDisruptionBudget
from corelane.kube.objects import Namespace, Node, NodeResourceTopology, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.kube.translate.crane import CraneTopology
from corelane.scheduler.framework.profile import Profile


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod was added (`old` is None), changed, or was deleted (`new` is None)."""

    now: float
    old: Pod | None
    new: Pod | None


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """As PodChanged, for a Node."""

    now: float
    old: Node | None
    new: Node | None


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """As PodChanged, for a node's hardware and ledger."""

    now: float
    old: NodeResourceTopology | None
    new: NodeResourceTopology | None


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """As PodChanged, for a Namespace."""

    now: float
    old: Namespace | None
    new: Namespace | None


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    """As PodChanged, for a PersistentVolumeClaim."""

    now: float
    old: PersistentVolumeClaim | None
    new: PersistentVolumeClaim | None


@dataclass(frozen=True, slots=True)
class VolumeChanged:
    """As PodChanged, for a PersistentVolume."""

    now: float
    old: PersistentVolume | None
    new: PersistentVolume | None


@dataclass(frozen=True, slots=True)
class StorageClassChanged:
    """As PodChanged, for a StorageClass."""

    now: float
    old: StorageClass | None
    new: StorageClass | None


@dataclass(frozen=True, slots=True)
class ServiceChanged:
    """As PodChanged, for a Service."""

    now: float
    old: Service | None
    new: Service | None


@dataclass(frozen=True, slots=True)
class BudgetChanged:
    """As PodChanged, for a PodDisruptionBudget."""

    now: float
    old: PodDisruptionBudget | None
    new: PodDisruptionBudget | None


@dataclass(frozen=True, slots=True)
class CraneTopologyChanged:
    """As TopologyChanged, for gocrane's object of a node."""

    now: float
    old: CraneTopology | None
    new: CraneTopology | None


ObjectChanged: TypeAlias = (
    NamespaceChanged
    | ClaimChanged
    | VolumeChanged
    | StorageClassChanged
    | ServiceChanged
    | BudgetChanged
    | CraneTopologyChanged
)
"""Objects beside pods, nodes and topologies; a scheduler runs without those that it cannot watch."""


@dataclass(frozen=True, slots=True)
class Unwatched:
    """Objects of a kind (its plural name) cannot be watched, for instance for lack of a permission.

    An empty error says that they can be again.
    """

    now: float
    plural: str
    error: str


@dataclass(frozen=True, slots=True)
class BindSucceeded:
    """The API server accepted a binding."""

    now: float
    uid: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """A binding was `rejected` or `throttled`, met a `conflict` (409), or its outcome is `unknown`.

    `throttled` and `rejected` prove that it was not carried out. `retry_after` is in seconds.
    """

    now: float
    uid: str
    outcome: Literal["rejected", "throttled", "conflict", "unknown"]
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class PreBindFailed:
    """A plugin's work before a binding failed; the binding was not sent."""

    now: float
    uid: str
    plugin: str
    message: str


@dataclass(frozen=True, slots=True)
class PodLookedUp:
    """The answer to LookUpPod: the pod as the API server has it, None if that UID does not exist."""

    now: float
    uid: str
    pod: Pod | None


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """A pod could not be read; `retry_after` is in seconds."""

    now: float
    uid: str
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class EvictFailed:
    """A pod could not be evicted; `uid` is that of the pod for which it was to be."""

    now: float
    uid: str
    victim: str
    message: str


@dataclass(frozen=True, slots=True)
class PermitDecided:
    """A Permit plugin that holds a pod allows its binding, or denies it; ignored if no pod is held."""

    now: float
    uid: str
    allowed: bool
    plugin: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class BindRequested:
    """Another scheduler chose the node: claim the pod's CPUs there and bind it, if its filters pass."""

    now: float
    pod: Pod
    node: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class CycleDue:
    """Time to send what is due, and to place one pod."""

    now: float


SchedulerEvent: TypeAlias = (
    PodChanged
    | NodeChanged
    | TopologyChanged
    | ObjectChanged
    | Unwatched
    | BindSucceeded
    | BindFailed
    | PreBindFailed
    | PodLookedUp
    | LookUpFailed
    | EvictFailed
    | PermitDecided
    | BindRequested
    | CycleDue
)
