"""The scheduler's instructions: bindings, and conditions and events of pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.workload import PodRequest


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to a node, with `annotations`, in one call. Answered by BindSucceeded or BindFailed."""

    pod: Pod
    node: str
    annotations: Mapping[str, str]
    assignments: Mapping[str, CPUSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Write the condition PodScheduled=False into a pod's status."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NearestNode:
    """A node that only lacks CPUs for a pod: its state with all claims, and the pod's request."""

    name: str
    state: NodeState
    request: PodRequest


@dataclass(frozen=True, slots=True)
class RecordPodEvent:
    """Publish a Kubernetes event about a pod; `type` is Normal or Warning.

    The message continues with what would help on the `nearest` node.
    """

    pod: Pod
    type: str
    reason: str
    message: str
    nearest: NearestNode | None = None


Instruction: TypeAlias = Bind | SetCondition | RecordPodEvent
