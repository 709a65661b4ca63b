"""The embedded API server in a thread of its own, for programs and blocking clients to talk to."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.up import certificates, tls  # noqa: F401 - loaded, so that no process is started

TOKEN = "admintoken"


class Logs:
    """A log source that tells which container's log was asked for, in two lines."""

    async def open(self, pod, options):
        return self._lines(f"{pod['metadata']['name']}/{options.container}")

    async def _lines(self, whose):
        for number in (1, 2):
            yield f"line {number} of {whose}\n".encode()


@dataclass(frozen=True, slots=True)
class Served:
    """Where a server is, and the authority (a PEM file) that signed its certificate."""

    url: str
    authority: Path


@contextmanager
def running_server(directory: Path, **settings) -> Iterator[Served]:
    """A server in memory on a free port, its certificates in `directory`. `TOKEN` is its administrator's."""
    context, _ = tls.server_context(directory, datetime.now(UTC))
    ready: list[object] = []
    started, stop = threading.Event(), []

    async def serve():
        server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))}, tls=context, **settings)
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
        assert started.wait(120), "the embedded server did not start within 120 s"
        if isinstance(ready[0], BaseException):
            raise ready[0]
        yield Served(str(ready[0]), directory / "ca.crt")
    finally:
        if stop:
            loop, leave = stop
            loop.call_soon_threadsafe(leave.set)
        thread.join(10)
