"""Events that the allocation of CPUs takes: plain values.

The state machines have no clock: every event carries the time when it was noticed, `at` in Unix seconds for
timestamps, and `now` in seconds of a monotonic clock for deadlines, retries and back-offs, which a clock that
is set must not move.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from corelane.agent.allocation.modes import Mode
from corelane.agent.allocation.records import NO_CPUS, BoundPod
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig
from corelane.node.kubelet import checkpoint
from corelane.runtime.base import ObservedResources


class EventTimes(TypedDict):
    """The times of an event, as keyword arguments."""

    at: float
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """What happened, and when."""

    at: float
    now: float

    def subject(self) -> Hashable | None:
        """Return what a newer event replaces this one about, while it waits; None if it counts by itself."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(AgentEvent):
    """What was read of something; a newer reading of the same thing comes after everything that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One run of a container as the runtime reports it.

    `allowed` are the CPUs that the kernel allows its processes, empty unless it is live; `resources` all that
    the kernel reports, None if unknown. `record_differs`: the runtime's record has other resources.
    """

    id: str
    uid: str
    container: str
    attempt: int
    live: bool
    allowed: CPUSet = NO_CPUS
    resources: ObservedResources | None = None
    record_differs: bool = False
    namespace: str = ""
    pod: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersListed(Reading):
    """Every run that the runtime has, in any order; the first event of all, and repeated beside a kubelet.

    A run is `live` as long as its cgroup has a process. Runs that were recorded when the listing `began`
    (monotonic; None: just now) and are not in the list have ended.
    """

    runs: tuple[ContainerRun, ...]
    began: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSeen(AgentEvent):
    """A kubelet started a container, or the runtime created one as it was answered."""

    run: ContainerRun

    def subject(self) -> Hashable:
        return "start", self.run.id


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCreating(AgentEvent):
    """The runtime is about to create a container, and waits for AnswerCreate until `deadline` (monotonic)."""

    token: Hashable
    id: str
    uid: str
    container: str
    deadline: float
    namespace: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationLost(AgentEvent):
    """The runtime does not wait for this answer any more, as its connection is lost."""

    token: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen(AgentEvent):
    """A pod that runs, or is to run, on this node was added or changed."""

    pod: BoundPod

    def subject(self) -> Hashable:
        return "pod", self.pod.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUndecodable(AgentEvent):
    """A pod of this node cannot be decoded: its containers and their CPUs stay as they are."""

    uid: str
    namespace: str = ""
    name: str = ""

    def subject(self) -> Hashable:
        return "pod", self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone(AgentEvent):
    """The API server does not have the pod any more."""

    uid: str

    def subject(self) -> Hashable:
        return "pod", self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsListed(Reading):
    """All pods of this node were listed: a PodSeen came for each; other pods are gone.

    But for `remaining` UIDs, of which it is not known: a kubelet that has just started lists no pods. A list
    proves nothing of what came after it `began` (monotonic; None: just now).
    """

    remaining: frozenset[str] = frozenset()
    began: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(AgentEvent):
    """A run ended: no process is left in its cgroup. A repeated event has no effect."""

    run: ContainerRun

    def subject(self) -> Hashable:
        return "exit", self.run.uid, self.run.container, self.run.attempt, self.run.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(AgentEvent):
    """The runtime applied `cpus`, and the kernel shows `allowed` (empty if there is no process)."""

    id: str
    cpus: CPUSet
    allowed: CPUSet
    resources: ObservedResources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFailed(AgentEvent):
    """The runtime failed to apply a CPU set; the container may run on the old or the new CPUs."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Reading):
    """CPUs, and other `resources`, that the kernel reports for a running container.

    `began` is when the reading began (monotonic), None if no change can have been applied meanwhile.
    """

    id: str
    allowed: CPUSet
    resources: ObservedResources | None = None
    began: float | None = None

    def subject(self) -> Hashable:
        return self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletStateRead(Reading):
    """A kubelet's CPU manager state; `running` are the UIDs of its pods, None if unknown."""

    checkpoint: checkpoint.Checkpoint
    running: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name`, of the kubelet's pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChanged(Reading):
    """CPUs were added or removed, or went online or offline."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanged(Reading):
    """The node's settings changed."""

    config: NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Reading):
    """What may be allocated and written changed; `quotas`: the kubelet enforces CPU limits (cpuCFSQuota)."""

    mode: Mode
    quotas: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed(Reading):
    """Time passed."""
