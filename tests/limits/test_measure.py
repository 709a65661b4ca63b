"""Counters to rates to verdicts: units, restarts, gaps, and what is alarming and what is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kernel.cpu_time import attribution, counters
from corelane.kernel.cpu_time.counters import (
    CounterError,
    CPUCounters,
    CPULoad,
    Quota,
    Rates,
    Unusable,
    rates_between,
)
from corelane.limits import measure
from corelane.limits.measure import CostLevel, DelayCause
from support.cpu_groups import counters as write_counters
from support.cpu_groups import pressure, quiet
from support.kubepods import write

STAT1 = "nr_periods 50\nnr_throttled 40\nthrottled_time 4000000000\nnr_bursts 3\nburst_time 9000000\n"
STAT2 = (
    "usage_usec 70\nuser_usec 60\nsystem_usec 10\nnr_periods 50\nnr_throttled 40\nthrottled_usec 4000000\n"
)


def test_both_versions_count_the_same_in_their_own_units():
    one, two = counters.stat_v1(STAT1), counters.stat_v2(STAT2)
    assert one == {
        "periods": 50,
        "throttled_periods": 40,
        "throttled_us": 4_000_000,
        "bursts": 3,
        "burst_us": 9_000,
    }
    assert two == {"usage_us": 70, "periods": 50, "throttled_periods": 40, "throttled_us": 4_000_000}


@pytest.mark.parametrize(
    "text",
    [
        "nr_periods",
        "nr_periods x",
        "nr_periods -9999999999",
        "nr_periods --1",
        "usage_usec " + "9" * 400,
        "garbage here too",
    ],
)
def test_counters_that_make_no_sense_are_refused_with_their_line(text):
    with pytest.raises(CounterError, match=text.split()[0]):
        counters.stat_v2(text)


def test_quotas_of_both_versions():
    assert counters.quota_v1("20000\n", "100000\n", None) == Quota(20_000, 100_000)
    assert counters.quota_v1("-1", "50000", "0") == Quota(None, 50_000)
    assert counters.quota_v2("20000 100000\n", "5000\n") == Quota(20_000, 100_000, 5_000)
    assert counters.quota_v2("max 100000", None).cpus is None
    assert counters.quota_v2("150000 100000", None).cpus == 1.5
    for bad in ("", "max", "some 100000", "20000 0", "-5 100000", f"{10**20} 100000", "20000 " + "9" * 400):
        with pytest.raises(CounterError):
            counters.quota_v2(bad, None)


def test_pressure_has_full_only_where_the_kernel_has_it():
    some = "some avg10=1.00 avg60=0.00 avg300=0.00 total=123\n"
    assert counters.pressure(some) == (123, None)
    assert counters.pressure(some + "full avg10=0.00 avg60=0.00 avg300=0.00 total=45\n") == (123, 45)
    with pytest.raises(CounterError):
        counters.pressure("nothing")


def test_rates_are_per_second_and_in_milliseconds():
    before = CPUCounters(1.0, usage_us=0, periods=0, throttled_periods=0, throttled_us=0, some_us=0)
    after = CPUCounters(
        3.0, usage_us=400_000, periods=20, throttled_periods=20, throttled_us=1_600_000, some_us=1_600_000
    )
    rates = rates_between(before, after)
    assert (rates.used, rates.throttled, rates.waiting) == (200, 800, 800)
    assert (rates.periods, rates.throttled_periods) == (20, 20)
    assert rates.lost == pytest.approx(0.8)
    assert rates.stall_ms == pytest.approx(80)


def test_what_is_not_counted_is_not_guessed():
    rates = rates_between(CPUCounters(0.0, usage_us=5), CPUCounters(1.0, usage_us=7))
    assert rates.throttled is None
    assert rates.lost is None
    assert rates.stall_ms is None
    assert measure.judge(replace(rates, used=None)).causes == (DelayCause.UNKNOWN,)


def test_counters_that_went_back_are_a_restart_and_make_no_rate():
    rates = rates_between(CPUCounters(0.0, usage_us=9, periods=9), CPUCounters(1.0, usage_us=1, periods=10))
    assert isinstance(rates, Unusable)
    assert "usage_us" in rates.why
    assert "restarted" in rates.why


def test_counts_of_periods_wrap_as_the_kernels_ints_do_and_go_on():
    def at(seconds: float, periods: int) -> CPUCounters:
        text = f"nr_periods {periods}\nnr_throttled {periods}\nusage_usec 5\n"
        return CPUCounters(seconds, **counters.stat_v2(text))

    signed = rates_between(at(0.0, 2**31 - 3), at(1.0, -(2**31) + 2))
    assert (signed.periods, signed.throttled_periods) == (5, 5)
    whole = rates_between(at(0.0, -2), at(1.0, 3))
    assert (whole.periods, whole.throttled_periods) == (5, 5)
    assert isinstance(rates_between(at(0.0, 70), at(1.0, 3)), Unusable), "a restart"


def test_two_readings_at_one_time_make_no_rate():
    assert isinstance(rates_between(CPUCounters(1.0), CPUCounters(1.0)), Unusable)


def test_a_limit_that_changed_between_readings_is_said():
    rates = rates_between(CPUCounters(0.0), replace(CPUCounters(1.0), quota=Quota(10_000)))
    assert rates.notes == ("the CPU limit changed between readings",)


def test_a_thread_that_appears_begins_at_nothing_and_one_that_ends_takes_nothing_back():
    before, after = (
        CPUCounters(0.0, waits={1: 5_000_000, 2: 900_000_000}),
        CPUCounters(2.0, waits={1: 7_000_000, 3: 4_000_000}),
    )
    rates = rates_between(before, after)
    assert rates.queued == pytest.approx(3.0)
    assert rates.waiters == 2


_TOTALS = st.integers(min_value=0, max_value=2**63)


@given(start=_TOTALS, used=_TOTALS, throttled=_TOTALS, seconds=st.floats(0.01, 1e6))
def test_shares_are_shares_whatever_is_counted(start, used, throttled, seconds):
    before = CPUCounters(0.0, usage_us=start, throttled_us=start)
    rates = rates_between(before, CPUCounters(seconds, usage_us=start + used, throttled_us=start + throttled))
    assert 0 <= rates.lost <= 1
    assert rates.used >= 0
    assert measure.judge(rates).level in CostLevel


def rates(**values) -> Rates:
    return Rates(1.0, **{"used": 1000.0, "throttled": 0.0, "periods": 10, "throttled_periods": 0, **values})


def test_half_the_periods_throttled_with_a_thousandth_lost_is_no_alarm():
    """A quota of a whole CPU in 50 ms periods, measured: 50 of 100 periods, 4.5 ms of 5 s."""
    found = measure.judge(Rates(5.0, used=998.8, throttled=0.9, periods=100, throttled_periods=50))
    assert found.level is CostLevel.LOW
    assert found.causes == (DelayCause.NOTHING,)


def test_few_throttled_periods_with_much_lost_are_one():
    found = measure.judge(Rates(100.0, used=20.0, throttled=6.0, periods=100, throttled_periods=4))
    assert found.level is CostLevel.HIGH
    assert found.causes == (DelayCause.LIMIT,)


@pytest.mark.parametrize(
    ("throttled", "periods", "level"),
    [
        (0.0, 0, CostLevel.NONE),
        (0.5, 10, CostLevel.LOW),
        (5.0, 10, CostLevel.LOW),
        (15.0, 10, CostLevel.MEDIUM),
        (150.0, 10, CostLevel.HIGH),
        # Little is lost, but in stops of 50 ms, which a slow request is made of.
        (5.0, 0.1, CostLevel.MEDIUM),
    ],
)
def test_level_is_time_lost_and_the_length_of_stops(throttled, periods, level):
    assert measure.judge(rates(throttled=throttled, throttled_periods=periods)).level is level


def test_a_limit_alone_explains_the_pressure_that_it_makes():
    found = measure.judge(
        rates(used=200.0, throttled=800.0, throttled_periods=10, waiting=805.0), CPULoad(2, 1200)
    )
    assert found.causes == (DelayCause.LIMIT,)


def causes(rates: Rates, load: CPULoad | None = None, threads: int = 0) -> tuple[DelayCause, ...]:
    losses, rates = attribution.attribute(rates, load, threads)
    return measure.judge(rates, load, losses).causes


def test_waiting_beyond_throttling_is_the_neighbours_if_they_are_there():
    waiting = rates(used=500.0, waiting=500.0, stalled=500.0)
    assert causes(waiting, CPULoad(1, 1000.0)) == (DelayCause.NEIGHBOURS,)
    assert causes(waiting, CPULoad(1, 500.0, steal=500.0)) == (DelayCause.HYPERVISOR,)
    assert causes(replace(waiting, stalled=0.0), CPULoad(1, 1000.0)) == (DelayCause.OWN_THREADS,)
    assert causes(waiting) == (DelayCause.OTHERS,)


def test_pressure_alone_names_no_cause_where_more_threads_than_cpus_meet_neighbours():
    waiting = rates(used=500.0, waiting=500.0, stalled=0.0)
    assert causes(waiting, CPULoad(2, 1500.0), 3) == (DelayCause.OTHERS,)
    assert causes(waiting, CPULoad(2, 1500.0), 2) == (DelayCause.NEIGHBOURS,)
    assert causes(waiting, CPULoad(2, 500.0), 3) == (DelayCause.OWN_THREADS,)


def test_time_that_is_not_idle_is_used_though_ticks_were_lost():
    """A guest counted 369 ms/s of a CPU as busy that two spinning threads shared."""
    waiting = rates(used=250.0, queued=750.0)
    losses, _ = attribution.attribute(waiting, CPULoad(1, 369.0, idle=0.0), 1)
    assert losses is not None
    assert (losses.neighbours, losses.scheduling) == (750, 0)
    losses, _ = attribution.attribute(waiting, CPULoad(1, 369.0, idle=631.0), 1)
    assert losses is not None
    assert (losses.neighbours, losses.scheduling) == (119, 631)


def test_limit_and_neighbours_are_both_named_the_worse_first():
    both = rates(used=200.0, throttled=300.0, throttled_periods=10, waiting=800.0, stalled=800.0)
    assert causes(both, CPULoad(1, 1000.0)) == (DelayCause.NEIGHBOURS, DelayCause.LIMIT)


def test_run_queues_come_before_pressure_with_throttling_counted_once_a_cpu():
    alone = rates(used=200.0, throttled=800.0, throttled_periods=10, queued=1800.0, waiting=900.0)
    assert causes(alone, CPULoad(1, 200.0)) == (DelayCause.OWN_THREADS, DelayCause.LIMIT)
    crowded = replace(alone, queued=2800.0)
    assert DelayCause.NEIGHBOURS not in causes(crowded, CPULoad(1, 1000.0))
    assert DelayCause.NEIGHBOURS in causes(replace(crowded, throttled=600.0), CPULoad(1, 1000.0))


def test_a_pods_limit_above_its_containers_is_named():
    before = CPUCounters(0.0, usage_us=0, throttled_us=0, above_us=0)
    found = rates_between(before, CPUCounters(1.0, usage_us=100_000, throttled_us=0, above_us=700_000))
    assert found.above == 700
    assert measure.judge(found).causes == (DelayCause.LIMIT_ABOVE,)


def test_a_group_is_read_from_its_files(tmp_path):
    write(tmp_path / "cgroup.procs", "1")
    quiet(tmp_path)
    write(tmp_path / "cpu.stat.local", "throttled_usec 7")
    write_counters(tmp_path, usage=10, periods=4, throttled=2, us=5)
    pressure(tmp_path, 3, 2)
    found = counters.read([str(tmp_path)], 1.5)
    assert found.lacks == ()
    assert found.counters == CPUCounters(1.5, 10, 4, 2, 5, 0, 0, 7, 3, 2, None, Quota(20_000, 100_000, 0))


def test_threads_waits_are_read_where_groups_have_no_pressure(tmp_path):
    write(tmp_path / "g/cgroup.procs", "7")
    write(tmp_path / "g/cgroup.threads", "7\n8\n9")
    write(tmp_path / "g/cpu.stat", STAT2.strip())
    write(tmp_path / "g/cpu.max", "max 100000")
    write(tmp_path / "proc/7/schedstat", "100 2000 3")
    write(tmp_path / "proc/8/schedstat", "100 5000 3")
    found = counters.read([str(tmp_path / "g")], 0.0, str(tmp_path / "proc"))
    assert found.counters.waits == {7: 2000, 8: 5000}


def test_a_group_that_is_gone_is_none(tmp_path):
    assert counters.read([str(tmp_path / "nowhere")], 0.0) is None
    assert counters.read([], 0.0) is None


def test_a_group_without_the_cpu_controller_says_so(tmp_path):
    write(tmp_path / "cgroup.procs", "1")
    write(tmp_path / "cpu.stat", "usage_usec 70\nuser_usec 60\nsystem_usec 10")
    found = counters.read([str(tmp_path)], 0.0)
    assert "controller not enabled" in found.lacks[0]
    assert found.counters.usage_us == 70
    assert found.counters.periods is None


def test_version_1_wins_over_a_hybrid_hierarchy_beside_it(tmp_path):
    v1, unified = tmp_path / "cpu", tmp_path / "unified"
    for one in (v1, unified):
        write(one / "cgroup.procs", "1")
    write(unified / "cpu.stat", "usage_usec 70\nuser_usec 60\nsystem_usec 10")
    pressure(unified, 11)
    write(v1 / "cpu.stat", STAT1.strip())
    write(v1 / "cpu.cfs_quota_us", "20000")
    write(v1 / "cpu.cfs_period_us", "100000")
    found = counters.read([str(unified), str(v1)], 0.0)
    assert found.counters.periods == 50
    assert found.counters.some_us == 11
    assert "no cpuacct" in found.lacks[0]


def test_processors_tell_what_others_do_on_a_containers_cpus():
    before = counters.processors("cpu  9 9 9 9\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n")
    after = counters.processors("cpu0 100 0 50 40 0 5 5 10 7 0\ncpu1 0 0 0 200 0 0 0 0\n")
    assert counters.cpu_load(before, after, CPUSet([0]), 2.0, 100) == CPULoad(1, 800.0, 50.0, 200.0)
    assert counters.cpu_load(before, after, None, 2.0, 100).cpus == 2
    assert counters.cpu_load(before, after, CPUSet([7]), 2.0, 100) is None
    assert counters.processors("\n cpu 1 2 3 4\ncpu0 x 1 2 3\ncpu1\ncpux 1 2 3 4\nintr 5\n") == {}


def regular(values: list[float], step: float = 15.0) -> list[tuple[float, float]]:
    return [(1000 + step * i, value) for i, value in enumerate(values)]


def test_growth_counts_through_restarts_as_prometheus_does():
    found = measure.growth(regular([10, 12, 15, 1, 4]))
    assert (found.amount, found.seconds, found.resets, found.gap_seconds) == (9, 60, 1, 0)


def test_growth_sees_gaps():
    samples = [(0.0, 0.0), (15.0, 1.0), (30.0, 2.0), (210.0, 3.0), (225.0, 4.0)]
    assert measure.growth(samples).gap_seconds == 180


@pytest.mark.parametrize(
    "samples", [[], [(1.0, 1.0)], [(1.0, 1.0), (2.0, float("nan"))], [(1.0, 1.0), (1.0, 2.0)]]
)
def test_too_few_samples_are_no_rate(samples):
    assert isinstance(measure.growth(samples), Unusable)


def test_series_make_rates_with_what_is_missing_left_out():
    found = measure.rates_of_series(
        {
            "usage": regular([0, 3, 6]),
            "throttled": regular([5, 17, 29]),
            "periods": regular([0, 150, 300]),
            "burst": [],
        },
        Quota(20_000),
    )
    assert found.used == pytest.approx(200)
    assert found.throttled == pytest.approx(800)
    assert found.periods == 300
    assert found.burst is None
    assert found.notes == ()
    assert found.quota.cpus == 0.2


def test_what_samples_do_not_say_is_noted():
    found = measure.rates_of_series(
        {"usage": [(0.0, 5.0), (15.0, 6.0), (30.0, 1.0), (300.0, 2.0)], "throttled": [(0.0, 1.0)]}
    )
    assert any("restarted 1 time" in note for note in found.notes)
    assert any("no samples for 270 s" in note for note in found.notes)
    assert any("too few samples of throttled" in note for note in found.notes)
    assert isinstance(measure.rates_of_series({"usage": [(0.0, 5.0)]}), Unusable)
    assert isinstance(measure.rates_of_series({}), Unusable)


def test_silence_is_a_series_that_ended_before_the_others():
    samples = regular([1, 2, 3])
    assert measure.silence(samples, 1040) == 0
    assert measure.silence(samples, 1200) == 170
    assert measure.silence([], 1200) == 0


@given(values=st.lists(st.floats(0, 1e12), min_size=2, max_size=30))
def test_growth_is_never_negative_and_never_less_than_the_end_says(values):
    found = measure.growth(regular(values))
    assert found.amount >= 0
    if found.resets == 0:
        assert found.amount == pytest.approx(values[-1] - values[0], abs=1e-3)
