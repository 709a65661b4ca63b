"""The cases of `make bench-advice`: loads of every class, drawn from a seed, before anything runs.

A draw is kept if the model, given the true parameters, shows throttling that calls for advice: what is left
alone has no prediction to hold against a run.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from advice_lab import Neighbours, Setting
from advice_load import Load

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import (
    ContainerResult,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    Open,
    Parallel,
    Spin,
    ThreadPoolServer,
    Workload,
)

CPUS: Final = 2
LIMITS: Final = (0.1, 2.0)
"""CPUs; the highest that a load of two threads can exceed is a little below two."""
_LEAST_LOST: Final = 0.02
_MOST_LOST: Final = 0.93
_TRIES: Final = 400


@dataclass(frozen=True, slots=True)
class Case:
    """A load under a limit, perhaps beside neighbours."""

    name: str
    kind: str
    load: Load
    setting: Setting
    beside: Neighbours

    @property
    def limit(self) -> float:
        assert self.setting.quota_ms is not None
        return self.setting.quota_ms / 100


Draw = Callable[[random.Random, float, int], Load]


def matrix(seed: int, each: int = 8) -> list[Case]:
    """Return `each` cases of every class; a third of them beside neighbours."""
    return [
        _case(kind, number, each, random.Random(f"{seed}/{kind}/{number}"))  # noqa: S311 - has to be reproducible
        for number in range(each)
        for kind in CLASSES
    ]


def _case(kind: str, number: int, each: int, chance: random.Random) -> Case:
    """A case with a limit from the part of the range that its number has, so that all parts are covered.

    Where no such load is throttled, near all CPUs for instance, the limit is from anywhere in the range.
    """
    for attempt in range(_TRIES):
        part = number if attempt < _TRIES / 2 else chance.randrange(each)
        limit = LIMITS[0] * (LIMITS[1] / LIMITS[0]) ** ((part + chance.random()) / each)
        load = CLASSES[kind](chance, limit, chance.randrange(1 << 30))
        beside = _beside(chance, limit) if number % 3 == 2 else Neighbours()
        request = max(round(1000 * min(limit, CPUS)), 10)
        setting = Setting(max(round(100 * limit), 1), request=request)
        case = Case(f"{kind} {number}", kind, load, setting, beside)
        lost = _lost(model(case, case.setting))
        if _LEAST_LOST <= lost <= _MOST_LOST:
            return case
    raise RuntimeError(f"no {kind} of {_TRIES} draws is throttled as it should be")


def _beside(chance: random.Random, limit: float) -> Neighbours:
    """A thread for each CPU, with a request that leaves the container its limit."""
    most = CPUS / (1.05 * limit) - 1
    return Neighbours(CPUS, max(round(1000 * limit * min(chance.choice((0.5, 1, 2)), most)), 10))


def _lost(result: ContainerResult) -> float:
    throttled = result.stat.throttled_ns
    return throttled / max(throttled + result.stat.usage_ns, 1)


def _log(chance: random.Random, low: float, high: float) -> float:
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def _used(chance: random.Random, limit: float) -> float:
    """CPU time in ms a second: half of the limit and more, and no more than leaves the CPUs idle at times."""
    return 1000 * min(limit * chance.uniform(0.5, 0.92), 0.8 * CPUS)


def _server(chance: random.Random, limit: float, seed: int) -> Load:
    rate = _log(chance, 30, 150)
    return Load(
        "open",
        chance.choice((1, 2, 4, 8)),
        seed,
        _used(chance, limit) / rate,
        chance.uniform(0.2, 0.8),
        rate,
    )


def _batch(chance: random.Random, limit: float, seed: int) -> Load:
    rate = _log(chance, 30, 150)
    size = round(rate * _log(chance, 0.1, 0.5))
    service = _used(chance, limit) / rate
    return Load("batch", chance.choice((1, 2, 4)), seed, service, chance.uniform(0.1, 0.6), rate, batch=size)


def _collector(chance: random.Random, limit: float, seed: int) -> Load:
    """Requests, and a garbage collector that takes a part of the CPU time, all at once."""
    rate, part, every = _log(chance, 30, 120), chance.uniform(0.2, 0.6), _log(chance, 150, 700)
    used = _used(chance, limit)
    return Load(
        "gc",
        chance.choice((1, 2, 4)),
        seed,
        used * (1 - part) / rate,
        chance.uniform(0.2, 0.7),
        rate,
        gc_ms=used * part * every / 1000 / CPUS,
        gc_threads=CPUS,
        gc_every_ms=every,
    )


def _parallel(chance: random.Random, limit: float, seed: int) -> Load:
    rate = _log(chance, 15, 60)
    used = _used(chance, limit)
    return Load("parallel", CPUS, seed, used / rate, chance.uniform(0.1, 0.5), rate)


def _closed(chance: random.Random, limit: float, seed: int) -> Load:
    clients, service = chance.choice((1, 2, 4, 8)), _log(chance, 2, 15)
    demand = min(limit * chance.uniform(0.7, 2.5), 0.9 * CPUS, 0.95 * clients)
    think = max(clients * service / demand - service, 0.0)
    workers = max(min(clients, 4), 1)
    return Load("closed", workers, seed, service, chance.uniform(0.2, 0.7), clients=clients, think_ms=think)


def _shared(chance: random.Random, limit: float, seed: int) -> Load:
    """Threads that share the work of each request, for a few clients."""
    clients, service = chance.choice((1, 2, 3)), _log(chance, 4, 30)
    demand = min(limit * chance.uniform(0.7, 2.0), 0.85 * CPUS)
    think = max(clients * service / demand - service / CPUS, 0.0)
    return Load(
        "parallel-closed", CPUS, seed, service, chance.uniform(0.1, 0.5), clients=clients, think_ms=think
    )


CLASSES: Final[dict[str, Draw]] = {
    "server": _server,
    "bursty": _batch,
    "gc-like": _collector,
    "parallel": _parallel,
    "closed loop": _closed,
    "shared work, closed loop": _shared,
}


# The same loads in the model.


def model(case: Case, setting: Setting, seconds: float = 10.0, seed: int = 1) -> ContainerResult:
    """Simulate a case with its true parameters under a setting."""
    limit = None
    if setting.quota_ms is not None:
        limit = CFSLimit(int(setting.quota_ms * MS), burst_ns=int(setting.burst_ms * MS))
    subject = ScenarioContainer("subject", tuple(_workloads(case.load)), setting.request, limit)
    pods = [ScenarioPod("own", (subject,))]
    if case.beside.threads:
        beside = ScenarioContainer("beside", (Spin(case.beside.threads),), case.beside.request)
        pods.append(ScenarioPod("other", (beside,)))
    scenario = Scenario(case.name, "", SimulatedMachine(CPUS), tuple(pods), seconds=seconds)
    return run(scenario, seed).of("own/subject")


def _workloads(load: Load) -> Iterator[Workload]:
    work = Duration(int(load.service_ms * MS), load.sigma)
    arrivals: Open | Closed = Open(load.per_second, load.batch, 1.0 if load.batch == 1 else 0.3)
    if "closed" in load.kind:
        arrivals = Closed(load.clients, int(load.think_ms * MS), 1.0)
    if load.kind.startswith("parallel"):
        yield Parallel(Duration(0), work, 1, arrivals, load.workers, spin_ns=0, imbalance=0.0)
    else:
        yield ThreadPoolServer(work, arrivals, load.workers)
    if load.gc_threads:
        collect, every = Duration(int(load.gc_ms * MS)), int(load.gc_every_ms * MS)
        yield Bursts(collect, every_ns=every, threads=load.gc_threads)
