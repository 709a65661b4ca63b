"""Run an experiment in a new cgroup, and measure what disturbed it."""

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from corelane.kernel import proc
from corelane.kernel.cgroup_tree import OWN, Groups, join
from corelane.kernel.cgroupfs import CgroupError
from corelane.kernel.cpu_time import counters
from corelane.kernel.cpu_time.counters import CPUCounters, Processor
from corelane.limits.calibration import workers
from corelane.limits.calibration.experiments import (
    PROBED_PERIODS,
    QUIET_PERIODS,
    WARMUP_SECONDS,
    Experiment,
    Figures,
    MeasuredRun,
    earliest_on_grid,
    phase_of,
)
from corelane.limits.calibration.noise import (
    RUN_DELAY_EXPERIMENT,
    Noise,
    RunDelay,
    ThreadTimes,
    delayed_ms,
    foreign,
    run_delay_between,
    waited_ms,
)
from corelane.limits.calibration.workers import Worker
from corelane.limits.model.clock import MS, SECOND

_INSTANCE = re.compile(r"calibrate-(\d+)-(\d+)")
_COARSE = getattr(time, "CLOCK_MONOTONIC_COARSE", 6)
"""A clock that moves by ticks, so that its resolution is 1/HZ (time(7))."""
_SPINNING = (0, 0, 1 * MS, 0, 0, 0)
"""Arguments of workers that never stop: see `workers`."""


class CalibrationError(Exception):
    """An experiment cannot be done here; the message says why."""


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """A measurement, and what disturbed it."""

    measured: MeasuredRun
    noise: Noise


@dataclass(frozen=True, slots=True)
class _Reading:
    """Everything that counts, at one moment."""

    moment_ns: int
    app: CPUCounters
    pod: CPUCounters
    run: CPUCounters
    processors: dict[int, Processor]
    per_cpu_ns: dict[int, int] | None


@dataclass(frozen=True, slots=True)
class _RunGroups:
    """Paths of a run's groups: all of it, the limited threads, the pod above them, others beside."""

    run: str
    app: str
    pod: str
    beside: str


class Laboratory:
    """Cgroups below one of our own. Every experiment has a fresh one, gone when it is over."""

    def __init__(self, groups: Groups, instance: str, proc: Path = Path("/proc")) -> None:
        self._groups, self._instance, self._proc = groups, instance, proc
        self._numbers = count(1)
        self.includes_throttled = True
        """Whether the threads' waits contain throttled time, as far as `measure_run_delay` has shown."""

    def run(self, experiment: Experiment, cpus: Sequence[int]) -> CalibrationRun:
        """Measure once. Raises CalibrationError, CgroupError and WorkerError; the group is gone then too."""
        if len(cpus) < experiment.cpus:
            raise CalibrationError(f"{experiment.name} needs {experiment.cpus} CPUs, there are {len(cpus)}")
        cpus = cpus[: experiment.cpus]
        with self._group(experiment) as paths, ExitStack() as stack:
            started = stack.enter_context(workers.started(experiment.threads, cpus, _arguments(experiment)))
            for worker in started:
                self._groups.add(paths.app, worker.pid)
            for worker in stack.enter_context(workers.started(experiment.beside_threads, cpus, _SPINNING)):
                self._groups.add(paths.beside, worker.pid)
                worker.begin(0)
            if experiment.pod_quota_ms:
                return self._measure_nested(experiment, paths, started, cpus)
            return self._measure(experiment, paths, started, cpus)

    def start_nested(self, experiment: Experiment, cpus: Sequence[int]) -> tuple[Figures, Figures, float]:
        """Start threads under two limits whose phases are left to chance; both levels' counters, and seconds.

        Raises as `run`.
        """
        cpus = cpus[: experiment.cpus]
        with (
            self._group(experiment) as paths,
            workers.started(experiment.threads, cpus, _SPINNING) as started,
        ):
            self._limit_pod(paths, experiment)
            self._warm_up(paths, started)
            before = self._read(paths)
            _sleep_until(before.moment_ns + int(experiment.seconds * SECOND))
            after = self._read(paths)
        seconds = (after.moment_ns - before.moment_ns) / SECOND
        return _gain(before.app, after.app), _gain(before.pod, after.pod), seconds

    def measure_run_delay(self, cpus: Sequence[int]) -> RunDelay:
        """Measure whether this kernel counts throttled time as waiting, for the runs that follow.

        Raises as `run`.
        """
        experiment = RUN_DELAY_EXPERIMENT
        with self._group(experiment) as paths, workers.started(1, cpus[-1:], _SPINNING) as started:
            self._warm_up(paths, started)
            before = self._thread_times(paths, started[0].pid)
            _sleep_until(time.perf_counter_ns() + int(experiment.seconds * SECOND))
            delay = run_delay_between(before, self._thread_times(paths, started[0].pid))
        self.includes_throttled = delay.includes_throttled is not False
        return delay

    def _warm_up(self, paths: _RunGroups, started: Sequence[Worker]) -> None:
        for worker in started:
            self._groups.add(paths.app, worker.pid)
            worker.begin(0)
        _sleep_until(time.perf_counter_ns() + int(WARMUP_SECONDS * SECOND))

    def _thread_times(self, paths: _RunGroups, tid: int) -> ThreadTimes:
        throttled = (self._count(paths.app).throttled_us or 0) / 1000
        try:
            ran, delayed, *_ = map(int, (self._proc / f"{tid}/schedstat").read_text().split())
        except (OSError, ValueError):
            raise CalibrationError(
                "cannot measure here: this kernel has no /proc/TID/schedstat (CONFIG_SCHED_INFO)"
            ) from None
        return ThreadTimes(time.perf_counter_ns() / MS, ran / MS, delayed / MS, throttled)

    @contextmanager
    def _group(self, experiment: Experiment) -> Iterator[_RunGroups]:
        name = f"run-{next(self._numbers)}"
        run = join(self._instance, name)
        paths = _RunGroups(run, f"{run}/pod/app", f"{run}/pod", f"{run}/beside")
        try:
            self._groups.create(paths.app)
            self._limit_app(paths, experiment)
            if experiment.beside_threads:
                self._groups.create(paths.beside)
                self._groups.set_request(paths.pod, 1000 * experiment.weight, "pod")
                self._groups.set_request(paths.beside, 1000 * experiment.beside_weight, "pod")
            yield paths
        finally:
            if self._groups.exists(paths.run):
                self._groups.empty(paths.run)
                self._groups.delete(paths.run)

    def _limit_app(self, paths: _RunGroups, experiment: Experiment) -> None:
        amounts = (experiment.quota_ms, experiment.period_ms, experiment.burst_ms)
        try:
            self._groups.set_quota(paths.app, *(amount * 1000 for amount in amounts))
        except CgroupError as error:
            if experiment.burst_ms and error.errno == errno.ENOENT:
                raise CalibrationError("this kernel has no burst (it came with 5.14)") from error
            raise

    def _limit_pod(self, paths: _RunGroups, experiment: Experiment) -> None:
        self._groups.set_quota(paths.pod, experiment.pod_quota_ms * 1000, experiment.period_ms * 1000)

    def _measure(
        self, experiment: Experiment, paths: _RunGroups, started: Sequence[Worker], cpus: Sequence[int]
    ) -> CalibrationRun:
        spins, period_ns = not experiment.run_ms, experiment.period_ms * MS
        begin = time.perf_counter_ns() + 50 * MS
        if not spins:
            begin += (PROBED_PERIODS + QUIET_PERIODS) * period_ns
        for worker in started:
            worker.begin(begin)
        start = begin + int(WARMUP_SECONDS * SECOND) if spins else begin
        _sleep_until(start if spins else start - 5 * MS)
        before = self._read(paths)
        _sleep_until(before.moment_ns + int(experiment.seconds * SECOND))
        after = self._read(paths)
        reports = [worker.report() for worker in started]
        pauses = [pause for report in reports for pause in report.pauses]
        works = [work for report in reports for work in report.bursts]
        gain = _gain(before.app, after.app)
        zero = before.moment_ns if spins else begin
        phase = None if experiment.beside_threads else phase_of(pauses, period_ns, zero)
        work = sum(works) // len(works) if works else None
        noise = self._noise(before, after, cpus)
        if experiment.beside_threads:
            noise = replace(noise, waited_ms=None, running=experiment.quota_ms / experiment.width_ms)
        if experiment.saturated or experiment.kind == "bursts":
            noise = replace(noise, shortened_ms=gain.throttled_ms)
        return CalibrationRun(MeasuredRun(gain, phase, work, _tick_after(zero)), noise)

    def _measure_nested(
        self, experiment: Experiment, paths: _RunGroups, started: Sequence[Worker], cpus: Sequence[int]
    ) -> CalibrationRun:
        """First each limit alone, to see when its periods begin, then both from full pools on."""
        period_ns = experiment.period_ms * MS
        switch = time.perf_counter_ns() + 50 * MS + PROBED_PERIODS * period_ns
        begin = switch + (PROBED_PERIODS + 2 * QUIET_PERIODS) * period_ns
        for worker in started:
            worker.begin(begin)
        _sleep_until(switch)
        self._groups.set_quota(paths.app, None, experiment.period_ms * 1000)
        self._limit_pod(paths, experiment)
        switched = time.perf_counter_ns()
        _sleep_until(begin - QUIET_PERIODS * period_ns)
        self._limit_pod(paths, experiment)
        self._limit_app(paths, experiment)
        _sleep_until(begin - 5 * MS)
        before = self._read(paths)
        _sleep_until(begin + int(experiment.seconds * SECOND))
        after = self._read(paths)
        pauses = sorted(pause for worker in started for pause in worker.report().pauses)
        phase = phase_of([pause for pause in pauses if pause[1] < switch], period_ns, begin)
        later = [pause for pause in pauses if switched < pause[0] < begin]
        pod_phase = phase_of(later, period_ns, begin)
        waited = None
        if phase is not None and pod_phase is not None:
            measured = [pause for pause in pauses if pause[0] >= begin]
            waited = delayed_ms(measured, period_ns, (begin + phase, begin + pod_phase))
        return CalibrationRun(
            MeasuredRun(
                _gain(before.app, after.app),
                phase,
                None,
                _tick_after(begin),
                _gain(before.pod, after.pod),
                pod_phase,
            ),
            replace(self._noise(before, after, cpus), waited_ms=waited),
        )

    def _noise(self, before: _Reading, after: _Reading, cpus: Sequence[int]) -> Noise:
        wall_ms = (after.moment_ns - before.moment_ns) / MS
        exact = None
        if before.per_cpu_ns is not None and after.per_cpu_ns is not None:
            exact = (before.per_cpu_ns, after.per_cpu_ns)
        waited = waited_ms(before.app, after.app, includes_throttled=self.includes_throttled)
        own_ms = _gain(before.run, after.run).use_ms
        return foreign(before.processors, after.processors, own_ms, cpus, wall_ms, exact, waited)

    def _read(self, paths: _RunGroups) -> _Reading:
        app, pod, run = (self._count(path) for path in (paths.app, paths.pod, paths.run))
        return _Reading(
            time.perf_counter_ns(),
            app,
            pod,
            run,
            counters.processors((self._proc / "stat").read_text()),
            self._all_usage(),
        )

    def _count(self, group: str) -> CPUCounters:
        reading = counters.read(map(str, self._groups.directories(group)), 0.0, str(self._proc))
        if reading is None:
            raise CalibrationError(f"the group {group} vanished while it was measured")
        if reading.counters.usage_us is None or reading.counters.periods is None:
            raise CalibrationError(
                f"cannot measure here: {'; '.join(reading.lacks) or 'cpu.stat has no periods'}"
            )
        return reading.counters

    def _all_usage(self) -> dict[int, int] | None:
        """Time used on each CPU by all processes, in ns: version 1's root group knows."""
        base = self._groups.bases.get("cpuacct")
        if base is None:
            return None
        # The hierarchy's root has a release_agent; containers may see only a part of it.
        files = ("release_agent", "cpuacct.usage_percpu")
        roots = (path for path in (base, *base.parents) if all((path / name).exists() for name in files))
        root = next(roots, None)
        try:
            text = self._groups.files.read(root / files[1]) if root else ""
        except CgroupError:
            return None
        return dict(enumerate(map(int, text.split()))) or None


def _gain(before: CPUCounters, after: CPUCounters) -> Figures:
    def of(name: str) -> int:
        return (getattr(after, name) or 0) - (getattr(before, name) or 0)

    return Figures(
        of("periods"), of("throttled_periods"), of("usage_us") / 1000, of("throttled_us") / 1000, of("bursts")
    )


def _tick_after(moment_ns: int) -> int:
    """When a tick comes after a moment, in ns: the coarse clock is set at ticks, a little late at times."""
    tick_ns = round(time.clock_getres(_COARSE) * SECOND)
    samples = []
    for _ in range(8):
        time.sleep(tick_ns / SECOND)
        samples.append(time.clock_gettime_ns(_COARSE))
    tick = earliest_on_grid(samples, tick_ns, moment_ns, tick_ns // 4)
    return 0 if tick is None else tick


def _arguments(experiment: Experiment) -> tuple[int, ...]:
    """Return the arguments of the limited workers: see `workers`."""
    periods = PROBED_PERIODS * experiment.period_ms * MS
    if experiment.pod_quota_ms:
        probe, pauses = 2 * periods, 1000
    else:
        probe, pauses = (periods if experiment.run_ms else 0), 0 if experiment.beside_threads else 24
    run_ns, every_ns = int(experiment.run_ms * MS), experiment.every_ms * MS
    return run_ns, every_ns, 1 * MS, probe, pauses, int(experiment.reads_cpu_time)


def _sleep_until(moment_ns: int) -> None:
    while (left := moment_ns - time.perf_counter_ns()) > 0:
        time.sleep(left / SECOND)


def instance() -> str:
    """A name for this process's groups, by which later ones can tell that it has ended."""
    me = proc.identity(os.getpid())
    assert me is not None
    return f"calibrate-{me.pid}-{me.start_ticks}"


def sweep(groups: Groups) -> list[str]:
    """Remove what killed processes have left of their laboratories; the names.

    A group that still holds a process stays, for its maker may live where we cannot see it.
    """
    stale = [name for name in groups.children(OWN) if (made := _INSTANCE.fullmatch(name)) and _ended(made)]
    gone = []
    for name in stale:
        with suppress(CgroupError):
            groups.delete(join(name), timeout_seconds=0)
            gone.append(name)
    return gone


def _ended(made: re.Match[str]) -> bool:
    return not proc.is_alive(proc.Identity(int(made[1]), int(made[2])))


@contextmanager
def opened(groups: Groups, instance: str) -> Iterator[Laboratory]:
    """Open a laboratory, and remove its cgroups however it ends."""
    try:
        groups.create(join(instance))
        yield Laboratory(groups, instance)
    finally:
        if groups.exists(join(instance)):
            groups.empty(join(instance))
            groups.delete(join(instance))
        groups.prune(OWN)
