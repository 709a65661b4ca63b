"""A pool by itself: what is handed back, when it is handed out again, and to whom."""

import pytest

from corelane.limits.model.bandwidth import LATEST, Account, BandwidthPool, CFSLimit, Switches
from corelane.limits.model.clock import MS, Clock


class Listener:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.released_at: list[tuple[int, Account]] = []

    def released(self, account: Account) -> None:
        self.released_at.append((self.clock.now, account))

    def refilled(self, pool: BandwidthPool) -> None:
        pass


QUOTA, REFILL = 20 * MS, 100 * MS


def scene(
    switches: Switches = LATEST, burst: int = 0
) -> tuple[Clock, Listener, BandwidthPool, Account, Account]:
    """A pool that one account has emptied, so that the other is throttled with a debt of 1 ms."""
    clock = Clock()
    listener = Listener(clock)
    pool = BandwidthPool(clock, CFSLimit(QUOTA, burst_ns=burst), switches, listener)
    rich, poor = Account(pool), Account(pool)
    assert pool.request(rich, QUOTA)
    assert not pool.settle(poor, 1 * MS)
    pool.throttle(poor, holds_tasks=True)
    return clock, listener, pool, rich, poor


def hand_back(clock: Clock, pool: BandwidthPool, rich: Account, amount: int, moment: int) -> None:
    clock.run(moment)
    pool.settle(rich, rich.remaining - amount - 1 * MS)
    pool.hand_back(rich)
    assert (pool.runtime, rich.remaining) == (amount, 1 * MS)


@pytest.mark.parametrize(("amount", "released"), [(5 * MS + 1, True), (5 * MS, False)])
def test_more_than_a_slice_handed_back_is_handed_out_5_ms_later_and_less_is_not(amount, released):
    clock, listener, pool, rich, poor = scene()
    hand_back(clock, pool, rich, amount, 30 * MS)
    clock.run(REFILL)
    assert listener.released_at == [(35 * MS, poor)] * released
    assert pool.stat().throttled_ns == 35 * MS * released


@pytest.mark.parametrize(("moment", "released"), [(93 * MS, True), (93 * MS + 1, False)])
def test_nothing_is_handed_out_when_the_refill_is_less_than_7_ms_away(moment, released):
    clock, listener, pool, rich, poor = scene()
    hand_back(clock, pool, rich, 8 * MS, moment)
    clock.run(REFILL)
    assert listener.released_at == [(98 * MS, poor)] * released


def test_nothing_is_handed_out_when_others_have_taken_it_meanwhile():
    clock, listener, pool, rich, _ = scene()
    hand_back(clock, pool, rich, 8 * MS, 30 * MS)
    pool.request(Account(pool), 3 * MS)
    clock.run(REFILL)
    assert listener.released_at == []


def test_runtime_handed_back_twice_is_handed_out_twice():
    clock, listener, pool, rich, poor = scene()
    hand_back(clock, pool, rich, 8 * MS, 10 * MS)
    clock.run(20 * MS)
    pool.runtime = 0
    assert not pool.settle(poor, 2 * MS)
    pool.throttle(poor, holds_tasks=True)
    rich.remaining = 9 * MS
    pool.hand_back(rich)
    clock.run(REFILL)
    assert [moment for moment, _ in listener.released_at] == [15 * MS, 25 * MS]


def test_who_is_released_has_1_ns_and_what_is_lacking_waits_for_the_next_refill():
    clock, listener, pool, _, poor = scene()
    deep = Account(pool)
    assert not pool.settle(deep, 30 * MS)
    pool.throttle(deep, holds_tasks=True)
    clock.run(REFILL + 1)
    assert listener.released_at == [(REFILL, poor)]
    assert (poor.remaining, pool.runtime, deep.remaining) == (1, 0, -30 * MS + QUOTA - 1 * MS - 1)
    clock.run(2 * REFILL + 1)
    assert listener.released_at == [(REFILL, poor), (2 * REFILL, deep)]
    assert pool.stat().nr_throttled == 2


@pytest.mark.parametrize(("order", "first"), [("head", "late"), ("mixed", "early"), ("tail", "early")])
def test_the_list_is_served_from_its_head(order, first):
    clock, listener, pool, _, early = scene(Switches(order=order))
    late = Account(pool)
    assert not pool.settle(late, 1 * MS)
    pool.throttle(late, holds_tasks=True)
    clock.run(REFILL + 1)
    released = [account for _, account in listener.released_at]
    assert released == ([late, early] if first == "late" else [early, late])


@pytest.mark.parametrize(("after", "first"), [(0, "late"), (4_000, "early")])
def test_between_4_19_and_5_8_who_is_throttled_while_a_refill_is_handed_out_goes_first(after, first):
    """One CPU was released, which takes 4 µs."""
    clock, listener, pool, _, poor = scene(Switches(order="mixed"))
    early = Account(pool)
    assert not pool.settle(early, 40 * MS)
    pool.throttle(early, holds_tasks=True)
    clock.run(REFILL + 1)
    assert listener.released_at == [(REFILL, poor)]
    clock.run(REFILL + 4_000 + after)
    late = Account(pool)
    pool.settle(late, 1 * MS)
    pool.throttle(late, holds_tasks=True)
    assert list(pool.throttled) == ([late, early] if first == "late" else [early, late])


def test_what_was_handed_back_of_a_slice_that_expired_is_lost():
    clock, _, pool, rich, _ = scene(Switches(expiry=True))
    clock.run(REFILL + 1)
    left = pool.runtime
    assert pool.expired(rich)
    pool.hand_back(rich)
    assert (pool.runtime, rich.remaining) == (left, 1 * MS)


def test_bursts_are_counted_when_a_period_used_more_than_its_quota():
    clock, _, pool, rich, _ = scene(burst=10 * MS)
    rich.remaining -= 20 * MS
    clock.run(3 * REFILL + 1)
    assert pool.stat().nr_bursts == 0
    saved = pool.runtime - QUOTA
    assert saved == 10 * MS
    pool.request(rich, QUOTA + 4 * MS)
    clock.run(4 * REFILL + 1)
    assert (pool.stat().nr_bursts, pool.stat().burst_ns) == (1, 4 * MS)


def test_the_timer_stops_after_a_second_quiet_period_and_goes_on_along_its_grid():
    clock, _, pool, rich, _ = scene()
    clock.run(10 * REFILL + 30 * MS)
    assert pool.stat().nr_periods == 3
    pool.request(rich, rich.remaining + 1)
    assert pool.next_refill() == 11 * REFILL
