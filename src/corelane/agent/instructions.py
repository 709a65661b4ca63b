"""Events that the agent's state machine takes, and instructions that it returns: plain values both ways.

Every event carries the time `at` which it was noticed, in Unix seconds: the state machine has no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corelane.agent.pod_records import NO_CPUS, PodPlan
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState, Reason
from corelane.node.kubelet import checkpoint
from corelane.workload import PodRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """What happened, and when."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One run of a container as the runtime reports it.

    `allowed` is the union of the CPUs that /proc shows for its tasks, empty unless it is live.
    """

    id: str
    uid: str
    container: str
    attempt: int
    live: bool
    allowed: CPUSet = NO_CPUS
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersListed(AgentEvent):
    """Every run that the runtime knows, in any order; the first event of all."""

    runs: tuple[ContainerRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen(AgentEvent):
    """A pod bound to this node was added or changed."""

    plan: PodPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone(AgentEvent):
    """The API server does not have the pod any more."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsListed(AgentEvent):
    """All pods of this node were listed: a PodSeen came for each; other pods are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(AgentEvent):
    """The ordered run was started."""

    uid: str
    container: str
    attempt: int
    id: str
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed(AgentEvent):
    """The ordered run could not be started.

    With an `exit_code` the run counts as ended; without one there was no process, and the start is retried.
    """

    uid: str
    container: str
    attempt: int
    reason: str
    message: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(AgentEvent):
    """A run ended, or the runtime does not know it any more. A repeated event has no effect."""

    run: ContainerRun


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFailed(AgentEvent):
    """A container could not be stopped; the stop is retried."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(AgentEvent):
    """The runtime applied `cpus`, and /proc shows `allowed` (empty if there is no process)."""

    id: str
    cpus: CPUSet
    allowed: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFailed(AgentEvent):
    """The runtime failed to apply a CPU set; the container may run on the old or the new CPUs."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedCPUsRead(AgentEvent):
    """CPUs that /proc shows for all tasks of a running container."""

    id: str
    allowed: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletStateRead(AgentEvent):
    """A kubelet's CPU manager state; `running` are the UIDs of its pods, None if unknown."""

    checkpoint: checkpoint.Checkpoint
    running: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name`, of the kubelet's pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChanged(AgentEvent):
    """CPUs were added or removed, or went online or offline."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanged(AgentEvent):
    """The node's settings changed."""

    config: NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested(AgentEvent):
    """Stop every container within its pod's grace period; pods stay bound and run again at the next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed(AgentEvent):
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """What the agent is to do."""


@dataclass(frozen=True, slots=True)
class SaveLedger(Instruction):
    """Write the ledger to disk, durably, before the next instructions are carried out."""

    ledger: NodeState


@dataclass(frozen=True, slots=True)
class Start(Instruction):
    """Start a run of a container on `cpus`; answered by Started or StartFailed."""

    plan: PodPlan
    container: str
    attempt: int
    cpus: CPUSet
    mems: CPUSet | None = None


@dataclass(frozen=True, slots=True)
class Pin(Instruction):
    """Apply a CPU set and read it back; answered by Pinned or PinFailed."""

    id: str
    cpus: CPUSet
    mems: CPUSet | None = None


@dataclass(frozen=True, slots=True)
class ReadAllowedCPUs(Instruction):
    """Read the CPUs that the kernel allows; answered by AllowedCPUsRead."""

    id: str


@dataclass(frozen=True, slots=True)
class Stop(Instruction):
    """Stop a container within `grace` seconds; answered by Exited or StopFailed."""

    id: str
    grace: float


@dataclass(frozen=True, slots=True)
class Remove(Instruction):
    """Remove one ended run; its log stays."""

    id: str


@dataclass(frozen=True, slots=True)
class RemovePod(Instruction):
    """Remove all runs of a pod, and their logs."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodWrite(Instruction):
    """Write something about a pod to the API server."""

    uid: str


@dataclass(frozen=True, slots=True)
class PublishStatus(PodWrite):
    """Write a pod's status to the API server; a later one replaces an earlier one not yet written."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod(PodWrite):
    """Delete the pod from the API server, with grace 0, after its last status is written."""


@dataclass(frozen=True, slots=True)
class Annotate(PodWrite):
    """Write a pod's CPUs or NUMA nodes, which differ from those that the scheduler proposed."""

    cpus: Mapping[str, CPUSet]
    zone: CPUSet | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishEvent(PodWrite):
    """Record a Kubernetes event about a pod, or with an empty `uid` about the node.

    `rejected` is a ledger and the request that it rejected: the message then ends with possible remedies.
    """

    reason: str
    message: str
    warning: bool = False
    rejected: tuple[NodeState, PodRequest] | None = None


@dataclass(frozen=True, slots=True)
class PublishTopology(Instruction):
    """Write the NodeResourceTopology, as the ledger changed."""
