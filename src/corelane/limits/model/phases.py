"""The spread of counters over the phases of nested limits.

A pod and its containers are refilled on grids of their own, whose relation is left to chance,
so two starts of the same pod can be throttled for different times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from corelane.limits.model.bandwidth import CPUStat
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulationResult,
    run,
)

PHASES = 41
"""Combinations of phases; a prime, so that each level and each difference of two takes every value once."""

MAX_SECONDS, MAX_WARMUP_SECONDS = 2.4, 0.5
_GENERATOR = 7
"""A primitive root of `PHASES`: its powers are different multipliers for up to 40 levels of a pod."""


@dataclass(frozen=True, slots=True)
class PhaseSpread:
    """Least and greatest values of each limited group, by path: a pod's name or pod/container."""

    phases: int
    seconds: float
    seed: int
    throttled_ms_per_second: dict[str, tuple[float, float]]
    cpus_used: dict[str, tuple[float, float]]

    def including(self, results: Iterable[SimulationResult]) -> PhaseSpread:
        """Return the spread with further runs, of any length: under a random load these can lie outside."""
        throttled, used = dict(self.throttled_ms_per_second), dict(self.cpus_used)
        for result in results:
            seconds = result.scenario.seconds
            for path in throttled:
                stat = result.pods[path] if path in result.pods else result.of(path).stat
                throttled[path] = _widened(throttled[path], stat.throttled_ns / MS / seconds)
                used[path] = _widened(used[path], stat.usage_ns / MS / 1000 / seconds)
        return replace(self, throttled_ms_per_second=throttled, cpus_used=used)


def _widened(ends: tuple[float, float], value: float) -> tuple[float, float]:
    return min(ends[0], value), max(ends[1], value)


def depends_on_phases(pod: ScenarioPod) -> bool:
    """Whether limits are nested in the pod, and the phase of at least one of them is left to chance."""
    phases = [one.phase_ns for one in pod.containers if one.limit]
    return bool(pod.limit and phases) and None in (pod.phase_ns, *phases)


def phase_spread(scenario: Scenario, seed: int = 1) -> PhaseSpread | None:
    """Simulate `PHASES` equally likely combinations of phases; None where no pod depends on them.

    Phases that the scenario fixes stay. Each run lasts `MAX_SECONDS` at most. Raises ValueError as `run`.
    """
    pods = [pod for pod in scenario.pods if depends_on_phases(pod)]
    if not pods:
        return None
    short = replace(
        scenario,
        seconds=min(scenario.seconds, MAX_SECONDS),
        warmup_seconds=min(scenario.warmup_seconds, MAX_WARMUP_SECONDS),
    )
    results = [run(at_phase(short, number), seed) for number in range(PHASES)]
    return PhaseSpread(
        PHASES,
        short.seconds,
        seed,
        _ranges(pods, results, lambda stat: stat.throttled_ns / MS / short.seconds),
        _ranges(pods, results, lambda stat: stat.usage_ns / MS / 1000 / short.seconds),
    )


def at_phase(scenario: Scenario, number: int) -> Scenario:
    """The scenario with every free phase of nested limits set to combination `number` of `PHASES`."""
    return replace(
        scenario,
        pods=tuple(_pod_at(pod, number) if depends_on_phases(pod) else pod for pod in scenario.pods),
    )


def _pod_at(pod: ScenarioPod, number: int) -> ScenarioPod:
    containers = tuple(
        replace(one, phase_ns=_phase(one, number, level)) for level, one in enumerate(pod.containers, 1)
    )
    return replace(pod, containers=containers, phase_ns=_phase(pod, number, 0))


def _phase(group: ScenarioPod | ScenarioContainer, number: int, level: int) -> int | None:
    """A phase in ns after the start: the middle of one of `PHASES` equal parts of the period."""
    if group.phase_ns is not None or group.limit is None:
        return group.phase_ns
    part = number * int(pow(_GENERATOR, level % (PHASES - 1), PHASES)) % PHASES
    return (2 * part + 1) * group.limit.period_ns // (2 * PHASES)


def _ranges(
    pods: list[ScenarioPod], results: list[SimulationResult], value: Callable[[CPUStat], float]
) -> dict[str, tuple[float, float]]:
    ranges = {}
    for pod in pods:
        values = [value(one.pods[pod.name]) for one in results]
        ranges[pod.name] = min(values), max(values)
        for path in (f"{pod.name}/{one.name}" for one in pod.containers if one.limit):
            values = [value(one.of(path).stat) for one in results]
            ranges[path] = min(values), max(values)
    return ranges
