"""The scheduler's metrics: hooks of the core and the shell count; state is read when metrics are scraped."""

import resource
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane.kube.apierrors import APIError
from corelane.kube.decode import Malformed
from corelane.kube.meta import Object
from corelane.kube.pod import Pod
from corelane.scheduler.binder import outcome as proven
from corelane.scheduler.cycle import Attempt
from corelane.scheduler.daemon import exposition, families
from corelane.scheduler.daemon.exposition import Gauge, Labels, Metric, ReadCounter
from corelane.scheduler.daemon.extension_points import TimedPoints
from corelane.scheduler.daemon.leader_election import ElectionReporter
from corelane.scheduler.decisions import DecisionReporter, Outcome
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.queue import Waiting
from corelane.scheduler.scheduler import Scheduler, SchedulerReporter

_QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
_MOST_TRIES: Final = 15
"""Upstream's label `attempts` is "15+" from here on."""


@dataclass(slots=True)
class _PendingPod:
    """What metrics must know of a pod until it is bound. Times are the core's, in s."""

    first: float
    profile: str
    tries: int = 0
    begun: float = 0.0
    plugins: tuple[str, ...] = ()
    """Those that rejected it in its last attempt."""


class SchedulerMetrics(SchedulerReporter, DecisionReporter, ElectionReporter):
    """All metrics of a daemon."""

    def __init__(self, lease: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """`lease` is its name, "" without leader election; `clock` is the one of the core's events."""
        self.families = families.Families()
        self._clock = clock
        self._scheduler: Scheduler | None = None
        self._pods: dict[str, _PendingPod] = {}
        self._leads = False
        self._read = (*self._gauges(lease), *process_metrics())

    def __iter__(self) -> Iterator[Metric]:
        yield from self.families
        yield from self._read

    def text(self) -> str:
        """Return all in Prometheus' format."""
        return exposition.text(self)

    def attach(self, scheduler: Scheduler | None) -> None:
        """Read from this scheduler from now on; None while there is none."""
        self._scheduler = scheduler
        self._pods.clear()
        if scheduler is not None:
            scheduler.core.cluster.points = TimedPoints(self.families.extension_points.observe)

    # Decisions.

    def queued(self, queue: str, event: str) -> None:
        self.families.queue_incoming.inc(queue, event)

    def attempted(self, now: float, waiting: Waiting, attempt: Attempt) -> None:
        seconds = self._clock() - now
        self.families.algorithm_duration.observe(seconds)
        pod = self._pods.get(waiting.info.uid)
        if pod is None:
            profile = waiting.info.pod.spec.scheduler_name
            pod = self._pods[waiting.info.uid] = _PendingPod(now, profile)
        pod.begun, pod.tries = now, waiting.attempts
        if attempt.unfinished:
            return
        if attempt.node is None:
            pod.plugins = tuple(sorted(attempt.plugins))
            self._count("unschedulable", pod, seconds)
        else:
            pod.plugins = ()

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        if outcome == "released":
            self._count("error", pod, now - pod.begun)
            return
        del self._pods[uid]
        if outcome == "bound":
            self._count("scheduled", pod, now - pod.begun)
            attempts = str(pod.tries) if pod.tries < _MOST_TRIES else f"{_MOST_TRIES}+"
            self.families.sli_duration.observe(now - pod.first, attempts)
            self.families.pod_attempts.observe(pod.tries)

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        if pod := self._pods.get(uid):
            pod.plugins = (plugin,)
            self._count("unschedulable", pod, now - pod.begun)

    def post_filtered(self, now: float, uid: str) -> None:
        self.families.preemption_attempts.inc()

    def nominated(self, now: float, uid: str, nomination: Nomination) -> None:
        self.families.preemption_victims.observe(len(nomination.victims))

    def gone(self, now: float, uid: str) -> None:
        self._pods.pop(uid, None)

    def _count(self, result: str, pod: _PendingPod, seconds: float) -> None:
        self.families.schedule_attempts.inc(result, pod.profile)
        self.families.attempt_duration.observe(seconds, result, pod.profile)

    # Answers and requests.

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        self.families.bindings.inc("bound")
        self.families.extension_points.observe(seconds, "Bind", "Success", pod.spec.scheduler_name)

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        self.families.bindings.inc(proven(error))

    def extension_point(self, name: str, plugin: str, seconds: float, *, ok: bool) -> None:
        self.families.plugins.observe(seconds, plugin, name, "Success" if ok else "Error")

    def reallocated(self, pod: Pod, proposed: str, allocated: str) -> None:
        self.families.reallocated.inc()

    def refused(self, pod: Pod, node: str, reason: str, message: str) -> None:
        self.families.refused.inc(reason)

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        self.families.evictions.inc("evicted")

    def evict_failed(self, victim: Pod, error: APIError) -> None:
        self.families.evictions.inc("failed")

    def write_failed(self, what: str, error: APIError) -> None:
        self.families.lost_writes.inc("failed")

    def dropped(self, what: str) -> None:
        self.families.lost_writes.inc("dropped")

    def listed(self, kind: type[Object], objects: int) -> None:
        self.families.lists.inc(kind.api.plural)

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self.families.watch_failures.inc(kind.api.plural)

    def malformed(self, bad: Malformed) -> None:
        """Counted nowhere: the log names the object."""

    def unusable_topology(self, node: str, problem: str) -> None:
        self.families.problems.inc()

    def leading(self, *, leads: bool) -> None:
        self._leads = leads

    # What is read when it is scraped.

    def _gauges(self, lease: str) -> Iterator[Metric]:
        yield Gauge("scheduler_pending_pods", families.PENDING_HELP, self._pending, ("queue",))
        yield Gauge(
            "scheduler_unschedulable_pods",
            families.UNSCHEDULABLE_HELP,
            self._unschedulable,
            ("plugin", "profile"),
        )
        yield Gauge(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            self._cache_size,
            ("type",),
        )
        yield Gauge(
            "scheduler_goroutines",
            "Number of running goroutines split by the work they do such as binding.",
            lambda: {("binding",): self._scheduler.unfinished_bindings if self._scheduler else 0},
            ("operation",),
        )
        yield Gauge(
            "corelane_scheduler_claims",
            "Pods with claimed CPUs that are not seen bound yet, by phase of the binding.",
            self._claims,
            ("phase",),
        )
        if lease:
            master = "leader_election_master_status"
            yield Gauge(master, families.LEADER_HELP, lambda: {(lease,): self._leads}, ("name",))

    def _pending(self) -> Mapping[Labels, float]:
        counts = self._scheduler.pending_counts() if self._scheduler else {}
        return {(queue,): counts.get(queue, 0) for queue in _QUEUES}

    def _unschedulable(self) -> Mapping[Labels, float]:
        tally: Tally[Labels] = Tally()
        for pod in self._pods.values():
            tally.update((plugin, pod.profile) for plugin in pod.plugins)
        return tally

    def _cache_size(self) -> Mapping[Labels, float]:
        if self._scheduler is None:
            return {}
        nodes, pods = self._scheduler.cache_size()
        return {("nodes",): nodes, ("pods",): pods, ("assumed_pods",): self._scheduler.claims().total()}

    def _claims(self) -> Mapping[Labels, float]:
        claims = self._scheduler.claims() if self._scheduler else {}
        return {(phase,): count for phase, count in claims.items()}


def process_metrics() -> Iterator[Metric]:
    """Yield the process' standard metrics, as client_golang's process collector names them."""
    started = time.time()
    yield ReadCounter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        lambda: {(): time.process_time()},
    )
    yield Gauge(
        "process_resident_memory_bytes", "Resident memory size in bytes.", lambda: {(): _resident_bytes()}
    )
    yield Gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        lambda: {(): started},
    )
    if Path("/proc/self/fd").is_dir():
        yield Gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            lambda: {(): sum(1 for _ in Path("/proc/self/fd").iterdir())},
        )


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
