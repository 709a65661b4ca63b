"""Scenarios as values: a machine, its kernel, the pods on it; and what comes out when one is run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from corelane.cpuset import bits
from corelane.limits.model.bandwidth import LATEST, CFSLimit, CPUStat, Switches
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import CPUGroup
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.timeline import Timeline, TimelineRecorder
from corelane.limits.model.turns import NICE_0
from corelane.limits.model.workloads import Workload, WorkloadContext, start

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """CPUs, and when they tick: all at once (the kernel's default), or each at a moment of its own.

    `tick_ns` is 1/HZ; with 0 limits are enforced to the ns. `tick_phase_ns` is a moment at which all tick,
    None where that is left to chance. `smt_speed` is how fast either of two siblings
    (CPUs 2k and 2k + 1) is while both run, in thousandths; None is no SMT. `waker` is the CPU on which
    threads wake that find no idle one: the one that their work comes from; None for the last CPU of each.
    """

    cpus: int
    tick_ns: int = 4 * MS
    ticks: Literal["aligned", "random"] = "aligned"
    smt_speed: int | None = None
    tick_phase_ns: int | None = None
    waker: int | None = None


@dataclass(frozen=True, slots=True)
class ScenarioContainer:
    """Workloads in one group. `cpus` is a mask, None for all; `phase_ns` fixes where its periods begin."""

    name: str
    workloads: tuple[Workload, ...]
    request_milli: int = 0
    limit: CFSLimit | None = None
    cpus: int | None = None
    pinned: bool = False
    phase_ns: int | None = None

    @property
    def shares(self) -> int:
        return max(self.request_milli * NICE_0 // 1000, 2)


@dataclass(frozen=True, slots=True)
class ScenarioPod:
    """Containers in a group of their own, perhaps with a limit over all."""

    name: str
    containers: tuple[ScenarioContainer, ...]
    limit: CFSLimit | None = None
    phase_ns: int | None = None

    @property
    def shares(self) -> int:
        return max(sum(container.request_milli for container in self.containers) * NICE_0 // 1000, 2)


def pod_limit(containers: Sequence[ScenarioContainer]) -> CFSLimit | None:
    """The limit that the kubelet gives a pod: its containers' together, if every one has a limit."""
    limits = [container.limit for container in containers]
    if not limits or None in limits:
        return None
    period = next(limit.period_ns for limit in limits if limit)
    return CFSLimit(sum(limit.quota_ns * period // limit.period_ns for limit in limits if limit), period)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulation and its duration. `subject` is pod/container, the one that variants change."""

    name: str
    title: str
    machine: SimulatedMachine
    pods: tuple[ScenarioPod, ...]
    kernel: Switches = LATEST
    seconds: float = 60.0
    warmup_seconds: float = 1.0
    window_ms: tuple[float, float] = (0.0, 200.0)
    """Window of the picture, from the end of the warm-up: begin and length."""
    subject: str = ""
    notes: tuple[str, ...] = field(default=())
    """Which parameters were chosen, and why."""

    def container(self, path: str) -> ScenarioContainer:
        """The container at pod/container. Raises ValueError if there is none."""
        for pod in self.pods:
            for container in pod.containers:
                if path == f"{pod.name}/{container.name}":
                    return container
        paths = ", ".join(f"{pod.name}/{container.name}" for pod in self.pods for container in pod.containers)
        raise ValueError(f"no container {path!r} in this scenario; it has {paths}")


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """A container's counters after the warm-up. Times in ns; `latency` maps percentiles, 100 is the maximum.

    `runnable` is how many threads ran or waited for a CPU, throttled ones included, on average.
    """

    path: str
    stat: CPUStat
    seconds: float
    requests: int
    latency: dict[int, int]
    mean_ns: float | None
    runnable: float = 0.0

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpus_used(self) -> float:
        return self.stat.usage_ns / self.seconds / SECOND


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a run. `pods` are the counters of the pods' own groups.

    `delays`, of a traced run, are a container's latencies in ns at ascending percentiles.
    """

    scenario: Scenario
    seed: int
    results: tuple[ContainerResult, ...]
    pods: dict[str, CPUStat]
    timeline: Timeline | None
    delays: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def of(self, path: str) -> ContainerResult:
        return next(result for result in self.results if result.path == path)


_BITS = 7


class Histogram:
    """Durations in ns, counted. The largest and the sum are exact."""

    __slots__ = ("_counts", "count", "largest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._counts: dict[int, int] = {}
        self.count = self.total = self.largest = 0
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """Count one duration, ≥ 0."""
        shift = value.bit_length() - _BITS - 1
        bucket = (shift << _BITS + 1) | (value >> shift) if shift > 0 else value
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def percentile(self, percent: float) -> int | None:
        """The smallest duration that `percent` of all do not exceed (nearest rank); None if there is none."""
        if not self.count:
            return None
        rank = max(-(-self.count * percent // 100), 1)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                shift = bucket >> _BITS + 1
                middle = ((bucket & ((1 << _BITS + 1) - 1)) << shift) + (1 << shift >> 1)
                return min(middle if shift else bucket, self.largest)
        return self.largest

    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def clear(self) -> None:
        """Forget everything, as at the end of a warm-up."""
        self._counts.clear()
        self.count = self.total = self.largest = 0

    def __len__(self) -> int:
        """Return the number of buckets in use, which the memory depends on."""
        return len(self._counts)


@dataclass(frozen=True, slots=True)
class _Live:
    path: str
    group: CPUGroup
    latencies: Sequence[Histogram]
    runnable: RunnableSamples


class RunnableSamples:
    """Number of threads of a group that run or wait, sampled, out of step with ticks."""

    _EVERY_NS = 1_730_000

    def __init__(self, system: Simulator, group: CPUGroup) -> None:
        self._system, self._group = system, group
        self.clear()
        self._read(None, 0)

    def clear(self) -> None:
        self._sum = self._count = 0

    def mean(self) -> float:
        return self._sum / max(self._count, 1)

    def _read(self, _argument: object, _stamp: int) -> None:
        self._sum += self._group.runnable
        self._count += 1
        self._system.after(self._EVERY_NS, self._read)


def run(scenario: Scenario, seed: int = 1, *, traced: bool = False) -> SimulationResult:
    """Simulate; the same seed gives the same outcome. Raises ValueError for a limit the kernel refuses."""
    warmup, end = (
        int(value * SECOND) for value in (scenario.warmup_seconds, scenario.warmup_seconds + scenario.seconds)
    )
    begin = warmup + int(scenario.window_ms[0] * MS)
    window = TimelineRecorder(begin, begin + int(scenario.window_ms[1] * MS)) if traced else None
    system = _simulator(scenario, seed, window)
    live, pods = [], {}
    for pod in scenario.pods:
        pods[pod.name] = group = _group(system, pod, None, seed)
        live += [_begin(system, pod, container, group, seed) for container in pod.containers]
    system.run(warmup)
    before = [each.group.stat() for each in live]
    pods_before = {name: group.stat() for name, group in pods.items()}
    for each in live:
        each.runnable.clear()
        for histogram in each.latencies:
            histogram.clear()
    system.run(end)
    system.close()
    return SimulationResult(
        scenario,
        seed,
        tuple(_result(each, stat, scenario.seconds) for each, stat in zip(live, before, strict=True)),
        {name: group.stat() - pods_before[name] for name, group in pods.items()},
        window.timeline() if window else None,
        {each.path: delays for each in live if (delays := _delays(each))} if traced else {},
    )


def _simulator(scenario: Scenario, seed: int, window: TimelineRecorder | None) -> Simulator:
    machine = scenario.machine
    ticks = _chance(seed, "ticks")
    aligned = machine.tick_phase_ns
    if aligned is None:
        aligned = ticks.randrange(machine.tick_ns or 1)

    def phase(_cpu: int) -> int:
        return aligned if machine.ticks == "aligned" else ticks.randrange(machine.tick_ns or 1)

    return Simulator(
        machine.cpus,
        scenario.kernel,
        tick_ns=machine.tick_ns,
        tick_phases=phase,
        smt_speed=machine.smt_speed,
        waker=machine.waker,
        weighted=len(scenario.pods) > 1 or any(len(pod.containers) > 1 for pod in scenario.pods),
        tracer=window,
    )


def _chance(seed: int, what: str) -> Random:
    """A random stream per name, so that one more container changes no other stream."""
    return Random(f"{seed}/{what}")  # noqa: S311 - has to be reproducible, not secret


def _group(
    system: Simulator, what: ScenarioPod | ScenarioContainer, parent: CPUGroup | None, seed: int
) -> CPUGroup:
    phase = what.phase_ns
    path = f"{parent.name}/{what.name}" if parent else what.name
    if phase is None:
        phase = _chance(seed, f"{path}/phase").randrange(what.limit.period_ns) if what.limit else 0
    limit = what.limit and what.limit.granted
    return system.group(path, parent, shares=what.shares, limit=limit, phase_ns=phase)


def _begin(
    system: Simulator, pod: ScenarioPod, container: ScenarioContainer, parent: CPUGroup, seed: int
) -> _Live:
    group = _group(system, container, parent, seed)
    cpus = system.all if container.cpus is None else container.cpus & system.all
    if not cpus:
        ids = ",".join(map(str, bits(container.cpus or 0)))
        raise ValueError(f"{group.name} may run on CPUs {ids or 'none'}: the machine has no such CPU")
    latencies = []
    for i, workload in enumerate(container.workloads):
        latencies.append(Histogram())
        random = _chance(seed, f"{group.name}/{i}")
        start(workload, WorkloadContext(system, group, cpus, random, latencies[-1].add, container.pinned))
    return _Live(group.name, group, latencies, RunnableSamples(system, group))


def _delays(live: _Live) -> list[tuple[float, int]]:
    """Of the first workload with requests, as far up as there are requests to tell percentiles apart."""
    first = next((histogram for histogram in live.latencies if histogram.count), Histogram())
    most = 100 * (1 - 1 / first.count) if first.count else 0.0
    percents = [*range(100), 99.2, 99.4, 99.6, 99.8, 99.9]
    delays = [(percent, first.percentile(percent)) for percent in percents if percent <= max(most, 50)]
    return [(percent, value) for percent, value in delays if value is not None]


def _result(live: _Live, before: CPUStat, seconds: float) -> ContainerResult:
    """Of several workloads in a container the first's latencies are shown."""
    first = next((histogram for histogram in live.latencies if histogram.count), Histogram())
    latency = {
        percent: value
        for percent in (10, 25, 75, *PERCENTILES)
        if (value := first.percentile(percent)) is not None
    }
    if first.count:
        latency[100] = first.largest
    return ContainerResult(
        live.path,
        live.group.stat() - before,
        seconds,
        first.count,
        latency,
        first.mean(),
        live.runnable.mean(),
    )
