"""What follows from the end of a binding, or of an answer to one: claims, conditions and events. No I/O."""

from collections.abc import Collection, Iterator
from functools import lru_cache

from corelane.cpuset import CPUSet
from corelane.scheduler.bindings import Binding, Bound, Denied, Released, Step, Vanished, Waits
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.claims import Claims
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.failure_reports import FailureReports
from corelane.scheduler.instructions import Instruction, RecordPodEvent
from corelane.scheduler.permitting import Permits
from corelane.scheduler.pod_differences import as_sent
from corelane.scheduler.queue import SchedulingQueue


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
