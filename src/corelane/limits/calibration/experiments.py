"""The experiments as values, the model's answer to each, and how far a measurement is from it."""

from dataclasses import dataclass
from statistics import median

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.switches import Switches
from corelane.limits.model.workloads import Bursts, Duration, Spin

WARMUP_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Experiment:
    """Threads, each on a CPU of its own, that spin (`run_ms` 0), or run for a while again and again."""

    threads: int
    quota_ms: int
    period_ms: int = 100
    burst_ms: int = 0
    run_ms: float = 0
    every_ms: int = 0
    seconds: float = 5.0

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
        return f"{self.kind} {self.threads} x {self.quota_ms}/{self.period_ms}{burst}{work}"

    @property
    def width_ms(self) -> int:
        """What the threads could use in a period."""
        return self.threads * self.period_ms

    @property
    def saturated(self) -> bool:
        """Whether the counters do not depend on where ticks and refills happen to fall."""
        enough = self.seconds * 1000 >= 50 * self.period_ms
        return not self.run_ms and self.period_ms >= 50 and self.quota_ms <= 0.9 * self.width_ms and enough


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
    Experiment(1, 20, run_ms=5, every_ms=20),
    Experiment(1, 50, run_ms=5, every_ms=20),
    Experiment(2, 20, run_ms=5, every_ms=20),
    Experiment(1, 20, run_ms=70, every_ms=1000, seconds=6),
    Experiment(1, 20, burst_ms=20, run_ms=70, every_ms=1000, seconds=6),
    Experiment(1, 50, run_ms=70, every_ms=1000, seconds=6),
)
"""Saturated first, then those near what the CPUs have, short periods, sleepers and bursts."""


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

    None is what could not be measured.
    """

    figures: Figures
    phase_ns: int | None
    work_ns: int | None
    tick_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's figures; `spread_ms` is from the least to the most throttled time over phases."""

    figures: Figures
    spread_ms: tuple[float, float] | None


PHASES = 10


def predict(experiment: Experiment, measured: MeasuredRun, kernel: Kernel) -> Prediction:
    """What the model says of a run: at the measured phase, or where it has none at many of a period."""
    if measured.phase_ns is not None:
        return Prediction(_model(experiment, measured.phase_ns, measured, kernel), None)
    period = experiment.period_ms * MS
    found = [
        _model(experiment, period * (2 * k + 1) // (2 * PHASES), measured, kernel) for k in range(PHASES)
    ]
    times = sorted(one.throttled_ms for one in found)
    middle = min(found, key=lambda one: abs(one.throttled_ms - median(times)))
    return Prediction(middle, (times[0], times[-1]))


def _model(experiment: Experiment, phase_ns: int, measured: MeasuredRun, kernel: Kernel) -> Figures:
    limit = CFSLimit(experiment.quota_ms * MS, experiment.period_ms * MS, experiment.burst_ms * MS)
    spins = not experiment.run_ms
    workload = Spin(experiment.threads) if spins else _bursts(experiment, measured.work_ns)
    warmup = WARMUP_SECONDS if spins else _settling(experiment)
    before = int(warmup * SECOND)
    phase = (phase_ns + before) % (experiment.period_ms * MS)
    tick = None if measured.tick_ns is None else (measured.tick_ns + before) % kernel.tick_ns
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=True, phase_ns=phase)
    scenario = Scenario(
        experiment.name,
        "",
        SimulatedMachine(experiment.threads, kernel.tick_ns, tick_phase_ns=tick),
        (ScenarioPod("calibrate", (app,)),),
        kernel.switches,
        experiment.seconds,
        warmup,
    )
    stat = run(scenario).results[0].stat
    return Figures(
        stat.nr_periods, stat.nr_throttled, stat.usage_ns / MS, stat.throttled_ns / MS, stat.nr_bursts
    )


def _settling(experiment: Experiment) -> float:
    """A burst before those that count: what may be saved for bursts has been saved by then."""
    return experiment.every_ms / 1000 if experiment.kind == "bursts" else 0.0


def _bursts(experiment: Experiment, work_ns: int | None) -> Bursts:
    work = int(experiment.run_ms * MS) if work_ns is None else work_ns
    return Bursts(Duration(max(work, 1 * US)), experiment.every_ms * MS, threads=experiment.threads)


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


def claims(experiment: Experiment, measured: MeasuredRun, predicted: Prediction) -> list[ModelCheck]:
    """The errors, and what they may be: by how far the load determines what the kernel counts."""
    seen, said = measured.figures, predicted.figures
    if experiment.saturated:
        return [
            ModelCheck("CPU time", _percent(said.use_ms, seen.use_ms), "%", 2),
            ModelCheck("throttled time", _percent(said.throttled_ms, seen.throttled_ms), "%", 5),
            ModelCheck("periods", abs(said.periods - seen.periods), "", 1),
            ModelCheck("periods not throttled", abs(_free(said) - _free(seen)), "", 0),
        ]
    if not experiment.run_ms:
        whole = experiment.threads * experiment.seconds * 1000
        most = 3 if experiment.period_ms >= 50 else 8
        return [ModelCheck("CPU time of the CPUs'", 100 * abs(said.use_ms - seen.use_ms) / whole, "%", most)]
    found = [ModelCheck("CPU time", _percent(said.use_ms, seen.use_ms), "%", 2)]
    if predicted.spread_ms is None and max(said.throttled_ms, seen.throttled_ms) > 1:
        found.append(ModelCheck("throttled time", _percent(said.throttled_ms, seen.throttled_ms), "%", 5))
    return found


def _free(figures: Figures) -> int:
    return figures.periods - figures.throttled


def _percent(said: float, seen: float) -> float:
    return 100 * abs(said - seen) / seen if seen else 100.0 * (said > 0)


def phase_of(moments: list[int], period_ns: int, begin_ns: int) -> int | None:
    """When the first refill after `begin_ns` comes, from moments at which a throttled thread went on.

    Other pauses end at any time, so the most moments that agree within 0.5 ms modulo the period count; None
    where fewer than three do. The earliest of them is nearest to the truth.
    """
    near = 500 * US
    phases = sorted((moment - begin_ns) % period_ns for moment in moments)
    around = [[one for one in phases if (one - first) % period_ns <= near] for first in phases]
    best = max(around, key=len, default=[])
    if len(best) < 3:
        return None
    return phases[around.index(best)]
