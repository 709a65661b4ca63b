"""A pod on this node: what its spec plans (immutable), and how far its containers have come (records).

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


class RestartPolicy(StrEnum):
    """A pod's `restartPolicy`."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason in one CamelCase word, and a sentence for people."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one run of a container ended. Ended by signal n it has `signal` n and `exit_code` 128 + n."""

    exit_code: int
    finished_at: float
    started_at: float = 0.0
    signal: int = 0
    reason: str = ""
    message: str = ""
    id: str = ""

    @property
    def word(self) -> str:
        """The reason as Kubernetes shows it: `Completed`, `Error`, or a more exact one where it is known."""
        return self.reason or ("Error" if self.exit_code else "Completed")


@dataclass(frozen=True, slots=True)
class Past:
    """What the API server says of a container; it counts only where the runtime has lost it."""

    restarts: int
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A container as its pod's spec names it."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    image: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """A condition's status and since when it has it."""

    status: str
    since: float


_NO_PAST: Final[Mapping[str, Past]] = MappingProxyType({})
_NO_CONDITIONS: Final[Mapping[str, Transition]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What the agent has to know of a pod that is bound to its node.

    `deletion_grace` is the grace in seconds of a pod that is being deleted, else None. `ended` is true where
    the API server holds a terminal phase already. `refusal` says why this agent cannot run the pod as it is;
    `warnings` what it will not do for it. `lane_bound`: bound by corelane's scheduler, so that a refusal
    breaks its promise.
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
    refusal: Reason | None = None
    warnings: tuple[Reason, ...] = ()
    lane_bound: bool = False
    past: Mapping[str, Past] = field(default_factory=lambda: _NO_PAST)
    conditions: Mapping[str, Transition] = field(default_factory=lambda: _NO_CONDITIONS)

    @property
    def uid(self) -> str:
        return self.request.uid

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return self.request.key


class Stage(StrEnum):
    """How far one container has come; while it starts or stops, the runtime's answer is outstanding."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"


LIVE: Final = frozenset({Stage.STARTING, Stage.RUNNING, Stage.STOPPING})


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the next crash, and when that was last raised."""

    delay: float
    raised_at: float


@dataclass(slots=True)
class Container:
    """One container's progress. `attempt` is the current run, -1 before the first.

    What the kernel may let it use is not known exactly while it changes, so three sets are kept: what the
    runtime confirmed to have `applied`, what was ordered and is `pending`, and what was last `seen` in
    /proc.
    """

    plan: ContainerPlan
    stage: Stage = Stage.WAITING
    id: str = ""
    attempt: int = -1
    started_at: float = 0.0
    ended: Ended | None = None
    last: Ended | None = None
    waiting: Reason | None = None
    backoff: Backoff | None = None
    retry_at: float = 0.0
    applied: CPUSet = NO_CPUS
    pending: CPUSet | None = None
    seen: CPUSet = NO_CPUS
    confirmed: bool = False
    unread: bool = False
    drifted: bool = False
    narrowed: bool = False
    drift_told: bool = False
    troubles: set[tuple[CPUSet, object]] = field(default_factory=set)
    """The CPUs that it was reported not to be held to, and how that showed; none any more once it is."""
    told_back_off: int = -1

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def kind(self) -> ContainerKind:
        return self.plan.kind

    @property
    def live(self) -> bool:
        """Whether a process of it may exist."""
        return self.stage in LIVE

    @property
    def movable(self) -> bool:
        """Whether it runs, and no order about its CPUs is on its way."""
        return self.pending is None and bool(self.id) and self.stage in LIVE

    @property
    def ran(self) -> bool:
        """Whether it was ever up."""
        return self.stage in (Stage.RUNNING, Stage.STOPPING) or bool(self.ended or self.last)

    @property
    def succeeded(self) -> bool:
        return self.stage is Stage.EXITED and self.ended is not None and self.ended.exit_code == 0

    @property
    def may_use(self) -> CPUSet:
        """Every CPU that the kernel may let it run on at this moment."""
        if not self.live:
            return NO_CPUS
        return self.applied | self.seen | (self.pending or NO_CPUS)


@dataclass(frozen=True, slots=True)
class Termination:
    """Why a pod has to end before its containers do by themselves, and by when."""

    by: float
    reason: Reason | None = None


@dataclass(slots=True)
class Pod:
    """One pod's progress on this node.

    `present`: the API server has it; without that it is only waiting for its processes to end. `untouched`:
    it runs, but the ledger could not be made to agree with where, so its containers are left as they are.
    """

    plan: PodPlan
    containers: dict[str, Container]
    present: bool = True
    admitted: bool = False
    untouched: bool = False
    rejected: Reason | None = None
    doom: Termination | None = None
    over: bool = False
    finishing: bool = False
    started_at: float = 0.0
    conditions: dict[str, Transition] = field(default_factory=dict)
    published: dict[str, object] | None = None

    @property
    def uid(self) -> str:
        return self.plan.uid

    @property
    def live(self) -> bool:
        return any(container.live for container in self.containers.values())

    def of(self, *kinds: ContainerKind) -> list[Container]:
        """Its containers of those kinds, in the order of the spec."""
        return [container for container in self.containers.values() if container.kind in kinds]


def records(plans: Iterable[ContainerPlan]) -> dict[str, Container]:
    """Fresh records, by name, in the order of the spec."""
    return {plan.name: Container(plan) for plan in plans}
