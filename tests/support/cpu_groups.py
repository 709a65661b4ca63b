"""CPU counters of containers in directories that play cgroups, and a clock that drives them."""

from pathlib import Path

import pytest

from corelane.app.limits import sites, watch
from support.kubepods import Kubepods, write


def quiet(path: Path) -> None:
    """A group's counters at zero, version 2, with a limit of 0.2 CPUs."""
    counters(path, usage=0, periods=0, throttled=0, us=0)
    write(path / "cpu.max", "20000 100000")
    write(path / "cpu.max.burst", "0")
    pressure(path, 0)


def counters(path: Path, *, usage: int, periods: int, throttled: int, us: int) -> None:
    """Version 2's cpu.stat; times in microseconds."""
    lines = {
        "usage_usec": usage,
        "user_usec": usage,
        "system_usec": 0,
        "nr_periods": periods,
        "nr_throttled": throttled,
        "throttled_usec": us,
        "nr_bursts": 0,
        "burst_usec": 0,
    }
    write(path / "cpu.stat", "\n".join(f"{name} {value}" for name, value in lines.items()))


def pressure(path: Path, some: int, full: int = 0) -> None:
    """cpu.pressure; totals in microseconds."""
    averages = "avg10=0.00 avg60=0.00 avg300=0.00"
    write(path / "cpu.pressure", f"some {averages} total={some}\nfull {averages} total={full}")


def version1(tree: Kubepods, path: Path, *, usage: int, periods: int, throttled: int, us: int) -> Path:
    """The same in version 1, beside the cpuset's group at `path`; the cpu controller's directory."""
    inside = path.relative_to(tree.base)
    cpu, cpuacct = (tree.base.parent / name / inside for name in ("cpu", "cpuacct"))
    write(cpu / "cgroup.procs", "4711")
    write(cpuacct / "cgroup.procs", "4711")
    stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {us * 1000}"
    write(cpu / "cpu.stat", f"{stat}\nnr_bursts 0\nburst_time 0")
    write(cpu / "cpu.cfs_quota_us", "20000")
    write(cpu / "cpu.cfs_period_us", "100000")
    write(cpuacct / "cpuacct.usage", str(usage * 1000))
    return cpu


class Clock:
    """Plays the module `time`: sleeping passes time at once, and `then` happens meanwhile."""

    def __init__(self, *then) -> None:
        self.now = 100.0
        self.then = list(then)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.then:
            self.then.pop(0)()


def use_clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Let `limits watch` and `limits advise` read and wait by a clock of the test's."""
    for module in (sites, sites, watch):
        monkeypatch.setattr(module, "time", clock)
