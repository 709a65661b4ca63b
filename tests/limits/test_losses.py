"""What held a container back: answers that theory knows, and the simulator's own truth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.kernel.cpu_time import attribution
from corelane.kernel.cpu_time.threads import (
    Counted,
    Crowd,
    Losses,
    Moment,
    ThreadLook,
    ThreadWatch,
    Waits,
    divide,
    spread_back,
)
from support import simulated_waits

PARTS = ("limit", "above", "neighbours", "own", "hypervisor", "scheduling")


def parts(found: Losses) -> dict[str, int]:
    named = {name: round(getattr(found, name)) for name in PARTS}
    return {name: amount for name, amount in named.items() if amount}


def alike(runnable: int, spread: int, count: int = 10, **more: float) -> tuple[Moment, ...]:
    return (Moment(runnable, spread, **more),) * count


# Threads that never stop: n runnable own threads on c CPUs under a quota.


def test_four_threads_on_two_cpus_wait_for_each_other():
    assert parts(divide(Waits(2000, 2000, 2, moments=alike(4, 2), threads=4))) == {"own": 2000}
    assert parts(divide(Waits(2000, 2000, 2))) == {"own": 2000}, "without looks, too"


def test_the_limit_above_is_told_from_its_own():
    found = divide(Waits(800, 200, 1, throttled=800, above=300))
    assert parts(found) == {"limit": 500, "above": 300}


def test_threads_throttled_behind_each_other_lose_to_the_limit():
    """Throttled time counts one CPU; the other is free for the second thread, or used by others meanwhile."""
    looks = alike(2, 1, throttled=800.0, used=200.0, idle=1800.0)
    waits = Waits(1780, 220, 2, throttled=800, others=1000, idle=800, threads=2, moments=looks)
    assert parts(divide(waits))["limit"] == 1600
    assert parts(divide(replace(waits, moments=(), others=0.0)))["limit"] == 1600


def test_on_a_machine_mostly_idle_nothing_is_the_neighbours():
    found = divide(Waits(60, 900, 16, others=2000, idle=13_900, threads=4))
    assert parts(found) == {"scheduling": 60}


def test_a_limited_thread_on_eight_cpus_with_others_on_one_of_them_waits_for_the_limit_alone():
    """As measured in a guest: a released thread starts late, but not for want of a CPU."""
    looks = tuple(Moment(1, 1, 186.0, 780.0, 5822.0) for _ in range(40))
    found = divide(Waits(811, 186, 8, 780, others=1992, idle=5822, threads=1, moments=looks))
    assert parts(found) == {"limit": 780, "scheduling": 31}


def test_cpus_that_are_idle_because_of_the_limit_leave_the_blame_with_others():
    """A spinner on one of two CPUs; the other is idle for as long as the limit holds."""
    looks = tuple(Moment(1, 1, 300.0, 600.0, 600.0) for _ in range(40))
    found = divide(Waits(700, 300, 2, 600, others=1100, idle=600, threads=1, moments=looks))
    assert parts(found) == {"limit": 600, "neighbours": 100}


def test_no_more_than_others_used_is_due_to_them():
    found = divide(Waits(300, 200, 1, others=50))
    assert parts(found) == {"neighbours": 50, "scheduling": 250}


def test_what_the_hypervisor_took_is_not_the_neighbours():
    found = divide(Waits(400, 600, 1, others=100, steal=300))
    assert parts(found) == {"neighbours": 100, "hypervisor": 300}


def test_a_kernel_that_does_not_count_throttled_time_as_waits_is_recognised():
    found = divide(Waits(30, 200, 1, throttled=770, others=100))
    assert parts(found) == {"limit": 770, "neighbours": 30}
    known = divide(Waits(400, 200, 1, throttled=400, others=400, with_throttled=False))
    assert parts(known) == {"limit": 400, "neighbours": 400}


def test_a_thread_that_pauses_waits_for_others_only_while_it_would_run():
    looks = (*alike(1, 1, 30), *alike(0, 0, 70))
    assert parts(divide(Waits(150, 150, 1, others=850, moments=looks))) == {"neighbours": 150}


def test_bursts_of_threads_wait_for_each_other_though_their_mean_fits():
    """Four threads at once a tenth of the time, on two CPUs: 0.4 runnable on average, 2 of 4 wait."""
    looks = tuple(Moment(4, 2) if number % 10 == 0 else Moment(0, 0) for number in range(100))
    assert parts(divide(Waits(200, 200, 2, moments=looks))) == {"own": 200}


amounts = st.floats(0, 5000)
moments = st.builds(Moment, st.integers(0, 9), st.integers(0, 4), amounts, amounts, st.none() | amounts)


@given(
    st.builds(
        Waits,
        amounts,
        amounts,
        st.integers(1, 8),
        throttled=amounts,
        above=amounts,
        others=amounts,
        steal=amounts,
        idle=st.none() | amounts,
        threads=st.integers(0, 20),
        moments=st.lists(moments, max_size=6),
        with_throttled=st.sampled_from([None, True]),
    )
)
def test_parts_are_never_negative_and_add_up_to_what_was_lost(waits):
    waits = replace(waits, above=min(waits.above, waits.throttled))
    found = divide(waits)
    assert min(getattr(found, name) for name in PARTS) >= -1e-6
    if waits.with_throttled or waits.throttled < 50:
        assert found.total == pytest.approx(waits.waited, abs=1e-6)


# Against the simulator.


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_the_parts_are_those_of_the_simulator(seed):
    """Loads, limits, weights and CPUs at random; what a reader of /proc sees, lumps included."""
    truth, found, description = simulated_waits.world(seed)
    bound = 25 + 0.05 * truth.total + 3 * found.error
    for name in ("limit", "neighbours", "own", "scheduling"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=bound), description
    assert found.total == pytest.approx(truth.total, abs=20 + 0.02 * truth.total), description


def test_random_worlds_hold_limits_neighbours_and_own_threads():
    seen = [simulated_waits.world(seed)[0] for seed in range(1000, 1040)]
    for name in ("limit", "neighbours", "own"):
        assert sum(getattr(truth, name) > 100 for truth in seen) >= 8, name


# Looks at threads.


def thread(ran_ms: float, waited_ms: float, *, runnable: bool = True, cpu: int = 0) -> ThreadLook:
    return ThreadLook(runnable, cpu, round(ran_ms * 1e6), round(waited_ms * 1e6))


def watched(*looks: tuple[float, dict[int, ThreadLook]], cpus: int = 1) -> ThreadWatch:
    watch = ThreadWatch(cpus)
    for at, threads in looks:
        used = sum(each.ran_ns for each in threads.values()) / 1e6
        watch.add(Counted(at, used), threads)
    return watch


def test_a_wait_that_began_before_the_first_look_counts_from_there():
    looks = [(0.0, {7: thread(50, 100)}), (0.1, {7: thread(50, 100)}), (1.0, {7: thread(750, 600)})]
    found = watched(*looks).crowd()
    assert found is not None
    assert found.waited == pytest.approx(300), "a lump of 500 ms, of which 200 were before"
    assert found.ran == pytest.approx(700)


def test_a_wait_that_goes_on_at_the_last_look_counts_up_to_there():
    looks = [
        (0.0, {7: thread(0, 0)}),
        (0.5, {7: thread(500, 0)}),
        (0.8, {7: thread(500, 0)}),
        (1.0, {7: thread(500, 0)}),
    ]
    found = watched(*looks).crowd()
    assert found is not None
    assert (found.waited, found.pending) == (pytest.approx(500), pytest.approx(500))


def test_threads_that_come_and_go_count_while_they_were_seen():
    looks = [(0.0, {}), (0.5, {8: thread(100, 300)}), (1.0, {9: thread(40, 60, runnable=False)})]
    found = watched(*looks).crowd()
    assert found is not None
    assert (found.waited, found.ran, found.threads) == (pytest.approx(360), pytest.approx(140), 2)


def test_a_thread_that_sleeps_does_not_wait():
    looks = [(float(at), {7: thread(5, 5, runnable=False)}) for at in range(3)]
    found = watched(*looks).crowd()
    assert found is not None
    assert (found.waited, found.pending) == (0, 0)
    assert not watched(*looks).busy
    assert ThreadWatch(1).crowd() is None


def limited(waited: float, count: int = 20) -> Crowd:
    """A spinner at 200m, by a kernel that counts so much as waited."""
    return Crowd(waited, 0.0, 200.0, 200.0, 800.0, 1, alike(1, 1, count, throttled=800.0))


def test_a_throttled_container_shows_how_its_kernel_counts():
    counts = attribution.counts_throttled_time
    assert counts([limited(800)]) is True
    assert counts([limited(0)]) is False
    assert counts([limited(0, 3)]) is None, "too few looks"
    assert counts([replace(limited(0), throttled=50.0)]) is None, "too little throttled time"
    assert counts([]) is None
    pauses = replace(limited(400), moments=(*alike(1, 1, 6), *alike(0, 0, 6)))
    assert counts([pauses]) is None, "so few looks at a load with pauses leave it open"
    assert counts([pauses, limited(790)]) is True


def test_lumps_are_spread_over_the_time_before():
    looks = [(0.1, 0.0, 1000.0), (0.1, 0.0, 1000.0), (0.1, 150.0, 1000.0)]
    assert spread_back(looks) == pytest.approx([0, 500, 1000])
    assert spread_back([(0.1, 900.0, 1000.0)]) == [1000.0]


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1000), st.floats(1, 4000)), max_size=8))
def test_spreading_neither_adds_nor_exceeds(grown):
    rates = spread_back(grown)
    total = sum(rate * seconds for rate, (seconds, _, _) in zip(rates, grown, strict=True))
    assert total <= sum(amount for _, amount, _ in grown) + 1e-6
    assert all(0 <= rate <= most + 1e-6 for rate, (_, _, most) in zip(rates, grown, strict=True))
