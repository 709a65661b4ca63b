import os
import signal
import subprocess
import sys
import time

import pytest

from corelane.kernel import cgroup
from corelane.kernel.cgroupfs import CgroupError
from corelane.limits.calibration import laboratory, workers
from corelane.limits.calibration.experiments import (
    EXPERIMENTS,
    Experiment,
    Figures,
    Kernel,
    MeasuredRun,
    claims,
    phase_of,
    predict,
)
from corelane.limits.calibration.laboratory import CalibrationError, Noise, foreign
from corelane.limits.measure.counters import Processor
from corelane.limits.model.bandwidth import refusal
from corelane.limits.model.clock import MS
from corelane.limits.model.switches import LATEST
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
    assert said.spread_ms is None
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


def test_the_phase_is_found_among_other_pauses():
    refills = [1_000_000_000 + k * 100 * MS + k * 10_000 for k in range(5)]
    others = [1_033_000_000, 1_071_500_000]
    assert phase_of(sorted(refills + others), 100 * MS, 940_000_000) == 60 * MS


def test_a_phase_near_the_begin_is_found_on_both_sides_of_it():
    moments = [1_000_000_000 + k * 100 * MS + (-80_000 if k % 2 else 80_000) for k in range(6)]
    assert phase_of(moments, 100 * MS, 1_000_000_000) == 100 * MS - 80_000


@pytest.mark.parametrize("moments", [[], [5 * MS, 105 * MS], [1 * MS, 30 * MS, 77 * MS]])
def test_no_phase_is_made_up(moments):
    assert phase_of(moments, 100 * MS, 0) is None


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


def test_a_worker_uses_the_time_it_is_told_to():
    cpu = min(os.sched_getaffinity(0))
    (worker,) = workers.start([cpu], (3 * MS, 10 * MS, MS, 0))
    try:
        worker.begin(time.perf_counter_ns())
        deadline = time.monotonic() + 10
        while len(worker.report().bursts) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(worker.report().bursts) >= 3
        assert all(3 * MS <= work < 40 * MS for work in worker.report().bursts)
    finally:
        worker.end()
