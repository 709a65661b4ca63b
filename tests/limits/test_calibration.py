import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from corelane.kernel import cgroup
from corelane.kernel.cgroupfs import CgroupError
from corelane.kernel.cpu_time.counters import CPUCounters, Processor
from corelane.limits.calibration import laboratory, workers
from corelane.limits.calibration.experiments import (
    EXPERIMENTS,
    Experiment,
    Figures,
    Kernel,
    MeasuredRun,
    Prediction,
    claims,
    phase_of,
    predict,
)
from corelane.limits.calibration.laboratory import CalibrationError, CalibrationRun
from corelane.limits.calibration.noise import (
    Noise,
    RunDelay,
    ThreadTimes,
    delayed_ms,
    foreign,
    run_delay_between,
    waited_ms,
)
from corelane.limits.model.bandwidth import LATEST, refusal
from corelane.limits.model.clock import MS
from corelane.view.limits import calibration as view
from support import real_cgroups

HERE = Kernel(LATEST, 4 * MS)


@pytest.mark.parametrize(
    ("experiment", "measured"),
    [
        (Experiment(1, 20), Figures(50, 50, 999.9, 3998)),
        (Experiment(2, 20), Figures(50, 50, 1000.7, 8996)),
        (Experiment(1, 50), Figures(50, 50, 2502, 2497)),
        (Experiment(2, 100), Figures(50, 50, 5000, 4989)),
        (Experiment(2, 150), Figures(50, 50, 7501, 2473)),
        (Experiment(2, 50, 50), Figures(100, 100, 5003, 4992)),
        (Experiment(1, 100), Figures(50, 0, 4998, 0)),
        (Experiment(1, 50, 50), Figures(100, 50, 4994, 4.5)),
        (Experiment(2, 10, 10, seconds=4), Figures(400, 400, 4000.2, 3981)),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_model_agrees_with_what_was_measured_on_linux_6_18(experiment, measured):
    found = MeasuredRun(measured, None, None)
    assert [
        claim for claim in claims(experiment, found, predict(experiment, found, HERE)) if not claim.met
    ] == []


def burst(quota: int, saved: int = 0) -> Experiment:
    return Experiment(1, quota, burst_ms=saved, run_ms=70, every_ms=1000, seconds=8)


@pytest.mark.parametrize(
    ("experiment", "phase_ms", "work_ms", "seen"),
    [
        (burst(20), 60.1, 69.2, Figures(40, 24, 553.6, 1607)),
        (burst(20, 20), 85.4, 73.7, Figures(32, 16, 589.6, 1003, 8)),
        (burst(20, 20), 25.5, 72.9, Figures(32, 8, 583.2, 524, 16)),
        (burst(50), 10, 73.6, Figures(32, 8, 588.8, 356)),
    ],
)
def test_bursts_are_predicted_from_the_measured_phase_and_work(experiment, phase_ms, work_ms, seen):
    """Measured on Linux 6.18; phases and work follow from the latencies. When it ticked was not recorded."""
    said = predict(experiment, MeasuredRun(seen, int(phase_ms * MS), int(work_ms * MS), 1 * MS), HERE)
    assert not said.by_phase
    assert said.figures.throttled_ms == pytest.approx(seen.throttled_ms, rel=0.05)
    assert said.figures.use_ms == pytest.approx(seen.use_ms, rel=0.02)
    assert (said.figures.periods, said.figures.throttled) == (seen.periods, seen.throttled)
    assert said.figures.bursts == seen.bursts


def test_what_a_tick_more_lets_through_is_predicted_where_the_ticks_are_known():
    """50 ms of quota end on a tick: the later it comes, the less is throttled."""
    times = [
        predict(burst(50), MeasuredRun(Figures(32, 8, 589, 356), 10 * MS, 73 * MS, tick * MS), HERE).figures
        for tick in range(4)
    ]
    assert len({round(one.throttled_ms) for one in times}) > 1
    assert max(one.throttled_ms for one in times) - min(one.throttled_ms for one in times) <= 8 * 2 * 4


def test_without_a_phase_the_spread_over_phases_is_said():
    experiment = Experiment(1, 20, run_ms=70, every_ms=1000, seconds=4)
    said = predict(experiment, MeasuredRun(Figures(20, 12, 280, 800), None, None), HERE)
    assert said.by_phase
    assert said.spread_ms is not None
    least, most = said.spread_ms
    assert least < said.figures.throttled_ms < most
    assert not any(
        claim.name == "throttled time"
        for claim in claims(experiment, MeasuredRun(said.figures, None, None), said)
    )


def test_an_error_of_the_model_is_not_let_through():
    experiment = Experiment(1, 20)
    said = predict(experiment, MeasuredRun(Figures(50, 50, 1000, 4000), None, None), HERE)
    wrong = MeasuredRun(Figures(50, 49, 1040, 3700), None, None)
    assert [claim.name for claim in claims(experiment, wrong, said) if not claim.met] == [
        "CPU time",
        "throttled time",
        "periods not throttled",
    ]


def test_experiments_have_names_of_their_own():
    names = [one.name for one in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert sum(one.saturated for one in EXPERIMENTS) >= 8


def pauses(*ends, long=40 * MS):
    return [(end - long, end) for end in ends]


def test_the_phase_is_found_among_other_pauses():
    refills = [1_000_000_000 + k * 100 * MS + k * 10_000 for k in range(5)]
    others = [1_033_000_000, 1_071_500_000]
    assert phase_of(pauses(*refills, *others), 100 * MS, 940_000_000) == 60 * MS


def test_a_phase_near_the_begin_is_found_on_both_sides_of_it():
    moments = [1_000_000_000 + k * 100 * MS + (-80_000 if k % 2 else 80_000) for k in range(6)]
    assert phase_of(pauses(*moments), 100 * MS, 1_000_000_000) == 100 * MS - 80_000


def test_the_earliest_release_is_the_refill_where_other_load_delays_the_rest_until_a_tick():
    delays = (4 * MS, 3 * MS, 4 * MS, 100_000, 4 * MS)
    moments = [1_060_000_000 + k * 100 * MS + delay for k, delay in enumerate(delays)]
    assert phase_of(pauses(*moments), 100 * MS, 1_000_000_000) == 60 * MS + 100_000


def test_pauses_as_short_as_another_threads_turn_show_no_phase():
    assert phase_of(pauses(*(k * 100 * MS for k in range(9)), long=4 * MS), 100 * MS, 0) is None


@pytest.mark.parametrize("moments", [[], [5 * MS, 105 * MS], [1 * MS, 30 * MS, 77 * MS]])
def test_no_phase_is_made_up(moments):
    assert phase_of(pauses(*moments), 100 * MS, 0) is None


def test_what_follows_the_last_refill_of_a_pause_is_delay():
    """Refills at 0 and 30 of every 100 ms: one prompt, one 2 ms late, one pause that no limit explains."""
    found = [(20, 100), (120, 132), (150, 153)]
    assert delayed_ms([(a * MS, b * MS) for a, b in found], 100 * MS, (0, 30 * MS)) == 2 + 3


def test_a_pause_that_ends_a_moment_before_a_refill_ends_with_it():
    """Of the probed refills the earliest counts, and timers differ by microseconds."""
    found = [(20, 99.97), (120, 199.99), (220, 300.02)]
    pauses = [(int(a * MS), int(b * MS)) for a, b in found]
    assert delayed_ms(pauses, 100 * MS, (0, 30 * MS)) == pytest.approx(0.02)


CONTENDED = [one for one in EXPERIMENTS if one.beside_threads]


@pytest.mark.parametrize("experiment", [one for one in CONTENDED if one.cpus == 1], ids=lambda one: one.name)
def test_contended_experiments_on_a_cpu_are_predicted_as_arithmetic_has_them(experiment):
    """The quota at the group's part of the CPUs lasts so long; for the rest of the period it is throttled."""
    said = predict(experiment, MeasuredRun(Figures(0, 0, 0, 0), None, None, 1 * MS), HERE).figures
    periods = experiment.seconds * 10
    running = experiment.quota_ms / (experiment.width_ms / 100)
    assert said.use_ms == pytest.approx(experiment.quota_ms * periods, rel=0.02)
    assert said.throttled_ms == pytest.approx(experiment.cpus * (100 - running) * periods, rel=0.05)


@pytest.mark.parametrize(
    ("weights", "quota", "measured"),
    [((3, 1), 60, 1284), ((2, 1), 60, 1195), ((1, 1), 40, 1304), ((1, 2), 30, 1228), ((1, 3), 20, 1343)],
)
def test_a_pod_without_a_limit_on_two_cpus_is_predicted_as_by_this_kernel(weights, quota, measured):
    """In ms a second, Linux 6.18: the pod's load fades while its container is throttled (PELT)."""
    weight, beside = weights
    experiment = Experiment(2, quota, weight=weight, beside_threads=2, beside_weight=beside)
    said = predict(experiment, MeasuredRun(Figures(0, 0, 0, 0), None, None, 1 * MS), HERE).figures
    assert said.throttled_ms / experiment.seconds == pytest.approx(measured, rel=0.05)
    assert said.use_ms / experiment.seconds == pytest.approx(10 * quota, rel=0.02)


@pytest.mark.parametrize(
    ("phase_ms", "pod_phase_ms", "expected"),
    [(30, 40, (700, 800)), (40, 30, (800, 700)), (30, 30, (800, 800))],
)
def test_nested_limits_are_predicted_from_both_phases(phase_ms, pod_phase_ms, expected):
    """Both are empty after 20 ms, the later refill starts the thread; the last pause counts at its end."""
    experiment = Experiment(1, 20, pod_quota_ms=20, seconds=4)
    phases = phase_ms * MS, pod_phase_ms * MS
    seen = MeasuredRun(Figures(0, 0, 0, 0), phases[0], None, 0, Figures(0, 0, 0, 0), phases[1])
    said = predict(experiment, seen, Kernel(LATEST, 1 * MS))
    assert said.pod is not None and not said.by_phase
    found = said.figures.throttled_ms / 4, said.pod.throttled_ms / 4
    assert found == pytest.approx(expected, abs=20)
    good = MeasuredRun(said.figures, phases[0], None, 0, said.pod, phases[1])
    assert all(claim.met for claim in claims(experiment, good, said))
    worse = Figures(40, 40, 800, said.pod.throttled_ms + 250)
    wrong = MeasuredRun(said.figures, phases[0], None, 0, worse, phases[1])
    assert [one.name for one in claims(experiment, wrong, said) if not one.met] == [
        "pod's throttled time of the CPUs'"
    ]


def test_bursts_that_read_their_cpu_clock_are_predicted_to_stop_when_the_quota_ends():
    """As by Linux 6.18, which throttled a burst of 70 ms at 50 per 100 for 47.1 ms, first refill after 9."""
    plain = Experiment(1, 50, run_ms=70, every_ms=1000, seconds=4)
    clock = Experiment(1, 50, run_ms=70, every_ms=1000, seconds=4, reads_cpu_time=True)
    seen = MeasuredRun(Figures(16, 4, 280, 188.3), 9_060_000, 70_020_000, 1_440_000)
    said, waits_for_ticks = (predict(one, seen, HERE).figures.throttled_ms for one in (clock, plain))
    assert said == pytest.approx(188.3, rel=0.03)
    assert waits_for_ticks == pytest.approx(206.5, rel=0.01)


def test_a_stop_that_may_fall_on_either_of_two_ticks_has_a_band():
    """50 ms end within 0.3 ms of a tick: the band is 4 ms wide for each of the bursts."""
    experiment = Experiment(1, 50, run_ms=70, every_ms=1000, seconds=4)
    seen = MeasuredRun(Figures(12, 4, 280, 60), 70 * MS, 70 * MS, 3 * MS)
    said = [
        predict(experiment, MeasuredRun(seen.figures, 70 * MS, 70 * MS, tick), HERE)
        for tick in (3 * MS, 1 * MS)
    ]
    widths = sorted(round(one.spread_ms[1] - one.spread_ms[0]) for one in said)
    assert widths[0] < 4 and 12 <= widths[1] <= 18
    assert all(one.figures.periods == 12 for one in said)


def row(experiment, run=None, predicted=None, note=""):
    found = tuple(claims(experiment, run.measured, predicted)) if run else ()
    return view.CalibrationRow(experiment, run, predicted, found, note)


def test_no_cell_of_the_table_is_blank():
    nothing, some = Figures(0, 0, 0.0, 0.0), Figures(50, 50, 1000.0, 4000.0)
    quiet = Noise(0, 0, 0, 5000)
    rows = [row(Experiment(8, 20), note="needs 8 CPUs; this process may use 2")]
    for experiment in EXPERIMENTS:
        for figures in (nothing, some):
            pod = figures if experiment.pod_quota_ms else None
            run = CalibrationRun(MeasuredRun(figures, None, None, None, pod), quiet)
            predicted = [
                Prediction(figures, spread, pod, spread, by_phase=True) for spread in (None, (3900.0, 4100.0))
            ]
            rows += [row(experiment, run, one) for one in predicted]
    cells = [*view.rows(rows), *map(view.run_delay_row, (RunDelay(0.0, None), RunDelay(1500.0, 0.5)))]
    assert {len(one) for one in cells} == {len(view.HEADINGS)}
    assert all(cell.strip() for one in cells for cell in one)
    assert sum(one[0].strip() == "its pod" for one in cells) == 4 * sum(
        one.pod_quota_ms > 0 for one in EXPERIMENTS
    )


BEFORE = {0: Processor(100, 5), 1: Processor(100, 0)}


def test_foreign_load_is_what_the_group_has_not_used():
    after = {0: Processor(350, 5), 1: Processor(600, 0)}
    noise = foreign(BEFORE, after, own_ms=2000, cpus=[0], wall_ms=5000)
    assert (noise.foreign_ms, noise.steal_ms) == (500, 0)
    assert (
        noise.reason
        == "other processes used 500 ms of its CPUs, the hypervisor took 0 ms, 10.0 % of its CPUs"
    )


def test_exact_counters_come_before_ticks():
    after = {0: Processor(350, 5)}
    noise = foreign(BEFORE, after, 2000, [0], 5000, ({0: 0}, {0: 2_010 * MS}))
    assert noise.foreign_ms == pytest.approx(10)
    assert noise.reason is None


def test_others_do_not_matter_where_no_thread_waited_for_them():
    after = {0: Processor(600, 5)}
    assert foreign(BEFORE, after, 1000, [0], 5000, waited_ms=3).reason is None
    assert foreign(BEFORE, after, 1000, [0], 5000, waited_ms=200).reason == (
        "its threads waited 200 ms: other processes used 4000 ms of its CPUs, "
        "the hypervisor took 0 ms, 4.0 % of its CPUs"
    )


def test_a_tick_of_steal_is_borne_and_more_discards_a_run():
    assert foreign(BEFORE, {0: Processor(600, 6)}, 5000, [0], 5000, waited_ms=0).reason is None
    reason = foreign(BEFORE, {0: Processor(600, 8)}, 5000, [0], 5000, waited_ms=0).reason
    assert reason is not None and "the hypervisor took 30 ms, 0.6 %" in reason


def test_what_is_lost_must_be_small_beside_the_throttled_time_that_it_shortens():
    assert Noise(0, 10, 0, 5000).reason is None
    assert Noise(0, 10, 0, 5000, shortened_ms=2500).reason is None
    assert Noise(0, 10, 0, 5000, shortened_ms=300).reason is not None


def test_beside_neighbours_only_what_is_lost_while_the_quota_lasts_shortens_the_throttled_time():
    """60 of 100 ms at 3:1 on two CPUs last 40 ms: of 400 lost ms 160 count, of 6,000 throttled."""
    one = Noise(400, 0, None, 10_000, shortened_ms=6000, running=0.4)
    assert one.reason is None
    assert replace(one, foreign_ms=460).reason is not None
    assert replace(one, running=0.8, shortened_ms=2000).reason is not None


START = ThreadTimes(100.0, 10.0, 50.0, 40.0)


@pytest.mark.parametrize("waited", [0.0, 300.0], ids=["a quiet machine", "others run, too"])
@pytest.mark.parametrize("counted", [0.0, 1.0])
def test_whether_waits_contain_throttled_time_does_not_depend_on_other_load(waited, counted):
    """2 s of which it runs 400 ms and is throttled for the rest, less what others take."""
    throttled = 1600.0 - waited
    found = run_delay_between(
        START, ThreadTimes(2100.0, 410.0, 50.0 + waited + counted * throttled, 40.0 + throttled)
    )
    assert found.share == pytest.approx(counted)
    assert found.includes_throttled is bool(counted)


@pytest.mark.parametrize(("delayed", "throttled"), [(850.0, 1640.0), (50.0, 140.0)])
def test_neither_near_0_nor_near_1_nor_a_short_time_is_an_answer(delayed, throttled):
    found = run_delay_between(START, ThreadTimes(2100.0, 410.0, delayed, throttled))
    assert found.includes_throttled is None
    assert found.text.startswith("run_delay is unclear" if throttled > 1000 else "not measured")


def test_waits_of_a_kernel_that_leaves_throttled_time_out_are_noise_as_they_are():
    before, after = (
        CPUCounters(0.0, throttled_us=us, waits={7: ns}) for us, ns in ((0, 0), (4_000_000, 9 * MS))
    )
    assert waited_ms(before, after, includes_throttled=True) == 0
    assert waited_ms(before, after, includes_throttled=False) == 9


@pytest.fixture
def own_groups():
    with real_cgroups.instance() as (groups, name):
        yield groups, name


def test_a_run_counts_what_its_group_did_and_leaves_nothing(own_groups):
    groups, name = own_groups
    cpus = sorted(os.sched_getaffinity(0))
    with laboratory.opened(groups, name) as room:
        run = room.run(Experiment(1, 20, 50, seconds=0.5), cpus)
        assert groups.children(cgroup.join(name)) == []
    figures, wall_ms = run.measured.figures, run.noise.cpu_ms
    assert 0 < figures.periods <= wall_ms / 50 + 1.5, "a starved group's clock stands still"
    assert figures.throttled <= figures.periods
    assert figures.use_ms <= (figures.periods + 1) * 20 + 10
    assert not groups.exists(cgroup.join(name))


def test_this_kernels_waits_contain_throttled_time(own_groups):
    """As those of every kernel that we know; None where the machine is too busy to tell."""
    groups, name = own_groups
    with laboratory.opened(groups, name) as room:
        found = room.measure_run_delay(sorted(os.sched_getaffinity(0)))
    assert found.includes_throttled in (True, None), found
    assert found.throttled_ms < 2500
    assert not groups.exists(cgroup.join(name))


def test_bursts_tell_their_work_and_the_group_never_outlives_an_interrupt(own_groups, monkeypatch):
    groups, name = own_groups

    def interrupted(moment):
        raise KeyboardInterrupt

    monkeypatch.setattr(laboratory, "_sleep_until", interrupted)
    with pytest.raises(KeyboardInterrupt), laboratory.opened(groups, name) as room:
        room.run(Experiment(1, 20, run_ms=5, every_ms=20, seconds=1), sorted(os.sched_getaffinity(0)))
    assert not groups.exists(cgroup.join(name))


def test_groups_of_those_who_were_killed_are_swept_away_and_no_others(own_groups):
    groups, _ = own_groups
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    dead, alive = f"calibrate-{ended.pid}-1", laboratory.instance()
    reused, populated = f"calibrate-{os.getpid()}-1", f"calibrate-{ended.pid}-2"
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        for name in (dead, alive, reused, populated):
            groups.create(cgroup.join(name, "run-1"))
        groups.add(cgroup.join(populated, "run-1"), sleeper.pid)
        laboratory.sweep(groups)
        left = set(groups.children(cgroup.OWN))
        assert {alive, populated} <= left
        assert not {dead, reused} & left
    finally:
        sleeper.kill()
        sleeper.wait()
        for name in (dead, alive, reused, populated):
            groups.delete(cgroup.join(name))
        assert sleeper.returncode == -signal.SIGKILL


def test_contended_and_nested_runs_count_each_group_and_leave_nothing(own_groups):
    groups, name = own_groups
    cpus = sorted(os.sched_getaffinity(0))[:1]
    with laboratory.opened(groups, name) as room:
        contended = room.run(Experiment(1, 20, weight=3, beside_threads=1, seconds=0.5), cpus)
        nested = room.run(Experiment(1, 20, pod_quota_ms=20, seconds=0.5), cpus)
        app, pod, seconds = room.start_nested(Experiment(1, 20, pod_quota_ms=20, seconds=0.5), cpus)
        assert groups.children(cgroup.join(name)) == []
    assert seconds >= 0.5
    assert contended.measured.pod is None and contended.noise.waited_ms is None
    assert 0 < contended.measured.figures.use_ms <= 6 * 20 + 10
    for one, above in ((nested.measured.figures, nested.measured.pod), (app, pod)):
        assert above is not None
        assert one.use_ms == pytest.approx(above.use_ms, abs=5), "the pod has used what its container has"
        assert max(one.throttled, above.throttled) <= 6
    assert not groups.exists(cgroup.join(name))


def test_too_few_cpus_are_said(own_groups):
    groups, name = own_groups
    with (
        laboratory.opened(groups, name) as room,
        pytest.raises(CalibrationError, match="needs 2 CPUs, there are 1"),
    ):
        room.run(Experiment(2, 20), [0])


@pytest.mark.parametrize(
    ("quota", "period", "burst"),
    [
        (999, 100_000, 0),
        (1_000, 100_000, 0),
        (1_000, 1_000, 0),
        (1_000, 999, 0),
        (1_000, 1_000_000, 0),
        (1_000, 1_000_001, 0),
        (20_000, 100_000, 20_000),
        (20_000, 100_000, 20_001),
        ((1 << 44) - 1, 100_000, 0),
        (1 << 44, 100_000, 0),
    ],
)
def test_this_kernel_refuses_what_the_table_says(own_groups, quota, period, burst):
    groups, name = own_groups
    group = cgroup.join(name)
    groups.create(group)
    writes = _burst_writes(groups, group)
    if burst and not writes:
        pytest.skip("this kernel has no burst")
    refused = False
    try:
        groups.set_quota(group, quota, period)
        for path in writes:
            groups.files.write(path, str(burst))
    except CgroupError:
        refused = True
    assert refused == (refusal(quota, period, burst) is not None)


def _burst_writes(groups, group):
    names = ("cpu.cfs_burst_us", "cpu.max.burst")
    return [one / name for one in groups.directories(group) for name in names if (one / name).exists()]


@pytest.mark.parametrize("clock", [0, 1], ids=["monotonic clock", "CPU clock"])
def test_a_worker_uses_the_time_it_is_told_to(clock):
    cpu = min(os.sched_getaffinity(0))
    with workers.started(1, [cpu], (3 * MS, 10 * MS, MS, 0, 0, clock)) as (worker,):
        worker.begin(time.perf_counter_ns())
        deadline = time.monotonic() + 120
        while len(worker.report().bursts) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(worker.report().bursts) >= 3
        bursts = worker.report().bursts
        # The monotonic clock counts what interrupts and the host took as well; the CPU clock does not.
        least = 3 * MS if clock else 2 * MS
        assert max(bursts) >= least and (not clock or min(bursts) >= least)
        assert min(bursts) < 40 * MS
