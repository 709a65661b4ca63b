"""The queue between what happens and the state machine."""

import asyncio

import pytest

from corelane.agent.allocation.events import ContainerRun, Exited, TimePassed
from corelane.agent.event_loop import EventQueue


@pytest.mark.parametrize("seconds", [None, 30.0])
@pytest.mark.parametrize("turns", range(4))
def test_a_cancellation_that_comes_with_an_event_ends_the_wait(seconds, turns):
    async def scene():
        queue = EventQueue()
        waiting = asyncio.create_task(queue.filled(seconds))
        await asyncio.sleep(0.01)
        queue.put(TimePassed(at=0.0, now=0.0))
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(scene())


def test_ends_of_containers_without_a_pod_are_told_apart():
    queue = EventQueue()
    for ident in ("a", "b"):
        run = ContainerRun(id=ident, uid="", container="app", attempt=0, live=False)
        queue.put(Exited(run=run, at=0.0, now=0.0))
        queue.put(Exited(run=run, at=1.0, now=1.0))
    assert [event.run.id for event in queue.take()] == ["a", "b"]
