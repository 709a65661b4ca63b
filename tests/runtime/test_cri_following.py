"""Following a runtime's events."""

import asyncio

import pytest

from corelane.runtime.base import RuntimeVersion
from corelane.runtime.cri.following import Follower
from corelane.runtime.process_watch import Tasks


class Containers:
    """A runtime whose list is under way when its connection is closed."""

    listed_at = 0.0

    def __init__(self):
        self.listing, self.closed = asyncio.Event(), asyncio.Event()

    async def version(self, *, again=False):
        return RuntimeVersion("containerd", "2.0.0")

    async def containers(self):
        self.listing.set()
        await self.closed.wait()
        raise RuntimeError("channel is closed")


class Client:
    async def changes(self, _version):
        await asyncio.Event().wait()
        yield


async def test_a_cancellation_ends_it_although_a_list_fails_meanwhile():
    containers = Containers()
    tasks = Tasks()
    following = tasks.spawn(Follower(containers, Client(), tasks, 1.0).run())
    await containers.listing.wait()
    following.cancel()
    containers.closed.set()
    async with asyncio.timeout(120):
        await tasks.finish()
        with pytest.raises(asyncio.CancelledError):
            await following
