"""A pod on this node: the plan made from its spec (immutable), and the records of its containers' progress.

Times are Unix seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from corelane.cpuset import CPUSet
from corelane.workload import ContainerKind, PodRequest

NO_CPUS: Final = CPUSet()
INIT_KINDS: Final = (ContainerKind.INIT, ContainerKind.SIDECAR)


class RestartPolicy(StrEnum):
    """A pod's `restartPolicy`."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class StatusReason:
    """Reason (one CamelCase word) and message, as in a pod's status and events."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """The end of one run of a container. A run killed by signal n has `signal` n and `exit_code` 128 + n."""

    exit_code: int
    finished_at: float
    started_at: float = 0.0
    signal: int = 0
    reason: str = ""
    message: str = ""
    id: str = ""

    @property
    def status_reason(self) -> str:
        """Reason in the container's status: `Completed`, `Error`, or a more exact one."""
        return self.reason or ("Error" if self.exit_code else "Completed")


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
class PodPlan:
    """A pod bound to this node, as far as the agent needs it.

    `grace` and `deletion_grace` are seconds; the latter is None unless the pod is being deleted. `ended`: the
    API server has a terminal phase already. `refusal`: why this agent cannot run the pod; `warnings`: ignored
    parts of its spec. `bound_by_corelane`: a rejection contradicts corelane's scheduler.
    """

    request: PodRequest
    containers: tuple[ContainerPlan, ...]
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    grace: float = 30.0
    active_deadline: float | None = None
    deletion_grace: float | None = None
    created_at: float = 0.0
    started_at: float | None = None
    ended: bool = False
    refusal: StatusReason | None = None
    warnings: tuple[StatusReason, ...] = ()
    bound_by_corelane: bool = False
    past: Mapping[str, PastRuns] = field(default_factory=lambda: _NO_PAST)
    conditions: Mapping[str, ConditionTransition] = field(default_factory=lambda: _NO_CONDITIONS)

    @property
    def uid(self) -> str:
        return self.request.uid

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return self.request.key


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
    """Seconds to wait after the next crash, and when that delay was last raised."""

    delay: float
    raised_at: float


@dataclass(slots=True)
class ContainerProgress:
    """One container's progress. `attempt` counts its runs from 0; it is -1 before the first.

    The CPUs that the kernel allows are uncertain while they change, so three sets are recorded: `applied`
    by the runtime, ordered and `pending`, and last `seen` in /proc.
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
    retry_at: float = 0.0
    applied: CPUSet = NO_CPUS
    pending: CPUSet | None = None
    seen: CPUSet = NO_CPUS
    confirmed: bool = False
    unread: bool = False
    drifted: bool = False
    narrowed: bool = False
    drift_reported: bool = False
    reported_problems: set[tuple[CPUSet, object]] = field(default_factory=set)
    """CPUs that could not be applied, each with what was observed; empty again once they are confirmed."""
    backoff_reported: int = -1

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
    def movable(self) -> bool:
        """Whether the container runs, and no order about its CPUs is outstanding."""
        return self.pending is None and bool(self.id) and self.stage in LIVE

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
        return self.stage is ContainerStage.EXITED and self.ended is not None and self.ended.exit_code == 0

    @property
    def initialized(self) -> bool:
        """Whether the containers after this init container may start; a sidecar only has to have started."""
        return self.ran if self.kind is ContainerKind.SIDECAR else self.succeeded

    @property
    def possible_cpus(self) -> CPUSet:
        """Every CPU that the container's processes may be running on."""
        if not self.live:
            return NO_CPUS
        return self.applied | self.seen | (self.pending or NO_CPUS)

    def run_id(self, *, previous: bool) -> str:
        """Return the id of the current or last run, or of the run before; empty if there is none."""
        if previous:
            return self.last.id if self.last else ""
        return self.id or (self.ended.id if self.ended else "")


@dataclass(frozen=True, slots=True)
class Termination:
    """Time by which a pod has to end, and the reason for its status, if that is to show one."""

    by: float
    reason: StatusReason | None = None


@dataclass(slots=True)
class PodRecord:
    """One pod's progress on this node.

    `present`: the API server has the pod; else only its processes have to end. `unmanaged`: the pod runs, but
    the ledger cannot hold its CPUs, so its containers are left unchanged. `finished`: no process is left, and
    its CPUs are released.
    """

    plan: PodPlan
    containers: dict[str, ContainerProgress]
    present: bool = True
    admitted: bool = False
    unmanaged: bool = False
    rejected: StatusReason | None = None
    termination: Termination | None = None
    finished: bool = False
    deletion_ordered: bool = False
    started_at: float = 0.0
    conditions: dict[str, ConditionTransition] = field(default_factory=dict)
    published: dict[str, object] | None = None

    @property
    def uid(self) -> str:
        return self.plan.uid

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
    """Pods by UID, and their containers by the ids of their runs."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self._runs: dict[str, tuple[PodRecord, ContainerProgress]] = {}

    def add_run(self, run_id: str, pod: PodRecord, container: ContainerProgress) -> None:
        self._runs[run_id] = pod, container

    def drop_run(self, run_id: str) -> None:
        self._runs.pop(run_id, None)

    def starting(self, uid: str, name: str, attempt: int) -> tuple[PodRecord, ContainerProgress] | None:
        """Return the container for which this start was ordered, if the answer is still outstanding."""
        pod = self.pods.get(uid)
        container = pod and pod.containers.get(name)
        if not pod or not container or container.attempt != attempt:
            return None
        return (pod, container) if container.stage is ContainerStage.STARTING else None

    def by_run(self, run_id: str) -> tuple[PodRecord | None, ContainerProgress | None]:
        """Return the container of that live run, and its pod."""
        pod, container = self._runs.get(run_id, (None, None))
        if container is None or container.id != run_id or not container.live:
            return None, None
        return pod, container

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
