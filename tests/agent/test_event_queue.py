"""The queue between what happens and the state machine."""

import asyncio
import time

import pytest

from corelane.agent.allocation.events import ContainerRun, Exited, TimePassed
from corelane.agent.event_loop import FIRST_RETRY, EventLoop, EventQueue
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import new


@pytest.mark.parametrize("seconds", [None, 30.0])
@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_that_comes_with_an_event_ends_the_wait(seconds, turns):
    queue = EventQueue()
    waiting = asyncio.create_task(queue.filled(seconds))
    await asyncio.sleep(0.01)
    queue.put(TimePassed(at=0.0, now=0.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting


def test_ends_of_containers_without_a_pod_are_told_apart():
    queue = EventQueue()
    for ident in ("a", "b"):
        run = ContainerRun(id=ident, uid="", container="app", attempt=0, live=False)
        queue.put(Exited(run=run, at=0.0, now=0.0))
        queue.put(Exited(run=run, at=1.0, now=1.0))
    assert [event.run.id for event in queue.take()] == ["a", "b"]


def test_an_event_in_the_turn_in_which_the_time_is_over_is_waited_for_no_longer():
    async def scene():
        queue, loop = EventQueue(), asyncio.get_running_loop()
        over = loop.time() + 0.02
        loop.call_at(over, queue.put, TimePassed(at=0.0, now=0.0))
        loop.call_at(over - 0.01, time.sleep, 0.05)  # both are due in one turn
        return await queue.filled(0.02), queue.take()

    there, events = asyncio.run(scene())
    assert there == bool(events)


def test_the_agent_observes_before_each_batch_it_decides():
    class Agent:
        def __init__(self):
            self.observed = False

        async def observe(self):
            self.observed = True

        def decide(self, *batch):
            assert self.observed
            raise EndOfSceneError

        async def save(self, ledger):
            return "disk full"

        def saved(self, fault):
            pass

        def carry_out(self, order):
            pass

        async def batch_done(self):
            pass

    async def scene():
        queue, loop = EventQueue(), asyncio.get_running_loop()

        def put():
            queue.put(TimePassed(at=0.0, now=0.0))

        # The retry of an unsaved ledger, after FIRST_RETRY, and the event are due in one turn.
        loop.call_later(FIRST_RETRY - 0.02, time.sleep, 0.06)
        loop.call_later(FIRST_RETRY, put)
        await EventLoop(queue).run(Agent(), new(parse_spec("core:4 smt:1"), NodeConfig(reserved_count=1)))

    with pytest.raises(EndOfSceneError):
        asyncio.run(scene())


class EndOfSceneError(Exception):
    pass
