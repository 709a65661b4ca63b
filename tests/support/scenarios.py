"""Scenarios with a single container, and steps of threads for the CPU simulator."""

from itertools import cycle

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import SECOND
from corelane.limits.model.queues import RUN
from corelane.limits.model.scenario import (
    ContainerResult,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.workloads import Workload


def alone(
    workload: Workload,
    cpus: int = 1,
    limit: CFSLimit | None = None,
    *,
    pinned: bool = True,
    pod_limit: CFSLimit | None = None,
    phase_ns: int | None = None,
    machine: SimulatedMachine | None = None,
    **more,
) -> Scenario:
    """Container pod/app alone on a machine."""
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=pinned, phase_ns=phase_ns)
    pods = (ScenarioPod("pod", (app,), pod_limit),)
    return Scenario("", "", machine or SimulatedMachine(cpus), pods, **more)


def result(workload: Workload, cpus: int = 1, limit=None, seed: int = 1, **more) -> ContainerResult:
    return run(alone(workload, cpus, limit, **more), seed).results[0]


def repeated(*steps):
    """The steps of a thread, again and again."""
    return cycle(steps)


def spinning():
    """The steps of a thread that never stops."""
    return cycle([(RUN, SECOND)])
