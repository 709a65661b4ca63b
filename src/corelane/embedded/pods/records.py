"""A pod on this node as values: its plan, the records of its containers, events about it, instructions.

The plan is made from the pod's spec and immutable; records say how far its containers are. Events and
instructions about CPUs are those of `agent.allocation`. Times are Unix seconds, unless called monotonic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import Instruction, PodWrite
from corelane.agent.allocation.outbox import AllocationReporter
from corelane.agent.allocation.records import BoundPod, PodCPUs, RunCPUs, StatusReason
from corelane.agent.reporting import AgentReporter, LogReporter
from corelane.cpuset import CPUSet
from corelane.runtime.base import OOM_KILLED
from corelane.workload.request import ContainerKind

INIT_KINDS: Final = (ContainerKind.INIT, ContainerKind.SIDECAR)


class RestartPolicy(StrEnum):
    """A pod's `restartPolicy`."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """The end of one run of a container. A run killed by signal n has `signal` n and `exit_code` 128 + n.

    `assumed`: the runtime does not know how the run ended.
    """

    exit_code: int
    finished_at: float
    started_at: float = 0.0
    signal: int = 0
    reason: str = ""
    message: str = ""
    id: str = ""
    assumed: bool = False

    @property
    def status_reason(self) -> str:
        """Reason in the container's status: `Completed`, `Error`, or a more exact one."""
        return self.reason or ("Error" if self.exit_code else "Completed")

    def succeeded_as(self, kind: ContainerKind) -> bool:
        """Whether this is a success, which the end of an init container out of memory is not (kubelet)."""
        return self.exit_code == 0 and not (kind is ContainerKind.INIT and self.reason == OOM_KILLED)


@dataclass(frozen=True, slots=True)
class PastRuns:
    """A container's earlier runs by the API server, used where the runtime has lost them."""

    restarts: int
    ended: ContainerExit | None


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A container of a pod's spec."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    image: str = ""


@dataclass(frozen=True, slots=True)
class ConditionTransition:
    """A condition's status, and since when."""

    status: str
    since: float


_NO_PAST: Final[Mapping[str, PastRuns]] = MappingProxyType({})
_NO_CONDITIONS: Final[Mapping[str, ConditionTransition]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodPlan(BoundPod):
    """A pod bound to this node, as far as running it needs.

    `grace` and `deletion_grace` are seconds; the latter is None unless the pod is being deleted. `refusal`:
    why this agent cannot run the pod; `warnings`: ignored parts of its spec.
    """

    containers: tuple[ContainerPlan, ...]
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    grace: float = 30.0
    active_deadline: float | None = None
    deletion_grace: float | None = None
    started_at: float | None = None
    refusal: StatusReason | None = None
    warnings: tuple[StatusReason, ...] = ()
    past: Mapping[str, PastRuns] = field(default_factory=lambda: _NO_PAST)
    conditions: Mapping[str, ConditionTransition] = field(default_factory=lambda: _NO_CONDITIONS)


class ContainerStage(StrEnum):
    """Progress of one container; the runtime's answer is outstanding while it starts or stops."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"


LIVE: Final = frozenset({ContainerStage.STARTING, ContainerStage.RUNNING, ContainerStage.STOPPING})


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Seconds to wait after the next crash, and when (monotonic) that delay was last raised."""

    delay: float
    raised_at: float


@dataclass(slots=True)
class ContainerProgress:
    """One container's progress. `attempt` counts its runs from 0; it is -1 before the first.

    `exited_at`, the end of the last run, and `retry_at` are monotonic. `cpus` is allocation's record of the
    current run, as long as a process of it may exist.
    """

    plan: ContainerPlan
    stage: ContainerStage = ContainerStage.WAITING
    id: str = ""
    attempt: int = -1
    started_at: float = 0.0
    ended: ContainerExit | None = None
    last: ContainerExit | None = None
    waiting: StatusReason | None = None
    backoff: RestartBackoff | None = None
    backoff_reported: int = -1
    exited_at: float = 0.0
    retry_at: float = 0.0
    cpus: RunCPUs | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def kind(self) -> ContainerKind:
        return self.plan.kind

    @property
    def live(self) -> bool:
        """Whether a process of the container may exist."""
        return self.stage in LIVE

    @property
    def ready(self) -> bool:
        """Whether the container runs; without probes that makes it ready."""
        return self.stage in (ContainerStage.RUNNING, ContainerStage.STOPPING)

    @property
    def ran(self) -> bool:
        """Whether the container runs or ever ran."""
        return self.ready or bool(self.ended or self.last)

    @property
    def succeeded(self) -> bool:
        ended = self.stage is ContainerStage.EXITED and self.ended
        return bool(ended and ended.succeeded_as(self.kind))

    @property
    def initialized(self) -> bool:
        """Whether the containers after this init container may start; a sidecar only has to have started."""
        return self.ran if self.kind is ContainerKind.SIDECAR else self.succeeded

    def run_id(self, *, previous: bool) -> str:
        """Return the id of the current or last run, or of the run before; empty if there is none."""
        if previous:
            return self.last.id if self.last else ""
        return self.id or (self.ended.id if self.ended else "")


@dataclass(frozen=True, slots=True)
class Termination:
    """Time (monotonic) by which a pod has to end, and the reason for its status, if that is to show one."""

    by: float
    reason: StatusReason | None = None


@dataclass(slots=True)
class PodRecord:
    """One pod's progress on this node; `cpus` is allocation's record of it.

    `active_since` is the monotonic time of `started_at`. `finished`: no process is left, and its CPUs are
    released. `undecodable`: its object could not be decoded since the agent's start.
    """

    plan: PodPlan
    containers: dict[str, ContainerProgress]
    cpus: PodCPUs
    rejected: StatusReason | None = None
    termination: Termination | None = None
    finished: bool = False
    undecodable: bool = False
    deletion_ordered: bool = False
    started_at: float = 0.0
    active_since: float = 0.0
    conditions: dict[str, ConditionTransition] = field(default_factory=dict)
    published: dict[str, object] | None = None

    @property
    def uid(self) -> str:
        return self.plan.uid

    @property
    def present(self) -> bool:
        """Whether the API server has the pod; else only its processes have to end."""
        return self.cpus.present

    @property
    def live(self) -> bool:
        return any(container.live for container in self.containers.values())

    def of(self, *kinds: ContainerKind) -> list[ContainerProgress]:
        """Return the containers of those kinds, in the order of the spec."""
        return [container for container in self.containers.values() if container.kind in kinds]


def container_records(plans: Iterable[ContainerPlan]) -> dict[str, ContainerProgress]:
    """Return new records by container name, in the order of the spec."""
    return {plan.name: ContainerProgress(plan) for plan in plans}


class PodIndex:
    """Pods by UID."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}

    def container(self, uid: str, name: str) -> tuple[PodRecord, ContainerProgress] | None:
        """Return a container's record, and its pod's."""
        pod = self.pods.get(uid)
        container = pod and pod.containers.get(name)
        return (pod, container) if pod and container else None

    def starting(self, uid: str, name: str, attempt: int) -> tuple[PodRecord, ContainerProgress] | None:
        """Return the container for which this start was ordered, if the answer is still outstanding."""
        records = self.container(uid, name)
        if records is None or records[1].attempt != attempt:
            return None
        return records if records[1].stage is ContainerStage.STARTING else None

    def live(self) -> list[tuple[ContainerProgress, str]]:
        """Return the containers that have an id and may have processes, with the UIDs of their pods."""
        records = ((record, pod.uid) for pod in self.pods.values() for record in pod.containers.values())
        return [(record, uid) for record, uid in records if record.id and record.live]

    def run_of(self, namespace: str, name: str, container: str, *, previous: bool) -> str:
        """Return the id of a container's current (or last) run, or of the run before; empty if none."""
        for pod in self.pods.values():
            if (pod.plan.request.namespace, pod.plan.request.name) == (namespace, name):
                record = pod.containers.get(container)
                return record.run_id(previous=previous) if record else ""
        return ""


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
class StopFailed(AgentEvent):
    """A container could not be stopped; the stop is retried."""

    id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested(AgentEvent):
    """Stop every container within its pod's grace period; pods stay bound and run again at the next start."""


@dataclass(frozen=True, slots=True)
class Start(Instruction):
    """Start a run of a container on `cpus`; answered by Started or StartFailed."""

    plan: PodPlan
    container: str
    attempt: int
    cpus: CPUSet
    mems: CPUSet | None = None


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
class PublishStatus(PodWrite):
    """Write a pod's status to the API server; a later one replaces an earlier one not yet written."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod(PodWrite):
    """Delete the pod from the API server, with grace 0, after its last status is written."""


CHANGES: Final = (Start, Stop, Remove, RemovePod)
"""Instructions that change containers."""


class LifecycleReporter(AllocationReporter):
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def started(self, pod: BoundPod, container: str, attempt: int, cpus: CPUSet) -> None:
        """A container was started."""

    def start_failed(self, pod: BoundPod, container: str, reason: StatusReason) -> None:
        """A container could not be started."""

    def ended(self, pod: BoundPod, container: str, ended: ContainerExit) -> None:
        """A container's run ended."""

    def stop_failed(self, pod: BoundPod, container: str, message: str) -> None:
        """A container could not be stopped; the stop is retried."""


class PodReporter(LifecycleReporter, AgentReporter):
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""


class PodLogReporter(LogReporter, PodReporter):
    """Writes the log, starts and ends of containers included."""

    def started(self, pod: BoundPod, container: str, attempt: int, cpus: CPUSet) -> None:
        self.log.info("container started", pod=pod.key, container=container, attempt=attempt, cpus=str(cpus))

    def start_failed(self, pod: BoundPod, container: str, reason: StatusReason) -> None:
        self.log.warning("container start failed", pod=pod.key, container=container, why=reason.message)

    def ended(self, pod: BoundPod, container: str, ended: ContainerExit) -> None:
        self.log.info("container ended", pod=pod.key, container=container, exit_code=ended.exit_code)

    def stop_failed(self, pod: BoundPod, container: str, message: str) -> None:
        self.log.error("container stop failed", pod=pod.key, container=container, why=message)
