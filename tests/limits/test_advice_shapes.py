"""Which loads explain counters and latency, and whether predictions hold, with the model as the world."""

import math
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.kernel.cpu_time.competitors import Competition, Competitor
from corelane.kernel.cpu_time.counters import Quota, Rates
from corelane.limits.advice import effects, inference, judgement
from corelane.limits.advice.effects import LimitChange, LoadShape, Seen, Shape, simulated
from corelane.limits.advice.inference import Effort, Hints, Observed
from corelane.limits.measure import Latency, Measurement, RequestLog

SECONDS = 10.0
SMALL = Effort(32, 10, 10, 1)
LOADS = {
    "requests": Shape(LoadShape.REQUESTS, 2, 2, 5.0, 0.4, per_second=40.0),
    "batches": Shape(LoadShape.REQUESTS, 2, 2, 4.0, 0.4, per_second=50.0, batch=12, variation=0.4),
    "collector": Shape(
        LoadShape.REQUESTS, 2, 2, 3.0, 0.4, per_second=40.0, background=40.0, background_every=400.0
    ),
    "clients": Shape(LoadShape.CLIENTS, 2, 2, 6.0, 0.4, clients=3, think=40.0),
    "shared": Shape(LoadShape.SHARED, 2, 2, 14.0, 0.3, per_second=15.0),
    "shared, clients": Shape(LoadShape.SHARED_CLIENTS, 2, 2, 14.0, 0.3, clients=2, think=60.0),
}
NOW = LimitChange(0.25)


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    monkeypatch.setattr(judgement, "FULL", SMALL)


def measured(seen: Seen) -> Measurement:
    """What was measured of a simulated load: counters, percentiles and requests a second."""
    rates = Rates(
        SECONDS,
        used=seen.used,
        throttled=seen.throttled,
        periods=seen.periods * SECONDS,
        throttled_periods=seen.throttled_periods * SECONDS,
        quota=Quota(25_000),
    )
    quantiles = {float(percent): value for percent, value in seen.latency.items()}
    return Measurement(rates, cpus=2, latency=Latency(quantiles, per_second=seen.requests))


@cache
def fitted(load: Shape) -> effects.Fit:
    seen = simulated(load, NOW, 100.0, SECONDS, 77)
    whole = measured(seen)
    assert isinstance(whole.rates, Rates)
    return judgement.fit_model(whole, whole.rates)


def test_most_stated_ranges_hold_over_all_kinds_of_load():
    """Throttled time and p99 without a limit, and with a higher one; ranges that are refused do not count."""
    held = []
    for load in LOADS.values():
        fit = fitted(load)
        assert fit.sample, fit.why
        for change in (LimitChange(None), LimitChange(0.8)):
            found = effects.forecast(fit, change)
            truth = simulated(load, change, 100.0, SECONDS, 78)
            for stated, value in ((found.throttled, truth.throttled), (found.p99, truth.latency[99])):
                if stated:
                    held.append(stated.low <= value <= stated.high)
    assert len(held) >= 12
    assert sum(held) >= 0.75 * len(held)


def test_a_range_is_no_wider_than_shapes_may_disagree_and_the_model_be_off():
    fit = fitted(LOADS["batches"])
    for limit in (0.3, 0.4, 0.6, None):
        found = effects.forecast(fit, LimitChange(limit)).p99
        if found:
            doubt = effects.TAIL
            assert found.high <= doubt.alone**2 * doubt.apart * found.low * (1 + 1e-9)


def test_the_same_measurement_has_the_same_fit():
    simulated.cache_clear()
    first = fitted(LOADS["requests"])
    simulated.cache_clear()
    assert fitted.__wrapped__(LOADS["requests"]) == first


def test_no_limit_never_throttles_and_the_answer_is_not_a_range():
    found = effects.forecast(fitted(LOADS["clients"]), LimitChange(None))
    assert found.throttled == effects.Range(0.0, 0.0)


@given(
    weight=st.floats(0.1, 20.0),
    heavier=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]),
    limit=st.sampled_from([None, 0.25]),
    seed=st.integers(1, 9),
)
@settings(max_examples=15)
def test_more_weight_is_less_weight_of_the_neighbours(weight, heavier, limit, seed):
    """Exactly so for powers of two: other quotients are rounded, and weights of a cgroup are integers."""
    load = replace(LOADS["requests"], weight=weight)
    changed = simulated(load, LimitChange(limit, weight=heavier), 100.0, 3.0, seed)
    assert changed == simulated(replace(load, weight=weight / heavier), LimitChange(limit), 100.0, 3.0, seed)


def test_what_a_larger_request_does_beside_neighbours_is_forecast():
    """One of eight parts of the CPUs is too little for what it needs; four of eleven are enough."""
    starved = replace(LOADS["requests"], weight=7.0)
    changes = LimitChange(None), LimitChange(None, weight=4.0)
    now, then = (simulated(starved, change, 100.0, SECONDS, 78) for change in changes)
    assert now.latency[99] > 3 * then.latency[99]
    fit = effects.Fit(
        LoadShape.REQUESTS, 2, now.used, 0.0, 0.0, 100.0, sample=(starved,), seconds=SECONDS, requests=True
    )
    found = effects.forecast(fit, LimitChange(None, weight=4.0))
    assert found.p99
    assert found.p99.low <= then.latency[99] <= found.p99.high
    assert found.throttled == effects.Range(0.0, 0.0)


def test_busy_threads_with_more_weight_have_no_forecast_of_throttling():
    fit = effects.Fit(LoadShape.BUSY, 2, 300.0, 600.0, 30.0, 100.0, seconds=SECONDS)
    assert effects.forecast(fit, LimitChange(0.3, weight=2.0)).throttled is None
    assert effects.forecast(fit, LimitChange(None, weight=2.0)).throttled == effects.Range(0.0, 0.0)


def test_loads_that_disagree_have_no_number_but_what_to_collect():
    one, other = LOADS["requests"], replace(LOADS["shared"], work=60.0)
    fit = effects.Fit(
        LoadShape.REQUESTS, 2, 200.0, 100.0, 25.0, 100.0, sample=(one, other), seconds=5.0, requests=True
    )
    found = effects.forecast(fit, LimitChange(None))
    assert found.p99 is None
    tail, why = effects.tail(fit, found, Latency({99.0: 100.0}))
    assert tail is None
    assert "time and the latency of each request" in why


def test_more_cpu_time_alone_on_the_cpus_never_raises_the_p99():
    """The measured p99 bounds those of all shapes; not beside neighbours, nor for fewer threads."""
    slow = replace(LOADS["requests"], work=9.0)
    fit = effects.Fit(
        LoadShape.REQUESTS, 2, 200.0, 100.0, 25.0, 100.0, sample=(slow,), seconds=5.0, requests=True, p99=7.0
    )
    alone = effects.forecast(fit, LimitChange(None)).p99
    assert alone
    assert alone.high == pytest.approx(7.0 * effects.TAIL.alone)
    beside = effects.forecast(replace(fit, sample=(replace(slow, weight=0.5),)), LimitChange(None)).p99
    fewer = effects.forecast(fit, LimitChange(None, threads=1)).p99
    assert all(found and found.high > 9.0 for found in (beside, fewer))


@pytest.mark.parametrize(
    ("used_beside", "weight", "contended"), [(1700.0, 2.0, True), (900.0, None, True), (100.0, None, False)]
)
def test_neighbours_are_weighed_as_their_cgroups_are_where_cpus_are_never_idle(
    used_beside, weight, contended
):
    beside = Competition(1024, 1 / 3, (Competitor("/pod", 2048, 2.0, used_beside),))
    rates = Rates(SECONDS, used=240.0, throttled=100.0)
    whole = Measurement(rates, cpus=2, competition=beside)
    assert judgement._weight(whole, rates) == (weight and pytest.approx(weight))
    assert judgement._is_contended(whole, rates) is contended


def test_without_a_latency_there_is_no_p99_and_the_reason_says_what_to_give():
    fit = replace(fitted(LOADS["requests"]), requests=False)
    found = effects.forecast(fit, LimitChange(None))
    assert found.p99 is None
    assert "--latency" in effects.tail(fit, found, None)[1]


def test_work_is_that_of_a_request_where_requests_are_counted():
    shapes = [each for each in fitted(LOADS["requests"]).sample if not each.background]
    for shape in shapes:
        assert shape.work == pytest.approx(5.0, rel=0.35)


# Recorded requests.


def log_of(moments_ms: list[float], took_ms: list[float], seconds: float) -> RequestLog:
    return RequestLog(seconds, tuple(int(at * 1e6) for at in moments_ms), tuple(took_ms))


def test_one_client_never_meets_another_request():
    log = log_of([0, 20, 40, 60], [15, 10, 19, 20], 0.1)
    assert (log.in_flight, log.crowding) == (1, 0.0)


def test_requests_at_random_meet_as_many_as_there_are_on_average():
    chance, at, moments, took = Random(3), 0.0, [], []
    while at < 60_000:
        at += chance.expovariate(0.1)
        moments.append(at)
        took.append(chance.expovariate(1 / 30))
    assert log_of(moments, took, 60.0).crowding == pytest.approx(1.0, abs=0.07)


def test_requests_of_a_batch_meet_each_other():
    moments = [float(1000 * batch) for batch in range(20) for _ in range(10)]
    log = log_of(moments, [50.0] * len(moments), 20.0)
    assert log.in_flight == 10
    assert log.crowding > 5


@given(st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_clients_that_wait_are_never_taken_for_requests_at_random_and_the_reverse(clients, seed):
    """Closed loops of few clients that think as long as they wait, and Poisson arrivals."""
    chance, moments, took = Random(seed), [], []
    for _ in range(clients):
        at = chance.uniform(0, 40)
        while at < 20_000:
            wait = chance.uniform(5, 40)
            moments.append(at)
            took.append(wait)
            at += wait + chance.expovariate(1 / 20)
    pairs = sorted(zip(moments, took, strict=True))
    log = log_of([at for at, _ in pairs], [wait for _, wait in pairs], 20.0)
    assert any(kind.closed for kind in inference.kinds(log))
    at, moments = 0.0, []
    while at < 20_000:
        at += chance.expovariate(1 / 15)
        moments.append(at)
    log = log_of(moments, [chance.uniform(5, 40) for _ in moments], 20.0)
    assert any(not kind.closed for kind in inference.kinds(log))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slowness", [0.5, 1.6, 3.0])
def test_the_log_of_a_server_that_falls_behind_is_of_an_open_load(seed, slowness):
    """An access log has what was answered: of 15 requests a second at random, each 67 ms times `slowness`."""
    chance, at, free, answered = Random(seed), 0.0, 0.0, []
    took = 1000 / 15 * slowness
    while at < 20_000:
        at += chance.expovariate(15 / 1000)
        free = max(free, at) + took
        answered += [(at, free - at)] if free < 20_000 else []
    last = max(sent for sent, _ in answered)
    log = log_of([sent for sent, _ in answered], [wait for _, wait in answered], last / 1000)
    assert LoadShape.REQUESTS in inference.kinds(log)
    assert Latency.of_log(log).per_second == pytest.approx(15 / max(slowness, 1.0), rel=0.25)


def test_recorded_requests_come_again_in_every_forecast():
    moments = tuple(range(0, 10**10, 10**8))
    shape = Shape(LoadShape.REQUESTS, 2, 1, 5.0, moments=moments, every=10_000.0)
    seen = simulated(shape, LimitChange(None), 100.0, 10.0, 1)
    assert seen.requests == pytest.approx(10.0, abs=0.11)
    assert seen.used == pytest.approx(50.0, rel=0.05)


@given(
    st.floats(0.1, 5000),
    st.floats(0, 5000),
    st.floats(0, 1),
    st.sampled_from([None, 0.5, 20.0, 300.0]),
    st.sampled_from([0, 1, 2, 64]),
    st.sampled_from([None, 1, 12]),
    st.booleans(),
)
@example(1592.0, 0.0, 0.0, 0.5, 0, 12, False)
@example(100.0, 0.0, 0.0, 3000.0, 1, 1, False)
@settings(max_examples=6, deadline=None)
def test_every_drawn_shape_can_be_simulated(used, throttled, part, requests, cpus, threads, contended):
    observed = Observed(
        1.0, 100.0, NOW, used, throttled, 10.0, 10 * part, None, requests, {50: 20.0, 99: 200.0}
    )  # one second: a queue that grows all the time takes ever longer to simulate
    found = inference.candidates(observed, Hints(cpus, threads, 0, contended), Effort(8, 2, 2, 1))
    assert len(found) == 4
    for shape in inference.sample(found, 4):
        assert shape.work > 0
        assert shape.threads >= 1
        assert shape.cpus >= 1
        assert math.isfinite(simulated(shape, LimitChange(None), 100.0, 1.0, 1).used)
