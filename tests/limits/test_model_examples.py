"""The document's small examples, worked out by hand, with the tick switched off: exact to the nanosecond."""

from dataclasses import replace

import pytest

from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    SimulationResult,
    run,
)
from corelane.limits.model.workloads import Bursts, Duration, Spin

EXACT = 1e-6
"""Milliseconds: a CPU released with 1 ns runs that before it asks for more."""


def alone(workload, cpus: int, quota_ms: int, *, phase_ms: int = 0, burst_ms: int = 0, **more) -> Scenario:
    limit = CFSLimit(quota_ms * MS, burst_ns=burst_ms * MS)
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=True, phase_ns=phase_ms * MS)
    machine = SimulatedMachine(cpus, tick_ns=0)
    return Scenario("example", "", machine, (ScenarioPod("pod", (app,)),), warmup_seconds=0, **more)


def spans(outcome: SimulationResult) -> list[tuple[int, float, float]]:
    assert outcome.timeline is not None
    return [(span.cpu, span.start / MS, span.end / MS) for span in outcome.timeline.ran]


def test_200m_on_one_cpu_runs_20_ms_of_every_100():
    outcome = run(alone(Spin(), 1, 20, seconds=1, window_ms=(0, 1000)), traced=True)
    assert spans(outcome) == [(0, 100.0 * k, 100.0 * k + 20) for k in range(10)]
    stat = outcome.results[0].stat
    assert (stat.nr_periods, stat.nr_throttled) == (9, 9)
    assert stat.throttled_ns == 9 * 80 * MS
    assert stat.usage_ns == 10 * 20 * MS


def test_200m_on_four_cpus_is_gone_after_the_first_slice_of_each():
    outcome = run(alone(Spin(), 4, 20, seconds=1, window_ms=(0, 100)), traced=True)
    assert spans(outcome) == [(cpu, 0.0, 5.0) for cpu in range(4)]
    stat = outcome.results[0].stat
    assert (stat.nr_periods, stat.nr_throttled) == (9, 9)
    assert stat.throttled_ns == 9 * 4 * 95 * MS
    assert stat.usage_ns == 10 * 20 * MS


BURST = Bursts(Duration(70 * MS), every_ns=SECOND)


def test_70_ms_of_work_at_a_20_ms_quota_take_310_ms_when_the_burst_starts_with_a_period():
    outcome = run(alone(BURST, 1, 20, seconds=0.999, window_ms=(0, 1000)), traced=True)
    assert outcome.results[0].latency[100] == 310 * MS
    assert spans(outcome) == [(0, 0.0, 20.0), (0, 100.0, 120.0), (0, 200.0, 220.0), (0, 300.0, 310.0)]


def test_70_ms_of_work_at_a_20_ms_quota_take_270_ms_when_the_first_refill_comes_after_60():
    outcome = run(alone(BURST, 1, 20, phase_ms=60, seconds=0.999))
    assert outcome.results[0].latency[100] == 270 * MS
    assert outcome.results[0].stat.throttled_ns == 200 * MS


@pytest.mark.parametrize("phase", range(1, 101, 7))
def test_a_burst_takes_what_the_closed_form_says_at_every_phase(phase):
    work, quota, period = 70, 20, 100
    outcome = run(alone(BURST, 1, quota, phase_ms=phase, seconds=0.999))
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


def test_35_percent_of_the_limit_is_used_and_three_of_four_active_periods_are_throttled():
    """The kernel counts a fifth, quiet period before the timer stops."""
    outcome = run(alone(BURST, 1, 20, seconds=1, window_ms=(0, 1000)), traced=True)
    stat = outcome.results[0].stat
    assert stat.usage_ns == 70 * MS
    assert stat.usage_ns / (10 * 20 * MS) == 0.35
    assert len({int(start // 100) for _, start, _ in spans(outcome)}) == 4
    assert (stat.nr_throttled, stat.nr_periods) == (3, 5)


def test_on_a_full_cpu_everybody_gets_the_share_of_the_request():
    """1000 turns are 6 + 100 + 200 + 694. Times 125, so that shares are whole numbers."""
    requests = {"node": 6, "a": 100, "b": 200, "c": 694}
    pods = tuple(
        ScenarioPod(name, (ScenarioContainer("app", (Spin(1),), request_milli=milli * 125),))
        for name, milli in requests.items()
    )
    kernel = KERNELS["6.6"]
    seconds = 1000 * kernel.base_slice_ns / SECOND
    scenario = Scenario(
        "weights", "", SimulatedMachine(1, tick_ns=0), pods, kernel, seconds, warmup_seconds=0
    )
    used = {one.path[:-4]: one.stat.usage_ns / kernel.base_slice_ns for one in run(scenario).results}
    assert used == pytest.approx(requests, rel=1e-5)


@pytest.mark.parametrize(
    ("burst_ms", "expected"),
    [(0, 270), (20, 170)],
)
def test_a_saved_burst_shortens_the_work(burst_ms, expected):
    """φ + (k - 1) P + W - Q - B - (k - 1) Q with k = ceil((W - Q - B) / Q), from the second burst on."""
    scenario = alone(BURST, 1, 20, phase_ms=60, burst_ms=burst_ms, seconds=1)
    outcome = run(replace(scenario, warmup_seconds=0.9))
    assert outcome.results[0].latency[100] / MS == pytest.approx(expected, abs=EXACT * 10)
