"""The scheduler's state as one value, and the hooks by which its decisions are observed.

Transitions are functions that take the state: of pods, nodes and attempts in `core`, of claims, bindings and
nominations in `binding`. The hooks are empty here; `explain` records decisions by them. A hook is handed what
the core has at that moment, and must take from it what it needs: the objects change with the next event. The
core computes nothing for a hook.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from corelane.kube.agent_leases import Agents
from corelane.kube.pod import Pod
from corelane.scheduler.binding.bindings import Bindings
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.cycle.finalists import Attempts
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Waiting

Outcome: TypeAlias = Literal["bound", "bound-elsewhere", "released", "vanished"]
OpenOutcome: TypeAlias = Literal["throttled", "conflict", "unknown", "waits"]


class DecisionReporter:
    """Reports what became of each pod. `now` is the events' time, in seconds."""

    def queued(self, queue: str, event: str) -> None:
        """A pod enters a queue: active, backoff or unschedulable, for an event by kube-scheduler's name."""

    def attempted(self, now: float, waiting: Waiting, attempt: Attempt) -> None:
        """An attempt ended, with a node or without; nothing is claimed yet."""

    def attempt_failed(self, now: float, waiting: Waiting, plugin: str, error: Exception) -> None:
        """A plugin raised an error, which ended the attempt."""

    def plugin_failed(self, plugin: str, what: str, error: Exception) -> None:
        """A plugin raised an error in the method `what`, which ended no attempt; reported once."""

    def bind_sent(self, now: float, bind: Bind) -> None:
        """The pod is claimed on its node, and its binding is sent."""

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        """A binding succeeded, or its claim was released; `message` says why."""

    def binding_open(self, now: float, uid: str, outcome: OpenOutcome, message: str) -> None:
        """A binding was not accepted, which does not prove that it is not carried out: the claim stays."""

    def post_filtered(self, now: float, uid: str) -> None:
        """No node fits, and the PostFilter plugins have looked for one that can be made to."""

    def nominated(self, now: float, uid: str, nomination: Nomination) -> None:
        """No node fits, but one will once the victims are gone."""

    def held(self, now: float, uid: str, plugin: str, seconds: float) -> None:
        """A Permit plugin holds the binding for at most that long."""

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        """A Permit plugin denied the binding, or waited too long; nothing is claimed any more."""

    def gone(self, now: float, uid: str) -> None:
        """The pod ended or was deleted."""


@dataclass(slots=True)
class SchedulerState:
    """All that one scheduler knows and has under way."""

    profiles: Mapping[str, Profile]
    """By the schedulerName of the pods that they decide about; the first one stands in for others."""
    decisions: DecisionReporter
    cluster: NodeCache
    queue: SchedulingQueue
    attempts: Attempts
    signature: dict[str, str]
    """Annotations of every binding: they name this replica."""
    bindings: Bindings = field(default_factory=Bindings)
    agents: Agents = field(default_factory=Agents)
    topology_faults: dict[str, str] = field(default_factory=dict)
    """Node name to the fault of its topology, which has its event."""
    remedy_at: float = float("-inf")
    """When an event last said what would help."""

    def profile_of(self, pod: Pod) -> Profile:
        """Return the profile that decides about a pod; the first one for pods of other schedulers."""
        return self.profiles.get(pod.spec.scheduler_name) or next(iter(self.profiles.values()))

    def schedules(self, pod: Pod) -> bool:
        """Return whether the pod is of this scheduler: another reports the failures of its own pods."""
        return pod.spec.scheduler_name in self.profiles
