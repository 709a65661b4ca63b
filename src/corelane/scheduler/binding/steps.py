"""What follows from the end of a binding, or of an answer to one: claims, conditions and events. No I/O."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache

from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.scheduler.binding.bindings import (
    Binding,
    Bindings,
    Bound,
    Denied,
    Released,
    Step,
    Vanished,
    Waits,
    as_sent,
)
from corelane.scheduler.binding.claims import Claims
from corelane.scheduler.binding.preemption import Preemption, preempted
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.failures import FailureReports
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Instruction, RecordPodEvent
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Waiting


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


class BindingSteps:
    """Carries out the steps of `Bindings`."""

    def __init__(
        self,
        cluster: NodeCache,
        queue: SchedulingQueue,
        claims: Claims,
        permits: Permits,
        reports: FailureReports,
        decisions: DecisionReporter,
        schedulers: Collection[str],
    ) -> None:
        """`schedulers` are the names of the profiles: other pods are another scheduler's to report."""
        self._cluster = cluster
        self._queue = queue
        self._claims = claims
        self._permits = permits
        self._reports = reports
        self._decisions = decisions
        self._schedulers = schedulers

    def carry_out(self, step: Step, now: float) -> Iterator[Instruction]:
        match step:
            case Bound():
                yield from self._bound(step, now)
            case Released(binding):
                yield from self._released(binding, now)
            case Waits(binding, seconds):
                yield from self._waits(binding, seconds, now)
            case Denied(binding, plugin):
                yield from self._permits.release(binding, plugin, now)
            case Vanished(binding):
                self._permits.unreserve(binding)
                self._decisions.binding_ended(now, binding.uid, "vanished", binding.failure)
                self._claims.drop_pod(binding.uid, now)
            case _:
                yield step

    def _released(self, binding: Binding, now: float) -> Iterator[Instruction]:
        self._permits.unreserve(binding)
        self._decisions.binding_ended(now, binding.uid, "released", binding.failure)
        self._claims.drop_pod(binding.uid, now)
        self._cluster.nominations.evicting.discard(binding.uid)
        if binding.bind.pod.spec.scheduler_name in self._schedulers:
            self._queue.retry(binding.waiting, now)
            failure = binding.failure
            yield from self._reports.explain(binding.waiting, now, "SchedulerError", failure, claimed=True)

    def _waits(self, binding: Binding, seconds: float, now: float) -> Iterator[RecordPodEvent]:
        """Say why nothing happens to a pod for a minute."""
        pod, node = binding.bind.pod, binding.bind.node
        deleted = " (deleted)" if binding.node_deleted else ""
        message = (
            f"binding to node {node}{deleted}: the outcome of a request is unknown and the pod has no node; "
            f"the request may still be carried out, the pod is read again in {seconds:.0f} s"
        )
        self._decisions.binding_open(now, binding.uid, "waits", message)
        if pod.spec.scheduler_name in self._schedulers:
            yield RecordPodEvent(pod, "Warning", "FailedScheduling", message)

    def _bound(self, bound: Bound, now: float) -> Iterator[Instruction]:
        """The claim stays until the informer shows the pod; where another bound it, there."""
        binding, pod = bound.binding, bound.pod
        if pod is not None and not as_sent(binding, pod):
            self._claims.put_pod(pod.spec.node_name, PodInfo.of(pod), now)
            self._decisions.binding_ended(now, binding.uid, "bound-elsewhere", pod.spec.node_name)
        else:
            yield from self.succeeded(binding, now)

    def succeeded(self, binding: Binding, now: float) -> Iterator[RecordPodEvent]:
        """Once: the pod may be seen bound before the answer to the binding arrives, or after."""
        if binding.recorded:
            return
        binding.recorded, bind = True, binding.bind
        self._decisions.binding_ended(now, binding.uid, "bound", "")
        if bind.pod.spec.scheduler_name not in self._schedulers:
            return  # the scheduler that chose the node has its own event
        message = f"Successfully assigned {bind.pod.title} to {bind.node}"
        cpus = ", ".join(f"{name} {_listed(cpus)}" for name, cpus in sorted(bind.assignments.items()))
        yield RecordPodEvent(
            bind.pod, "Normal", "Scheduled", f"{message} (CPUs: {cpus})" if cpus else message
        )


@lru_cache(4096)
def _listed(cpus: CPUSet) -> str:
    """The list of CPUs: nodes that are alike give the same ones."""
    return str(cpus)
