"""Draining: no more attempts, and what is under way comes to an end."""

import asyncio

from msgspec.structs import replace

from corelane.kube.apierrors import APIError
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.events import NodeChanged, PodChanged
from support import objects
from support.pods import container, pod


class Conflicts:
    """A server that answers each binding with 409 Conflict, so that the pod has to be looked up."""

    def __init__(self) -> None:
        self.bound, self.looked_up = asyncio.Event(), 0

    async def bind(self, *_args: object, **_more: object) -> None:
        self.bound.set()
        await asyncio.sleep(0.1)
        raise APIError(409, "Conflict", "pod is assigned already", is_status=True)

    async def get(self, *_args: object, **_more: object) -> None:
        await asyncio.sleep(0.1)
        self.looked_up += 1
        raise APIError(404, "NotFound", "pod not found", is_status=True)

    def __getattr__(self, _name: str) -> object:
        async def answer(*_args: object, **_more: object) -> None:
            await asyncio.sleep(0)

        return answer


def test_a_drain_waits_for_the_look_up_that_follows_a_binding() -> None:
    async def scene() -> None:
        client = Conflicts()
        scheduler = Scheduler(client, name="corelane-scheduler")  # type: ignore[arg-type]
        parts = (scheduler._binder.run(), scheduler._writer.run(), scheduler._schedule())
        tasks = [asyncio.create_task(part) for part in parts]
        scheduler._started = True
        made = pod("p", container("x", "cpu=100m", ""))
        pending = replace(made, spec=replace(made.spec, scheduler_name=scheduler.core.name))
        scheduler._intake.handle(NodeChanged(0.0, None, objects.node("n")))
        scheduler._intake.handle(PodChanged(0.0, None, pending))
        await asyncio.wait_for(client.bound.wait(), 60)
        assert await scheduler.drain(60.0) == 0
        assert client.looked_up == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scene())
