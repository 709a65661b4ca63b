"""The queue on its own: places, order, back-off, groups, hints, and random histories against a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import Pod, PodSpec, SchedulingGate
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plugins.simple import PrioritySort, SchedulingGates
from corelane.scheduler.queue import parked as hints
from corelane.scheduler.queue import waiting as incoming
from corelane.scheduler.queue.parked import LONGEST_PARKED
from corelane.scheduler.queue.scheduling_queue import AT_ONCE, SchedulingQueue
from corelane.scheduler.queue.waiting import Backoff, QueuePlace, Screen, Waiting

KINDS = (ChangeKind.NODE_LABELS, ChangeKind.POD_REMOVED, ChangeKind.TOPOLOGY)
HELPFUL = {f"n{number}" for number in range(0, 41, 2)}
"""Nodes of a random history whose changes help."""


@dataclass
class Listening:
    """A plugin that listens to one kind; `asked` counts the questions, `helps` names the nodes that do."""

    name: str
    kind: ChangeKind
    helps: set[str] | None = None
    asked: int = 0

    def hints(self) -> Mapping[ChangeKind, Hint]:
        return {self.kind: self._hint}

    def _hint(self, _pod: PodInfo, change: ClusterChange) -> bool:
        self.asked += 1
        return self.helps is None or change.node in self.helps


@dataclass
class Fixture:
    plugins: list[Listening] = field(
        default_factory=lambda: [Listening(f"on-{number}", kind) for number, kind in enumerate(KINDS)]
    )

    def queue(self) -> SchedulingQueue:
        return SchedulingQueue(Profile(plugins=(SchedulingGates(), PrioritySort(), *self.plugins)))


def queue() -> SchedulingQueue:
    return Fixture().queue()


def info(
    name: str,
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    shape: str = "",
    gates: tuple[SchedulingGate, ...] = (),
) -> PodInfo:
    meta = ObjectMeta(name=name, uid=name, creation_timestamp=created)
    spec = PodSpec(priority=priority, scheduling_gates=gates, priority_class_name=shape or name)
    return PodInfo.of(Pod(metadata=meta, spec=spec))


def popped(tried: SchedulingQueue, now: float) -> Waiting:
    waiting = tried.pop(now)
    assert waiting is not None
    return waiting


def drain(tried: SchedulingQueue, now: float) -> list[str]:
    names = []
    while waiting := tried.pop(now):
        tried.placed(waiting, now)
        names.append(waiting.uid)
    return names


def parked(*names: str, on: int = 0, shape: str = "") -> tuple[Fixture, SchedulingQueue]:
    """A queue with these pods, parked at 0 s, that listen to one kind."""
    fixture = Fixture()
    tried = fixture.queue()
    for name in names:
        tried.add(info(name, shape=shape))
    for _ in names:
        waiting = popped(tried, 0)
        if verdict := tried.verdict(waiting):
            tried.park_alike(waiting, 0, verdict)
        else:
            tried.park(waiting, 0, frozenset({f"on-{on}"}), "no")
    return fixture, tried


def change(kind: ChangeKind, node: str = "n") -> ClusterChange:
    return ClusterChange(kind, node)


def test_priority_goes_before_age_and_age_before_arrival() -> None:
    tried = queue()
    tried.add(info("young", created="2026-01-01T00:00:09Z"))
    tried.add(info("low", -5))
    tried.add(info("first"))
    tried.add(info("second"))
    tried.add(info("high", 1000, created="2026-01-01T00:00:59Z"))
    assert drain(tried, 0) == ["high", "first", "second", "young", "low"]


def test_backoff_doubles_from_one_second_to_ten_and_both_can_be_set() -> None:
    backoff = Backoff()
    assert [backoff.seconds(attempts) for attempts in range(7)] == [0, 1, 2, 4, 8, 10, 10]
    assert backoff.seconds(10**6) == 10
    assert [Backoff(2, 5).seconds(attempts) for attempts in range(1, 4)] == [2, 4, 5]
    assert Backoff(1, 0).seconds(3) == 0


def test_a_parked_pod_waits_for_a_change_that_can_help() -> None:
    _, tried = parked("a", on=1)
    tried.changed(change(ChangeKind.NODE_LABELS), 100)
    assert not tried.has_ready(100)
    tried.changed(change(ChangeKind.POD_REMOVED), 100)
    assert drain(tried, 100) == ["a"]


def test_a_pod_backs_off_while_others_are_ready_but_not_while_the_scheduler_idles() -> None:
    _, tried = parked("a")
    tried.changed(change(ChangeKind.NODE_LABELS), 0.5)
    assert tried.counts() == {"backoff": 1}
    tried.add(info("b", priority=-1))
    assert drain(tried, 0.6) == ["b", "a"]


def test_a_pod_with_an_error_backs_off_to_the_end_and_longer_with_each_error() -> None:
    tried = queue()
    tried.add(info("a"))
    for seconds in (1, 2, 4):
        waiting = popped(tried, 0)
        tried.placed(waiting, 0)
        tried.retry(waiting, 0)
        assert not tried.has_ready(0)
        assert tried.next_time() == seconds
        waiting.ready_at = 0
        tried.update(info("a", created=f"2026-01-01T00:00:0{seconds}Z"), 0)


def test_a_parked_pod_is_tried_again_after_five_minutes_anyway() -> None:
    _, tried = parked("a")
    assert tried.next_time() == LONGEST_PARKED
    assert not tried.has_ready(LONGEST_PARKED - 1)
    waiting = popped(tried, LONGEST_PARKED)
    assert tried.verdict(waiting) is None, "it is really tried"


def test_a_pod_that_changes_is_tried_again() -> None:
    _, tried = parked("a")
    tried.update(info("a", priority=7), 5)
    assert popped(tried, 5).info.pod.spec.priority == 7


def test_a_change_of_priority_takes_effect_while_ready() -> None:
    tried = queue()
    tried.add(info("a"))
    tried.add(info("b"))
    tried.update(info("b", priority=9), 0)
    assert drain(tried, 0) == ["b", "a"]


def test_a_gated_pod_is_counted_apart_and_ready_once_its_gates_are_gone() -> None:
    tried = queue()
    tried.add(info("a", gates=(SchedulingGate("example.com/quota"),)))
    assert tried.counts() == {"gated": 1}
    (waiting,) = tried
    assert waiting.pending_because == "waiting for scheduling gates: example.com/quota"
    tried.changed(change(~ChangeKind.NOTHING), 0)
    assert not tried.has_ready(LONGEST_PARKED * 2)
    tried.update(info("a"), 1)
    assert drain(tried, 1) == ["a"]


def test_replicas_that_fit_nowhere_are_parked_by_one_attempt() -> None:
    tried = queue()
    for number in range(1000):
        tried.add(info(f"p{number}", shape="replica"))
    first = popped(tried, 0)
    tried.park(first, 0, frozenset({"on-0"}), "too large")
    for _ in range(999):
        waiting = popped(tried, 0)
        verdict = tried.verdict(waiting)
        assert verdict is not None
        assert verdict.message == "too large"
        tried.park_alike(waiting, 0, verdict)
    assert tried.counts() == {"unschedulable": 1000}


def test_a_new_replica_is_tried_once_something_changed_that_could_help() -> None:
    _, tried = parked("a", shape="replica")
    tried.changed(change(ChangeKind.POD_REMOVED), 1)
    tried.add(info("b", shape="replica"))
    assert tried.verdict(popped(tried, 1)) is not None
    tried.changed(change(ChangeKind.NODE_LABELS), 1)
    tried.add(info("c", shape="replica"))
    assert tried.verdict(popped(tried, 1)) is None


def test_a_change_asks_a_group_once_and_wakes_its_pods_one_after_another_while_they_fit() -> None:
    fixture, tried = parked(*(f"p{number}" for number in range(100)), shape="replica")
    tried.changed(change(ChangeKind.NODE_LABELS), 50)
    assert fixture.plugins[0].asked == 1
    assert tried.counts() == {"active": 1, "unschedulable": 99}
    for expected in ("p0", "p1", "p2"):
        waiting = popped(tried, 50)
        assert waiting.uid == expected
        assert tried.verdict(waiting) is None
        tried.placed(waiting, 50)
    tried.park(popped(tried, 50), 50, frozenset({"on-0"}), "full")
    assert not tried.has_ready(50)
    assert tried.counts() == {"unschedulable": 97}


@pytest.mark.parametrize("how", ["removed", "gated", "changed", "failed"])
def test_where_the_pod_on_trial_leaves_another_one_of_its_group_is_tried(how: str) -> None:
    _, tried = parked("a", "b", shape="replica")
    tried.changed(change(ChangeKind.NODE_LABELS), 50)
    if how == "removed":
        tried.remove("a", 50)
    elif how == "gated":
        tried.update(info("a", shape="replica", gates=(SchedulingGate("g"),)), 50)
    elif how == "changed":
        tried.update(info("a", shape="other", priority=-1), 50)
    else:
        tried.retry(popped(tried, 50), 50)
    assert popped(tried, 50).uid == "b"


def test_a_change_while_a_pod_is_being_tried_is_not_lost() -> None:
    tried = queue()
    tried.add(info("a"))
    waiting = popped(tried, 0)
    tried.changed(change(ChangeKind.NODE_LABELS), 0)
    tried.park(waiting, 0, frozenset({"on-0"}))
    assert waiting.place is QueuePlace.BACKING_OFF


def test_a_failed_attempt_gives_the_turn_to_pods_that_are_ready_for_another_reason() -> None:
    _, tried = parked(*(f"old{number}" for number in range(20)))
    tried.changed(change(ChangeKind.NODE_LABELS), 50)
    tried.add(info("new", created="2026-06-01T00:00:00Z"))
    tried.add(info("higher", priority=1, created="2026-06-01T00:00:00Z"))
    order = []
    while waiting := tried.pop(50):
        order.append(waiting.uid)
        tried.park(waiting, 50, frozenset({"on-0"}))
    assert order[0] == "higher"
    assert order.index("new") <= 2


def test_a_storm_of_changes_is_asked_about_in_portions_and_each_node_once() -> None:
    fixture, tried = parked(*(f"p{number}" for number in range(2 * AT_ONCE)))
    fixture.plugins[0].helps = {"n7"}
    for _ in range(3):
        for number in range(50):
            asked = fixture.plugins[0].asked
            tried.changed(change(ChangeKind.NODE_LABELS, f"n{number}"), 50)
            assert fixture.plugins[0].asked - asked <= AT_ONCE
    while tried.has_ready(50) and tried.pop(50) is None:
        asked = fixture.plugins[0].asked
        tried.ask(50, 500)
        assert fixture.plugins[0].asked - asked <= 500
    while tried.has_ready(50):
        tried.ask(50)
        tried.pop(50)
    assert len(list(tried)) == 0
    assert fixture.plugins[0].asked <= 2 * AT_ONCE * 100


def test_with_too_many_changes_at_once_every_group_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "MOST_WAITING", 30)
    fixture, tried = parked(*(f"p{number}" for number in range(2 * AT_ONCE)), on=1)
    fixture.plugins[1].helps = set()
    for _ in range(40):
        assert not tried.counts()["active"]
        tried.changed(change(ChangeKind.POD_REMOVED), 50)
        if tried.counts()["active"]:
            break
    assert tried.counts()["active"] == 2 * AT_ONCE


def test_a_change_that_helps_no_parked_pod_causes_no_attempt_of_a_new_one_like_it() -> None:
    fixture, tried = parked("a", shape="s")
    fixture.plugins[0].helps = {"good"}
    tried.changed(change(ChangeKind.NODE_LABELS, "bad"), 50)
    tried.add(info("b", shape="s"))
    waiting = popped(tried, 50)
    verdict = tried.verdict(waiting)
    assert verdict is not None
    tried.park_alike(waiting, 50, verdict)
    tried.changed(change(ChangeKind.NODE_LABELS, "good"), 60)
    assert drain(tried, 70) == ["a", "b"]


def test_a_new_pod_is_tried_while_one_like_it_that_a_change_may_help_backs_off() -> None:
    _, tried = parked("a", "b", shape="s")
    tried.changed(change(ChangeKind.NODE_LABELS), 0.5)
    tried.add(info("c", shape="s"))
    waiting = popped(tried, 0.5)
    assert (waiting.uid, tried.verdict(waiting)) == ("c", None)


def test_a_change_that_no_parked_pod_was_asked_about_causes_an_attempt() -> None:
    fixture, tried = parked(*map(str, range(AT_ONCE + 1)))
    fixture.plugins[0].helps = {"good"}
    tried.changed(change(ChangeKind.NODE_LABELS, "bad"), 50)
    tried.add(info("like the last", shape=str(AT_ONCE)))
    waiting = popped(tried, 50)
    assert tried.verdict(waiting) is None
    tried.ask(50)
    assert tried.verdict(waiting) is not None


def test_a_hint_that_fails_wakes_the_pod() -> None:
    fixture, tried = parked("a")
    fixture.plugins[0].helps = 7  # type: ignore[assignment]
    tried.changed(change(ChangeKind.NODE_LABELS), 50)
    assert drain(tried, 50) == ["a"]


NAMES = "add add pop pop park place retry change change update remove later ask gate nominate"
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(NAMES.split()), st.integers(0, 7), st.integers(0, 40)), max_size=80
)


class Model:
    """What must hold of each pod, kept in the simplest way: no groups, no heaps, no backlog.

    A pod that is parked is owed an attempt (of itself or of an equal pod) after a change that helps it: one
    that came since the attempt that found no node began.
    """

    def __init__(self) -> None:
        self.fixture = Fixture([Listening(f"on-{nr}", kind, HELPFUL) for nr, kind in enumerate(KINDS)])
        self.queue = self.fixture.queue()
        self.out: list[Waiting] = []
        self.here: dict[str, PodInfo] = {}
        self.listening: dict[str, ChangeKind] = {}
        self.owed: set[str] = set()
        self.changes: list[ChangeKind] = []
        self.began: dict[str, int] = {}
        """Number of changes before the attempt of each pod."""
        self.now = 0.0

    @staticmethod
    def shape(waiting: Waiting) -> tuple[str, int]:
        """What is equal for pods that get the same answer; a nominated pod gets one of its own."""
        spec = waiting.info.pod.spec
        return (waiting.nominated and waiting.uid) or spec.priority_class_name, spec.priority

    def step(self, what: str, which: int, number: int) -> None:
        getattr(self, what)(f"p{which}", number)
        places = {waiting.uid: waiting.place for waiting in self.queue}
        assert places.keys() == self.here.keys()
        assert QueuePlace.OUT not in places.values()
        assert all(waiting.place is QueuePlace.OUT for waiting in self.out)
        if any(place is not QueuePlace.GATED for place in places.values()):
            assert self.queue.has_ready(self.now) or self.queue.next_time() is not None

    def add(self, uid: str, number: int) -> None:
        if uid not in self.here and all(waiting.uid != uid for waiting in self.out):
            self.here[uid] = info(uid, number % 3, shape=f"s{number % 2}")
            self.queue.add(self.here[uid], self.now)

    def pop(self, _uid: str, _number: int) -> None:
        ready = [w for w in self.queue if w.place is QueuePlace.READY]
        waiting = self.queue.pop(self.now)
        if waiting is None:
            return
        best = max((w.info.pod.spec.priority for w in ready), default=-99)
        assert waiting.info.pod.spec.priority >= best, "priority order"
        del self.here[waiting.uid]
        verdict = self.queue.verdict(waiting)
        if verdict is None:
            self.out.append(waiting)
            self.began[waiting.uid] = len(self.changes)
            return
        assert waiting.uid not in self.owed, "an owed attempt is not skipped"
        self.queue.park_alike(waiting, self.now, verdict)
        self.here[waiting.uid] = waiting.info
        self.listening[waiting.uid] = self.kind_of(verdict.plugins)

    @staticmethod
    def kind_of(plugins: frozenset[str]) -> ChangeKind:
        return KINDS[int(min(plugins)[-1])]

    def park(self, _uid: str, number: int) -> None:
        if not self.out:
            return
        waiting = self.out.pop()
        plugins = frozenset({f"on-{number % 3}"})
        self.queue.park(waiting, self.now, plugins)
        self.here[waiting.uid] = waiting.info
        others = (other for other in self.queue if other.place is not QueuePlace.GATED)
        equal = {other.uid for other in others if self.shape(other) == self.shape(waiting)}
        self.listening |= dict.fromkeys(equal, KINDS[number % 3])
        self.owed -= equal
        if KINDS[number % 3] in self.changes[self.began[waiting.uid] :]:
            self.owed |= equal

    def place(self, _uid: str, _number: int) -> None:
        if self.out:
            waiting = self.out.pop()
            self.owed.discard(waiting.uid)
            self.queue.placed(waiting, self.now)

    def retry(self, _uid: str, _number: int) -> None:
        if self.out:
            waiting = self.out.pop()
            self.queue.placed(waiting, self.now)
            self.queue.retry(waiting, self.now)
            self.here[waiting.uid] = waiting.info

    def change(self, _uid: str, number: int) -> None:
        kind, node = KINDS[number % 3], f"n{number}"
        self.changes.append(kind)
        self.queue.changed(change(kind, node), self.now)
        if node not in HELPFUL:
            return
        parked_ones = {w.uid for w in self.queue if w.place in {QueuePlace.PARKED, QueuePlace.BACKING_OFF}}
        self.owed |= {uid for uid in parked_ones if self.listening.get(uid) == kind}

    def update(self, uid: str, number: int) -> None:
        if uid in self.here:
            waiting = self.queue.get(uid)
            assert waiting is not None
            before = waiting.place, self.shape(waiting)
            self.here[uid] = info(uid, number % 3, shape=f"s{number % 2}")
            self.queue.update(self.here[uid], self.now)
            if before != (QueuePlace.PARKED, self.shape(waiting)):
                self.owed.discard(uid)

    def gate(self, uid: str, number: int) -> None:
        if uid in self.here:
            self.here[uid] = info(uid, number % 3, shape=f"s{number % 2}", gates=(SchedulingGate("g"),))
            self.queue.update(self.here[uid], self.now)
            self.owed.discard(uid)

    def nominate(self, uid: str, number: int) -> None:
        waiting = self.queue.get(uid)
        if waiting is not None:
            self.queue.nominate(waiting, "n1" if number % 2 else "", self.now)

    def remove(self, uid: str, _number: int) -> None:
        self.queue.remove(uid, self.now)
        self.here.pop(uid, None)
        self.owed.discard(uid)

    def later(self, _uid: str, number: int) -> None:
        self.now += number

    def ask(self, _uid: str, number: int) -> None:
        self.queue.ask(self.now, number)

    def finish(self) -> None:
        """Without another change, every owed pod is tried, or an equal one in vain; and no pod is lost."""
        while self.out:
            self.place("", 0)
        for _ in range(200):
            self.now += 0.25  # No pod is tried for having been parked too long.
            self.queue.ask(self.now)
            self.pop("", 0)
            self.place("", 0) if self.now % 0.5 else self.park("", 0)
            if not self.owed:
                break
        assert not self.owed, "an attempt that a change called for never came"
        for waiting in list(self.queue):
            if waiting.place is QueuePlace.GATED:
                self.queue.update(info(waiting.uid), self.now)
        remaining = sorted(self.here)
        self.now += LONGEST_PARKED
        assert sorted(drain(self.queue, self.now)) == remaining
        assert list(self.queue) == []


@settings(max_examples=200, deadline=None)
@given(OPERATIONS)
def test_every_pod_is_in_one_place_and_no_change_that_can_help_is_lost(
    operations: list[tuple[str, int, int]],
) -> None:
    model = Model()
    for operation in operations:
        model.step(*operation)
    model.finish()


def test_pods_that_certainly_do_not_fit_are_tried_when_no_other_pod_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Screen, "fits_nowhere", lambda _, pod: pod.uid[0] == "x")
    tried = SchedulingQueue(Profile(plugins=(PrioritySort(),)))
    for number in range(50):
        tried.add(info(f"x{number}"))
    tried.add(info("fits", priority=-5))
    order = []
    while waiting := tried.pop(0):
        order.append(waiting.uid)
        tried.park(waiting, 0, frozenset({"PrioritySort"})) if waiting.uid[0] == "x" else tried.placed(
            waiting, 0
        )
    assert order[:2] == ["x0", "fits"]
    assert len(order) == 51
    assert order[2:] == [f"x{number}" for number in range(1, 50)]


def test_doubtful_pods_have_their_turn_however_many_others_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Screen, "fits_nowhere", lambda _, pod: pod.uid[0] == "x")
    tried = SchedulingQueue(Profile(plugins=(PrioritySort(),)))
    tried.add(info("x0"))
    tried.add(info("x1"))
    seen = []
    for number in range(40):
        tried.add(info(f"n{number}"))
        waiting = popped(tried, 0)
        seen.append(waiting.uid)
        tried.park(waiting, 0, frozenset({"PrioritySort"}))
    assert {"x0", "x1"} <= set(seen)


def test_after_a_while_of_failures_every_second_pod_is_the_newest() -> None:
    tried = queue()
    for number in range(100):
        tried.add(info(f"p{number}", created=f"2026-01-01T00:00:{number % 60:02}Z"))
    tried.add(info("newest", created="2026-06-01T00:00:00Z"))
    tried.add(info("newest of low priority", -1, created="2026-06-01T00:00:01Z"))
    order, now = [], 0.0
    while waiting := tried.pop(now):
        order.append(waiting.uid)
        tried.park(waiting, now, frozenset({"on-0"}))
        now += 0.1
    assert order.index("newest") <= 5
    assert order[-1] == "newest of low priority"
    assert len(order) == 102


def test_pods_are_counted_where_they_enter_a_queue_with_kube_schedulers_events() -> None:
    entered: list[tuple[str, str]] = []
    profile = Profile(plugins=(SchedulingGates(), PrioritySort(), *Fixture().plugins))
    it = SchedulingQueue(profile, entered=lambda *which: entered.append(which))

    def new() -> list[tuple[str, str]]:
        found = list(entered)
        entered.clear()
        return found

    def popped(now: float) -> Waiting:
        waiting = it.pop(now)
        assert waiting is not None
        return waiting

    rejected = frozenset({"on-0"})
    it.add(info("a"))
    it.add(info("g", gates=(SchedulingGate("wait"),)))
    assert new() == [("active", "UnschedulablePodAdd"), ("unschedulable", "UnschedulablePodAdd")]
    it.park(popped(0.0), 0.0, rejected)
    assert new() == [("unschedulable", "ScheduleAttemptFailure")]
    it.changed(ClusterChange(ChangeKind.NODE_LABELS, "n1"), 0.5)
    assert new() == [("backoff", "NodeUpdateNodeLabel")]
    it.park(popped(0.6), 0.6, rejected)
    assert new() == [("active", "PopFromBackoffQ"), ("unschedulable", "ScheduleAttemptFailure")]
    it.changed(ClusterChange(ChangeKind.NODE_LABELS, "n1"), 0.7)
    assert it.has_ready(3.0)
    assert new() == [("backoff", "NodeUpdateNodeLabel"), ("active", "BackoffComplete")]
    it.retry(popped(3.0), 3.0)
    assert new() == [("backoff", "ScheduleAttemptFailure")]
    waiting = popped(10.0)
    it.again(waiting)
    assert popped(10.0) is waiting
    assert new() == [("active", "BackoffComplete")]
    it.park(waiting, 10.0, rejected)
    assert it.has_ready(11.0 + LONGEST_PARKED)
    assert new() == [("unschedulable", "ScheduleAttemptFailure"), ("active", "UnschedulableTimeout")]
    it.update(info("g"), 400.0)
    assert new() == [("active", "UnschedulablePodUpdate")]


@pytest.mark.parametrize(
    ("change", "event"),
    [
        (ClusterChange(ChangeKind.POD_REMOVED, "n1"), "AssignedPodDelete"),
        (ClusterChange(ChangeKind.NODE_TAINTS | ChangeKind.TOPOLOGY, "n1"), "NodeUpdateNodeTaint"),
        (ClusterChange(ChangeKind.CLAIM, new=object()), "PersistentVolumeClaimAdd"),
        (
            ClusterChange(ChangeKind.STORAGE_CLASS, old=object(), new=object()),
            "storage.k8s.io/StorageClassUpdate",
        ),
        (ClusterChange(ChangeKind.CSI_NODE, old=1, new=2), "storage.k8s.io/CSINodeUpdate"),
        (ClusterChange(ChangeKind.CSI_DRIVER, old=object()), "storage.k8s.io/CSIDriverDelete"),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, new=1), "storage.k8s.io/CSIStorageCapacityAdd"),
        (ClusterChange(ChangeKind.VOLUME_ATTACHMENT, old=1), "storage.k8s.io/VolumeAttachmentDelete"),
    ],
)
def test_changes_have_upstreams_event_labels(change: ClusterChange, event: str) -> None:
    assert incoming.event_of(change) == event


def test_every_kind_of_change_has_an_event_label() -> None:
    assert all(incoming.event_of(ClusterChange(kind)) for kind in ChangeKind)
