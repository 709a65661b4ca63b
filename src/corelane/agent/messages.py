"""What goes into the agent's core and what comes out: events that tell, instructions that order.

Every event carries the time `at` which it was noticed, in Unix seconds: the core has no clock of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corelane.agent.pods import NO_CPUS, PodPlan
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState, Reason
from corelane.node.kubelet import checkpoint
from corelane.workload import PodRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a container as the runtime knows it.

    `allowed` is what /proc shows of a live one, all tasks together.
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
class Found(_Event):
    """First event of all: everything the runtime holds, in any order."""

    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen(_Event):
    """A pod bound to this node was added or changed."""

    plan: PodPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone(_Event):
    """The API server no longer has the pod."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(_Event):
    """Every pod that the API server has for this node was told; whoever was not, is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(_Event):
    """The runtime started what was ordered."""

    uid: str
    container: str
    attempt: int
    id: str
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed(_Event):
    """The runtime could not start what was ordered.

    With an `exit_code` the run counts as ended; without one nothing was run, and it is tried again.
    """

    uid: str
    container: str
    attempt: int
    reason: str
    message: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(_Event):
    """A run ended (or is `lost`: the runtime does not know it any more). Told twice, it counts once."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFailed(_Event):
    """A container could not be ended; it is tried again."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(_Event):
    """The runtime applied `cpus`, and /proc shows `allowed` (empty where there is no process to look at)."""

    id: str
    cpus: CPUSet
    allowed: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFailed(_Event):
    """The runtime could not apply a CPU set; what the container may use now is not known."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(_Event):
    """What /proc shows of a running container."""

    id: str
    allowed: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSaid(_Event):
    """What a kubelet's state file says; `running` are the UIDs of the pods under it, where that is known."""

    checkpoint: checkpoint.Checkpoint
    running: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name`, of pods under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChanged(_Event):
    """CPUs came or went."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured(_Event):
    """The node's settings are others than they were."""

    config: NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(_Event):
    """Stop every container, each with its pod's grace; pods stay bound, and run again at the next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(_Event):
    """Time passed."""


Event: TypeAlias = (
    Found
    | PodSeen
    | PodGone
    | Synced
    | Started
    | StartFailed
    | Exited
    | StopFailed
    | Pinned
    | PinFailed
    | Observed
    | KubeletSaid
    | MachineChanged
    | Configured
    | Drain
    | Tick
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write the ledger down, durably, before anything that follows is done."""

    ledger: NodeState


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run of a container on `cpus`; answered by Started or StartFailed."""

    plan: PodPlan
    container: str
    attempt: int
    cpus: CPUSet
    mems: CPUSet | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Apply a CPU set and read back; answered by Pinned or PinFailed."""

    id: str
    cpus: CPUSet
    mems: CPUSet | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Look what the kernel allows; answered by Observed."""

    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End a container within `grace` seconds; answered by Exited or StopFailed."""

    id: str
    grace: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget one ended run; its log stays."""

    id: str


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Forget all runs of a pod, with their logs."""

    uid: str


@dataclass(frozen=True, slots=True)
class PublishStatus:
    """Write a pod's status to the API server; a later one replaces an earlier one not yet written."""

    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod from the API server, with grace 0, after its last status is written."""

    uid: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """CPUs or NUMA nodes differ from those that the scheduler proposed: write what is true."""

    uid: str
    cpus: Mapping[str, CPUSet]
    zone: CPUSet | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Tell:
    """Record a Kubernetes event about a pod, or with an empty `uid` about the node.

    With `refused`, a ledger and the ask that it did not let in, it goes on with what would help.
    """

    uid: str
    reason: str
    message: str
    warning: bool = False
    refused: tuple[NodeState, PodRequest] | None = None


@dataclass(frozen=True, slots=True)
class PublishTopology:
    """Write the NodeResourceTopology: the ledger changed."""

    ledger: NodeState


Instruction: TypeAlias = (
    Checkpoint
    | Start
    | Pin
    | Read
    | Stop
    | Remove
    | RemovePod
    | PublishStatus
    | DeletePod
    | Annotate
    | Tell
    | PublishTopology
)
