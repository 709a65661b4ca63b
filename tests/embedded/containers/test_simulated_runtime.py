"""Containers without processes: honest about it, and otherwise like real ones."""

from dataclasses import replace

import pytest

from corelane.cpuset import CPUSet
from corelane.embedded.containers.simulated import SimulatedRuntime, SimulationStateError
from corelane.runtime.base import (
    ContainerSpec,
    LifecycleRuntime,
    ResourceUpdate,
    Runtime,
    RuntimeFailure,
    UnknownContainer,
)


def spec(name="main", attempt=0):
    return ContainerSpec(
        pod_uid="u", namespace="default", pod="p", name=name, command=(), cpus=CPUSet([1]), attempt=attempt
    )


def test_it_has_all_that_the_protocol_asks_for(tmp_path):
    runtime: LifecycleRuntime = SimulatedRuntime(tmp_path)
    names = [name for name in (*vars(Runtime), *vars(LifecycleRuntime)) if not name.startswith("_")]
    assert "observe" in names
    assert "start" in names
    assert all(hasattr(runtime, name) for name in names)


async def test_a_container_runs_until_it_is_stopped_and_there_is_nothing_to_confirm(tmp_path):
    runtime = SimulatedRuntime(tmp_path)
    changes = runtime.wait_events()
    started = await runtime.start(spec())
    assert (started.state, started.pid) == ("running", None)
    assert await runtime.allowed(started.id) == []
    assert await runtime.observe(started.id) is None
    await runtime.update(started.id, ResourceUpdate(cpus=CPUSet([2, 3])))
    assert runtime.assigned(started.id) == CPUSet([2, 3])
    await runtime.stop(started.id, 5)
    assert (await anext(changes)).state == "running"
    ended = await anext(changes)
    assert (ended.state, ended.exit_code, ended.signal) == ("exited", 143, 15)
    await runtime.remove(started.id)
    assert await runtime.containers() == []
    await runtime.remove(started.id)


async def test_an_init_container_completes_at_once(tmp_path):
    runtime = SimulatedRuntime(tmp_path)
    changes = runtime.wait_events()
    await runtime.start(replace(spec(), completes=True))
    assert [(await anext(changes)).state for _ in range(2)] == ["running", "exited"]
    (status,) = await runtime.containers()
    assert (status.state, status.exit_code, status.signal) == ("exited", 0, None)


async def test_containers_outlive_the_runtime(tmp_path):
    first = SimulatedRuntime(tmp_path)
    kept, stopped = await first.start(spec()), await first.start(spec("other"))
    await first.stop(stopped.id, 0)
    second = SimulatedRuntime(tmp_path)
    assert {one.id: one.state for one in await second.containers()} == {
        kept.id: "running",
        stopped.id: "exited",
    }
    assert second.assigned(kept.id) == CPUSet([1])
    with pytest.raises(RuntimeFailure, match="runs already"):
        await second.start(spec(attempt=1))
    await second.start(spec("other", attempt=1))


async def test_what_runs_is_not_removed_and_what_is_not_there_is_unknown():
    runtime = SimulatedRuntime()
    started = await runtime.start(spec())
    with pytest.raises(RuntimeFailure, match="still runs"):
        await runtime.remove_pod("u")
    with pytest.raises(UnknownContainer):
        await runtime.update("nobody", ResourceUpdate(cpus=CPUSet([1])))
    await runtime.stop(started.id, 0)
    await runtime.remove_pod("u")
    assert await runtime.containers() == []


async def test_the_log_says_that_there_is_none():
    runtime = SimulatedRuntime()
    started = await runtime.start(spec())
    text = b"".join([chunk async for chunk in runtime.logs(started.id)])
    assert b"simulated" in text


def test_a_broken_state_file_is_named(tmp_path):
    (tmp_path / "simulated.json").write_text('{"no": "list"}')
    with pytest.raises(SimulationStateError, match=r"simulated\.json"):
        SimulatedRuntime(tmp_path)
