"""The scenarios that come with corelane: the document's two experiments, and the service it began with.

Their parameters are stated in their notes; docs/reference/limits-model.md says how they were chosen and what
they do not explain. No cell of a table has parameters of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from corelane.limits.model import scenario_file as fields
from corelane.limits.model.bandwidth import LATEST, CFSLimit, CPUStat, Switches, for_kernel
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    SimulationResult,
    pod_limit,
    run,
)
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    EventServer,
    Open,
    Parallel,
    Spin,
    ThreadPoolServer,
    Workload,
)


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One column of a study. `published` maps what was measured, such as `p50 ms`, to its value."""

    label: str
    scenario: Scenario
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Study:
    """Cases side by side, with what has to be known to read them."""

    name: str
    title: str
    cases: tuple[StudyCase, ...]
    notes: tuple[str, ...] = ()


THEN = for_kernel("5.4")
"""The experiments' kernels are not published; Amazon Linux 2 offered this one for such nodes."""


def nginx(cpus: int, kernel: Switches = THEN, seconds: float = 120.0) -> Scenario:
    """The nginx experiment on a node of so many CPUs: 100m, and 100 connections that ask again and again."""
    workload = EventServer(
        wake=Duration(250 * US),
        accept=Duration(2 * US),
        handle=Duration(80 * US, sigma=1.1),
        arrivals=Closed(100, think_ns=20 * US),
        network_ns=350 * US,
        send_ns=300 * US,
    )
    server = ScenarioContainer("nginx", (workload,), 100, CFSLimit(10 * MS), pinned=True)
    return Scenario(
        f"nginx-{cpus}",
        f"nginx limited to 100m on {cpus} CPUs",
        SimulatedMachine(cpus, ticks="random"),
        (ScenarioPod("web", (server,)),),
        kernel,
        seconds,
        subject="web/nginx",
    )


NGINX = Study(
    "nginx",
    "nginx limited to 100m, 100 connections without keep-alive, on a small and a large node",
    (
        StudyCase("2 CPUs", nginx(2), {"requests/s": 1221, "p50 ms": 98, "p95 ms": 104, "p99 ms": 195}),
        StudyCase("96 CPUs", nginx(96), {"requests/s": 455, "p50 ms": 100, "p95 ms": 1000, "p99 ms": 2500}),
        StudyCase("96 CPUs, kernel 6.18", nginx(96, LATEST)),
    ),
    (
        "The same parameters in all cases: 82 µs of CPU per request, 250 µs to wake a worker.",
        "Also published: on 96 CPUs 10 % took more than 400 ms, the longest over 12 s.",
        "The kernel of the experiment is not known; taken is Linux 5.4's order of throttled CPUs.",
    ),
)


def _web(number: int, limit: CFSLimit | None) -> ScenarioPod:
    service = ThreadPoolServer(Duration(5720 * US, sigma=0.3), Closed(16), threads=8, network_ns=300 * US)
    return ScenarioPod(f"web-{number}", (ScenarioContainer("app", (service,), 900, limit),))


def _neighbours(*, limited: bool, triggered: bool) -> Scenario:
    limit = CFSLimit(90 * MS) if limited else None
    workload: tuple[Workload, ...] = (Spin(16),) if triggered else ()
    node = Bursts(Duration(1 * MS, sigma=0.5), pause_ns=9 * MS)
    pods = (
        *(_web(number, limit) for number in (1, 2, 3)),
        ScenarioPod("wild", (ScenarioContainer("app", workload, 900, limit),)),
        ScenarioPod("node", (ScenarioContainer("daemons", (node,), 1000),)),
    )
    name = f"neighbours-{'limited' if limited else 'unlimited'}-{'triggered' if triggered else 'idle'}"
    return Scenario(
        name, "three web pods beside one that wants everything", SimulatedMachine(4), pods, seconds=30
    )


NEIGHBOURS = Study(
    "neighbours",
    "Three well-behaved pods beside a misbehaving one on 4 CPUs; published is the mean of the three",
    (
        StudyCase("limits, triggered", _neighbours(limited=True, triggered=True), {"requests/s": 155}),
        StudyCase("limits, idle", _neighbours(limited=True, triggered=False), {"requests/s": 159}),
        StudyCase(
            "requests only, triggered", _neighbours(limited=False, triggered=True), {"requests/s": 179}
        ),
        StudyCase("requests only, idle", _neighbours(limited=False, triggered=False), {"requests/s": 218}),
    ),
    (
        "Pods of 900m, 5.72 ms of CPU per request, 16 clients each, 0.1 CPU for the node's daemons;",
        "the misbehaving pod runs 16 threads that never stop.",
    ),
)


def _pytorch(cpus: int, threads: int | None = None) -> Scenario:
    workload = Parallel(
        serial=Duration(8 * MS, sigma=0.1),
        work=Duration(100 * MS, sigma=0.1),
        regions=48,
        arrivals=Open(5.0),
        threads=threads,
    )
    server = ScenarioContainer("model", (workload,), 2000, CFSLimit(200 * MS))
    return Scenario(
        f"pytorch-{cpus}",
        f"a transformer behind FastAPI limited to 2 CPUs on {cpus} CPUs",
        SimulatedMachine(cpus),
        (ScenarioPod("inference", (server,)),),
        seconds=60,
        subject="inference/model",
    )


PYTORCH = Study(
    "pytorch",
    "A PyTorch model served on CPUs with a limit of 2, moved from a node of 4 CPUs to one of 16",
    (
        StudyCase("4 CPUs", _pytorch(4)),
        StudyCase("16 CPUs", _pytorch(16)),
        StudyCase("16 CPUs, OMP_NUM_THREADS=2", _pytorch(16, threads=2)),
    ),
    (
        "Parameters of ours, as the document gives none: 5 requests/s of 8 ms serial and 100 ms parallel",
        "work in 48 regions, a thread per CPU, waiting threads spin for up to 1 ms.",
    ),
)

BUILTIN = {study.name: study for study in (NGINX, NEIGHBOURS, PYTORCH)}


Change = Callable[[Scenario, str], Scenario]


def vary(scenario: Scenario, text: str) -> Scenario:
    """The scenario with changes such as `limit=500m,threads=2` made one after the other.

    Raises ValueError that says what is wrong with which of them.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"variant {text!r}: changes nothing; there are {', '.join(KINDS)}")
    for part in parts:
        key, _, value = part.partition("=")
        if key not in KINDS:
            raise ValueError(f"variant {part!r}: there is no {key!r}; there are {', '.join(KINDS)}")
        try:
            scenario = KINDS[key](scenario, value)
        except ValueError as error:
            raise ValueError(f"variant {part!r}: {error}") from None
    # Only at the end: `burst=10ms,kernel=6.6` may go by way of a kernel without burst.
    for pod in scenario.pods:
        for limit in (pod.limit, *(container.limit for container in pod.containers)):
            try:
                if limit is not None:
                    limit.granted.check(scenario.kernel)
            except ValueError as error:
                raise ValueError(f"variant {text!r}: {error}") from None
    return scenario


def _limit(scenario: Scenario, value: str) -> Scenario:
    milli = None if value == "none" else fields.read_milli(value)

    def change(container: ScenarioContainer) -> ScenarioContainer:
        old = container.limit or CFSLimit(1)
        limit = milli and CFSLimit(milli * old.period_ns // 1000, old.period_ns, old.burst_ns)
        return replace(container, limit=limit or None)

    return _subject(scenario, change)


def _no_limit(scenario: Scenario, value: str) -> Scenario:
    if value:
        raise ValueError("takes no value")
    return _limit(scenario, "none")


def _burst(scenario: Scenario, value: str) -> Scenario:
    burst = fields.read_duration(value)
    return _subject(
        scenario, lambda container: replace(container, limit=replace(_limited(container), burst_ns=burst))
    )


def _period(scenario: Scenario, value: str) -> Scenario:
    """The same part of a CPU, in shorter or longer portions."""
    period = fields.positive_time(value)

    def change(container: ScenarioContainer) -> ScenarioContainer:
        limit = _limited(container)
        quota = limit.quota_ns * period // limit.period_ns
        return replace(container, limit=CFSLimit(quota, period, min(limit.burst_ns, quota)))

    return _subject(scenario, change)


def _threads(scenario: Scenario, value: str) -> Scenario:
    count = fields.read_count(value)
    return _subject(
        scenario,
        lambda container: replace(
            container, workloads=tuple(replace(kind, threads=count) for kind in container.workloads)
        ),
    )


def _exclusive(scenario: Scenario, value: str) -> Scenario:
    """Exclusive CPUs, the first ones, and no quota (as the kubelet's static policy does)."""
    count = fields.read_count(value)
    everything = (1 << scenario.machine.cpus) - 1
    if count > scenario.machine.cpus - (sum(len(pod.containers) for pod in scenario.pods) > 1):
        raise ValueError(f"{scenario.machine.cpus} CPUs leave none for other containers; request fewer")
    own = (1 << count) - 1
    pods = tuple(
        replace(pod, containers=tuple(_beside(container, own, everything) for container in pod.containers))
        for pod in scenario.pods
    )
    return _subject(
        replace(scenario, pods=pods),
        lambda container: replace(container, cpus=own, limit=None, request_milli=1000 * count),
    )


KINDS: dict[str, Change] = {
    "limit": _limit,
    "no-limit": _no_limit,
    "burst": _burst,
    "period": _period,
    "threads": _threads,
    "exclusive": _exclusive,
    "kernel": lambda scenario, value: replace(scenario, kernel=for_kernel(value)),
    "cpus": lambda scenario, value: replace(
        scenario, machine=replace(scenario.machine, cpus=fields.read_count(value))
    ),
}


def _subject(scenario: Scenario, change: Callable[[ScenarioContainer], ScenarioContainer]) -> Scenario:
    """Change the subject, and its pod's limit with it where that follows from the containers'."""
    scenario.container(scenario.subject)
    pods = []
    for pod in scenario.pods:
        containers = tuple(
            change(container) if scenario.subject == f"{pod.name}/{container.name}" else container
            for container in pod.containers
        )
        follows = pod.limit is not None and pod.limit == pod_limit(pod.containers)
        limit = pod_limit(containers) if follows else pod.limit
        pods.append(replace(pod, containers=containers, limit=limit))
    return replace(scenario, pods=tuple(pods))


def _beside(container: ScenarioContainer, own: int, everything: int) -> ScenarioContainer:
    rest = (everything if container.cpus is None else container.cpus) & ~own
    return replace(container, cpus=rest or everything & ~own)


def _limited(container: ScenarioContainer) -> CFSLimit:
    if container.limit is None:
        raise ValueError(f"{container.name} has no limit to change")
    return container.limit


# The spread of counters over the phases of nested limits.
#
# A pod and its containers are refilled on grids of their own, whose relation is left to chance, so two
# starts of the same pod can be throttled for different times.


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
    phases = [container.phase_ns for container in pod.containers if container.limit]
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
    pods = list(scenario.pods)
    for index, pod in enumerate(pods):
        if depends_on_phases(pod):
            containers = tuple(
                replace(container, phase_ns=_phase(container, number, level))
                for level, container in enumerate(pod.containers, 1)
            )
            pods[index] = replace(pod, containers=containers, phase_ns=_phase(pod, number, 0))
    return replace(scenario, pods=tuple(pods))


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
        values = [value(result.pods[pod.name]) for result in results]
        ranges[pod.name] = min(values), max(values)
        for path in (f"{pod.name}/{container.name}" for container in pod.containers if container.limit):
            values = [value(result.of(path).stat) for result in results]
            ranges[path] = min(values), max(values)
    return ranges
