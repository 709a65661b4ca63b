"""Events about pods whose containers corelane starts itself; those about CPUs are allocation's."""

from collections.abc import Hashable
from dataclasses import dataclass

from corelane.agent.allocation.events import AgentEvent
from corelane.embedded.pods.records import PodPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen(AgentEvent):
    """A pod bound to this node was added or changed."""

    plan: PodPlan

    def subject(self) -> Hashable:
        return "pod", self.plan.uid


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
