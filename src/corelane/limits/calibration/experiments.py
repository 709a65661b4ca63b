"""The experiments as values, and what one measures."""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.limits.model.clock import MS
from corelane.limits.model.switches import Switches

WARMUP_SECONDS = 0.3
START_SECONDS = 0.3
"""What starting threads, reading counters and finding the tick take, about."""
PROBED_PERIODS = 8
"""For how many periods threads are throttled beforehand, which shows when periods begin."""
QUIET_PERIODS = 4
"""How long a group rests before it is measured, so that its timer has stopped and its pool is full."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Pinned threads that spin (`run_ms` 0), or run for a while again and again, under a limit.

    `on_cpus` CPUs (0: one a thread) have equally many of the threads. `beside_threads` are spinning threads
    of a group without a limit on the same CPUs; `weight` and `beside_weight` are the groups' CPU weights.
    `pod_quota_ms` is the limit of a group above, with periods of its own. With `reads_cpu_time` threads read
    their CPU clock all the time.
    """

    threads: int
    quota_ms: int
    period_ms: int = 100
    burst_ms: int = 0
    run_ms: float = 0
    every_ms: int = 0
    seconds: float = 5.0
    on_cpus: int = 0
    weight: int = 1
    beside_threads: int = 0
    beside_weight: int = 1
    pod_quota_ms: int = 0
    reads_cpu_time: bool = False

    @property
    def kind(self) -> str:
        if not self.run_ms:
            return "spin"
        return "bursts" if self.every_ms >= 500 else "sleeper"

    @property
    def name(self) -> str:
        """Such as `spin 2 x 50/100` or `bursts 1 x 20/100+20, 70 ms each 1000`."""
        burst = f"+{self.burst_ms}" if self.burst_ms else ""
        work = f", {self.run_ms:g} ms each {self.every_ms}" if self.run_ms else ""
        return f"{self.kind} {self.threads} x {self.quota_ms}/{self.period_ms}{burst}{work}{self._where}"

    @property
    def _where(self) -> str:
        if self.pod_quota_ms:
            return f" in a pod with {self.pod_quota_ms}/{self.period_ms}"
        if self.reads_cpu_time:
            return ", reading its CPU clock"
        if not self.beside_threads:
            return ""
        where = f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}"
        return f" on {where} beside {self.beside_threads}, weights {self.weight}:{self.beside_weight}"

    @property
    def cpus(self) -> int:
        """How many CPUs it needs."""
        return self.on_cpus or self.threads

    @property
    def width_ms(self) -> float:
        """What the threads could use in a period without their limit."""
        alone = self.cpus * self.period_ms
        if not self.beside_threads:
            return alone
        return alone * self.weight / (self.weight + self.beside_weight)

    @property
    def run_seconds(self) -> float:
        """How long it takes, with the start of its threads and what is measured beforehand."""
        period = self.period_ms / 1000
        if self.pod_quota_ms:
            return START_SECONDS + (2 * PROBED_PERIODS + 2 * QUIET_PERIODS) * period + self.seconds
        if self.run_ms:
            return START_SECONDS + (PROBED_PERIODS + QUIET_PERIODS) * period + self.seconds
        return START_SECONDS + WARMUP_SECONDS + self.seconds

    @property
    def saturated(self) -> bool:
        """Whether the counters do not depend on where ticks and refills happen to fall."""
        enough = self.seconds * 1000 >= 50 * self.period_ms
        below = self.quota_ms <= 0.9 * self.width_ms + 1e-9
        return not self.run_ms and self.period_ms >= 50 and below and enough


EXPERIMENTS = (
    *(Experiment(1, quota) for quota in (10, 20, 50, 90)),
    *(Experiment(2, quota) for quota in (10, 50, 100, 150, 180)),
    *(Experiment(threads, 25 * threads, 50) for threads in (1, 2)),
    Experiment(1, 100),
    Experiment(1, 50, 50),
    Experiment(2, 100, 50),
    Experiment(2, 200),
    Experiment(1, 5, 10),
    Experiment(2, 10, 10),
    *(
        Experiment(1, quota, weight=weight, beside_threads=1, beside_weight=beside)
        for weight, beside, quota in ((3, 1, 30), (2, 1, 30), (1, 1, 30), (1, 2, 30), (1, 3, 20))
    ),
    *(
        Experiment(2, quota, weight=weight, beside_threads=2, beside_weight=beside)
        for weight, beside, quota in ((3, 1, 60), (2, 1, 60), (1, 1, 40), (1, 2, 30), (1, 3, 20))
    ),
    *(
        Experiment(4, quota, on_cpus=2, weight=weight, beside_threads=2, beside_weight=beside)
        for weight, beside, quota in ((3, 1, 50), (1, 1, 50), (1, 3, 20))
    ),
    Experiment(1, 20, run_ms=5, every_ms=20),
    Experiment(1, 50, run_ms=5, every_ms=20),
    Experiment(2, 20, run_ms=5, every_ms=20),
    Experiment(1, 20, run_ms=70, every_ms=1000, seconds=6),
    Experiment(1, 20, burst_ms=20, run_ms=70, every_ms=1000, seconds=6),
    Experiment(1, 50, run_ms=70, every_ms=1000, seconds=6),
    Experiment(1, 50, run_ms=70, every_ms=1000, seconds=6, reads_cpu_time=True),
    Experiment(1, 20, pod_quota_ms=20),
    Experiment(1, 50, pod_quota_ms=50),
    Experiment(1, 20, pod_quota_ms=40),
)
"""Saturated first, then those near what the CPUs have, short periods, contended CPUs, sleepers,
bursts, nested limits."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the model has to know of this machine: the preset and 1/HZ in ns."""

    switches: Switches
    tick_ns: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What cpu.stat gained, times in ms."""

    periods: int
    throttled: int
    use_ms: float
    throttled_ms: float
    bursts: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run: the counters' gain; in ns when the first refill and a tick came after the begin, a burst's work.

    `pod` and `pod_phase_ns` are the group's above, where that has a limit. None could not be measured.
    """

    figures: Figures
    phase_ns: int | None
    work_ns: int | None
    tick_ns: int | None = None
    pod: Figures | None = None
    pod_phase_ns: int | None = None


LATE_NS = 5 * MS
"""How late a released thread may go on where other load runs, which it preempts at a tick only; pauses that
are not longer may be due to that load alone."""


def phase_of(pauses: Sequence[tuple[int, int]], period_ns: int, begin_ns: int) -> int | None:
    """When the first refill after `begin_ns` comes, from the pauses (start, end) of throttled threads.

    None where fewer than three long ones end at the same phase, as far as can be told.
    """
    ends = [end for start, end in pauses if end - start > LATE_NS]
    return earliest_on_grid(ends, period_ns, begin_ns, min(LATE_NS, period_ns // 8))


def earliest_on_grid(moments: Sequence[int], period_ns: int, begin_ns: int, late_ns: int) -> int | None:
    """When the first event of a periodic series comes after `begin_ns`; each was seen up to `late_ns` late.

    The most moments that agree modulo the period count, and of them the earliest, for nothing is seen early;
    None where fewer than three do.
    """
    phases = sorted((moment - begin_ns) % period_ns for moment in moments)
    around = [[one for one in phases if (one - first) % period_ns <= late_ns] for first in phases]
    best = max(around, key=len, default=[])
    if len(best) < 3:
        return None
    return phases[around.index(best)]
