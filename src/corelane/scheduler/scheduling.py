"""The scheduler's decisions: `handle(event) -> instructions`. No I/O, no clock: events carry the time, in s.

Theory of operation. A pod of this scheduler without a node waits in the queue. `CycleDue` takes the first
ready one through a cycle: pre-filters, filters, scores. If a node fits, the pod is claimed there (its CPUs
are taken in memory) and a Bind goes out; else it is parked with the reason. A claim lasts until the API
server shows the pod bound, which makes it an ordinary pod of that node, or until the binding has failed: the
pod is deleted, or the server rejected the binding. While a binding's outcome is unknown the claim stays and
the same binding is sent again, so that no CPU is proposed twice. If that is rejected, the earlier one may
still have been carried out; as after a conflict (the pod is bound already, or changed) the claim then stays
for a minute, in which the pod must be seen bound. Every pod of this scheduler is queued, being bound, or
gated.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corelane.kube import translate
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    NodeChanged,
    PodChanged,
    SchedulerEvent,
    TopologyChanged,
)
from corelane.scheduler.filters import FILTERS, PREFILTERS, Cycle, Filter, NodeReason, PreFilter
from corelane.scheduler.instructions import Bind, Instruction, NearestNode, RecordPodEvent, SetCondition
from corelane.scheduler.node_cache import NodeCache, NodeInfo, PodInfo
from corelane.scheduler.queue import SchedulingQueue, Waiting, Wake, backoff
from corelane.scheduler.scores import Score, scores

DEFAULT_NAME: Final = "corelane-scheduler"
CONFLICT_SECONDS: Final = 60.0
"""How long a pod that may be bound already keeps its claim; news of pods must not be later than this."""
SAME_EVENT_SECONDS: Final = 300.0
NEW_EVENT_SECONDS: Final = 10.0
"""Least time between two events about a pod, with the same message and with another one."""
MOST_REASONS: Final = 8
"""With more distinct reasons, their details are left out."""


@dataclass(frozen=True, slots=True)
class Plugins:
    """The scheduling framework's extension points; equal nodes go by fewest pods, then by name."""

    prefilters: tuple[PreFilter, ...] = PREFILTERS
    filters: tuple[Filter, ...] = FILTERS
    scores: tuple[Score, ...] = scores()

    def first_reasons(self, cycle: Cycle, node: NodeInfo) -> tuple[Filter | None, tuple[NodeReason, ...]]:
        """Return the first filter that rejects the node, with its reasons; (None, ()) if none does."""
        for plugin in self.filters:
            if reasons := tuple(plugin.reasons(cycle, node)):
                return plugin, reasons
        return None, ()

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        """Return the weighted sum of all scores."""
        return sum(plugin.weight * plugin.score(cycle, node) for plugin in self.scores)


@dataclass(slots=True, eq=False)
class _Binding:
    """A pod that is being bound."""

    waiting: Waiting
    bind: Bind
    tries: int = 1
    recorded: bool = False
    send_again_at: float | None = None
    give_up_at: float | None = None
    failure: str = ""
    """Why it is given up at that time."""


class SchedulerCore:
    """The scheduler's state; see the theory of operation."""

    def __init__(self, name: str = DEFAULT_NAME, plugins: Plugins | None = None) -> None:
        self.name = name
        self.plugins = plugins or Plugins()
        self.cluster = NodeCache()
        self.queue = SchedulingQueue()
        self._bindings: dict[str, _Binding] = {}
        self._gated: set[str] = set()

    def handle(self, event: SchedulerEvent) -> list[Instruction]:
        """Update the state by an event, and return what to do now."""
        match event:
            case PodChanged():
                return list(self._pod_changed(event))
            case NodeChanged():
                self._node_changed(event)
            case TopologyChanged():
                self.cluster.put_topology(event.old, event.new)
                self.queue.wake(event.now, Wake.LEDGER)
            case BindSucceeded():
                return list(self._bind_succeeded(event))
            case BindFailed():
                return list(self._bind_failed(event))
            case CycleDue():
                return [*self._due(event.now), *self._schedule_one(event.now)]
        return []

    def ready(self, now: float) -> bool:
        """Return whether a CycleDue would do something now."""
        return self.queue.has_ready(now) or any(at <= now for at in self._due_times())

    def next_time(self) -> float | None:
        """Return when a CycleDue will do something without another event; None for never."""
        times = [*self._due_times(), *filter(None, [self.queue.next_time()])]
        return min(times, default=None)

    def pending(self) -> dict[str, str]:
        """Return UID to the reason why it has no node, for every pod of this scheduler without one."""
        queued = {waiting.info.uid: waiting.reason or "queued" for waiting in self.queue}
        binding = {uid: f"being bound to {binding.bind.node}" for uid, binding in self._bindings.items()}
        return queued | binding | dict.fromkeys(self._gated, "has scheduling gates")

    # Pods.

    def _pod_changed(self, event: PodChanged) -> Iterator[Instruction]:
        pod = event.new
        if pod is None or pod.ended:
            last = event.new or event.old
            assert last is not None
            self._remove(last.metadata.uid, event.now)
        elif pod.spec.node_name:
            yield from self._placed(event.old, pod, event.now)
        elif pod.spec.scheduler_name == self.name:
            self._unplaced(event.old, pod, event.now)

    def _remove(self, uid: str, now: float) -> None:
        self._gated.discard(uid)
        self.queue.remove(uid)
        self._bindings.pop(uid, None)
        if self.cluster.drop_pod(uid):
            self.queue.wake(now, Wake.FREED)

    def _placed(self, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
        """The pod has a node, through this scheduler or another."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        claimed = self.cluster.node_of(uid)
        if claimed == node and old is not None and not _requests_changed(old, pod):
            return
        self._gated.discard(uid)
        self.queue.remove(uid)
        binding = self._bindings.pop(uid, None)
        self.cluster.put_pod(node, PodInfo.of(pod))
        if claimed not in {None, node}:
            self.queue.wake(now, Wake.FREED)
        if binding and binding.bind.node == node:
            yield from _record_success(binding)

    def _unplaced(self, old: Pod | None, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp:
            self._remove(uid, now)
        elif pod.spec.scheduling_gates:
            self._gated.add(uid)
        elif uid in self._bindings:
            self._bindings[uid].waiting.info = PodInfo.of(pod)
        elif uid not in self.queue:
            self._gated.discard(uid)
            self.queue.add(PodInfo.of(pod))
        elif old is None or _requests_changed(old, pod):
            self.queue.update(PodInfo.of(pod), now)
        else:
            self.queue.refresh(PodInfo.of(pod))

    def _node_changed(self, event: NodeChanged) -> None:
        node = event.new or event.old
        assert node is not None
        self.cluster.put_node(node.metadata.name, event.new)
        if event.new and (event.old is None or _facts(event.old) != _facts(event.new)):
            self.queue.wake(event.now, Wake.NODE)

    # One cycle.

    def _schedule_one(self, now: float) -> Iterator[Instruction]:
        waiting = self.queue.pop(now)
        if waiting is None:
            return
        cycle = Cycle(waiting.info, waiting.info.shape)
        if why := next(filter(None, (check(cycle.info) for check in self.plugins.prefilters)), ""):
            yield from self._park(
                waiting, now, f"0/{self._count()} nodes are available: {why}.", Wake.NOTHING
            )
            return
        feasible, reasons, helped_by = self._filter(cycle)
        if feasible:
            yield self._claim(waiting, cycle, self._best(cycle, feasible))
        else:
            yield from self._park(waiting, now, self._message(reasons), helped_by, _nearest(cycle))

    def _count(self) -> int:
        return sum(1 for _ in self.cluster.placeable())

    def _filter(self, cycle: Cycle) -> tuple[list[NodeInfo], Counter[NodeReason], Wake]:
        feasible: list[NodeInfo] = []
        reasons: Counter[NodeReason] = Counter()
        helped_by = Wake.NODE
        for node in self.cluster.placeable():
            plugin, why = self.plugins.first_reasons(cycle, node)
            if plugin is None:
                feasible.append(node)
            else:
                helped_by |= plugin.helped_by
                reasons.update(why)
        return feasible, reasons, helped_by

    def _message(self, reasons: Counter[NodeReason]) -> str:
        """The reasons in kube-scheduler's form."""
        if not reasons:
            return "no nodes available to schedule pods"
        texts: Counter[str] = Counter()
        for reason, count in reasons.items():
            texts[reason.text if len(reasons) > MOST_REASONS else str(reason)] += count
        parts = sorted(f"{count} {text}" for text, count in texts.items())
        return f"0/{self._count()} nodes are available: {', '.join(parts)}."

    def _best(self, cycle: Cycle, feasible: list[NodeInfo]) -> NodeInfo:
        if len(feasible) == 1:
            return feasible[0]
        return min(feasible, key=lambda node: (-self.plugins.score(cycle, node), len(node.pods), node.name))

    # Claim and bind.

    def _claim(self, waiting: Waiting, cycle: Cycle, node: NodeInfo) -> Bind:
        info = waiting.info
        admitted = cycle.admitted.get(node.name)
        assignments, zone = (admitted[1].assignments, admitted[1].zone) if admitted else ({}, None)
        self.cluster.claim(node.name, info, assignments, zone)
        machine = admitted[0].machine if admitted else None
        record = translate.proposal_annotations(assignments, info.pod, machine, zone)
        if admitted and (assignments or zone):
            record |= translate.reasons_annotation(admitted[1].reasons)
            record |= translate.resolved_spec(info.pod, admitted[1].bind, required=admitted[1].bind_required)
        bind = Bind(info.pod, node.name, record, assignments)
        self._bindings[info.uid] = _Binding(waiting, bind)
        return bind

    def _bind_succeeded(self, event: BindSucceeded) -> Iterator[Instruction]:
        binding = self._bindings.get(event.uid)
        if binding is None:
            return
        # The claim stays until the pod is seen with its node.
        binding.send_again_at = binding.give_up_at = None
        yield from _record_success(binding)

    def _bind_failed(self, event: BindFailed) -> Iterator[Instruction]:
        binding = self._bindings.get(event.uid)
        if binding is None:
            return
        failure = f"binding rejected: {event.message}"
        if event.outcome == "unknown":
            binding.send_again_at = event.now + backoff(binding.tries)
        elif event.outcome == "rejected" and binding.tries == 1:
            yield from self._unclaim(binding, event.now, failure)
        else:
            if event.outcome == "conflict":
                failure = (
                    f"binding to {binding.bind.node}: conflict not resolved within {CONFLICT_SECONDS:.0f} s"
                )
            binding.failure, binding.give_up_at = failure, event.now + CONFLICT_SECONDS

    def _unclaim(self, binding: _Binding, now: float, why: str) -> Iterator[Instruction]:
        waiting = binding.waiting
        del self._bindings[waiting.info.uid]
        self.cluster.drop_pod(waiting.info.uid)
        self.queue.retry(waiting, now)
        self.queue.wake(now, Wake.FREED)
        yield from self._explain(waiting, now, "SchedulerError", why)

    def _due_times(self) -> Iterator[float]:
        for binding in self._bindings.values():
            yield from (at for at in (binding.send_again_at, binding.give_up_at) if at is not None)

    def _due(self, now: float) -> Iterator[Instruction]:
        for binding in list(self._bindings.values()):
            if binding.give_up_at is not None and binding.give_up_at <= now:
                yield from self._unclaim(binding, now, binding.failure)
            elif binding.send_again_at is not None and binding.send_again_at <= now:
                binding.send_again_at = None
                binding.tries += 1
                yield binding.bind

    # Reporting failures.

    def _park(
        self, waiting: Waiting, now: float, why: str, helped_by: Wake, nearest: NearestNode | None = None
    ) -> Iterator[Instruction]:
        self.queue.park(waiting, now, helped_by)
        yield from self._explain(waiting, now, "Unschedulable", why, nearest)

    def _explain(
        self, waiting: Waiting, now: float, reason: str, why: str, nearest: NearestNode | None = None
    ) -> Iterator[Instruction]:
        """The condition always carries the last result; events are limited in their rate."""
        pod, waiting.reason = waiting.info.pod, why
        if not _has_condition(pod, reason, why):
            yield SetCondition(pod, reason, why)
        since = now - waiting.event_at
        if since >= (NEW_EVENT_SECONDS if why != waiting.event else SAME_EVENT_SECONDS):
            waiting.event, waiting.event_at = why, now
            yield RecordPodEvent(pod, "Warning", "FailedScheduling", why, nearest)


def _nearest(cycle: Cycle) -> NearestNode | None:
    """Of the nodes that only lack CPUs for the pod, the one with the most free exclusive CPUs."""
    assert cycle.info.request is not None
    if not cycle.lacking:
        return None
    name = min(cycle.lacking, key=lambda name: (-len(cycle.lacking[name].free_exclusive), name))
    return NearestNode(name, cycle.lacking[name], cycle.info.request)


def _record_success(binding: _Binding) -> Iterator[RecordPodEvent]:
    """Once: the pod may be seen bound before the answer to the binding arrives, or after."""
    if binding.recorded:
        return
    binding.recorded, bind = True, binding.bind
    message = f"Successfully assigned {bind.pod.title} to {bind.node}"
    cpus = ", ".join(f"{name} {cpus}" for name, cpus in sorted(bind.assignments.items()))
    yield RecordPodEvent(bind.pod, "Normal", "Scheduled", f"{message} (CPUs: {cpus})" if cpus else message)


def _has_condition(pod: Pod, reason: str, message: str) -> bool:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    expected = ("False", reason, message)
    return scheduled is not None and (scheduled.status, scheduled.reason, scheduled.message) == expected


def _requests_changed(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    return (old.spec, before.labels, before.annotations) != (new.spec, after.labels, after.annotations)


def _facts(node: Node) -> tuple[object, ...]:
    """The parts of a Node that decide which pods fit; its heartbeats do not change them."""
    conditions = (condition(node.status.conditions, kind) for kind in ("Ready", "DiskPressure"))
    statuses = tuple(found.status if found else "" for found in conditions)
    return node.spec, node.metadata.labels, node.status.allocatable, statuses
