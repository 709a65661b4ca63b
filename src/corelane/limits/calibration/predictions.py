"""The model's answer to an experiment, and how far a measurement is from it."""

from dataclasses import dataclass, replace
from statistics import median

from corelane.limits.calibration.experiments import (
    WARMUP_SECONDS,
    Experiment,
    Figures,
    Kernel,
    MeasuredRun,
)
from corelane.limits.model.bandwidth import CFSLimit, CPUStat
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import Bursts, Duration, Spin


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
"""How exactly a tick's moment, a burst's begin and its work are known: a stop may be a tick off."""


def predict(experiment: Experiment, measured: MeasuredRun, kernel: Kernel) -> Prediction:
    """Return the model's answer: at the measured phase, or where it has none at many of a period."""
    nested = experiment.pod_quota_ms > 0
    known = measured.phase_ns is not None and (measured.pod_phase_ns is not None or not nested)
    if not known:
        found = [_model(experiment, at, kernel) for at in _phases(experiment, measured)]
    elif experiment.kind == "spin" and not nested:
        found = [_model(experiment, measured, kernel)]
        return Prediction(found[0][0], None)
    else:
        found = [_model(experiment, at, kernel) for at in _unsure(measured)]
    figures, spread = _middle([app for app, _ in found])
    if not nested:
        return Prediction(figures, spread, by_phase=not known)
    pod, pod_spread = _middle([pod for _, pod in found])
    return Prediction(figures, spread, pod, pod_spread, by_phase=not known)


def _phases(experiment: Experiment, measured: MeasuredRun) -> list[MeasuredRun]:
    """Phases of a lattice, in which also the differences of the two levels are spread evenly."""
    part = experiment.period_ms * MS // (2 * PHASES)
    return [
        replace(measured, phase_ns=(2 * k + 1) * part, pod_phase_ns=(2 * (3 * k % PHASES) + 1) * part)
        for k in range(PHASES)
    ]


def _unsure(measured: MeasuredRun) -> list[MeasuredRun]:
    if measured.tick_ns is None:
        return [measured]
    ticks = (measured.tick_ns + step * UNSURE_NS for step in (0, -1, 1))
    return [replace(measured, tick_ns=tick) for tick in ticks]


def _middle(found: list[Figures]) -> tuple[Figures, tuple[float, float]]:
    """Return the median by throttled time, and the least and the most of that."""
    times = sorted(one.throttled_ms for one in found)
    middle = min(found, key=lambda one: abs(one.throttled_ms - median(times)))
    return middle, (times[0], times[-1])


def _model(experiment: Experiment, measured: MeasuredRun, kernel: Kernel) -> tuple[Figures, Figures]:
    """Return the counters of the limited group, and of the one above."""
    period_ns, tick_ns = experiment.period_ms * MS, 0 if experiment.reads_cpu_time else kernel.tick_ns
    spins = not experiment.run_ms
    workload = Spin(experiment.threads) if spins else _bursts(experiment, measured.work_ns)
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
    pod = ScenarioPod("pod", (app,), above, at(measured.pod_phase_ns, period_ns))
    scenario = Scenario(
        experiment.name,
        "",
        SimulatedMachine(experiment.cpus, tick_ns, tick_phase_ns=at(measured.tick_ns, tick_ns)),
        (pod, *_beside(experiment)),
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


def _beside(experiment: Experiment) -> tuple[ScenarioPod, ...]:
    if not experiment.beside_threads:
        return ()
    spinning = (Spin(experiment.beside_threads),)
    container = ScenarioContainer("spin", spinning, 1000 * experiment.beside_weight, pinned=True)
    return (ScenarioPod("beside", (container,)),)


def _warmup_seconds(experiment: Experiment) -> float:
    """How long before what counts: a burst, by which what may be saved for bursts has been saved.

    Nested limits are measured from the first moment on, for their state then decides what follows.
    """
    if experiment.pod_quota_ms:
        return 0.0
    if experiment.run_ms:
        return experiment.every_ms / 1000 if experiment.kind == "bursts" else 0.0
    return WARMUP_SECONDS


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


BURST_MS = 1.0
"""What the throttled time of one burst may be off by, however short: a quarter of a tick at HZ=250."""


def claims(experiment: Experiment, measured: MeasuredRun, predicted: Prediction) -> list[ModelCheck]:
    """Return the errors, and what they may be: by how far the load determines what the kernel counts."""
    seen, said = measured.figures, predicted.figures
    if experiment.pod_quota_ms:
        return _nested(experiment, measured, predicted)
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
    found = [ModelCheck("CPU time", _percent(said.use_ms, seen.use_ms), "%", 2)]
    if not predicted.by_phase and max(said.throttled_ms, seen.throttled_ms) > 1:
        off = _outside(seen.throttled_ms, predicted.spread_ms or (said.throttled_ms, said.throttled_ms))
        whole = max(seen.throttled_ms, 1.0)
        least = BURST_MS * experiment.seconds * 1000 / experiment.every_ms
        most = max(5.0, 100 * least / whole) if experiment.kind == "bursts" else 5.0
        found.append(ModelCheck("throttled time", 100 * off / whole, "%", most))
    return found


def _nested(experiment: Experiment, measured: MeasuredRun, predicted: Prediction) -> list[ModelCheck]:
    """Both levels; where the phases are not known only what does not depend on them."""
    found = [ModelCheck("CPU time", _percent(predicted.figures.use_ms, measured.figures.use_ms), "%", 2)]
    if measured.pod is None or predicted.by_phase:
        return found
    whole = experiment.cpus * experiment.seconds * 1000
    for name, seen, spread in (
        ("throttled time of the CPUs'", measured.figures, predicted.spread_ms),
        ("pod's throttled time of the CPUs'", measured.pod, predicted.pod_spread_ms),
    ):
        assert spread is not None
        found.append(ModelCheck(name, 100 * _outside(seen.throttled_ms, spread) / whole, "%", 5))
    return found


def _outside(value: float, bounds: tuple[float, float]) -> float:
    """Return how far a value lies outside of bounds."""
    return max(bounds[0] - value, value - bounds[1], 0.0)


def _free(figures: Figures) -> int:
    return figures.periods - figures.throttled


def _percent(said: float, seen: float) -> float:
    return 100 * abs(said - seen) / seen if seen else 100.0 * (said > 0)
