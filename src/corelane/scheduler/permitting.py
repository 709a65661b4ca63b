"""Carries out what Permit plugins decide: pods that are held with their claim, and denied ones. No I/O."""

from collections.abc import Callable, Iterator, Mapping

from corelane.kube.pod import Pod
from corelane.scheduler.bindings import Binding, Bindings
from corelane.scheduler.claims import Claims
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.failure_reports import FailureReports
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Instruction
from corelane.scheduler.preempting import Preemption, preempted
from corelane.scheduler.queue import SchedulingQueue, Waiting


class Permits:
    """Pods that Permit plugins hold or deny."""

    def __init__(
        self,
        queue: SchedulingQueue,
        bindings: Bindings,
        claims: Claims,
        preemption: Preemption,
        reports: FailureReports,
        decisions: DecisionReporter,
        is_ours: Callable[[Pod], bool],
    ) -> None:
        """A pod for which `is_ours` is False is in another scheduler's queue, which reports its failures."""
        self._queue = queue
        self._bindings = bindings
        self._claims = claims
        self._preemption = preemption
        self._reports = reports
        self._decisions = decisions
        self._is_ours = is_ours

    def hold(
        self, waiting: Waiting, bind: Bind, profile: Profile, waits: Mapping[str, float], now: float
    ) -> None:
        """Keep a claimed pod from being bound, for these plugins and that many seconds at most."""
        self._bindings.hold(waiting, bind, profile, waits, now)
        waiting.started = self._queue.changes.number  # its own claim is no change that could help it
        for plugin, seconds in waits.items():
            self._decisions.held(now, waiting.uid, plugin, seconds)

    def denied(self, waiting: Waiting, plugin: str, message: str, now: float) -> Iterator[Instruction]:
        """Park a pod by the word of a Permit plugin, in the form of kube-scheduler's FitError."""
        self._decisions.denied(now, waiting.uid, plugin, message)
        if not self._is_ours(waiting.info.pod):
            return
        why = f"0/1 nodes are available: 1 {message}."
        self._queue.deny(waiting, now, plugin, why)
        yield from self._reports.explain(waiting, now, "Unschedulable", why, claimed=True)

    def release(self, binding: Binding, plugin: str, now: float) -> Iterator[Instruction]:
        """The end of its own claim does not help a pod; what else changed while it was held may."""
        self.unreserve(binding)
        waiting, unchanged = binding.waiting, binding.waiting.started == self._queue.changes.number
        self._claims.drop_pod(binding.uid, now)
        if unchanged:
            waiting.started = self._queue.changes.number
        yield from self.denied(waiting, plugin, binding.failure, now)

    def gives_way(self, uid: str, preemptor: Waiting, now: float) -> Iterator[Instruction]:
        """A victim that is only held is not deleted: its claim is released, and it is tried again."""
        binding = self._bindings.drop(uid)
        assert binding is not None
        self.unreserve(binding)
        self._preemption.gone(uid, now)
        why = f"preempted by pod {preemptor.uid} while Permit plugins held it"
        self._decisions.binding_ended(now, uid, "released", why)
        self._claims.drop_pod(uid, now)
        yield preempted(binding.bind.pod, preemptor.info.pod, binding.bind.node, claim_only=True)
        if self._is_ours(binding.bind.pod):
            self._queue.retry(binding.waiting, now)
            yield from self._reports.explain(binding.waiting, now, "SchedulerError", why, claimed=True)

    def unreserve(self, binding: Binding) -> None:
        """Undo what the profile's plugins have reserved for the pod."""
        self._claims.unreserve(binding.profile, binding.waiting.info, binding.bind.node)
