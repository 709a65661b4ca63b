"""Hooks by which a scheduler's decisions are observed: empty here; `explain` records them.

A hook is handed what the core has at that moment, and must take from it what it needs: the objects change
with the next event. The core computes nothing for a hook.
"""

from typing import Literal, TypeAlias

from corelane.scheduler.framework.attempts import Attempt
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.instructions import Bind
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
