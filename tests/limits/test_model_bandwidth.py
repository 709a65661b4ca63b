"""A limit: what the kernel accepts, its pool, ticks, what Linux counted, and examples worked out by hand."""

import pytest

from corelane.limits.model.bandwidth import (
    KERNELS,
    LATEST,
    MAX_QUOTA_US,
    Account,
    BandwidthPool,
    CFSLimit,
    CPUStat,
    Switches,
    for_kernel,
    refusal,
)
from corelane.limits.model.clock import MS, SECOND, US, Clock
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    SimulationResult,
    run,
)
from corelane.limits.model.workloads import Bursts, Closed, Duration, Spin, ThreadPoolServer, Workload
from support.scenarios import alone, result

# What the kernel answers EINVAL to, as measured on Linux 6.18.


@pytest.mark.parametrize(
    ("quota", "period", "burst", "words"),
    [
        (999, 100_000, 0, "999 µs is less than 1 ms"),
        (0, 100_000, 0, "0 ms is less than 1 ms"),
        (1_000, 999, 0, "period of 999 µs is not between 1 ms and 1 s"),
        (1_000, 1_000_001, 0, "period of 1000001 µs is not between"),
        (20_000, 100_000, 20_001, "burst of 20001 µs is more than the quota of 20 ms"),
        (MAX_QUOTA_US + 1, 100_000, 0, "more than 2^44 - 1 µs"),
        (MAX_QUOTA_US, 100_000, 1, "more than 2^44 - 1 µs"),
        (20_000, 100_000, -1, "negative"),
        (1_000, 100_000, 0, None),
        (-1, 100_000, 0, None),
        (1_000, 1_000, 0, None),
        (1_000, 1_000_000, 0, None),
        (20_000, 100_000, 20_000, None),
        (-1, 100_000, 50_000, None),
        (MAX_QUOTA_US, 100_000, 0, None),
        (400_000, 100_000, 0, None),
    ],
)
def test_values_that_the_kernel_refuses_are_refused_with_the_reason(quota, period, burst, words):
    reason = refusal(quota, period, burst)
    assert reason is None if words is None else words in reason


@pytest.mark.parametrize(
    ("quota", "period", "refused"),
    [(60_000, 100_000, True), (40_000, 50_000, True), (40_000, 200_000, False)],
)
def test_under_version_1_no_group_may_have_more_of_a_cpu_than_the_one_above(quota, period, refused):
    assert (refusal(quota, period, parent=(50_000, 100_000)) is not None) == refused
    assert refusal(quota, period, parent=(-1, 100_000)) is None


def test_a_burst_is_refused_where_the_kernel_has_none():
    CFSLimit(20 * MS, burst_ns=20 * MS).check(for_kernel("5.14"))
    with pytest.raises(ValueError, match=r"came with 5\.14"):
        CFSLimit(20 * MS, burst_ns=20 * MS).check(for_kernel("5.13"))


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("4.14.336-amzn2", "3.17"),
        ("4.18", "4.18"),
        ("5.10", "5.8"),
        ("6.1.0-18-amd64", "5.14"),
        ("7.0", "6.18"),
    ],
)
def test_a_kernel_is_modelled_as_the_newest_preset_not_newer_than_it(version, preset):
    assert for_kernel(version) == KERNELS[preset]


@pytest.mark.parametrize("version", ["3.16", "2.6.32", "six", ""])
def test_other_kernels_are_refused(version):
    with pytest.raises(ValueError, match=r"kernel"):
        for_kernel(version)


# A pool by itself: what is handed back, when it is handed out again, and to which account.


class Listener:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.released_at: list[tuple[int, Account]] = []

    def released(self, account: Account) -> None:
        self.released_at.append((self.clock.now, account))

    def refilled(self, pool: BandwidthPool) -> None:
        pass


QUOTA, REFILL = 20 * MS, 100 * MS


class Scene:
    """A pool that account `rich` has emptied, so that `poor` is throttled with a debt of 1 ms."""

    def __init__(self, switches: Switches = LATEST, burst: int = 0) -> None:
        self.clock = Clock()
        self.listener = Listener(self.clock)
        self.pool = BandwidthPool(self.clock, CFSLimit(QUOTA, burst_ns=burst), switches, self.listener)
        self.rich, self.poor = Account(self.pool), Account(self.pool)
        assert self.pool.request(self.rich, QUOTA)
        self.throttle(self.poor, 1 * MS)

    def throttle(self, account: Account, debt: int) -> None:
        assert not self.pool.settle(account, debt)
        self.pool.throttle(account, holds_tasks=True)

    def throttled(self, debt: int) -> Account:
        account = Account(self.pool)
        self.throttle(account, debt)
        return account

    def hand_back(self, amount: int, moment: int) -> None:
        self.clock.run(moment)
        self.pool.settle(self.rich, self.rich.remaining - amount - 1 * MS)
        self.pool.hand_back(self.rich)
        assert (self.pool.runtime, self.rich.remaining) == (amount, 1 * MS)


@pytest.mark.parametrize(
    ("amount", "moment", "released"),
    [
        (5 * MS + 1, 30 * MS, True),
        (5 * MS, 30 * MS, False),  # no more than a slice
        (8 * MS, 93 * MS, True),
        (8 * MS, 93 * MS + 1, False),  # the refill is less than 7 ms away
    ],
)
def test_runtime_handed_back_is_handed_out_5_ms_later(amount, moment, released):
    scene = Scene()
    scene.hand_back(amount, moment)
    scene.clock.run(REFILL)
    assert scene.listener.released_at == [(moment + 5 * MS, scene.poor)] * released
    assert scene.pool.stat().throttled_ns == (moment + 5 * MS) * released


def test_nothing_is_handed_out_when_others_have_taken_it_meanwhile():
    scene = Scene()
    scene.hand_back(8 * MS, 30 * MS)
    scene.pool.request(Account(scene.pool), 3 * MS)
    scene.clock.run(REFILL)
    assert scene.listener.released_at == []


def test_runtime_handed_back_twice_is_handed_out_twice():
    scene = Scene()
    scene.hand_back(8 * MS, 10 * MS)
    scene.clock.run(20 * MS)
    scene.pool.runtime = 0
    scene.throttle(scene.poor, 2 * MS)
    scene.rich.remaining = 9 * MS
    scene.pool.hand_back(scene.rich)
    scene.clock.run(REFILL)
    assert [moment for moment, _ in scene.listener.released_at] == [15 * MS, 25 * MS]


def test_a_released_account_has_1_ns_and_a_debt_that_is_left_waits_for_the_next_refill():
    scene = Scene()
    pool, poor, deep = scene.pool, scene.poor, scene.throttled(30 * MS)
    scene.clock.run(REFILL + 1)
    assert scene.listener.released_at == [(REFILL, poor)]
    assert (poor.remaining, pool.runtime, deep.remaining) == (1, 0, -30 * MS + QUOTA - 1 * MS - 1)
    scene.clock.run(2 * REFILL + 1)
    assert scene.listener.released_at == [(REFILL, poor), (2 * REFILL, deep)]
    assert pool.stat().nr_throttled == 2


@pytest.mark.parametrize(("order", "first"), [("head", "late"), ("mixed", "early"), ("tail", "early")])
def test_the_list_is_served_from_its_head(order, first):
    scene = Scene(Switches(order=order))
    early, late = scene.poor, scene.throttled(1 * MS)
    scene.clock.run(REFILL + 1)
    released = [account for _, account in scene.listener.released_at]
    assert released == ([late, early] if first == "late" else [early, late])


@pytest.mark.parametrize(("after", "first"), [(0, "late"), (4_000, "early")])
def test_between_4_19_and_5_8_a_cpu_throttled_while_a_refill_is_handed_out_goes_first(after, first):
    """One CPU was released, which takes 4 µs."""
    scene = Scene(Switches(order="mixed"))
    early = scene.throttled(40 * MS)
    scene.clock.run(REFILL + 1)
    assert scene.listener.released_at == [(REFILL, scene.poor)]
    scene.clock.run(REFILL + 4_000 + after)
    late = scene.throttled(1 * MS)
    assert list(scene.pool.throttled) == ([late, early] if first == "late" else [early, late])


def test_runtime_handed_back_of_a_slice_that_expired_is_lost():
    scene = Scene(Switches(expiry=True))
    scene.clock.run(REFILL + 1)
    left = scene.pool.runtime
    assert scene.pool.expired(scene.rich)
    scene.pool.hand_back(scene.rich)
    assert (scene.pool.runtime, scene.rich.remaining) == (left, 1 * MS)


def test_bursts_are_counted_when_a_period_used_more_than_its_quota():
    scene = Scene(burst=10 * MS)
    pool = scene.pool
    scene.rich.remaining -= 20 * MS
    scene.clock.run(3 * REFILL + 1)
    assert (pool.stat().nr_bursts, pool.runtime - QUOTA) == (0, 10 * MS)
    pool.request(scene.rich, QUOTA + 4 * MS)
    scene.clock.run(4 * REFILL + 1)
    assert (pool.stat().nr_bursts, pool.stat().burst_ns) == (1, 4 * MS)


def test_the_timer_stops_after_a_second_quiet_period_and_goes_on_along_its_grid():
    scene = Scene()
    scene.clock.run(10 * REFILL + 30 * MS)
    assert scene.pool.stat().nr_periods == 3
    scene.pool.request(scene.rich, scene.rich.remaining + 1)
    assert scene.pool.next_refill() == 11 * REFILL


# The kernel looks at the quota at ticks, sleeps and wake-ups, not from one piece of work to the next.


def ticked(workload: Workload, limit: CFSLimit, tick_ms: int) -> CPUStat:
    machine = SimulatedMachine(1, tick_ns=tick_ms * MS, tick_phase_ns=1 * MS)
    times = {"seconds": 2.0, "warmup_seconds": 0.5}
    return result(workload, 1, limit, phase_ns=37 * MS, machine=machine, **times).stat


@pytest.mark.parametrize("tick_ms", [0, 1, 4, 10])
@pytest.mark.parametrize(
    "limit", [CFSLimit(20 * MS), CFSLimit(7 * MS, 50 * MS), CFSLimit(30 * MS, 100 * MS, 20 * MS)]
)
def test_a_thread_that_never_sleeps_is_throttled_alike_in_small_pieces_and_in_one(limit, tick_ms):
    whole = ticked(Spin(1), limit, tick_ms)
    for piece_us in (90, 700, 3_300):
        pieces = ThreadPoolServer(Duration(piece_us * US), Closed(1000), threads=1, network_ns=10 * US)
        assert ticked(pieces, limit, tick_ms) == whole


def test_a_worker_with_a_full_queue_runs_on_until_the_tick():
    """With a tick as long as the period every release lasts until the tick; the debt keeps the average."""
    pieces = ThreadPoolServer(Duration(100 * US), Closed(1000), threads=1, network_ns=10 * US)
    stat = ticked(pieces, CFSLimit(1 * MS, 10 * MS), 10)
    assert stat.usage_ns == pytest.approx(200 * MS, rel=0.06)
    assert stat.nr_throttled == stat.nr_periods


# What Linux 6.18 counted on two CPUs that tick at 250 Hz lies in what the model counts over phases.


def counted(workload: Workload, limit: CFSLimit, seconds: float) -> list[CPUStat]:
    """Of eight phases."""
    return [result(workload, 2, limit, seed, seconds=seconds).stat for seed in range(8)]


@pytest.mark.parametrize(
    ("threads", "quota", "period", "used", "throttled"),
    [
        (1, 10, 100, 502, 4494),
        (2, 10, 100, 500, 9497),
        (2, 50, 100, 2500, 7493),
        (2, 150, 100, 7501, 2473),
        (2, 50, 50, 5003, 4992),
    ],
)
def test_spinners_use_their_quota_and_are_throttled_in_every_period(threads, quota, period, used, throttled):
    for stat in counted(Spin(threads), CFSLimit(quota * MS, period * MS), 5):
        assert (stat.usage_ns / MS, stat.throttled_ns / MS) == pytest.approx((used, throttled), rel=0.02)
        assert stat.nr_periods == stat.nr_throttled == 5000 // period


@pytest.mark.parametrize(
    ("threads", "quota", "period", "used"), [(1, 50, 50, 4960), (2, 100, 50, 9943), (1, 10, 10, 4626)]
)
def test_a_quota_of_all_cpus_is_throttled_every_second_period_and_loses_little(threads, quota, period, used):
    stats = counted(Spin(threads), CFSLimit(quota * MS, period * MS), 5)
    assert all(abs(stat.nr_throttled - stat.nr_periods / 2) < 4 for stat in stats)
    assert min(stat.usage_ns for stat in stats) <= used * MS <= max(stat.usage_ns for stat in stats)


@pytest.mark.parametrize(
    ("quota", "burst", "counters"),
    [
        (20, 0, [(40, 24, 0)]),
        (20, 20, [(32, 16, 8), (32, 8, 16)]),
        (50, 0, [(32, 8, 0)]),
        (50, 50, [(16, 0, 8), (24, 0, 0)]),
    ],
)
def test_70_ms_of_work_each_second_are_counted_as_measured_at_some_phase(quota, burst, counters):
    """Periods, throttled ones and bursts of eight seconds."""
    stats = counted(BURST, CFSLimit(quota * MS, burst_ns=burst * MS), 8)
    assert {(stat.nr_periods, stat.nr_throttled, stat.nr_bursts) for stat in stats} >= {*counters}
    if (quota, burst) == (20, 20):
        assert {round(stat.burst_ns / MS) for stat in stats} == {160}


# The document's small examples, worked out by hand, with the tick switched off: exact to the nanosecond.

EXACT = 1e-6
"""Milliseconds: a CPU released with 1 ns runs that before it asks for more."""
BURST = Bursts(Duration(70 * MS), every_ns=SECOND)


def exact(workload, cpus: int, *, phase_ms: int = 0, burst_ms: int = 0, **more) -> SimulationResult:
    """Under a limit of 200m, drawn from 0 to 1 s."""
    limit, machine = CFSLimit(20 * MS, burst_ns=burst_ms * MS), SimulatedMachine(cpus, tick_ns=0)
    more = {"warmup_seconds": 0, "window_ms": (0, 1000), **more}
    return run(alone(workload, limit=limit, machine=machine, phase_ns=phase_ms * MS, **more), traced=True)


def spans(outcome: SimulationResult) -> list[tuple[int, float, float]]:
    return [(span.cpu, round(span.start / MS, 5), round(span.end / MS, 5)) for span in outcome.timeline.ran]


@pytest.mark.parametrize(
    ("cpus", "ran"),
    [(1, [(0, 0.0, 20.0)]), (4, [(cpu, 0.0, 5.0) for cpu in range(4)])],
    ids=["20 ms of every 100", "the first slice of each CPU"],
)
def test_200m_are_used_at_once_and_all_cpus_stopped_for_the_rest_of_the_period(cpus, ran):
    outcome = exact(Spin(), cpus, seconds=1)
    periods = [(cpu, start + 100 * k, end + 100 * k) for k in range(10) for cpu, start, end in ran]
    assert sorted(spans(outcome)) == sorted(periods)
    stat = outcome.results[0].stat
    assert (stat.nr_periods, stat.nr_throttled, stat.usage_ns) == (9, 9, 10 * 20 * MS)
    assert stat.throttled_ns == 9 * (100 * cpus - 20) * MS


@pytest.mark.parametrize("phase", range(1, 101, 7))
def test_a_burst_takes_what_the_closed_form_says_at_every_phase(phase):
    work, quota, period = 70, 20, 100
    outcome = exact(BURST, 1, phase_ms=phase, seconds=0.999)
    if phase < quota:
        expected = latency_by_hand(work, quota, period, phase)
    else:
        refills = -(-(work - quota) // quota)
        expected = phase + (refills - 1) * period + work - quota - (refills - 1) * quota
    assert outcome.results[0].latency[100] / MS == pytest.approx(expected, abs=EXACT)


def latency_by_hand(work: int, quota: int, period: int, phase: int) -> float:
    """In steps of 1 ms: a pool that is topped up while the thread runs, and slices of 5 ms."""
    pool, local, done, now = quota, 0, 0, 0
    while done < work:
        if now and (now - phase) % period == 0:
            pool = quota
        if local == 0:
            local = min(pool, 5)
            pool -= local
        if local:
            local, done = local - 1, done + 1
        now += 1
    return now


def test_on_a_full_cpu_every_pod_gets_the_share_of_its_request():
    """1000 turns are 6 + 100 + 200 + 694. Times 125, so that shares are whole numbers."""
    requests, kernel = {"node": 6, "a": 100, "b": 200, "c": 694}, KERNELS["6.6"]
    pods = tuple(
        ScenarioPod(name, (ScenarioContainer("app", (Spin(1),), request_milli=milli * 125),))
        for name, milli in requests.items()
    )
    seconds, machine = 1000 * kernel.base_slice_ns / SECOND, SimulatedMachine(1, tick_ns=0)
    outcome = run(Scenario("weights", "", machine, pods, kernel, seconds, warmup_seconds=0))
    used = {one.path[:-4]: one.stat.usage_ns / kernel.base_slice_ns for one in outcome.results}
    assert used == pytest.approx(requests, rel=1e-5)


@pytest.mark.parametrize(("burst_ms", "expected"), [(0, 270), (20, 170)])
def test_a_saved_burst_shortens_the_work(burst_ms, expected):
    """φ + (k - 1) P + W - Q - B - (k - 1) Q with k = ceil((W - Q - B) / Q), from the second burst on."""
    outcome = exact(BURST, 1, phase_ms=60, burst_ms=burst_ms, seconds=1, warmup_seconds=0.9)
    assert outcome.results[0].latency[100] / MS == pytest.approx(expected, abs=EXACT * 10)
