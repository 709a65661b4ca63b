"""Run an experiment in a new cgroup, and measure what disturbed it."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from corelane.kernel import proc
from corelane.kernel.cgroup_tree import OWN, Groups, join
from corelane.kernel.cgroupfs import CgroupError
from corelane.limits.calibration import workers
from corelane.limits.calibration.experiments import (
    WARMUP_SECONDS,
    Experiment,
    Figures,
    MeasuredRun,
    phase_of,
)
from corelane.limits.calibration.workers import Worker
from corelane.limits.measure import counters
from corelane.limits.measure.counters import CPUCounters, Processor
from corelane.limits.model.clock import MS, SECOND

LOST_PART, FOREIGN_PART = 0.004, 0.01
"""For how much of the time the threads may have been without a CPU that their limit let them have; where that
is not known, how much of their CPUs others may have used."""
TRUST = 0.03
"""How large what was lost may be beside the throttled time of a saturated load, which it shortens."""
_MS_PER_TICK = 10
_INSTANCE = re.compile(r"calibrate-(\d+)-(\d+)")
_COARSE = getattr(time, "CLOCK_MONOTONIC_COARSE", 6)
"""A clock that moves by ticks, so that its resolution is 1/HZ (time(7))."""


class CalibrationError(Exception):
    """An experiment cannot be done here; the message says why."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What happened beside the experiment on its CPUs, in ms; `cpu_ms` is all their time.

    `waited_ms` is how long its threads could not run though their limit let them; None where the kernel does
    not say. `shortened_ms` is the throttled time that a lost millisecond makes shorter by one; None where the
    load is such that it does not.
    """

    foreign_ms: float
    steal_ms: float
    waited_ms: float | None
    cpu_ms: float
    shortened_ms: float | None = None

    @property
    def share(self) -> float:
        """By how much it was disturbed, as a part of its CPUs' time."""
        lost = self.foreign_ms if self.waited_ms is None else self.waited_ms
        return (lost + self.steal_ms) / self.cpu_ms

    @property
    def reason(self) -> str | None:
        """Why the run is to be discarded, None if it counts."""
        most = FOREIGN_PART if self.waited_ms is None else LOST_PART
        if self.shortened_ms:
            most = min(most, TRUST * self.shortened_ms / self.cpu_ms)
        return f"{self.text}, {100 * self.share:.1f} % of its CPUs" if self.share > most else None

    @property
    def text(self) -> str:
        """What disturbed the run, in words."""
        by = f"other processes used {self.foreign_ms:.0f} ms of its CPUs"
        waited = "" if self.waited_ms is None else f"its threads waited {self.waited_ms:.0f} ms: "
        return f"{waited}{by}, the hypervisor took {self.steal_ms:.0f} ms"


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """A measurement, and what disturbed it."""

    measured: MeasuredRun
    noise: Noise


@dataclass(frozen=True, slots=True)
class _Reading:
    """Everything that counts, at one moment."""

    moment_ns: int
    group: CPUCounters
    processors: dict[int, Processor]
    per_cpu_ns: dict[int, int] | None


def foreign(
    before: dict[int, Processor],
    after: dict[int, Processor],
    own_ms: float,
    cpus: Sequence[int],
    wall_ms: float,
    all_ns: tuple[dict[int, int], dict[int, int]] | None = None,
    waited_ms: float | None = None,
) -> Noise:
    """What others used of `cpus` while a group used `own_ms` there.

    By cpuacct's counters of each CPU where there are (`all_ns`, before and after), which are exact; else by
    /proc/stat, which counts in ticks.
    """
    shared = [cpu for cpu in cpus if cpu in before and cpu in after]
    steal = sum(after[cpu].steal - before[cpu].steal for cpu in shared) * _MS_PER_TICK
    if all_ns is not None:
        busy = sum(all_ns[1][cpu] - all_ns[0][cpu] for cpu in cpus) / MS
    else:
        busy = sum(after[cpu].busy - before[cpu].busy for cpu in shared) * _MS_PER_TICK
    return Noise(max(busy - own_ms, 0.0), max(steal, 0), waited_ms, wall_ms * len(cpus))


class Laboratory:
    """Cgroups below one of our own. Every experiment has a fresh one, gone when it is over."""

    def __init__(self, groups: Groups, instance: str, proc: Path = Path("/proc")) -> None:
        self._groups, self._instance, self._proc = groups, instance, proc
        self._numbers = count(1)

    def run(self, experiment: Experiment, cpus: Sequence[int]) -> CalibrationRun:
        """Measure once. Raises CalibrationError, CgroupError and WorkerError; the group is gone then too."""
        if len(cpus) < experiment.threads:
            raise CalibrationError(
                f"{experiment.name} needs {experiment.threads} CPUs, there are {len(cpus)}"
            )
        with self._group(experiment) as group, _started(experiment, cpus) as started:
            for worker in started:
                self._groups.add(group, worker.pid)
            return self._measure(experiment, group, started, cpus[: experiment.threads])

    @contextmanager
    def _group(self, experiment: Experiment) -> Iterator[str]:
        group = join(self._instance, f"run-{next(self._numbers)}")
        self._groups.create(group)
        try:
            self._groups.set_quota(group, experiment.quota_ms * 1000, experiment.period_ms * 1000)
            if experiment.burst_ms:
                self._set_burst(group, experiment.burst_ms * 1000)
            yield group
        finally:
            self._groups.empty(group)
            self._groups.delete(group)

    def _set_burst(self, group: str, burst_us: int) -> None:
        for directory in self._groups.directories(group):
            for name in ("cpu.cfs_burst_us", "cpu.max.burst"):
                if (directory / name).exists():
                    self._groups.files.write(directory / name, str(burst_us))
                    return
        raise CalibrationError("this kernel has no burst (it came with 5.14)")

    def _measure(
        self, experiment: Experiment, group: str, started: Sequence[Worker], cpus: Sequence[int]
    ) -> CalibrationRun:
        spins = not experiment.run_ms
        probe_ns = 0 if spins else _probe_ns(experiment)
        begin = time.perf_counter_ns() + probe_ns + (0 if spins else 4 * experiment.period_ms * MS) + 50 * MS
        for worker in started:
            worker.begin(begin)
        start = begin + int(WARMUP_SECONDS * SECOND) if spins else begin
        _sleep_until(start if spins else start - 5 * MS)
        before = self._read(group)
        _sleep_until(before.moment_ns + int(experiment.seconds * SECOND))
        after = self._read(group)
        reports = [worker.report() for worker in started]
        gaps = [moment for report in reports for moment in report.gaps]
        works = [work for report in reports for work in report.bursts]
        gain = _gain(before.group, after.group)
        zero = before.moment_ns if spins else begin
        phase = phase_of(gaps, experiment.period_ms * MS, zero)
        work = sum(works) // len(works) if works else None
        noise = self._noise(before, after, gain.use_ms, cpus)
        if experiment.saturated:
            noise = replace(noise, shortened_ms=gain.throttled_ms)
        return CalibrationRun(MeasuredRun(gain, phase, work, _tick_after(zero)), noise)

    def _noise(self, before: _Reading, after: _Reading, own_ms: float, cpus: Sequence[int]) -> Noise:
        wall_ms = (after.moment_ns - before.moment_ns) / MS
        exact = None
        if before.per_cpu_ns is not None and after.per_cpu_ns is not None:
            exact = (before.per_cpu_ns, after.per_cpu_ns)
        waited = _waited_ms(before.group, after.group)
        return foreign(before.processors, after.processors, own_ms, cpus, wall_ms, exact, waited)

    def _read(self, group: str) -> _Reading:
        found = counters.read(map(str, self._groups.directories(group)), 0.0, str(self._proc))
        if found is None:
            raise CalibrationError(f"the group {group} vanished while it was measured")
        if found.counters.usage_us is None or found.counters.periods is None:
            raise CalibrationError(
                f"cannot measure here: {'; '.join(found.lacks) or 'cpu.stat has no periods'}"
            )
        return _Reading(
            time.perf_counter_ns(),
            found.counters,
            counters.processors((self._proc / "stat").read_text()),
            self._all_usage(),
        )

    def _all_usage(self) -> dict[int, int] | None:
        """Time used on each CPU by all processes, in ns: version 1's root group knows."""
        base = self._groups.bases.get("cpuacct")
        if base is None:
            return None
        root = next((one for one in (base, *base.parents) if _is_root(one)), None)
        try:
            text = self._groups.files.read(root / "cpuacct.usage_percpu") if root else ""
        except CgroupError:
            return None
        return dict(enumerate(map(int, text.split()))) or None


def _is_root(directory: Path) -> bool:
    """The hierarchy's root has a release_agent; containers may see only a part of it."""
    return (directory / "release_agent").exists() and (directory / "cpuacct.usage_percpu").exists()


def _gain(before: CPUCounters, after: CPUCounters) -> Figures:
    def of(name: str) -> int:
        return (getattr(after, name) or 0) - (getattr(before, name) or 0)

    return Figures(
        of("periods"), of("throttled_periods"), of("usage_us") / 1000, of("throttled_us") / 1000, of("bursts")
    )


def _waited_ms(before: CPUCounters, after: CPUCounters) -> float | None:
    """What the threads have waited for a CPU, without the time that their limit held them back.

    The kernel counts that as waiting, too; every CPU has one thread only, so the two can be told apart.
    """
    if before.waits is None or after.waits is None or not after.waits:
        return None
    waits = sum(ns - before.waits.get(tid, 0) for tid, ns in after.waits.items()) / MS
    throttled = ((after.throttled_us or 0) - (before.throttled_us or 0)) / 1000
    return max(waits - throttled, 0.0)


def _tick_after(moment_ns: int) -> int:
    """When a tick comes after a moment, in ns: the coarse clock is set at ticks, a little late at times."""
    tick_ns = round(time.clock_getres(_COARSE) * SECOND)
    return min((time.clock_gettime_ns(_COARSE) - moment_ns) % tick_ns for _ in _spaced(5, tick_ns))


def _spaced(times: int, apart_ns: int) -> Iterator[None]:
    for _ in range(times):
        time.sleep(apart_ns / SECOND)
        yield


def _probe_ns(experiment: Experiment) -> int:
    """Long enough to be throttled several times, which shows when periods begin."""
    return 10 * experiment.period_ms * MS


@contextmanager
def _started(experiment: Experiment, cpus: Sequence[int]) -> Iterator[list[Worker]]:
    probe = 0 if not experiment.run_ms else _probe_ns(experiment)
    arguments = (int(experiment.run_ms * MS), experiment.every_ms * MS, 1 * MS, probe)
    started = workers.start(cpus[: experiment.threads], arguments)
    try:
        yield started
    finally:
        for worker in started:
            worker.end()


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
    found = [one for one in groups.children(OWN) if (made := _INSTANCE.fullmatch(one)) and _ended(made)]
    gone = []
    for name in found:
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
