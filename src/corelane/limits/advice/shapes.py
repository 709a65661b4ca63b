"""Shapes of load that may explain a container's counters and latency, and what the model shows of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import (
    Arrivals,
    Bursts,
    Closed,
    Duration,
    Open,
    Parallel,
    Recorded,
    Spin,
    ThreadPoolServer,
    Workload,
)


class LoadShape(StrEnum):
    """Kinds of load. The values are part of the JSON output."""

    BUSY = "busy"
    """Threads that never stop."""
    REQUESTS = "requests"
    """Requests at random or in batches, one thread each."""
    CLIENTS = "clients"
    """Clients that each wait for an answer, and think, before the next request (closed loop)."""
    SHARED = "shared-work"
    """Requests, one at a time, each divided among all threads: parallel bursts."""
    SHARED_CLIENTS = "shared-work-clients"
    """The same for clients that wait for their answers."""
    UNFITTED = "unfitted"
    """None of these reproduces what was measured."""

    @property
    def closed(self) -> bool:
        return self in (LoadShape.CLIENTS, LoadShape.SHARED_CLIENTS)

    @property
    def shared(self) -> bool:
        return self in (LoadShape.SHARED, LoadShape.SHARED_CLIENTS)


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change. `limit` in CPUs, None for no limit; `burst` in ms; `threads` None for as many as now.

    `weight` is that of the container beside its neighbours, where the present one is 1.
    """

    limit: float | None
    burst: float = 0.0
    threads: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A load on `cpus` CPUs. Times in ms.

    `work` is the CPU time of a request, all threads together, and `sigma` the spread of its logarithm. Open
    loads have `per_second`, `batch` and `variation`, or recorded `moments` (ns) of requests, which come again
    `every` ms; closed ones `clients` and `think`. Beside the requests
    `background` ms of CPU time may be used about every `background_every`, by as many threads as CPUs: a
    garbage collector. `weight` is that of busy neighbours on every CPU, where its own is 1; 0 for none.
    `packed` says that threads which find no idle CPU wake on one and the same, where their work comes from.
    """

    kind: LoadShape
    cpus: int
    threads: int
    work: float
    sigma: float = 0.0
    per_second: float = 0.0
    batch: int = 1
    variation: float = 1.0
    moments: tuple[int, ...] = ()
    every: float = 0.0
    clients: int = 0
    think: float = 0.0
    background: float = 0.0
    background_every: float = 0.0
    weight: float = 0.0
    packed: bool = False

    @property
    def widest(self) -> int:
        """CPUs that may be busy at once."""
        return self.cpus if self.background else min(self.cpus, self.threads)

    def workloads(self, threads: int | None) -> Iterator[Workload]:
        """Yield the model's workloads, with fewer threads where that is asked for."""
        count = min(threads or self.threads, self.threads)
        work = Duration(max(int(self.work * MS), _LEAST_WORK_NS), self.sigma)
        arrivals: Arrivals
        if self.moments:
            arrivals = Recorded(self.moments, int(self.every * MS))
        elif self.kind.closed:
            arrivals = Closed(self.clients, int(self.think * MS), 1.0)
        else:
            arrivals = Open(self.per_second, self.batch, self.variation)
        if self.kind.shared:
            yield Parallel(Duration(0), work, 1, arrivals, count, spin_ns=0, imbalance=0.0, overhead_ns=0)
        else:
            yield ThreadPoolServer(work, arrivals, count)
        if self.background:
            wide = min(threads or self.cpus, self.cpus)
            each = Duration(max(int(self.background * MS / wide), 1000))
            yield Bursts(each, every_ns=int(self.background_every * MS), threads=wide)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a container shows in a time: ms a second of CPU time, periods and requests a second.

    `queued` is what its threads wait on run queues, throttled or not; `latency` is in ms by percentile.
    """

    used: float
    throttled: float
    periods: float
    throttled_periods: float
    queued: float
    requests: float
    latency: dict[int, float]


PERCENTILES: Final = (10, 25, 50, 75, 90, 95, 99)
"""The percentiles of latency that simulations have."""
_LEAST_WORK_NS: Final = 20_000
_WARMUP: Final = 0.5
_REQUEST: Final = 1000
_MOST_REQUESTS: Final = 450
_LEAST_PERIODS: Final = 10


def simulated_seconds(shape: Shape, seconds: float, period: float) -> float:
    """Return how long to simulate: as long as was measured, but no longer than many requests take."""
    if shape.moments:
        return min(seconds, shape.every / 1000)
    rate = shape.per_second
    if shape.kind.closed:
        rate = 1000 * shape.clients / (shape.think + max(shape.work, _LEAST_WORK_NS / MS))
    return min(seconds, max(_MOST_REQUESTS / max(rate, 0.1), _LEAST_PERIODS * period / 1000))


@lru_cache(maxsize=8192)
def simulated(shape: Shape, change: LimitChange, period: float, seconds: float, seed: int) -> Seen:
    """Simulate a shape under a limit with this period in ms."""
    limit = None if change.limit is None else _limit(change.limit, change.burst, period)
    workloads = tuple(shape.workloads(change.threads))
    subject = ScenarioContainer("subject", workloads, _REQUEST, limit)
    pods = [ScenarioPod("own", (subject,))]
    if shape.weight:
        beside = ScenarioContainer(
            "beside", (Spin(shape.cpus),), max(int(_REQUEST * shape.weight / change.weight), 1)
        )
        pods.append(ScenarioPod("beside", (beside,)))
    scenario = Scenario(
        "fit",
        "",
        SimulatedMachine(shape.cpus, waker=0 if shape.packed else None),
        tuple(pods),
        seconds=simulated_seconds(shape, seconds, period),
        warmup_seconds=_WARMUP,
    )
    result = run(scenario, seed).of("own/subject")
    return Seen(
        result.cpus_used * 1000,
        result.stat.throttled_ns / MS / result.seconds,
        result.stat.nr_periods / result.seconds,
        result.stat.nr_throttled / result.seconds,
        max(1000 * (result.runnable - result.cpus_used), 0.0),
        result.per_second,
        {percent: value / MS for percent, value in result.latency.items()},
    )


def _limit(cpus: float, burst: float, period: float) -> CFSLimit:
    quota = max(int(cpus * period * 1000), 1000) * US
    return CFSLimit(quota, int(period * MS), min(int(burst * MS), quota))
