"""What a container can look like to the model: threads that never stop, bursts, requests at random."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.advice.facts import Range
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import (
    ContainerResult,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.workloads import Bursts, Duration, Open, ThreadPoolServer

__all__ = ["Change", "Fit", "Outcome", "Shape", "simulated", "sweeping"]

_TIMES: Final = {"bursts": 40, "requests": 300}
"""How many are simulated, so that phases and sizes average out; within the seconds below."""
_SECONDS: Final = {"bursts": (10.0, 300.0), "requests": (5.0, 100.0)}
_GOLDEN: Final = 0.382


class Shape(StrEnum):
    """What the counters look like."""

    BUSY = "busy"
    """Threads that never stop."""
    BURSTS = "bursts"
    """Work that comes and goes, all threads at once, of which single bursts pass the quota."""
    REQUESTS = "requests"
    """Work that comes at random, a thread each, of which now and then more is there than the quota."""
    UNFITTED = "unfitted"
    """None of these reproduces what was counted."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the model takes the container for. Times in ms; CPU time in ms a second.

    `cpus` is how many its threads keep busy at once (infinite where nothing says), `work` the CPU time of
    one burst, all threads together, or of one request, `sigma` the spread of its logarithm. `modelled` is
    what the model shows where `throttled` was measured.
    """

    shape: Shape
    cpus: float
    used: float
    throttled: float
    quota: float
    period: float
    burst: float = 0.0
    work: float = 0.0
    modelled: float = 0.0
    why: str = ""
    wants: float = 0.0
    """CPUs that busy threads may use once nothing stops them: some shared a CPU, or waited for others."""
    sigma: float = 0.0
    rivals: tuple[Fit, ...] = ()
    """What explains the counters as well: a prediction is a range over all of them."""

    @property
    def now(self) -> Change:
        """No change."""
        return Change(self.quota / self.period, self.burst)

    @property
    def explanations(self) -> tuple[Fit, ...]:
        """Everything that the model confirms, the best first; none for what is busy or unfitted."""
        if self.shape in (Shape.BUSY, Shape.UNFITTED):
            return ()
        alone = replace(self, modelled=0.0, rivals=())
        return (alone, *(replace(rival, modelled=0.0) for rival in self.rivals))

    @property
    def widest(self) -> float:
        """CPUs that may be busy at once, by any explanation."""
        return max((self.wants, self.cpus, *(one.cpus for one in self.rivals)))


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be different. `limit` in CPUs, None for none at all; `threads` None for as many as now."""

    limit: float | None
    burst: float = 0.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model says: throttled and used ms a second, and the latency in ms by percentile."""

    throttled: Range
    used: Range
    latency: dict[int, Range]


@lru_cache(maxsize=4096)
def simulated(one: Fit, change: Change, seed: int) -> ContainerResult:
    """The fitted work under a changed limit, for long enough that phases and sizes average out."""
    width = max(1, min(int(one.cpus), change.threads or int(one.cpus)))
    every = one.work / one.used * 1000
    workload = _bursts(one, width, every) if one.shape is Shape.BURSTS else _requests(one, width, every)
    limit = None if change.limit is None else _limit(change, one.period)
    container = ScenarioContainer("subject", (workload,), 100, limit)
    least, most = _SECONDS[one.shape]
    seconds = min(max(_TIMES[one.shape] * every / 1000, least), most)
    scenario = Scenario(
        "fit", "", SimulatedMachine(width), (ScenarioPod("pod", (container,)),), seconds=seconds
    )
    return run(scenario, seed).of("pod/subject")


def _bursts(one: Fit, width: int, every: float) -> Bursts:
    run_for = Duration(int(one.work * MS / width))
    return Bursts(run_for, every_ns=int(sweeping(every, one.period) * MS), threads=width)


def _requests(one: Fit, width: int, every: float) -> ThreadPoolServer:
    return ThreadPoolServer(Duration(int(one.work * MS), one.sigma), Open(1000 / every), threads=width)


def _limit(change: Change, period: float) -> CFSLimit:
    quota = max(int((change.limit or 0.0) * period * 1000), 1000) * US
    return CFSLimit(quota, int(period * MS), min(int(change.burst * MS), quota))


def sweeping(every: float, period: float) -> float:
    """An interval next to `every` at which bursts meet periods at ever new phases, as they do in life."""
    if every < 5 * period:
        return every
    return (math.floor(every / period) + _GOLDEN) * period
