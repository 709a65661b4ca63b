"""The experiments as values, and what one measures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from corelane.limits.model.bandwidth import CFSLimit, CPUStat, Switches
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import Bursts, Duration, Spin, Workload

WARMUP_SECONDS = 0.3
PROBED_PERIODS = 8
"""For how many periods threads are throttled beforehand, which shows when periods begin."""
QUIET_PERIODS = 4
"""Rest of a group before it is measured, so that its timer has stopped and its pool is full."""


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
        """Number of CPUs that it needs."""
        return self.on_cpus or self.threads

    @property
    def width_ms(self) -> float:
        """CPU time that the threads could use in a period without their limit."""
        alone = self.cpus * self.period_ms
        if not self.beside_threads:
            return alone
        return alone * self.weight / (self.weight + self.beside_weight)

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
    """Facts of this machine for the model: the preset and 1/HZ in ns."""

    switches: Switches
    tick_ns: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Growth of cpu.stat, times in ms."""

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
"""Delay of a released thread where other load runs, which it preempts at a tick only; pauses that
are not longer may be due to that load alone."""


def phase_of(pauses: Sequence[tuple[int, int]], period_ns: int, begin_ns: int) -> int | None:
    """Return when the first refill after `begin_ns` comes, from the pauses (start, end) of throttled threads.

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
    around = [[phase for phase in phases if (phase - first) % period_ns <= late_ns] for first in phases]
    best = max(around, key=len, default=[])
    if len(best) < 3:
        return None
    return phases[around.index(best)]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's figures, `pod` those of the group above if that has a limit.

    `spread_ms` and `pod_spread_ms` are from the least to the most throttled time, over all phases where none
    was measured (`by_phase`), else over what is uncertain in the measured ones.
    """

    figures: Figures
    spread_ms: tuple[float, float] | None
    pod: Figures | None = None
    pod_spread_ms: tuple[float, float] | None = None
    by_phase: bool = False


PHASES = 10
UNSURE_NS = 300 * US
"""Error of a tick's moment, a burst's begin and its work: a stop may be a tick off."""


def predict(experiment: Experiment, measured: MeasuredRun, kernel: Kernel) -> Prediction:
    """Return the model's answer: at the measured phase, or where it has none at many of a period."""
    nested = experiment.pod_quota_ms > 0
    has_phases = measured.phase_ns is not None and (measured.pod_phase_ns is not None or not nested)
    if not has_phases:
        # Phases of a lattice, in which also the differences of the two levels are spread evenly.
        part = experiment.period_ms * MS // (2 * PHASES)
        phases = [((2 * k + 1) * part, (2 * (3 * k % PHASES) + 1) * part) for k in range(PHASES)]
        runs = [replace(measured, phase_ns=own, pod_phase_ns=above) for own, above in phases]
        answers = [_model(experiment, run, kernel) for run in runs]
    elif experiment.kind == "spin" and not nested:
        answers = [_model(experiment, measured, kernel)]
        return Prediction(answers[0][0], None)
    else:
        runs, tick = [measured], measured.tick_ns
        if tick is not None:
            runs = [replace(measured, tick_ns=tick + step * UNSURE_NS) for step in (0, -1, 1)]
        answers = [_model(experiment, run, kernel) for run in runs]
    figures, spread = _middle([app for app, _ in answers])
    if not nested:
        return Prediction(figures, spread, by_phase=not has_phases)
    pod, pod_spread = _middle([pod for _, pod in answers])
    return Prediction(figures, spread, pod, pod_spread, by_phase=not has_phases)


def _middle(figures: list[Figures]) -> tuple[Figures, tuple[float, float]]:
    """Return the median by throttled time, and the least and the most of that."""
    times = sorted(each.throttled_ms for each in figures)
    middle = min(figures, key=lambda each: abs(each.throttled_ms - median(times)))
    return middle, (times[0], times[-1])


def _model(experiment: Experiment, measured: MeasuredRun, kernel: Kernel) -> tuple[Figures, Figures]:
    """Return the counters of the limited group, and of the one above."""
    period_ns, tick_ns = experiment.period_ms * MS, 0 if experiment.reads_cpu_time else kernel.tick_ns
    workload: Workload = Spin(experiment.threads)
    if experiment.run_ms:
        work = int(experiment.run_ms * MS) if measured.work_ns is None else measured.work_ns
        workload = Bursts(Duration(max(work, US)), experiment.every_ms * MS, threads=experiment.threads)
    warmup = _warmup_seconds(experiment)
    before = int(warmup * SECOND)

    def at(moment_ns: int | None, every_ns: int) -> int | None:
        return None if moment_ns is None or not every_ns else (moment_ns + before) % every_ns

    app = ScenarioContainer(
        "app",
        (workload,),
        1000 * experiment.weight,
        CFSLimit(experiment.quota_ms * MS, period_ns, experiment.burst_ms * MS),
        pinned=True,
        phase_ns=at(measured.phase_ns, period_ns),
    )
    above = CFSLimit(experiment.pod_quota_ms * MS, period_ns) if experiment.pod_quota_ms else None
    pods = [ScenarioPod("pod", (app,), above, at(measured.pod_phase_ns, period_ns))]
    if experiment.beside_threads:
        spinning = (Spin(experiment.beside_threads),)
        beside = ScenarioContainer("spin", spinning, 1000 * experiment.beside_weight, pinned=True)
        pods.append(ScenarioPod("beside", (beside,)))
    scenario = Scenario(
        experiment.name,
        "",
        SimulatedMachine(experiment.cpus, tick_ns, tick_phase_ns=at(measured.tick_ns, tick_ns)),
        tuple(pods),
        kernel.switches,
        experiment.seconds,
        warmup,
    )
    result = run(scenario)
    return _figures(result.results[0].stat), _figures(result.pods["pod"])


def _figures(stat: CPUStat) -> Figures:
    return Figures(
        stat.nr_periods, stat.nr_throttled, stat.usage_ns / MS, stat.throttled_ns / MS, stat.nr_bursts
    )


def _warmup_seconds(experiment: Experiment) -> float:
    """Return the time before what counts: a burst, by which what may be saved for bursts has been saved.

    Nested limits are measured from the first moment on, for their state then decides what follows.
    """
    if experiment.pod_quota_ms:
        return 0.0
    if experiment.run_ms:
        return experiment.every_ms / 1000 if experiment.kind == "bursts" else 0.0
    return WARMUP_SECONDS


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Something asked of the model, what was found, and what may be."""

    name: str
    value: float
    unit: str
    most: float

    @property
    def met(self) -> bool:
        return self.value <= self.most


BURST_MS = 1.0
"""Error allowed for the throttled time of one burst, however short: a quarter of a tick at HZ=250."""


def claims(experiment: Experiment, measured: MeasuredRun, predicted: Prediction) -> list[ModelCheck]:
    """Return the errors, and what they may be: by how far the load determines what the kernel counts."""
    seen, said = measured.figures, predicted.figures
    if experiment.pod_quota_ms:
        # Where the phases are not known only what does not depend on them.
        checks = [ModelCheck("CPU time", _percent(predicted.figures.use_ms, measured.figures.use_ms), "%", 2)]
        if measured.pod is None or predicted.by_phase:
            return checks
        whole = experiment.cpus * experiment.seconds * 1000
        for name, seen, spread in (
            ("throttled time of the CPUs'", measured.figures, predicted.spread_ms),
            ("pod's throttled time of the CPUs'", measured.pod, predicted.pod_spread_ms),
        ):
            assert spread is not None
            checks.append(ModelCheck(name, 100 * _outside(seen.throttled_ms, spread) / whole, "%", 5))
        return checks
    if experiment.saturated:
        return [
            ModelCheck("CPU time", _percent(said.use_ms, seen.use_ms), "%", 2),
            ModelCheck("throttled time", _percent(said.throttled_ms, seen.throttled_ms), "%", 5),
            ModelCheck("periods", abs(said.periods - seen.periods), "", 1),
            ModelCheck("periods not throttled", abs(_free(said) - _free(seen)), "", 0),
        ]
    if not experiment.run_ms:
        whole = experiment.cpus * experiment.seconds * 1000
        part = 100 * abs(said.use_ms - seen.use_ms) / whole
        return [ModelCheck("CPU time of the CPUs'", part, "%", 3 if experiment.period_ms >= 50 else 8)]
    checks = [ModelCheck("CPU time", _percent(said.use_ms, seen.use_ms), "%", 2)]
    if not predicted.by_phase and max(said.throttled_ms, seen.throttled_ms) > 1:
        off = _outside(seen.throttled_ms, predicted.spread_ms or (said.throttled_ms, said.throttled_ms))
        whole = max(seen.throttled_ms, 1.0)
        least = BURST_MS * experiment.seconds * 1000 / experiment.every_ms
        most = max(5.0, 100 * least / whole) if experiment.kind == "bursts" else 5.0
        checks.append(ModelCheck("throttled time", 100 * off / whole, "%", most))
    return checks


def _outside(value: float, bounds: tuple[float, float]) -> float:
    """Return how far a value lies outside of bounds."""
    return max(bounds[0] - value, value - bounds[1], 0.0)


def _free(figures: Figures) -> int:
    return figures.periods - figures.throttled


def _percent(said: float, seen: float) -> float:
    return 100 * abs(said - seen) / seen if seen else 100.0 * (said > 0)
