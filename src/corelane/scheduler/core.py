"""The scheduler's decisions: `handle(event) -> instructions`. No I/O, no clock: events carry the time, in s.

Theory of operation. A pod of this scheduler without a node waits in the queue. `CycleDue` takes the first
ready one through a cycle: pre-filters, filters, scores. If a node fits, the pod is claimed there (its CPUs
are taken in memory) and a Bind goes out; else it is parked with the reason. A claim lasts until the API
server shows the pod bound, which makes it an ordinary pod of that node, or until the binding has failed: the
pod is deleted, or the server rejected the binding; `bindings` holds the rules. Every pod of this scheduler
is in the queue or being bound. What changes on a node is `observed`, for the pods that wait in the queue.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from corelane.kube import keys
from corelane.kube.agent_leases import Agents
from corelane.kube.pod import Pod
from corelane.scheduler.binding import claims
from corelane.scheduler.binding.bindings import (
    Bindings,
    as_sent,
    expected_node,
    is_claimed,
    requests_changed,
    status_changed,
    stopped,
)
from corelane.scheduler.binding.claims import Claims
from corelane.scheduler.binding.preemption import Preemption
from corelane.scheduler.binding.steps import BindingSteps, Permits
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.search import KeptAttempts, Screen, Search
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.events import (
    AgentLeaseChanged,
    AgentLeasesWatched,
    BindFailed,
    BindRequested,
    BindSucceeded,
    CraneTopologyChanged,
    CycleDue,
    EvictFailed,
    LookUpFailed,
    NodeChanged,
    ObjectChanged,
    PermitDecided,
    PodChanged,
    PodLookedUp,
    PreBindFailed,
    SchedulerEvent,
    TopologyChanged,
    Unwatched,
)
from corelane.scheduler.failures import FailureReports, PluginErrors, unknown_cpus
from corelane.scheduler.framework.attempts import Attempt, message
from corelane.scheduler.framework.changes import ChangeKind
from corelane.scheduler.framework.plugin import Nomination, NotNominated, Rejection
from corelane.scheduler.framework.profile import DEFAULT_NAME, Profile, united
from corelane.scheduler.instructions import Bind, Evict, Instruction, PreBindWork, RecordNodeEvent
from corelane.scheduler.plugins import default
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Backoff, Waiting

SETTLED_AT_ONCE: Final = 512
"""Steps of `NodeCache.settle` in one CycleDue, about 10 ms: after a start, all nodes are new."""
_PARKED_AT_ONCE: Final = 64
"""Pods that are parked in one CycleDue because an equal one fits nowhere."""


class SchedulerCore:
    """The scheduler's state; see the theory of operation."""

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        profile: Profile | None = None,
        decisions: DecisionReporter | None = None,
        identity: str = "",
        *,
        profiles: Sequence[Profile] = (),
        backoff: Backoff | None = None,
    ) -> None:
        """`identity` names this replica in every binding; `profiles` stand in for `name` and `profile`."""
        if profiles:
            name, profile = profiles[0].name, profiles[0]
        self.name = name
        self.decisions = DecisionReporter() if decisions is None else decisions
        self.profile = profile or default.profile(name)
        self.cluster = NodeCache()
        self.agents = Agents()
        self._problems: dict[str, str] = {}
        """Node name to the fault of its topology, which has its event."""
        self.profiles = {one.name: one for one in profiles} or {name: self.profile}
        """By the schedulerName of the pods that they decide about."""
        every = united(tuple(self.profiles.values()))
        self.queue = SchedulingQueue(
            every,
            backoff,
            Screen(self.cluster).fits_nowhere,
            self.cluster.label_keys,
            self.decisions.queued,
            lambda: self.cluster.points,
            self.cluster.faults.add,
        )
        self.cluster.faults.report = self.decisions.plugin_failed
        for one in self.profiles.values():
            one.helped_by(plugin.name for plugin in one.plugins)
            for fault in one.faults:
                self.cluster.faults.add(*fault)
        self.bindings = Bindings()
        self._preemption = Preemption(self.cluster, self.queue)
        self._kept = KeptAttempts(self.cluster)
        self._claims = Claims(self.cluster, self.queue, self._preemption, identity)
        self._reports = FailureReports(self.cluster, self.profile_of)
        self._search = Search(self.cluster, self._kept, self._preemption, self.profile_of)
        self._errors = PluginErrors(self.cluster, self.queue, self._reports, self.decisions)
        self._permits = Permits(
            self.queue,
            self.bindings,
            self._claims,
            self._preemption,
            self._reports,
            self.decisions,
            lambda pod: pod.spec.scheduler_name in self.profiles,
        )
        self._steps = BindingSteps(
            self.cluster,
            self.queue,
            self._claims,
            self._permits,
            self._reports,
            self.decisions,
            self.profiles,
        )

    def profile_of(self, pod: Pod) -> Profile:
        """Return the profile that decides about a pod; the first one for pods of other schedulers."""
        return self.profiles.get(pod.spec.scheduler_name, self.profile)

    def handle(self, event: SchedulerEvent) -> list[Instruction]:
        """Update the state by an event, and return what to do now."""
        if isinstance(event, AgentLeaseChanged):  # mostly renewals, of which there are many
            self._agent_lease_changed(event)
            return []
        if not isinstance(event, CycleDue):
            self._kept.clear()
        match event:
            case PodChanged():
                return list(self._pod_changed(event))
            case CycleDue():
                return [*self._due(event.now), *self._schedule_one(event.now)]
            case NodeChanged():
                return list(self._node_changed(event))
            case TopologyChanged():
                return list(self._topology_changed(event))
            case CraneTopologyChanged():
                self._crane_changed(event)
            case ObjectChanged():
                if change := claims.apply(self.cluster, event):
                    self.queue.changed(change, event.now)
            case AgentLeasesWatched():
                self.agents.watch(event.now, works=event.works)
            case Unwatched():
                if change := claims.unwatched(self.cluster, event):
                    self.queue.changed(change, event.now)
            case BindSucceeded() | BindFailed() | PreBindFailed() | PodLookedUp() | LookUpFailed():
                if isinstance(event, BindFailed) and event.outcome != "rejected":
                    self.decisions.binding_open(event.now, event.uid, event.outcome, event.message)
                step = self.bindings.handle(event)
                return list(self._steps.carry_out(step, event.now)) if step else []
            case PermitDecided():
                return list(self._permit_decided(event))
            case EvictFailed():
                self._preemption.failed(event.uid, event.victim, event.now)
            case BindRequested():
                return list(self._bind_requested(event))
        return []

    def ready(self, now: float) -> bool:
        """Return whether a CycleDue would do something now."""
        times = (self.bindings.next_time(), self.agents.next_time())
        return self.queue.has_ready(now) or any(due is not None and due <= now for due in times)

    def next_time(self) -> float | None:
        """Return when a CycleDue will do something without another event; None for never."""
        times = (self.bindings.next_time(), self.queue.next_time(), self.agents.next_time())
        return min((time for time in times if time is not None), default=None)

    def pending(self) -> dict[str, str]:
        """Return UID to the reason why it has no node, for every pod of this scheduler without one."""
        queued = {waiting.info.uid: waiting.pending_because for waiting in self.queue}
        return queued | {binding.uid: binding.doing for binding in self.bindings}

    # Pods.

    def _pod_changed(self, event: PodChanged) -> Iterator[Instruction]:
        pod = event.new
        if pod is None or pod.ended:
            last = event.new or event.old
            assert last is not None
            yield from self._remove(last.metadata.uid, event.now)
        elif pod.spec.node_name:
            yield from self._placed(event.old, pod, event.now)
        elif pod.spec.scheduler_name in self.profiles:
            yield from self._unplaced(event.old, pod, event.now)

    def _remove(self, uid: str, now: float) -> Iterator[Instruction]:
        self.decisions.gone(now, uid)
        self.queue.remove(uid, now)
        if binding := self.bindings.drop(uid):
            self._permits.unreserve(binding)
            yield from stopped(binding, "the pod was deleted")
        self._claims.drop_pod(uid, now)
        self._preemption.gone(uid, now)

    def _placed(self, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
        """The pod has a node, through this scheduler or another."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        claimed = self.cluster.node_of(uid)
        if claimed == node and old is not None and not requests_changed(old, pod):
            if status_changed(old, pod):
                self._claims.refresh_pod(pod, now)
            return
        binding = self.bindings.drop(uid)
        if binding and claimed == node and is_claimed(binding, pod):
            self._claims.refresh_pod(pod, now)
            yield from self._steps.succeeded(binding, now)
            return
        self.queue.remove(uid, now)
        info, before = PodInfo.of(pod), self.cluster.pod(uid)
        self._claims.put_pod(node, info, now)
        yield from unknown_cpus(before, info)
        self._preemption.forget(uid, now, taken=node)
        if binding and as_sent(binding, pod):
            yield from self._steps.succeeded(binding, now)
        elif binding:
            self._permits.unreserve(binding)
            self.decisions.binding_ended(now, uid, "bound-elsewhere", node)
            yield from stopped(binding, f"the pod is on node {node}")

    def _unplaced(self, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp:
            yield from self._remove(uid, now)
        elif binding := self.bindings.get(uid):
            binding.waiting.info = PodInfo.of(pod)
        else:
            self._waiting_changed(old, PodInfo.of(pod), now)

    def _waiting_changed(self, old: Pod | None, info: PodInfo, now: float) -> None:
        if info.uid not in self.queue:
            self.queue.add(info, now)
        elif old is None or requests_changed(old, info.pod):
            self.queue.update(info, now)
        else:
            self.queue.refresh(info)
        self._preemption.status_changed(old, info, now)

    def _node_changed(self, event: NodeChanged) -> Iterator[Instruction]:
        node = event.new or event.old
        assert node is not None
        name = node.metadata.name
        with self._claims.observed(
            ChangeKind.NODE | ChangeKind.TOPOLOGY, name, event.now, event.old, event.new
        ):
            self.cluster.put_node(name, event.new)
        if event.new is None:
            yield from self.bindings.node_deleted(name)
            self._preemption.node_deleted(name, event.now)

    def _topology_changed(self, event: TopologyChanged) -> Iterator[Instruction]:
        topology = event.new or event.old
        assert topology is not None
        name = topology.metadata.name
        with self._claims.observed(ChangeKind.TOPOLOGY, name, event.now, event.old, event.new):
            self.cluster.put_topology(event.old, event.new)
            node = self.cluster.get(name)
            self.agents.judge(name, event.now, leased=node is not None and node.cpus.leased)
            self.cluster.put_agent_fault(name, self.agents.fault(name))
        before, problem = self._problems.pop(name, ""), node.problem if node else ""
        if problem:
            self._problems[name] = problem
        if problem and problem != before:
            yield RecordNodeEvent(name, "InvalidNodeResourceTopology", problem)

    def _agent_lease_changed(self, event: AgentLeaseChanged) -> None:
        lease = event.new or event.old
        assert lease is not None
        name = lease.metadata.name
        if lease.metadata.namespace != keys.AGENT_NAMESPACE:
            return
        before = self.agents.fault(name)
        self.agents.put(name, event.new, event.now)
        if self.agents.fault(name) != before:
            self._put_agent_fault(name, event.now)

    def _put_agent_fault(self, name: str, now: float) -> None:
        """A node whose agent ended, or runs again, is another node for pods with exclusive CPUs."""
        with self._claims.observed(ChangeKind.TOPOLOGY, name, now, None, None):
            if self.cluster.put_agent_fault(name, self.agents.fault(name)):
                self._kept.clear()

    def _crane_changed(self, event: CraneTopologyChanged) -> None:
        crane = event.new or event.old
        assert crane is not None
        name = crane.metadata.name
        with self._claims.observed(ChangeKind.TOPOLOGY, name, event.now, event.old, event.new):
            self.cluster.put_crane(name, event.new)

    # One cycle.

    def _schedule_one(self, now: float) -> Iterator[Instruction]:
        """Try the next ready pod; those that certainly get the same answer as an earlier one are parked."""
        if not self.cluster.settle(SETTLED_AT_ONCE):
            return  # The queue is as it was: the next CycleDue goes on.
        self.queue.ask(now)
        for _ in range(_PARKED_AT_ONCE):
            waiting = self.queue.pop(now)
            if waiting is None:
                return
            verdict = self.queue.verdict(waiting)
            if verdict is None:
                yield from self._attempt(waiting, now)
                return
            self.queue.park_alike(waiting, now, verdict)
            yield from self._reports.explain(waiting, now, "Unschedulable", verdict.message)

    def _attempt(self, waiting: Waiting, now: float) -> Iterator[Instruction]:
        self.cluster.points.start()
        yield from self._attempt_once(waiting, now)
        self.cluster.points.finish(waiting.info.pod.spec.scheduler_name)

    def _attempt_once(self, waiting: Waiting, now: float) -> Iterator[Instruction]:
        count = self.cluster.count()
        try:
            attempt, result = self._search.run(waiting)
        except Exception as error:  # noqa: BLE001 - of a plugin; those of the core are raised again
            yield from self._errors.ended(waiting, self.profile_of(waiting.info.pod), error, now)
            return
        profile = self.profile_of(waiting.info.pod)
        self._errors.observe(profile, lambda: self.decisions.attempted(now, waiting, attempt))
        if attempt.node is not None:
            yield from self._found(waiting, attempt, attempt.node, now)
            return
        if attempt.unfinished:
            self.queue.again(waiting, doubtful=isinstance(result, NotNominated) and result.doubtful)
            return
        why, plugins = message(attempt, count), attempt.plugins
        if result is not None:
            self.decisions.post_filtered(now, waiting.uid)
            for step in self._preemption.carry_out(waiting, result, now):
                if isinstance(step, Evict) and self.bindings.holds(step.victim.metadata.uid):
                    yield from self._permits.gives_way(step.victim.metadata.uid, waiting, now)
                else:
                    yield step
            if isinstance(result, Nomination):
                self.decisions.nominated(now, waiting.uid, result)
            if isinstance(result, NotNominated):
                why += f" {result.message}" if result.message else ""
                plugins |= result.plugins
        self.queue.park(waiting, now, plugins, why)
        yield from self._reports.explain(waiting, now, "Unschedulable", why, attempt)

    def _found(self, waiting: Waiting, attempt: Attempt, node: NodeInfo, now: float) -> Iterator[Instruction]:
        """Reserve, Permit, claim, and bind: at once, or when the Permit plugins allow it."""
        profile = self.profile_of(waiting.info.pod)
        try:
            rejection = claims.reserve(profile, attempt.cycle, node)
            waits = {} if rejection else claims.permit(profile, attempt.cycle, node)
            done = rejection or isinstance(waits, Rejection)
            work = () if done else claims.pre_bind_work(profile, attempt.cycle, node)
        except Exception as error:  # noqa: BLE001 - as above
            yield from self._errors.ended(waiting, profile, error, now)
            return
        if rejection:
            self.queue.retry(waiting, now)
            why = "; ".join(map(str, rejection.reasons))
            yield from self._reports.explain(waiting, now, "SchedulerError", f"{rejection.plugin}: {why}")
            return
        if isinstance(waits, Rejection):
            self._claims.unreserve(profile, waiting.info, node.name)
            self.queue.placed(waiting, now, permitted=False)
            yield from self._permits.denied(waiting, waits.plugin, "; ".join(map(str, waits.reasons)), now)
            return
        self._preemption.forget(waiting.uid, now, taken=node.name)
        self.queue.nominate(waiting, "", now)
        self.queue.placed(waiting, now, permitted=not waits)
        yield from self._claim(waiting, attempt, profile, waits, work, now)
        yield from expected_node(self.bindings[waiting.uid])

    def _permit_decided(self, event: PermitDecided) -> Iterator[Instruction]:
        step = self.bindings.decided(event)
        if isinstance(step, Bind):
            self.decisions.bind_sent(event.now, step)
        if step is not None:
            yield from self._steps.carry_out(step, event.now)
        if isinstance(step, Bind) and step.pod.spec.scheduler_name in self.profiles:
            yield from expected_node(self.bindings[event.uid])

    # Claim and bind.

    def _bind_requested(self, event: BindRequested) -> Iterator[Instruction]:
        """The pod is of another scheduler: it is in no queue, and its failures are that one's to report.

        Reserve and Permit plugins are asked as for any pod; a binding that they hold is sent later.
        """
        waiting, profile = Waiting(PodInfo.of(event.pod)), event.profile
        try:
            attempt = finalists.attempt(profile, self.cluster, waiting.info, frozenset({event.node}))
            self._errors.observe(profile, lambda: self.decisions.attempted(event.now, waiting, attempt))
            if attempt.node is None:
                return
            waits = claims.reserve_and_permit(profile, attempt.cycle, attempt.node)
            if isinstance(waits, Rejection):
                why = "; ".join(map(str, waits.reasons))
                self.decisions.binding_ended(event.now, waiting.uid, "released", f"{waits.plugin}: {why}")
                return
            work = claims.pre_bind_work(profile, attempt.cycle, attempt.node)
        except Exception as error:  # noqa: BLE001 - of a plugin; those of the core are raised again
            self._errors.refused(waiting, profile, error, event.now)
            return
        yield from self._claim(waiting, attempt, profile, waits, work, event.now)

    def _claim(
        self,
        waiting: Waiting,
        attempt: Attempt,
        profile: Profile,
        waits: Mapping[str, float],
        work: tuple[PreBindWork, ...],
        now: float,
    ) -> Iterator[Bind]:
        """Claim the pod, and bind it; with `waits` when the Permit plugins allow it."""
        bind = self._claims.claim(waiting, attempt, work, now)
        if waits:
            self._permits.hold(waiting, bind, profile, waits, now)
            return
        self.decisions.bind_sent(now, bind)
        yield self.bindings.begin(waiting, bind, profile)

    def _due(self, now: float) -> Iterator[Instruction]:
        for name in self.agents.expire(now):
            self._put_agent_fault(name, now)
        for step in self.bindings.due(now):
            yield from self._steps.carry_out(step, now)
