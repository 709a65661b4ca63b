"""The scheduler's instructions: bindings, pods to read, and conditions and events of pods.

Structs as the events are.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.workload.request import PodRequest


class PreBindWork(Protocol):
    """A small value that says what a plugin must do before the binding is sent."""

    @property
    def plugin(self) -> str:
        """Name of the plugin; the shell runs its `pre_bind`."""


class Bind(Struct, frozen=True):
    """Bind a pod to a node, with `annotations`, in one call, after the plugins' `work`.

    Answered by BindSucceeded, BindFailed or PreBindFailed.
    """

    pod: Pod
    node: str
    annotations: Mapping[str, str]
    assignments: Mapping[str, CPUSet] = field(default_factory=dict)
    work: tuple[PreBindWork, ...] = ()
    in_order: bool = False
    """Whether earlier such bindings to the node are answered before it is sent; see `binding.bindings`."""


class LookUpPod(Struct, frozen=True):
    """Read a pod, not from a cache. Answered by PodLookedUp or LookUpFailed."""

    pod: Pod


class SetCondition(Struct, frozen=True):
    """Write the condition PodScheduled=False and the nominated node ("" for none) into a pod's status."""

    pod: Pod
    reason: str
    message: str
    nominated: str = ""


class SetNominatedNode(Struct, frozen=True):
    """Write the node of a claimed pod into its status, before a long Permit or PreBind (KEP-5278)."""

    pod: Pod
    node: str


class StopPreBind(Struct, frozen=True):
    """End the plugins' work for a pod whose binding is not to be sent any more; `why` says the reason.

    Answered by PreBindFailed where such work was under way.
    """

    uid: str
    why: str


class Evict(Struct, frozen=True):
    """End a pod, with condition DisruptionTarget and an event, to make way for another one on this node.

    Answered by EvictFailed if it fails; else the pod is seen to terminate.
    """

    victim: Pod
    preemptor: Pod
    node: str


class NearestNode(Struct, frozen=True):
    """A node that only lacks CPUs for a pod: its state with all claims, and the pod's request."""

    name: str
    state: NodeState
    request: PodRequest


class RecordPodEvent(Struct, frozen=True):
    """Publish a Kubernetes event about a pod; `type` is Normal or Warning.

    The message continues with what would help on the `nearest` node.
    """

    pod: Pod
    type: str
    reason: str
    message: str
    nearest: NearestNode | None = None
    help: str = ""
    """What would help, where that is known without a `nearest` to be asked."""
    action: str = ""
    related: Pod | None = None
    """What it is also about: the pod that preempted this one."""


class RecordNodeEvent(Struct, frozen=True):
    """Publish a Kubernetes event about a node, of type Warning."""

    node: str
    reason: str
    message: str


Instruction: TypeAlias = (
    Bind
    | LookUpPod
    | Evict
    | SetCondition
    | SetNominatedNode
    | StopPreBind
    | RecordPodEvent
    | RecordNodeEvent
)
