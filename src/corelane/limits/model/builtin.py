"""The scenarios that come with corelane: the document's two experiments, and the service it began with.

Their parameters are stated in their notes; docs/reference/limits-model.md says how they were chosen and what
they do not explain. No cell of a table has parameters of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine
from corelane.limits.model.switches import LATEST, Switches, for_kernel
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
