"""The embedded API server in a thread of its own, for programs and blocking clients to talk to."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from corelane.apiserver.server import APIServer

from corelane.apiserver.auth import User

TOKEN = "admintoken"


class Logs:
    """A log source that tells which container's log was asked for, in two lines."""

    async def open(self, pod, options):
        return self._lines(f"{pod['metadata']['name']}/{options.container}")

    async def _lines(self, whose):
        for number in (1, 2):
            yield f"line {number} of {whose}\n".encode()


@contextmanager
def running_server(**settings) -> Iterator[str]:
    """A server in memory on a free port; yields its URL. `TOKEN` is its administrator's."""
    ready: list[object] = []
    started, stop = threading.Event(), []

    async def serve():
        server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))}, **settings)
        await server.start()
        leave = asyncio.Event()
        stop.extend([asyncio.get_running_loop(), leave])
        ready.append(server.url)
        started.set()
        await leave.wait()
        await server.stop()

    def run():
        try:
            asyncio.run(serve())
        except BaseException as error:
            ready.append(error)
            started.set()
            raise

    thread = threading.Thread(target=run, name="embedded-server")
    thread.start()
    try:
        assert started.wait(10), "the embedded server did not start within 10 s"
        if isinstance(ready[0], BaseException):
            raise ready[0]
        yield str(ready[0])
    finally:
        if stop:
            loop, leave = stop
            loop.call_soon_threadsafe(leave.set)
        thread.join(10)
