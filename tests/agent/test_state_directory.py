"""The agent's state directory: one agent acts; what is deleted is made again; a lost lock ends the agent."""

import asyncio
import json

import pytest

from corelane.agent import state_directory
from corelane.agent.source import AnotherAgentActs
from corelane.runtime.nri.acting_lock import state_lock
from corelane.supervise import innermost
from support.node_lab import in_lab, source


@in_lab()
async def test_a_waiting_agent_takes_over_with_the_ledger_as_the_first_one_left_it(lab):
    first = lab.agent()
    second = lab.agent()  # has read the files already: an empty ledger
    acting = asyncio.create_task(first.run())
    await lab.until(lambda: first.mode and first.mode.name == "owner")
    waiting = asyncio.create_task(second.run())
    one, two = lab.run("one", "2"), lab.run("two", "2")
    await lab.until(lambda: len(lab.cpus(one)) == len(lab.cpus(two)) == 2)
    await lab.until(lambda: first.status()["containers"] == {"confirmed": 2})
    own = lab.cpus(one), lab.cpus(two)
    generation = first.ledger.generation
    assert any("is locked by process" in line for line in lab.reporter.lines)
    assert second.mode is None
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)
    await first.close()
    await lab.until(lambda: second.status()["containers"] == {"confirmed": 2})
    assert second.ledger.generation >= generation
    assert (lab.cpus(one), lab.cpus(two)) == own
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await second.close()


@in_lab()
async def test_a_state_directory_that_is_deleted_is_made_and_written_again(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        (lab.path / "state").rename(lab.path / "gone")
        ledger = lab.path / "state" / "ledger.json"
        await lab.until(lambda: ledger.exists() and (ledger.parent / "settings.json").exists())
        saved = {e["uid"]: e["cpus"] for e in json.loads(ledger.read_text())["ledger"]["entries"]}
        assert saved == {"uid-server": str(lab.cpus(server))}
        assert "is locked by" in state_lock(lab.path / "state").try_acquire()
        await lab.until((lab.path / "state" / state_directory.SOCKET_FILE).exists)
        document = await asyncio.to_thread(state_directory.read_status, lab.path / "state")
        assert document["running"]


@in_lab()
async def test_an_agent_ends_where_another_took_the_replaced_state_directory(lab):
    agent = lab.agent()
    task = asyncio.create_task(agent.run())
    await lab.until(lambda: agent.mode is not None)
    (lab.path / "state" / "agent.lock").unlink()
    other = state_lock(lab.path / "state")
    assert other.try_acquire() == ""
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(task, 120)
    error = innermost(caught.value)
    assert isinstance(error, AnotherAgentActs)
    assert "is locked by process" in str(error)
    other.release()
    await agent.close()


@in_lab()
async def test_a_status_socket_that_is_deleted_is_made_again(lab):
    async with lab.working() as agent:
        path = lab.path / "state" / state_directory.SOCKET_FILE
        await lab.until(path.exists)
        path.unlink()
        await lab.until(path.exists)
        assert source(agent, "status socket")["state"] == "ok"


@in_lab()
async def test_a_status_socket_that_cannot_be_made_is_reported_and_retried(lab):
    blocker = lab.path / "state" / state_directory.SOCKET_FILE
    blocker.mkdir(parents=True)
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        state = await lab.until(lambda: (one := source(agent, "status socket"))["state"] == "failing" and one)
        assert f"{blocker}: " in state["error"]
        assert "make the state directory writable" in state["error"]
        blocker.rmdir()
        await lab.until(lambda: source(agent, "status socket")["state"] == "ok")


@in_lab()
async def test_files_that_a_killed_agent_left_half_written_are_removed_at_the_start(lab):
    left = lab.path / "state" / ".ledger.json.abc.tmp"
    left.parent.mkdir()
    left.write_text("{")
    async with lab.working():
        await lab.until(lambda: not left.exists())
