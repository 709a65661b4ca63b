"""Disturbances of an experiment: other processes, the hypervisor, time that threads waited for a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.kernel.cpu_time.counters import CPUCounters, Processor
from corelane.limits.calibration.experiments import Experiment
from corelane.limits.model.clock import MS

LOST_PART, FOREIGN_PART = 0.004, 0.01
"""For how much of the time the threads may have been without a CPU that their limit let them have; where that
is not known, how much of their CPUs others may have used."""
TRUST = 0.03
"""Part of the throttled time of a saturated load that may be lost, which shortens it."""
_MS_PER_TICK = 10
_EARLY_NS = MS // 2
"""Time by which a pause may end before its refill: these moments were measured, too."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Other use of the experiment's CPUs, in ms; `cpu_ms` is all their time.

    `waited_ms` is how long its threads could not run though their limit let them; None where the kernel does
    not say. `shortened_ms` is the throttled time that lost time makes shorter, None where the load is such
    that it does not; `running` is by which part of a lost millisecond: beside neighbours only what is lost
    while the quota lasts counts, and as their CPUs are never idle, all that other processes use is lost.
    """

    foreign_ms: float
    steal_ms: float
    waited_ms: float | None
    cpu_ms: float
    shortened_ms: float | None = None
    running: float = 1.0

    @property
    def share(self) -> float:
        """By how much it was disturbed, as a part of its CPUs' time."""
        lost = self.foreign_ms if self.waited_ms is None else self.waited_ms
        return (lost + self.steal_ms) / self.cpu_ms

    @property
    def reason(self) -> str | None:
        """Return why the run is to be discarded, None if it counts."""
        most = FOREIGN_PART if self.waited_ms is None else LOST_PART
        if self.shortened_ms:
            borne = TRUST * self.shortened_ms / (self.cpu_ms * self.running)
            most = min(most, borne) if self.running == 1 else borne
        return f"{self.text}, {100 * self.share:.1f} % of its CPUs" if self.share > most else None

    @property
    def text(self) -> str:
        """Say what disturbed the run."""
        by = f"other processes used {self.foreign_ms:.0f} ms of its CPUs"
        waited = "" if self.waited_ms is None else f"its threads waited {self.waited_ms:.0f} ms: "
        return f"{waited}{by}, the hypervisor took {self.steal_ms:.0f} ms"


def foreign(
    before: dict[int, Processor],
    after: dict[int, Processor],
    own_ms: float,
    cpus: Sequence[int],
    wall_ms: float,
    all_ns: tuple[dict[int, int], dict[int, int]] | None = None,
    waited_ms: float | None = None,
) -> Noise:
    """Return what others used of `cpus` while a group used `own_ms` there.

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


def waited_ms(before: CPUCounters, after: CPUCounters, *, includes_throttled: bool) -> float | None:
    """Return how long the threads waited for a CPU, without the time that their limit held them back.

    Where the kernel counts that as waiting, too, the two can be told apart: every CPU has one thread only.
    """
    if before.waits is None or after.waits is None or not after.waits:
        return None
    waits = sum(ns - before.waits.get(tid, 0) for tid, ns in after.waits.items()) / MS
    throttled = ((after.throttled_us or 0) - (before.throttled_us or 0)) / 1000
    return max(waits - throttled, 0.0) if includes_throttled else waits


def delayed_ms(pauses: Sequence[tuple[int, int]], period_ns: int, refills_ns: Sequence[int]) -> float:
    """Return how long one thread paused although no limit held it back, in ms.

    A pause (start, end) that is due to limits ends with a refill of one of them (`refills_ns` has a moment of
    each grid), so what follows its last refill is delay; a pause without a refill is delay as a whole.
    """
    lost = 0
    for start, end in pauses:
        latest = end + _EARLY_NS
        last = max(latest - (latest - refill) % period_ns for refill in refills_ns)
        lost += max(end - max(last, start), 0)
    return lost / MS


# Whether this kernel counts throttled time as waiting: `run_delay`, second in /proc/TID/schedstat.
#
# A thread that never stops runs, waits or is throttled at every moment, so what of the wall time is neither
# run nor `run_delay` is throttled time that the kernel does not count. Other load does not matter: it makes
# the thread wait, which the kernel counts in either case. Kernel documentation: scheduler/sched-stats.


RUN_DELAY_EXPERIMENT = Experiment(1, 20, seconds=2)
_LEAST_MS = 200.0
"""Throttled time from which on the share is exact enough: a stop in progress is up to 80 ms."""
_LOW, _HIGH = 0.25, 0.75


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """A thread that never stops, and its group, at one moment: the clock and the counts so far, in ms."""

    at: float
    ran: float
    delayed: float
    throttled: float


@dataclass(frozen=True, slots=True)
class RunDelay:
    """Throttled time in ms, and the share of it that `run_delay` contains; None where it was too short."""

    throttled_ms: float
    share: float | None

    @property
    def includes_throttled(self) -> bool | None:
        """Whether throttled time counts as waiting; None where the share is neither near 0 nor near 1."""
        if self.share is None or _LOW < self.share < _HIGH:
            return None
        return self.share >= _HIGH

    @property
    def text(self) -> str:
        """The finding in words."""
        if self.share is None:
            return f"not measured: throttled for {self.throttled_ms:.0f} ms only; repeat on a quiet machine"
        part = f"{100 * self.share:.0f} % of {self.throttled_ms:.0f} ms"
        words = {
            True: "includes throttled time",
            False: "does not include throttled time",
            None: "is unclear",
        }
        return f"run_delay {words[self.includes_throttled]}: {part}"


def run_delay_between(before: ThreadTimes, after: ThreadTimes) -> RunDelay:
    """Return the finding from two readings."""
    throttled = after.throttled - before.throttled
    if throttled < _LEAST_MS:
        return RunDelay(throttled, None)
    uncounted = (after.at - before.at) - (after.ran - before.ran) - (after.delayed - before.delayed)
    return RunDelay(throttled, 1 - uncounted / throttled)
