"""The scheduler's decisions: `handle(event) -> instructions`. No I/O, no clock: time comes in the events.

Theory of operation. A pod without a node waits in the queue. `CycleDue` takes the first ready one through
a cycle: pre-filters, filters, scores. If a node is found, the pod is claimed there (its CPUs are taken in
memory) and a Bind goes out; else it is parked with the reason. A claim lasts until the API server shows the
pod bound, which makes it an ordinary pod of that node, or until it is certain that the binding will not come:
the pod is gone, the server refused, or a conflict (it is bound already, or changed) is not resolved within a
minute. When a binding's fate is unknown the claim is kept and the very same binding is sent again, so that no
CPU is ever proposed twice. Every pod of ours is queued, being bound, or gated: none is forgotten.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corelane.kube import translate
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.cluster import NodeCache, NodeInfo, PodInfo
from corelane.scheduler.filters import FILTERS, PREFILTERS
from corelane.scheduler.messages import (
    Announce,
    Bind,
    BindFailed,
    BindSucceeded,
    CycleDue,
    Event,
    Instruction,
    NodeChanged,
    PodChanged,
    SetCondition,
    TopologyChanged,
    Unfit,
)
from corelane.scheduler.plugins import Cycle, Filter, Plugins, Wake
from corelane.scheduler.queue import SchedulingQueue, Waiting, backoff
from corelane.scheduler.scores import scores

__all__ = ["DEFAULT_NAME", "DEFAULT_PLUGINS", "SchedulerCore"]

DEFAULT_NAME: Final = "corelane-scheduler"
DEFAULT_PLUGINS: Final = Plugins(PREFILTERS, FILTERS, scores())
CONFLICT_SECONDS: Final = 60.0
ANNOUNCE_AGAIN: Final = 300.0
ANNOUNCE_SOONEST: Final = 10.0
MOST_REASONS: Final = 8
"""With more of them, what differs from node to node is left out."""


@dataclass(slots=True, eq=False)
class _Binding:
    """A pod on its way to a node."""

    waiting: Waiting
    bind: Bind
    tries: int = 1
    announced: bool = False
    send_again_at: float | None = None
    give_up_at: float | None = None


class SchedulerCore:
    """All that the scheduler knows; see the theory of operation."""

    def __init__(self, name: str = DEFAULT_NAME, plugins: Plugins = DEFAULT_PLUGINS) -> None:
        self.name = name
        self.plugins = plugins
        self.cluster = NodeCache()
        self.queue = SchedulingQueue()
        self._bindings: dict[str, _Binding] = {}
        self._gated: set[str] = set()

    def handle(self, event: Event) -> list[Instruction]:
        """Take note of an event; answer what is to be done now."""
        match event:
            case PodChanged():
                return list(self._pod_changed(event))
            case NodeChanged():
                return self._node_changed(event)
            case TopologyChanged():
                return self._topology_changed(event)
            case BindSucceeded():
                return list(self._bound(event))
            case BindFailed():
                return list(self._bind_failed(event))
            case CycleDue():
                return [*self._due(event.now), *self._schedule_one(event.now)]

    def ready(self, now: float) -> bool:
        """Whether a Tick would do something now."""
        return self.queue.has_ready(now) or any(at <= now for at in self._due_times())

    def next_time(self) -> float | None:
        """When a Tick has something to do, if nothing else happens."""
        times = [*self._due_times(), *filter(None, [self.queue.next_time()])]
        return min(times, default=None)

    def pending(self) -> dict[str, str]:
        """UID of every pod of ours without a node, and why it has none yet."""
        queued = {waiting.info.uid: waiting.reason or "waits for its turn" for waiting in self.queue}
        binding = {uid: f"is being bound to {it.bind.node}" for uid, it in self._bindings.items()}
        return queued | binding | dict.fromkeys(self._gated, "is held back by its scheduling gates")

    # Pods.

    def _pod_changed(self, event: PodChanged) -> Iterator[Instruction]:
        pod = event.new
        if pod is None or pod.ended:
            known = event.new or event.old
            assert known is not None
            self._forget(known.metadata.uid, event.now)
        elif pod.spec.node_name:
            yield from self._placed(event.old, pod, event.now)
        elif pod.spec.scheduler_name == self.name:
            self._unplaced(event.old, pod, event.now)

    def _forget(self, uid: str, now: float) -> None:
        self._gated.discard(uid)
        self.queue.remove(uid)
        self._bindings.pop(uid, None)
        if self.cluster.drop_pod(uid):
            self.queue.wake(now, Wake.FREED)

    def _placed(self, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
        """It has a node: through us, or whoever else."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        claimed = self.cluster.node_of(uid)
        if claimed == node and old is not None and not _asks_differently(old, pod):
            return
        self._gated.discard(uid)
        self.queue.remove(uid)
        binding = self._bindings.pop(uid, None)
        self.cluster.put_pod(node, PodInfo.of(pod))
        if claimed not in {None, node}:
            self.queue.wake(now, Wake.FREED)
        if binding and binding.bind.node == node:
            yield from _announce_success(binding)

    def _unplaced(self, old: Pod | None, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp:
            self._forget(uid, now)
        elif pod.spec.scheduling_gates:
            self._gated.add(uid)
        elif uid in self._bindings:
            self._bindings[uid].waiting.info = PodInfo.of(pod)
        elif uid not in self.queue:
            self._gated.discard(uid)
            self.queue.add(PodInfo.of(pod))
        elif old is None or _asks_differently(old, pod):
            self.queue.update(PodInfo.of(pod), now)
        else:
            self.queue.refresh(PodInfo.of(pod))

    # Nodes.

    def _node_changed(self, event: NodeChanged) -> list[Instruction]:
        known = event.new or event.old
        assert known is not None
        self.cluster.put_node(known.metadata.name, event.new)
        if event.new and (event.old is None or _offers_differently(event.old, event.new)):
            self.queue.wake(event.now, Wake.NODE)
        return []

    def _topology_changed(self, event: TopologyChanged) -> list[Instruction]:
        self.cluster.put_topology(event.old, event.new)
        self.queue.wake(event.now, Wake.LEDGER)
        return []

    # One cycle.

    def _schedule_one(self, now: float) -> Iterator[Instruction]:
        waiting = self.queue.pop(now)
        if waiting is None:
            return
        cycle = Cycle.of(waiting.info)
        if refusal := self._prefilter(cycle):
            yield from self._park(waiting, now, refusal, Wake.NOTHING)
            return
        feasible, reasons, helped_by = self._filter(cycle)
        if not feasible:
            yield from self._park(waiting, now, self._in_words(reasons), helped_by, _nearest(cycle))
            return
        yield self._claim(waiting, cycle, self._best(cycle, feasible))

    def _prefilter(self, cycle: Cycle) -> str:
        why = next(filter(None, (plugin.check(cycle.info) for plugin in self.plugins.prefilters)), "")
        return f"0/{self._count()} nodes are available: {why}." if why else ""

    def _count(self) -> int:
        return sum(1 for _ in self.cluster.placeable())

    def _filter(self, cycle: Cycle) -> tuple[list[NodeInfo], Counter[str], Wake]:
        feasible: list[NodeInfo] = []
        failed: set[Filter] = set()
        reasons: Counter[str] = Counter()
        for node in self.cluster.placeable():
            plugin, why = self.plugins.first_reasons(cycle, node)
            if plugin is None:
                feasible.append(node)
            else:
                failed.add(plugin)
                reasons.update(why)
        helped_by = Wake.NODE
        for plugin in failed:
            helped_by |= plugin.helped_by
        return feasible, reasons, helped_by

    def _in_words(self, reasons: Counter[str]) -> str:
        """As kube-scheduler says it."""
        if not reasons:
            return "no nodes available to schedule pods"
        if len(reasons) > MOST_REASONS:
            reasons = _without_details(reasons)
        parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
        return f"0/{self._count()} nodes are available: {', '.join(parts)}."

    def _best(self, cycle: Cycle, feasible: list[NodeInfo]) -> NodeInfo:
        if len(feasible) == 1:
            return feasible[0]

        def order(node: NodeInfo) -> tuple[float, int, str]:
            return -sum(self.plugins.scored(cycle, node).values()), len(node.pods), node.name

        return min(feasible, key=order)

    # Reserve and bind.

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

    def _bound(self, event: BindSucceeded) -> Iterator[Instruction]:
        binding = self._bindings.get(event.uid)
        if binding is None:
            return
        # It stays claimed until the pod itself is seen with its node.
        binding.send_again_at = binding.give_up_at = None
        yield from _announce_success(binding)

    def _bind_failed(self, event: BindFailed) -> Iterator[Instruction]:
        binding = self._bindings.get(event.uid)
        if binding is None:
            return
        if event.outcome == "unknown":
            binding.send_again_at = event.now + backoff(binding.tries)
            return
        if event.outcome == "conflict":
            binding.send_again_at, binding.give_up_at = None, event.now + CONFLICT_SECONDS
            return
        yield from self._unreserve(binding, event.now, f"binding rejected: {event.message}")

    def _unreserve(self, binding: _Binding, now: float, why: str) -> Iterator[Instruction]:
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
                yield from self._unreserve(binding, now, "the binding met a conflict that was not resolved")
            elif binding.send_again_at is not None and binding.send_again_at <= now:
                binding.send_again_at = None
                binding.tries += 1
                yield binding.bind

    # Saying why not.

    def _park(
        self, waiting: Waiting, now: float, why: str, helped_by: Wake, nearest: Unfit | None = None
    ) -> Iterator[Instruction]:
        self.queue.park(waiting, now, helped_by)
        yield from self._explain(waiting, now, "Unschedulable", why, nearest)

    def _explain(
        self, waiting: Waiting, now: float, reason: str, why: str, nearest: Unfit | None = None
    ) -> Iterator[Instruction]:
        """The condition is always what was found last; events are held down to what is worth telling."""
        pod, waiting.reason = waiting.info.pod, why
        if not _has_condition(pod, reason, why):
            yield SetCondition(pod, reason, why)
        silent = now - waiting.announced_at
        if silent >= (ANNOUNCE_SOONEST if why != waiting.announced else ANNOUNCE_AGAIN):
            waiting.announced, waiting.announced_at = why, now
            yield Announce(pod, "Warning", "FailedScheduling", why, nearest)


def _nearest(cycle: Cycle) -> Unfit | None:
    """Of the nodes that lack nothing but CPUs for the pod, the one with the most that are free."""
    assert cycle.info.request is not None
    if not cycle.lacking:
        return None
    name = min(cycle.lacking, key=lambda name: (-len(cycle.lacking[name].free_exclusive), name))
    return Unfit(name, cycle.lacking[name], cycle.info.request)


def _without_details(reasons: Counter[str]) -> Counter[str]:
    """What stands behind a reason's colon is of one node, or of some."""
    short: Counter[str] = Counter()
    for reason, count in reasons.items():
        short[reason if reason.startswith("node(s) had") else reason.partition(": ")[0]] += count
    return short


def _announce_success(binding: _Binding) -> Iterator[Announce]:
    """Once: the pod may be seen bound before the server's answer to the binding is, or after."""
    if binding.announced:
        return
    binding.announced, bind = True, binding.bind
    message = f"Successfully assigned {bind.pod.title} to {bind.node}"
    lanes = ", ".join(f"{name} {cpus}" for name, cpus in sorted(bind.assignments.items()))
    yield Announce(bind.pod, "Normal", "Scheduled", f"{message} (CPUs: {lanes})" if lanes else message)


def _has_condition(pod: Pod, reason: str, message: str) -> bool:
    known = condition(pod.status.conditions, "PodScheduled")
    wanted = ("False", reason, message)
    return known is not None and (known.status, known.reason, known.message) == wanted


def _asks_differently(old: Pod, new: Pod) -> bool:
    one, other = old.metadata, new.metadata
    return (old.spec, one.labels, one.annotations) != (new.spec, other.labels, other.annotations)


def _offers_differently(old: Node, new: Node) -> bool:
    return _offer(old) != _offer(new)


def _offer(node: Node) -> tuple[object, ...]:
    """What of a node decides who fits on it; its heartbeats do not."""
    told = (condition(node.status.conditions, kind) for kind in ("Ready", "DiskPressure"))
    states = tuple(one.status if one else "" for one in told)
    return node.spec, node.metadata.labels, node.status.allocatable, states
