"""Whether this kernel counts throttled time as waiting: `run_delay`, second in /proc/TID/schedstat.

A thread that never stops runs, waits or is throttled at every moment, so what of the wall time is neither run
nor `run_delay` is throttled time that the kernel does not count. Other load does not matter: it makes the
thread wait, which the kernel counts in either case. Kernel documentation: scheduler/sched-stats.
"""

from dataclasses import dataclass

from corelane.limits.calibration.experiments import Experiment

EXPERIMENT = Experiment(1, 20, seconds=2)
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


def between(before: ThreadTimes, after: ThreadTimes) -> RunDelay:
    """Return the finding from two readings."""
    throttled = after.throttled - before.throttled
    if throttled < _LEAST_MS:
        return RunDelay(throttled, None)
    uncounted = (after.at - before.at) - (after.ran - before.ran) - (after.delayed - before.delayed)
    return RunDelay(throttled, 1 - uncounted / throttled)
