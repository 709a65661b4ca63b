"""The scheduler's metrics: hooks of the core and the shell count; state is read when metrics are scraped."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, Metric

from corelane import prometheus
from corelane.kube.apierrors import APIError
from corelane.kube.decode import Malformed
from corelane.kube.leader_election import ElectionReporter
from corelane.kube.meta import Object
from corelane.kube.pod import Pod
from corelane.prometheus import FrequentHistogram, LabelValues
from corelane.scheduler.binding import binder
from corelane.scheduler.cluster.nodes import ERROR, SUCCESS, UNSCHEDULABLE, ExtensionPoints
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.daemon import families
from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.framework.profile import Plan, Profile
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import DecisionReporter, Outcome

_HELP: Final = (
    "Number of attempts to schedule pods by each plugin and the extension point (available only in "
    "PreFilter, Filter, PreScore, and Score)."
)
Labels = tuple[str, str, str]
"""Plugin, extension point, profile."""


class PluginEvaluations:
    """How often plugins were asked about pods: `scheduler_plugin_evaluation_total`.

    Upstream counts each node at Filter and Score. Here plugins are asked about all nodes at once, so an
    attempt counts once, by what it asked, which is the same for most; names are made by a scrape.
    """

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._attempts: Counter[tuple[int, tuple[str, ...]]] = Counter()
        """By the plan's identity, and the scores that had something to say; none where no node fits."""
        self._shown: set[Labels] = set()
        self._rejected: Counter[tuple[str, str]] = Counter()
        """By the plugin whose PreFilter rejected the pod, and the profile."""

    def show(self, profiles: Iterable[Profile]) -> None:
        """Show the plugins of these profiles from now on, before they are asked."""
        for profile in profiles:
            plugins = (
                ("PreFilter", profile.pre_filters),
                ("Filter", profile.filters),
                ("PreScore", (one for one in profile.score_forms if one.pre_score)),
                ("Score", profile.score_forms),
            )
            for point, there in plugins:
                self._shown.update((plugin.name, point, profile.name) for plugin in there)

    def attempted(self, attempt: Attempt, profile: str) -> None:
        """Count an attempt that has ended."""
        if attempt.rejected is not None:
            self._rejected[attempt.rejected.plugin, profile] += 1
        elif (plan := attempt.plan) is not None:
            self._plans[id(plan)] = plan
            self._attempts[id(plan), attempt.scored] += 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "scheduler_plugin_evaluation", _HELP, labels=("plugin", "extension_point", "profile")
        )
        for labels, number in sorted(self._named().items()):
            family.add_metric(labels, number)
        yield family

    def _named(self) -> Counter[Labels]:
        counts: Counter[Labels] = Counter(dict.fromkeys(self._shown, 0))
        for (plugin, profile), number in self._rejected.items():
            counts[plugin, "PreFilter", profile] += number
        for (key, scored), number in self._attempts.items():
            for labels in _asked(self._plans[key], scored):
                counts[labels] += number
        return counts


def _asked(plan: Plan, scored: tuple[str, ...]) -> Iterator[Labels]:
    for name in plan.pre_filters:
        yield name, "PreFilter", plan.profile
    for one in plan.filters:
        yield one.name, "Filter", plan.profile
    for score in (*plan.row_scores, *plan.cluster_scores):
        if score.name in scored:
            if score.pre_score:
                yield score.name, "PreScore", plan.profile
            yield score.name, "Score", plan.profile


class TimedPoints(ExtensionPoints):
    """Adds up what each point of an attempt takes, for a histogram by point, status and profile."""

    def __init__(self, histogram: FrequentHistogram, clock: Callable[[], float] = time.perf_counter) -> None:
        self._histogram, self._clock = histogram, clock
        self._point, self._begun = "", 0.0
        self._taken: dict[str, float] = {}
        self._status: dict[str, str] = {}

    def start(self) -> None:
        self._taken.clear()
        self._status.clear()

    def begin(self, point: str) -> None:
        self._point, self._begun = point, self._clock()

    def end(self, status: str = SUCCESS) -> None:
        point, taken = self._point, self._taken
        taken[point] = taken.get(point, 0.0) + self._clock() - self._begun
        self._status[point], self._point = status, ""

    def failed(self) -> None:
        if self._point:
            self.end(ERROR)

    def finish(self, profile: str) -> None:
        for point, seconds in self._taken.items():
            self._histogram.labels(point, self._status[point], profile).observe(seconds)
        self._taken.clear()

    def now(self) -> float:
        return self._clock()

    def alone(self, point: str, profile: str, begun: float) -> None:
        self._histogram.labels(point, SUCCESS, profile).observe(self._clock() - begun)


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
    held: float | None = None
    """Since when Permit plugins hold it."""
    flushed: bool = False
    """It was tried because nothing else had it tried for too long."""
    plugins: tuple[str, ...] = ()
    """Those that rejected it in its last attempt."""


class SchedulerMetrics(SchedulerReporter, DecisionReporter, ElectionReporter):
    """All metrics of a daemon."""

    times_events = True

    def __init__(self, lease: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """`lease` is its name, "" without leader election; `clock` is the one of the core's events."""
        self.registry = prometheus.registry(self._gauges)
        self.families = families.Families(self.registry)
        self._clock = clock
        self._evaluations = PluginEvaluations()
        self._scheduler: Scheduler | None = None
        self._pods: dict[str, _PendingPod] = {}
        self._leads = False
        self._lease = lease

    def text(self) -> str:
        """Return all in Prometheus' format."""
        return prometheus.text(self.registry).decode()

    def attach(self, scheduler: Scheduler | None) -> None:
        """Read from this scheduler from now on; None while there is none."""
        self._scheduler = scheduler
        self._pods.clear()
        if scheduler is not None:
            scheduler.core.cluster.points = TimedPoints(self.families.extension_points)
            self._evaluations.show(scheduler.core.profiles.values())

    # Decisions.

    def queued(self, queue: str, event: str) -> None:
        self.families.queue_incoming.labels(queue, event).inc()

    def attempted(self, now: float, waiting: Waiting, attempt: Attempt) -> None:
        seconds = self._clock() - now
        self.families.algorithm_duration.observe(seconds)
        pod = self._tried(now, waiting)
        if attempt.unfinished:
            return
        pod.flushed = waiting.flushed
        self._evaluations.attempted(attempt, pod.profile)
        if attempt.node is None:
            pod.plugins = tuple(sorted(attempt.plugins))
            self._count("unschedulable", pod, seconds)
        else:
            pod.plugins = ()

    def attempt_failed(self, now: float, waiting: Waiting, plugin: str, error: Exception) -> None:
        pod = self._tried(now, waiting)
        pod.plugins = ()
        self._count("error", pod, self._clock() - now)

    def _tried(self, now: float, waiting: Waiting) -> _PendingPod:
        pod = self._pods.get(waiting.info.uid)
        if pod is None:
            profile = waiting.info.pod.spec.scheduler_name
            pod = self._pods[waiting.info.uid] = _PendingPod(now, profile)
        pod.begun, pod.tries = now, waiting.attempts
        return pod

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        self._let_go(now, pod, UNSCHEDULABLE)
        if outcome == "released":
            self._count("error", pod, now - pod.begun)
            return
        del self._pods[uid]
        if outcome == "bound":
            self._count("scheduled", pod, now - pod.begun)
            attempts = str(pod.tries) if pod.tries < _MOST_TRIES else f"{_MOST_TRIES}+"
            self.families.sli_duration.labels(attempts).observe(now - pod.first)
            self.families.pod_attempts.observe(pod.tries)
            if pod.flushed:
                self.families.after_flush.inc()

    def held(self, now: float, uid: str, plugin: str, seconds: float) -> None:
        if pod := self._pods.get(uid):
            pod.held = now if pod.held is None else pod.held

    def bind_sent(self, now: float, bind: Bind) -> None:
        if pod := self._pods.get(bind.pod.metadata.uid):
            self._let_go(now, pod, SUCCESS)

    def _let_go(self, now: float, pod: _PendingPod, status: str) -> None:
        """Permit plugins hold the pod no longer, if they did."""
        if pod.held is not None:
            self.families.permit_wait.labels(status).observe(now - pod.held)
            pod.held = None

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        if pod := self._pods.get(uid):
            self._let_go(now, pod, UNSCHEDULABLE)
            pod.plugins = (plugin,)
            self._count("unschedulable", pod, now - pod.begun)

    def post_filtered(self, now: float, uid: str) -> None:
        self.families.preemption_attempts.inc()

    def nominated(self, now: float, uid: str, nomination: Nomination) -> None:
        self.families.preemption_victims.observe(len(nomination.victims))

    def gone(self, now: float, uid: str) -> None:
        if pod := self._pods.pop(uid, None):
            self._let_go(now, pod, UNSCHEDULABLE)

    def _count(self, result: str, pod: _PendingPod, seconds: float) -> None:
        self.families.schedule_attempts.labels(result, pod.profile).inc()
        self.families.attempt_duration.labels(result, pod.profile).observe(seconds)

    # Events, answers and requests.

    def event_handled(self, event: str, seconds: float) -> None:
        self.families.event_handling.labels(event).observe(seconds)

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        self.families.bindings.labels("bound").inc()

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        self.families.bindings.labels(binder.outcome(error)).inc()

    def extension_point(self, name: str, plugin: str, seconds: float, *, ok: bool) -> None:
        self.families.plugins.labels(plugin, name, "Success" if ok else "Error").observe(seconds)

    def ran(self, pod: Pod, point: str, seconds: float, status: str) -> None:
        self.families.extension_points.labels(point, status, pod.spec.scheduler_name).observe(seconds)

    def reallocated(self, pod: Pod, proposed: str, allocated: str) -> None:
        self.families.reallocated.inc()

    def refused(self, pod: Pod, node: str, reason: str, message: str) -> None:
        self.families.refused.labels(reason).inc()

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        self.families.evictions.labels("evicted").inc()

    def evict_failed(self, victim: Pod, error: APIError) -> None:
        self.families.evictions.labels("failed").inc()

    def write_failed(self, what: str, error: APIError) -> None:
        self.families.lost_writes.labels("failed").inc()

    def dropped(self, what: str) -> None:
        self.families.lost_writes.labels("dropped").inc()

    def listed(self, kind: type[Object], objects: int) -> None:
        self.families.lists.labels(kind.api.plural).inc()

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self.families.watch_failures.labels(kind.api.plural).inc()

    def malformed(self, bad: Malformed) -> None:
        self.families.malformed.labels(bad.kind).inc()

    def unusable_topology(self, node: str, problem: str) -> None:
        self.families.problems.inc()

    def leading(self, *, leads: bool) -> None:
        self._leads = leads

    def _gauges(self) -> Iterator[Metric]:
        """Yield what is read from the scheduler; 0, or nothing, while there is none."""
        scheduler, rejecting = self._scheduler, Counter[LabelValues]()
        for pod in self._pods.values():
            rejecting.update((plugin, pod.profile) for plugin in pod.plugins)
        queued = scheduler.core.queue.counts() if scheduler else Counter[str]()
        pending: dict[LabelValues, float] = {(queue,): queued[queue] for queue in _QUEUES}
        cached: dict[LabelValues, float] = {}
        claims = Counter[LabelValues]()
        if scheduler:
            claims.update((binding.phase.name.lower(),) for binding in scheduler.core.bindings)
            nodes = list(scheduler.core.cluster.placeable())
            pods = sum(len(node.pods) for node in nodes)
            cached = {("nodes",): len(nodes), ("pods",): pods, ("assumed_pods",): claims.total()}
        ended = len(scheduler.core.state.agents.faults()) if scheduler else 0
        binding = scheduler.unfinished_bindings if scheduler else 0
        gauge = prometheus.gauge
        yield from self._evaluations.collect()
        yield gauge("scheduler_pending_pods", families.PENDING_HELP, ("queue",), pending)
        help_text = families.UNSCHEDULABLE_HELP
        yield gauge("scheduler_unschedulable_pods", help_text, ("plugin", "profile"), rejecting)
        help_text = "Number of nodes, pods, and assumed (bound) pods in the scheduler cache."
        yield gauge("scheduler_cache_size", help_text, ("type",), cached)
        help_text = "Number of running goroutines split by the work they do such as binding."
        yield gauge("scheduler_goroutines", help_text, ("operation",), {("binding",): binding})
        help_text = "Nodes that get no pod with exclusive CPUs because their agent does not renew its Lease."
        yield gauge("corelane_scheduler_ended_agents", help_text, (), {(): ended})
        help_text = "Pods with claimed CPUs that are not seen bound yet, by phase of the binding."
        yield gauge("corelane_scheduler_claims", help_text, ("phase",), claims)
        if self._lease:
            master = {(self._lease,): float(self._leads)}
            yield gauge("leader_election_master_status", families.LEADER_HELP, ("name",), master)


class DecisionReporters(DecisionReporter):
    """Hands every hook on to each of the reporters, in order."""

    def __init__(self, *reporters: DecisionReporter) -> None:
        for name in (name for name in vars(DecisionReporter) if not name.startswith("_")):
            setattr(self, name, _each([getattr(reporter, name) for reporter in reporters]))


def _each(hooks: list[Callable[..., None]]) -> Callable[..., None]:
    def hook(*arguments: Any, **named: Any) -> None:
        for one in hooks:
            one(*arguments, **named)

    return hook
