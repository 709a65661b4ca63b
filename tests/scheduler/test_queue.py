from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import Pod, PodSpec
from corelane.scheduler.node_cache import PodInfo
from corelane.scheduler.queue import LONGEST_PARKED, QueuePlace, SchedulingQueue, Wake, backoff


def info(name: str, priority: int = 0, created: str = "2026-01-01T00:00:00Z") -> PodInfo:
    meta = ObjectMeta(name=name, uid=name, creation_timestamp=created)
    return PodInfo.of(Pod(metadata=meta, spec=PodSpec(priority=priority)))


def drain(queue: SchedulingQueue, now: float) -> list[str]:
    names = []
    while waiting := queue.pop(now):
        names.append(waiting.info.uid)
    return names


def test_priority_goes_before_age_and_age_before_arrival() -> None:
    queue = SchedulingQueue()
    queue.add(info("young", created="2026-01-01T00:00:09Z"))
    queue.add(info("low", -5))
    queue.add(info("first"))
    queue.add(info("second"))
    queue.add(info("high", 1000, created="2026-01-01T00:00:59Z"))
    assert drain(queue, 0) == ["high", "first", "second", "young", "low"]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    assert [backoff(attempts) for attempts in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert backoff(10**6) == 10


def test_a_parked_pod_waits_for_what_can_help_and_for_its_backoff() -> None:
    queue = SchedulingQueue()
    queue.add(info("a"))
    waiting = queue.pop(100)
    assert waiting is not None
    queue.park(waiting, 100, Wake.FREED)
    queue.wake(100.5, Wake.NODE)
    assert waiting.place is QueuePlace.PARKED
    queue.wake(100.5, Wake.FREED)
    assert waiting.place is QueuePlace.BACKING_OFF
    assert queue.next_time() == 101
    assert drain(queue, 100.9) == []
    assert drain(queue, 101) == ["a"]
    queue.park(waiting, 101, Wake.FREED)
    queue.wake(200, Wake.FREED)
    assert drain(queue, 200) == ["a"]


def test_a_parked_pod_is_tried_again_after_five_minutes_anyway() -> None:
    queue = SchedulingQueue()
    queue.add(info("a"))
    waiting = queue.pop(0)
    assert waiting is not None
    queue.park(waiting, 0, Wake.NOTHING)
    assert queue.next_time() == LONGEST_PARKED
    assert not queue.has_ready(LONGEST_PARKED - 1)
    assert queue.has_ready(LONGEST_PARKED)


def test_a_pod_that_changes_is_tried_again() -> None:
    queue = SchedulingQueue()
    queue.add(info("a"))
    waiting = queue.pop(0)
    assert waiting is not None
    queue.park(waiting, 0, Wake.NOTHING)
    queue.update(info("a", priority=7), 5)
    again = queue.pop(5)
    assert again is waiting
    assert again.info.pod.spec.priority == 7


def test_a_change_of_priority_takes_effect_while_ready() -> None:
    queue = SchedulingQueue()
    queue.add(info("a"))
    queue.add(info("b"))
    queue.update(info("b", priority=9), 0)
    assert drain(queue, 0) == ["b", "a"]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "pop", "park", "retry", "wake", "update", "remove", "later"]),
        st.integers(0, 5),
        st.integers(0, 40),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(OPERATIONS)
def test_every_pod_is_in_exactly_one_place_and_comes_out_in_the_end(
    operations: list[tuple[str, int, int]],
) -> None:
    queue, out, now = SchedulingQueue(), [], 0.0
    for what, which, number in operations:
        uid = f"p{which}"
        if what == "add" and uid not in queue and all(w.info.uid != uid for w in out):
            queue.add(info(uid, which % 3))
        elif what == "pop" and (waiting := queue.pop(now)):
            out.append(waiting)
        elif what == "park" and out:
            queue.park(out.pop(), now, Wake(number % 8))
        elif what == "retry" and out:
            queue.retry(out.pop(), now)
        elif what == "wake":
            queue.wake(now, Wake(number % 8))
        elif what == "update" and uid in queue:
            queue.update(info(uid, number % 3), now)
        elif what == "remove":
            queue.remove(uid)
        elif what == "later":
            now += number
        assert all(waiting.place is not QueuePlace.OUT for waiting in queue)
        assert all(waiting.place is QueuePlace.OUT for waiting in out)
        if list(queue):
            assert queue.has_ready(now) or queue.next_time() is not None
    waiting_ones = sorted(waiting.info.uid for waiting in queue)
    assert sorted(drain(queue, now + LONGEST_PARKED)) == waiting_ones
    assert list(queue) == []
