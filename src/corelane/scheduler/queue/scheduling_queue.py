"""The queue: each pod without a node is in exactly one place, and a change that may help it is not lost.

Theory of operation. A pod is gated (by a PreEnqueue plugin), ready, backing off, parked, or out: being tried
or bound. A pod that no node fits is parked with its group, the pods that get the same answer. A change that
may help the group makes one of its pods ready, on trial: if it is placed, the next one is tried; if not, the
rest stay parked, for the answer would be the same. So 10,000 replicas that fit nowhere cost one attempt. New
pods of a group are parked without an attempt while nothing has changed that could help. The numbers are
kube-scheduler's: back-off of 1 s doubling to 10 s, and an attempt after 5 minutes in any case.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, members
from corelane.scheduler.framework.plugin import PreEnqueuePlugin, Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue import waiting as incoming
from corelane.scheduler.queue.parked import (
    Group,
    Questions,
    UnschedulablePods,
    helps,
)
from corelane.scheduler.queue.waiting import (
    MOST_PORTIONS,
    ActiveQueue,
    Backoff,
    BackoffQueue,
    Grouping,
    Line,
    QueuePlace,
    Screen,
    SortKeys,
    Verdict,
    Waiting,
)


def answer(info: PodInfo, plugin: PreEnqueuePlugin) -> Rejection | None:
    """What a plugin says; one that raises an error keeps the pod gated, as upstream's status Error."""
    try:
        return plugin.pre_enqueue(info)
    except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
        return Rejection.of(plugin.name, Reason(Code.PLUGIN_FAILED, (type(error).__name__, str(error))))


AT_ONCE: Final = 256
"""Groups that are asked about a change at once; with more, between attempts."""
PUT_OFF_AT_ONCE: Final = 1000
"""New pods that are put off before one is tried."""
PORTION: Final = 2000
"""Groups that are asked between two attempts."""


class SchedulingQueue:
    """Pods without a node; see the theory of operation."""

    def __init__(
        self,
        profile: Profile,
        cluster: NodeCache | None = None,
        backoff: Backoff | None = None,
        entered: Callable[[str, str], None] = lambda _queue, _event: None,
    ) -> None:
        """`entered` is called with the queue's name and the event for every pod that enters one.

        See `incoming`. The cluster's pods and nodes decide on groups, and on the order of attempts.
        """
        cluster = NodeCache() if cluster is None else cluster
        self._grouping = Grouping(cluster)
        self._screen = Screen(cluster)
        self._profile = profile
        self._backoff = backoff or Backoff()
        self._pods: dict[str, Waiting] = {}
        self._active = ActiveQueue()
        self._backing_off = BackoffQueue()
        self._unschedulable = UnschedulablePods(profile)
        self._questions = Questions(profile, self._unschedulable)
        self._cluster = cluster
        self._gated: dict[str, Waiting] = {}
        """By UID."""
        self._gates_listen = profile.helped_by(plugin.name for plugin in profile.pre_enqueue)
        self._keys = SortKeys(profile.queue_sort, cluster.faults)
        self._entered = entered
        self._event = ""
        """Why pods enter queues now; "" where they only move within one."""
        self.changes = ChangeCount()
        self._number = 0
        """Number of the latest heap entry."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._pods.values())

    def get(self, uid: str) -> Waiting | None:
        return self._pods.get(uid)

    def counts(self) -> Counter[str]:
        """Return the number of pods by the names of kube-scheduler's `scheduler_pending_pods`."""
        return Counter(incoming.QUEUES[waiting.place] for waiting in self._pods.values())

    # Pods come and go.

    def add(self, info: PodInfo, now: float = 0.0) -> Waiting:
        """Add a pod: ready at once, unless a plugin gates it."""
        waiting, self._event = Waiting(info), incoming.POD_ADDED
        self._pods[info.uid] = waiting
        self._make_ready(waiting, Line.NEW)
        return waiting

    def remove(self, uid: str, now: float = 0.0) -> None:
        """Remove a pod, if it is there."""
        self._event = incoming.ACTIVATED
        if waiting := self._pods.pop(uid, None):
            self._leave(waiting, now)

    def update(self, info: PodInfo, now: float) -> None:
        """Replace a pod; one that gets other answers than before is tried again."""
        waiting = self._pods[info.uid]
        gated, group = waiting.place is QueuePlace.GATED, waiting.group
        waiting.info = info
        self._event = incoming.ACTIVATED  # Of another pod of its group, if it was on trial.
        if waiting.place in {QueuePlace.READY, QueuePlace.BACKING_OFF}:
            self._leave(waiting, now)
            waiting.group, self._event = None, ""
            self._make_ready_or_back_off(waiting, now, Line.NEW)
        elif gated or group != self._grouping.key_of(info):
            self._leave(waiting, now)
            waiting.group, self._event = None, incoming.POD_UPDATED
            self._make_ready_or_back_off(waiting, now, Line.HINTED if waiting.attempts else Line.NEW)

    def refresh(self, info: PodInfo) -> None:
        """Replace a pod whose change does not affect where it fits."""
        self._pods[info.uid].info = info

    # Attempts.

    def pop(self, now: float) -> Waiting | None:
        """Take out the next ready pod, for an attempt."""
        self._split_groups(now)
        self._advance(now)
        ready = self._next(now)
        if ready is None:
            early = self._backing_off.early()
            if early is None:
                return None
            ready = Line.HINTED, early
            self._entered("active", incoming.POPPED_EARLY)
        line, waiting = ready
        self._active.popped = line
        del self._pods[waiting.uid]
        self._move(waiting, QueuePlace.OUT)
        self._end_trial(waiting)
        if waiting.alone:
            waiting.alone, waiting.group = False, None
        if not waiting.continued:
            waiting.started, waiting.portions, waiting.rejected = self.changes.number, 0, False
        waiting.continued = False
        waiting.attempts += 1
        return waiting

    def again(self, waiting: Waiting, *, doubtful: bool = False) -> None:
        """Put back a pod whose attempt is to be continued: at once, or if it takes long after other pods."""
        self._pods[waiting.uid] = waiting
        waiting.continued, self._event = True, ""
        waiting.attempts -= 1
        waiting.portions += 1
        if not doubtful and waiting.portions < MOST_PORTIONS:
            self._make_ready(waiting, self._active.popped, first=True)
            return
        self._active.put_off()
        self._make_ready(waiting, Line.DOUBTFUL)

    def _next(self, now: float) -> tuple[Line, Waiting] | None:
        """The next ready pod; while attempts fail, new pods that certainly fail too are put off."""
        for _ in range(PUT_OFF_AT_ONCE):
            ready = self._active.next(now)
            if ready is None or ready[0] is not Line.NEW or not self._active.failing:
                return ready
            waiting = ready[1]
            if not self._screen.fits_nowhere(waiting.info):
                return ready
            self._move(waiting, QueuePlace.READY)
            self._active.push(waiting, Line.DOUBTFUL, self._keys.of(waiting.info))
        return self._active.next(now)

    def verdict(self, waiting: Waiting) -> Verdict | None:
        """Return why a popped pod fits nowhere, if an equal one was tried and no change since can help."""
        group = None if waiting.trial else self._group_of(waiting)
        if group is None:
            return None
        # Where its parked pods were asked about every change, none helps.
        asked = not group.trials and self._questions.over
        return None if self._changed_since(group) and not asked else group.verdict

    def _changed_since(self, group: Group) -> bool:
        return self.changes.since(group.verdict.sequence, group.kinds)

    def park(self, waiting: Waiting, now: float, plugins: frozenset[str], message: str = "") -> None:
        """Put back a pod that no node fits, since these plugins rejected it."""
        self._active.ended(now, failed=True)
        waiting.failures += 1
        self._park(waiting, now, Verdict(plugins, message, waiting.started))

    def deny(self, waiting: Waiting, now: float, plugin: str, message: str) -> None:
        """Put back a pod whose binding a Permit plugin denied: that says nothing about equal pods."""
        waiting.failures += 1
        waiting.alone, waiting.group = True, None
        self._park(waiting, now, Verdict(frozenset({plugin}), message, waiting.started))

    def park_alike(self, waiting: Waiting, now: float, verdict: Verdict) -> None:
        """Put back a pod without an attempt, since an equal one was tried."""
        waiting.attempts -= 1
        waiting.failures = max(1, waiting.failures)
        self._park(waiting, now, verdict, alike=True)

    def placed(self, waiting: Waiting, now: float, *, permitted: bool = True) -> None:
        """Note that a node was found for the pod: the next one of its group is tried."""
        self._active.ended(now, failed=False)
        waiting.failures = 0 if permitted else waiting.failures
        waiting.trial, self._event = False, incoming.ACTIVATED
        self._try_group(self._group_of(waiting), now)

    def retry(self, waiting: Waiting, now: float) -> None:
        """Put back a pod whose attempt ended by an error, to be tried again after its back-off."""
        trial, waiting.trial = waiting.trial, False
        self._pods[waiting.uid], self._event = waiting, incoming.ATTEMPT_FAILED
        waiting.errors += 1
        waiting.ready_at = now + self._backoff.seconds(waiting.errors)
        self._back_off(waiting)
        if trial:
            self._event = incoming.ACTIVATED
            self._try_group(self._group_of(waiting), now)

    def back_off(self, uid: str, now: float) -> None:
        """Try a parked pod again after the back-off of an error."""
        waiting = self._pods.get(uid)
        if waiting is not None and waiting.place is QueuePlace.PARKED:
            self._leave(waiting, now)
            self.retry(waiting, now)

    # Changes and time.

    def listens(self, kinds: ChangeKind) -> bool:
        """Return whether a change of these kinds can matter to a pod in the queue."""
        parked = self._unschedulable
        return bool(self._gated) or (bool(parked.groups) and parked.listens(kinds))

    def changed(self, change: ClusterChange, now: float) -> None:
        """Make ready the pods that the change may help: at once, or between attempts if they are many."""
        self.noted(change.kind, now)
        if not self.listens(change.kind):
            return
        self._event = incoming.event_of(change)
        if self._gated and change.kind & self._gates_listen:
            for waiting in [one for one in self._gated.values() if self._may_pass(one, change)]:
                self._make_ready(waiting, Line.NEW)
        if not self._unschedulable.listens(change.kind):
            return
        idle = self._questions.over
        if not self._questions.add(change, self.changes.number):
            for group in list(self._unschedulable.groups.values()):
                self._try_group(group, now)
        if idle:
            self.ask(now, AT_ONCE)

    def noted(self, kinds: ChangeKind, now: float) -> None:
        """Count a change; with `changed`, pods that wait for it are asked too."""
        self.changes.add(kinds)
        self._split_groups(now)

    def ask(self, now: float, most: int = PORTION) -> None:
        """Ask groups about changes, at most so many; call it between attempts."""
        if self._questions.over:
            return
        for group in self._questions.hopeful(most):
            self._event = self._questions.event
            self._try_group(group, now)

    def activate(self, uid: str, now: float) -> None:
        """Try a parked or backing off pod next, whatever changed; the back-off of an error is kept."""
        waiting = self._pods.get(uid)
        if waiting and not waiting.errors and waiting.place in {QueuePlace.PARKED, QueuePlace.BACKING_OFF}:
            self._event = incoming.ACTIVATED
            self._leave(waiting, now)
            waiting.trial, waiting.flushed = True, False
            self._make_ready(waiting, Line.HINTED)

    def nominate(self, waiting: Waiting, node: str, now: float) -> None:
        """Note the node that is nominated for a pod; a pod that loses it ("") is tried again."""
        if waiting.nominated == node:
            return
        lost, self._event = not node, incoming.POD_UPDATED
        parked = waiting.place is QueuePlace.PARKED
        if parked:
            self._leave(waiting, now)
        waiting.nominated, waiting.group = node, None
        if parked or (lost and waiting.place is QueuePlace.BACKING_OFF):
            self._make_ready(waiting, Line.HINTED)

    def has_ready(self, now: float) -> bool:
        """Return whether `pop` would return a pod, or changes are left to ask about."""
        self._advance(now)
        if self._active.next(now) is not None or self._backing_off.early() is not None:
            return True
        return not self._questions.over

    def next_time(self) -> float | None:
        """Return when the next pod becomes ready without a change; None if none will."""
        times = [self._backing_off.next_time()]
        if self._unschedulable.groups:
            times.append(self._unschedulable.next_time())
        return min((time for time in times if time is not None), default=None)

    def _advance(self, now: float) -> None:
        while waiting := self._backing_off.over(now):
            self._event = incoming.BACKOFF_OVER
            self._make_ready(waiting, Line.HINTED)
        while self._unschedulable.groups and (group := self._unschedulable.overdue(now)):
            self._unschedulable.confirmed(group, now)
            self._event = incoming.TOO_LONG
            self._try_group(group, now, Line.FLUSHED)

    # Groups.

    def _park(self, waiting: Waiting, now: float, verdict: Verdict, *, alike: bool = False) -> None:
        self._split_groups(now)
        waiting.errors, waiting.trial, self._event = 0, False, incoming.ATTEMPT_FAILED
        waiting.ready_at = now + self._backoff.seconds(waiting.failures)
        self._pods[waiting.uid] = waiting
        group = self._unschedulable.judged(self._grouping.key(waiting), waiting.info, verdict, now)
        if not alike and self._changed_since(group):
            # A change came while the pod was being tried: it may help.
            self._unschedulable.drop_empty(group)
            if group.count:  # Others of the group are owed the attempt too, should this pod leave.
                waiting.trial = True
                group.trials.add(waiting.uid)
            self._back_off(waiting)
            return
        self._move(waiting, QueuePlace.PARKED)
        group.park(waiting, now, self._keys.of(waiting.info))

    def _try_group(self, group: Group | None, now: float, line: Line = Line.HINTED) -> None:
        """Make one parked pod of a group ready, or let it back off, unless there is one already."""
        while group is not None and not group.trials and (waiting := group.first(now)):
            group.trials.add(waiting.uid)
            self._leave(waiting, now)
            waiting.trial, waiting.flushed = True, line is Line.FLUSHED
            self._make_ready_or_back_off(waiting, now, line)

    def _end_trial(self, waiting: Waiting) -> None:
        group = self._group_of(waiting) if waiting.trial else None
        if group is not None:
            group.trials.discard(waiting.uid)

    def _group_of(self, waiting: Waiting) -> Group | None:
        groups = self._unschedulable.groups
        return groups.get(self._grouping.key(waiting)) if groups else None  # The key takes some 10 µs.

    def _split_groups(self, now: float) -> None:
        """Try replicas again, each for itself, once some selector looks at a label in which they differ."""
        keys = self._grouping.new_keys()
        if not keys:
            return
        self._event = incoming.POD_UPDATED
        pods = [waiting for waiting in self._pods.values() if not keys.isdisjoint(waiting.labels)]
        apart = [waiting for waiting in pods if waiting.trial or waiting.place is QueuePlace.PARKED]
        for waiting in apart:
            self._leave(waiting, now)
        self._grouping.renew(keys)
        for waiting in apart:
            self._make_ready_or_back_off(waiting, now, Line.HINTED)

    # Places.

    def _make_ready_or_back_off(self, waiting: Waiting, now: float, line: Line) -> None:
        if waiting.ready_at > now:
            self._back_off(waiting)
        else:
            self._make_ready(waiting, line)

    def _make_ready(self, waiting: Waiting, line: Line, *, first: bool = False) -> None:
        """Put a pod in a line; `first` of its level, since it had its turn already."""
        if self._passes_gates(waiting):
            self._move(waiting, QueuePlace.READY)
            key = self._keys.of(waiting.info)
            self._active.push(waiting, line, key[:1] if first else key)

    def _back_off(self, waiting: Waiting) -> None:
        if self._passes_gates(waiting):
            self._move(waiting, QueuePlace.BACKING_OFF)
            self._backing_off.push(waiting, self._keys.of(waiting.info))

    def _passes_gates(self, waiting: Waiting) -> bool:
        info, points = waiting.info, self._cluster.points
        begun = points.now()
        answers = (answer(info, plugin) for plugin in self._profile.of(info).pre_enqueue)
        waiting.gate = next(filter(None, answers), None)
        # Upstream's status is Success for gated pods too (runPreEnqueuePlugins, 1.36).
        points.alone("PreEnqueue", info.pod.spec.scheduler_name, begun)
        if waiting.gate is None:
            self._gated.pop(waiting.uid, None)
            return True
        self._end_trial(waiting)
        waiting.trial = False
        self._move(waiting, QueuePlace.GATED)
        self._gated[waiting.uid] = waiting
        return False

    def _may_pass(self, waiting: Waiting, change: ClusterChange) -> bool:
        """Whether the plugin that gates a pod may let it pass after a change."""
        gate, info = waiting.gate, waiting.info
        return gate is not None and helps(self._profile.of(info).hints(gate.plugin).items(), info, change)

    def _leave(self, waiting: Waiting, now: float) -> None:
        """Take a pod out of its place; where it was on trial, another one of its group is."""
        place = waiting.place
        self._move(waiting, QueuePlace.OUT)
        self._gated.pop(waiting.uid, None)
        group = self._group_of(waiting) if place is QueuePlace.PARKED or waiting.trial else None
        if group is None:
            return
        if place is QueuePlace.PARKED:
            group.count -= 1
        elif waiting.trial:
            waiting.trial = False
            group.trials.discard(waiting.uid)
            self._try_group(group, now)
        self._unschedulable.drop_empty(group)

    def _move(self, waiting: Waiting, place: QueuePlace) -> None:
        """Every move voids the entries of the pod in the heaps."""
        self._number += 1
        if place is not waiting.place and place is not QueuePlace.OUT and self._event:
            self._entered(incoming.ENTERED[place], self._event)
        waiting.place, waiting.number = place, self._number


class ChangeCount:
    """Number of changes so far, and of the latest one of each kind."""

    def __init__(self) -> None:
        self.number = 0
        self._latest: dict[ChangeKind, int] = {}

    def add(self, kinds: ChangeKind) -> None:
        """Count a change of these kinds."""
        self.number += 1
        for kind in members(kinds):
            self._latest[kind] = self.number

    def since(self, number: int, kinds: ChangeKind) -> bool:
        """Return whether a change of one of these kinds came after the change of that number."""
        return any(self._latest.get(kind, 0) > number for kind in members(kinds))
