"""Instructions that the allocation of CPUs returns: plain values."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from corelane.cpuset import CPUSet
from corelane.node import Reason
from corelane.node.ledger import NodeState
from corelane.runtime.base import ResourceUpdate
from corelane.workload.request import PodRequest


@dataclass(frozen=True, slots=True)
class Instruction:
    """What the agent is to do."""


@dataclass(frozen=True, slots=True)
class SaveLedger(Instruction):
    """Write the ledger to disk, durably, before the next instructions are carried out."""

    ledger: NodeState


@dataclass(frozen=True, slots=True)
class Pin(Instruction):
    """Apply CPUs and other resources, and read them back; answered by Pinned or PinFailed."""

    id: str
    update: ResourceUpdate

    @property
    def cpus(self) -> CPUSet:
        """CPUs to apply; empty if they stay as they are."""
        return self.update.cpus or CPUSet()


@dataclass(frozen=True, slots=True)
class AnswerCreate(Instruction):
    """Answer ContainerCreating: what the new container gets, None for no change, and `updates` of others.

    These updates are applied and read back already; the runtime's own record is to agree. `placed` is the id
    of the new container if it starts on its CPUs, else "".
    """

    token: Hashable
    adjust: ResourceUpdate | None
    updates: tuple[tuple[str, ResourceUpdate], ...] = ()
    placed: str = ""


@dataclass(frozen=True, slots=True)
class Observe(Instruction):
    """Read what the kernel grants a container; answered by Observed."""

    id: str


@dataclass(frozen=True, slots=True)
class PodWrite(Instruction):
    """Write something about a pod to the API server."""

    uid: str


@dataclass(frozen=True, slots=True)
class Annotate(PodWrite):
    """Write a pod's CPUs or NUMA nodes, which differ from those that the scheduler proposed."""

    cpus: Mapping[str, CPUSet]
    zone: CPUSet | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordResized(PodWrite):
    """Write which of a pod's containers a resize in the shared pool must not make exclusive later."""

    containers: frozenset[str]


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
class PublishCondition(PodWrite):
    """Write whether the kernel confines a pod to its CPUs; nothing else of its status.

    `at` is since when, in Unix seconds; 0.0 is now.
    """

    holds: bool
    reason: str
    message: str = ""
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class PublishTopology(Instruction):
    """Write the NodeResourceTopology, as the ledger changed."""
