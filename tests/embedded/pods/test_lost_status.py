"""Pods after the records of how their containers ended were lost: running containers go on."""

from dataclasses import replace

import pytest

from corelane.embedded.pods.records import ContainerExit, PastRuns, RestartPolicy
from support.agent_world import APP, INIT, SIDECAR, World, plan

UNKNOWN_EXIT = 255
POLICIES = list(RestartPolicy)


def started(*containers, policy, **members):
    """Return a world in which the init containers of pod p are complete, and its others run."""
    world = World(cpus=4)
    world.add(plan("p", *containers, policy=policy, **members))
    world.settle()
    for name, kind, _ in containers:
        if kind is INIT:
            world.exit(world.container("p", name), 0)
            world.settle()
    return world


def boot_without_end_of(world, name, monkeypatch):
    """Restart the agent; the runtime no longer knows when and how a container ended."""
    run_of = World.run_of

    def forgetful(self, process):
        run = run_of(self, process)
        return replace(run, exit_code=UNKNOWN_EXIT, finished_at=0.0) if run.container == name else run

    monkeypatch.setattr(World, "run_of", forgetful)
    world.boot()
    world.settle()


def states(world, part):
    return {one["name"]: one["state"] for one in world.statuses["p"][part]}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_init_container_with_a_lost_end_neither_runs_again_nor_ends_the_pod(policy, monkeypatch):
    world = started(("i", INIT, 0), ("s", SIDECAR, 0), ("a", APP, 1000), policy=policy)
    before = {process.id for process in world.live()}
    boot_without_end_of(world, "i", monkeypatch)
    assert {process.id for process in world.live()} == before
    assert world.ran["p", "i"] == 1
    assert world.phase("p") == "Running"
    assert states(world, "initContainerStatuses")["i"]["terminated"]["exitCode"] == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("past", [{}, {"i": PastRuns(0, None)}, {"i": PastRuns(3, ContainerExit(1, 5.0))}])
def test_an_init_container_without_any_record_neither_runs_again_nor_ends_the_pod(policy, past):
    world = started(("i", INIT, 0), ("a", APP, 1000), policy=policy)
    before = {process.id for process in world.live()}
    world.processes = {one.id: one for one in world.live()}
    world.api["p"] = replace(world.api["p"], past=past)
    world.boot()
    world.settle()
    assert {process.id for process in world.live()} == before
    assert world.ran["p", "i"] == 1
    assert world.phase("p") == "Running"


def test_an_init_container_with_a_lost_end_runs_again_before_the_ordinary_ones_ran(monkeypatch):
    world = World(cpus=4)
    world.add(plan("p", ("i", INIT, 0), ("a", APP, 1000)))
    world.settle()
    world.container("p", "i").live = False
    boot_without_end_of(world, "i", monkeypatch)
    assert world.ran["p", "i"] == 2
    assert ("p", "a") not in world.ran


@pytest.mark.parametrize(
    ("policy", "known", "starts", "phase"),
    [
        (RestartPolicy.NEVER, True, 1, "Succeeded"),
        (RestartPolicy.NEVER, False, 1, "Failed"),
        (RestartPolicy.ON_FAILURE, True, 1, "Succeeded"),
        (RestartPolicy.ON_FAILURE, False, 2, None),
    ],
)
def test_a_lost_end_is_the_one_that_the_api_server_has(policy, known, starts, phase, monkeypatch):
    world = started(("a", APP, 1000), ("b", APP, 1000), policy=policy)
    world.exit(world.container("p", "a"), 0)
    world.settle()
    if known:
        world.api["p"] = replace(world.api["p"], past={"a": PastRuns(0, ContainerExit(0, 5.0))})
    boot_without_end_of(world, "a", monkeypatch)
    assert world.ran["p", "a"] == starts
    world.exit(world.container("p", "b"), 0)
    world.settle()
    assert phase in (None, world.phase("p"))


def test_the_end_of_an_earlier_run_is_not_that_of_the_last(monkeypatch):
    world = started(("a", APP, 1000), ("b", APP, 1000), policy=RestartPolicy.ON_FAILURE)
    world.exit(world.container("p", "a"), 1)
    world.settle()
    world.exit(world.container("p", "a"), 0)
    world.settle()
    world.api["p"] = replace(world.api["p"], past={"a": PastRuns(0, ContainerExit(0, 5.0))})
    boot_without_end_of(world, "a", monkeypatch)
    world.tick(60)
    world.settle()
    assert world.ran["p", "a"] == 3
