"""A container has ended when no process of it is left: until then its CPUs are not free."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from corelane.embedded.containers import local, start_and_end
from corelane.kernel import proc
from corelane.runtime.base import RuntimeFailure
from support.containers import alive, both_ways, ended, eventually, have_cgroups, opened, shell, status

FREEZER = Path("/sys/fs/cgroup/freezer")
needs_freezer = pytest.mark.skipif(
    not (os.access(FREEZER, os.W_OK) and have_cgroups()), reason="needs the freezer of cgroup v1"
)

LEAVES_A_CHILD = "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & exec sleep 600"
"""The child leaves its parent's session, writes its pid to a file, and outlives the main process."""


@pytest.fixture
def freezer():
    """A function that freezes a process, which no signal ends then; thawed and removed after the test."""
    group = FREEZER / f"corelane-test-{os.getpid()}"

    def freeze(pid):
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")

    freeze.thaw = lambda: (group / "freezer.state").write_text("THAWED")
    yield freeze
    if group.exists():
        freeze.thaw()
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            os.kill(pid, signal.SIGKILL)
        for _ in range(500):
            try:
                group.rmdir()
                return
            except OSError:
                asyncio.run(asyncio.sleep(0.01))


async def with_child(runtime, tmp_path):
    """A container whose main process has left a child, and the child."""
    told = tmp_path / "child"
    run = await runtime.start(shell(LEAVES_A_CHILD.format(told)))
    await eventually(told.exists)
    return run, int(told.read_text())


def kill_shim(runtime, run):
    shim = runtime._known.find(run.id).outcome.shim
    os.kill(shim.pid, signal.SIGKILL)
    return eventually(lambda: not proc.is_alive(shim))


@both_ways
async def test_the_end_of_a_container_without_shim_is_reported_when_its_last_process_is_gone(
    runtime, tmp_path
):
    run, child = await with_child(runtime, tmp_path)
    lived = []
    publish = runtime._known.events.publish
    runtime._known.events.publish = lambda what: (
        publish(what),
        lived.append(alive(child)) if what.state == "exited" else None,
    )
    await kill_shim(runtime, run)
    os.kill(run.pid, signal.SIGKILL)
    await ended(runtime, run.id)
    assert lived == [False]


@needs_freezer
async def test_a_process_that_cannot_be_killed_keeps_its_container_running(tmp_path, freezer, monkeypatch):
    monkeypatch.setattr(start_and_end, "KILL_SECONDS", 1.0)
    async with opened(tmp_path / "state", "required") as runtime:
        run, child = await with_child(runtime, tmp_path)
        freezer(child)
        await kill_shim(runtime, run)
        os.kill(run.pid, signal.SIGKILL)

        async def lingers():
            return str(child) in (await status(runtime, run.id)).message

        await eventually(lingers)
        found = await status(runtime, run.id)
        assert found.state == "running"
        assert found.message == f"main process ended; SIGKILL did not end processes {child}"
        assert (await runtime.observe(run.id)).populated
        with pytest.raises(RuntimeFailure, match=rf"SIGKILL did not end it; its processes: {child}"):
            await runtime.stop(run.id, 0)
        freezer.thaw()
        found = await ended(runtime, run.id)
        assert found.exit_code == 255
        observed = await runtime.observe(run.id)
        assert observed is None or not observed.populated


@needs_freezer
async def test_a_restarted_runtime_waits_for_processes_that_an_ended_container_left(tmp_path, freezer):
    state = tmp_path / "state"
    async with opened(state, "required") as runtime:
        run, child = await with_child(runtime, tmp_path)
        freezer(child)
        await kill_shim(runtime, run)
        os.kill(run.pid, signal.SIGKILL)
        await eventually(lambda: not alive(run.pid))
        await runtime.close()
        again = await local.LocalRuntime.open(state, cgroups="required", sweep_seconds=0.2)
        try:
            assert (await status(again, run.id)).state == "running"
            freezer.thaw()
            assert (await ended(again, run.id)).state == "exited"
        finally:
            freezer.thaw()
            await again.destroy(0)


@both_ways
async def test_a_container_that_ends_at_once_is_reported_once(runtime):
    changes = runtime.wait_events()
    run = await runtime.start(shell("exit 3"))
    found = await ended(runtime, run.id)
    assert found.exit_code == 3
    states = []
    while not states or states[-1] != "exited":
        states.append((await anext(changes)).state)
    assert states in (["running", "exited"], ["exited"])
