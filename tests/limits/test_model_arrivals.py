"""How requests come: at random, in batches, at regular or recorded moments, and from clients that think."""

from random import Random
from statistics import mean, pstdev

import pytest
import yaml

from corelane.limits.model import scenario_file
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.scenario_file import ScenarioError
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.workloads import (
    Closed,
    Duration,
    Open,
    Recorded,
    ThreadPoolServer,
    WorkloadContext,
)


def served(arrivals, seconds: float = 20.0, threads: int = 1):
    server = ThreadPoolServer(Duration(1 * MS), arrivals, threads)
    pod = ScenarioPod("p", (ScenarioContainer("c", (server,)),))
    return run(Scenario("", "", SimulatedMachine(threads), (pod,), seconds=seconds), 5).results[0]


@pytest.mark.parametrize("variation", [0.0, 0.2, 1.0, 2.0])
def test_intervals_have_the_mean_and_the_variation_that_is_asked_for(variation):
    system = Simulator(1)
    context = WorkloadContext(system, system.group("g"), 1, Random(1), lambda _: None)
    draw = context.intervals(1e9, variation)
    values = [draw() for _ in range(20_000)]
    assert mean(values) == pytest.approx(1e9, rel=0.05)
    assert pstdev(values) / mean(values) == pytest.approx(variation, abs=0.06 * max(variation, 1))


def test_batches_come_at_once_and_as_many_requests_a_second():
    alone, batches = (served(Open(40.0, batch, 0.0)) for batch in (1, 8))
    assert batches.per_second == pytest.approx(alone.per_second, rel=0.03)
    assert alone.latency[100] == pytest.approx(1 * MS, rel=0.1)
    assert batches.latency[100] == pytest.approx(8 * MS, rel=0.1), "one thread serves them in turn"


def test_recorded_requests_come_when_they_came_and_again():
    found = served(Recorded((0, 100 * MS, 100 * MS), SECOND), seconds=10.0)
    assert found.requests == 30
    assert found.latency[100] == pytest.approx(2 * MS, rel=0.1)


def test_no_recorded_requests_are_no_load():
    assert served(Recorded((), SECOND)).requests == 0


def test_clients_that_think_at_random_ask_as_often_on_average():
    steady, random = (served(Closed(2, 49 * MS, variation), 60.0, 2).per_second for variation in (0.0, 1.0))
    assert random == pytest.approx(steady, rel=0.05)


def test_threads_that_run_or_wait_are_counted():
    """Little's law: two clients without think time, of whom one is served and one waits."""
    assert served(Closed(2), 5.0, 1).runnable == pytest.approx(1.0, abs=0.02), "one thread, always busy"
    assert served(Closed(2), 5.0, 2).runnable == pytest.approx(2.0, abs=0.02)


FILE = """
machine: {cpus: 1}
pods:
  - name: web
    containers:
      - name: app
        workload: {kind: server, service: 1ms, %s}
"""


@pytest.mark.parametrize(
    ("fields", "arrivals"),
    [
        ("rate: 10", Open(10.0)),
        ("rate: 10, batch: 5, variation: 0.3", Open(10.0, 5, 0.3)),
        ("clients: 3, think: 5ms, variation: 1", Closed(3, 5 * MS, 1.0)),
    ],
)
def test_a_scenario_file_states_them(fields, arrivals):
    scenario = scenario_file.read(yaml.safe_load(FILE % fields))
    (workload,) = scenario.pods[0].containers[0].workloads
    assert workload.arrivals == arrivals


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("clients: 3, batch: 2", "batch"),
        ("rate: 3, variation: 11", "0 and 10"),
        ("rate: 3, batch: 0", "batch"),
    ],
)
def test_what_makes_no_sense_is_named(fields, words):
    with pytest.raises(ScenarioError, match=words):
        scenario_file.read(yaml.safe_load(FILE % fields))
