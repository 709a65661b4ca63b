"""Records that are deleted under running containers: processes go on, and records are written again."""

import asyncio
import os
import shutil
import signal

import pytest

from corelane.embedded.containers.local import LocalRuntime
from support.containers import alive, both_ways, ended, eventually, opened, shell, status

SLEEP = "while :; do sleep 0.1; done"
SWEEP = 0.05


def open_in(state, mode):
    return LocalRuntime.open(state, cgroups=mode, sweep_seconds=SWEEP)


@both_ways
@pytest.mark.parametrize("deleted", ["", "containers", "containers/{}"], ids=["all", "records", "one"])
async def test_deleted_record_of_a_running_container_is_written_again(tmp_path, mode, deleted):
    state = tmp_path / "containers"
    runtime = await open_in(state, mode)
    instance = runtime.instance
    begun = await runtime.start(shell("trap 'exit 7' TERM; " + SLEEP, env=(("A", "b c"),), attempt=3))
    spec = runtime.recorded()[0]
    shutil.rmtree(state / deleted.format(begun.id))
    await eventually((state / "containers" / begun.id / "status.json").exists)
    assert (state / "instance").read_text() == instance
    other = await runtime.start(shell("exit 5", name="other"))
    assert (await ended(runtime, other.id)).exit_code == 5
    await runtime.close()
    async with opened(state, mode) as again:
        assert again.problems == ()
        assert again.instance == instance
        assert spec in again.recorded()
        found = await status(again, begun.id)
        assert (found.state, found.pid, found.message) == ("running", begun.pid, "")
        os.kill(begun.pid, signal.SIGTERM)
        assert (await ended(again, begun.id)).exit_code == 7


@both_ways
async def test_end_after_the_record_was_deleted_is_known(tmp_path, mode):
    runtime = await open_in(tmp_path / "containers", mode)
    try:
        begun = await runtime.start(shell("trap 'exit 7' TERM; " + SLEEP))
        shutil.rmtree(runtime_directory := tmp_path / "containers" / "containers")
        await eventually((runtime_directory / begun.id / "status.json").exists)
        os.kill(begun.pid, signal.SIGTERM)
        assert (await ended(runtime, begun.id)).exit_code == 7
    finally:
        await runtime.destroy(0)


async def test_deleted_data_directory_is_not_made_again(tmp_path):
    data = tmp_path / "data"
    runtime = await open_in(data / "containers", "off")
    begun = await runtime.start(shell(SLEEP))
    shutil.rmtree(data)
    await asyncio.sleep(10 * SWEEP)
    assert not data.exists()
    assert alive(begun.pid)
    await runtime.destroy(0)
    assert not alive(begun.pid)


async def test_logs_directory_that_was_deleted_does_not_hold_up_the_removal_of_a_pod(tmp_path):
    state = tmp_path / "containers"
    runtime = await open_in(state, "off")
    begun = await runtime.start(shell("exit 0", uid="u-1"))
    await ended(runtime, begun.id)
    shutil.rmtree(state / "logs")
    await runtime.sweep([])
    await runtime.remove_pod("u-1")
    assert await runtime.containers() == []
    await runtime.destroy(0)
