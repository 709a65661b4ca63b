"""The state directory of a running agent: locked for one process, and with a socket that serves the status.

Both are looked after while the agent runs. A directory, lock or socket that was deleted is made again, and
what the agent has in memory is written again; where another agent has taken over meanwhile, this one ends.

The socket serves one JSON document a connection. It has mode 0600, and nothing is read from a client.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from corelane.agent.event_loop import Clocks, EventQueue, StateFilesMissing
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import AnotherAgentActs, Source
from corelane.runtime.nri.acting_lock import state_lock

SOCKET_FILE: Final = "agent.sock"
_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 1.0
_BACKLOG: Final = 4
"""Also the tracebacks that asyncio logs a second while there are no file descriptors."""
_MOST_BYTES: Final = 64 << 20


class StateDirectory:
    """Lock and socket of one agent; StateFilesMissing reports that the directory was made again."""

    def __init__(self, path: Path, queue: EventQueue, reporter: AgentReporter, clocks: Clocks) -> None:
        self.path = path
        self.lock = state_lock(path)
        self._queue = queue
        self._clocks = clocks
        self._directory = Source("state directory", seconds=0, reporter=reporter, clocks=clocks)
        self._socket = Source("status socket", seconds=0, reporter=reporter, clocks=clocks)
        self.sources = (self._directory, self._socket)

    def parts(self, status: Callable[[], dict[str, Any]]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the tasks to run until cancelled; the socket serves `status()`."""
        yield self._watch()
        yield self._socket.run(partial(self._serve, status))

    async def _watch(self) -> None:
        """Keep the lock. Raises AnotherAgentActs."""
        while True:
            try:
                self._keep()
            except OSError as error:
                self._directory.note_failure(
                    _fault(self.path, error, "another agent may act beside this one")
                )
            else:
                self._directory.note_ok()
            await asyncio.sleep(_CHECK_SECONDS)

    def _keep(self) -> None:
        if self.lock.is_current:
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if holder := self.lock.renew():
            raise AnotherAgentActs(
                f"{holder}: the state directory was deleted or replaced, and another agent acts with it; "
                "this one ends, and containers keep their CPUs"
            )
        self._queue.put(StateFilesMissing(**self._clocks.times()))

    async def _serve(self, status: Callable[[], dict[str, Any]]) -> None:
        """Serve the status for as long as its socket is there. Raises OSError."""
        try:
            await self._answer_clients(status)
        except OSError as error:
            where = self.path / SOCKET_FILE
            raise _fault(where, error, "`corelane agent status` shows the saved state alone") from None

    async def _answer_clients(self, status: Callable[[], dict[str, Any]]) -> None:
        descriptor = os.open(self.path, os.O_PATH | os.O_DIRECTORY)
        try:
            listening = _bound(f"/proc/self/fd/{descriptor}/{SOCKET_FILE}")
        finally:
            os.close(descriptor)
        path = self.path / SOCKET_FILE
        own = _inode(path)
        server = await asyncio.start_unix_server(partial(_answer, status), sock=listening, backlog=_BACKLOG)
        self._socket.note_ok()
        try:
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                if _inode(path) != own:
                    return
        finally:
            server.close()
            if _inode(path) == own:
                with suppress(OSError):
                    path.unlink()


async def _answer(
    status: Callable[[], dict[str, Any]], _: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with suppress(OSError, TimeoutError):
        writer.write(json.dumps(status()).encode())
        async with asyncio.timeout(_SECONDS):
            await writer.drain()
    writer.close()


def _fault(path: Path, error: OSError, consequence: str) -> OSError:
    return OSError(f"{path}: {error.strerror or error}; {consequence}; make the state directory writable")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bound(path: str) -> socket.socket:
    """Return a socket at a path, which is short however long the directory's name is; replace an old one."""
    with suppress(FileNotFoundError):
        Path(path).unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def read_status(directory: Path, seconds: float = _SECONDS) -> dict[str, Any]:
    """Ask the agent of a state directory. Blocks. Raises OSError where none runs or answers."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET_FILE}")
            content = bytearray()
            while (part := connection.recv(1 << 16)) and len(content) < _MOST_BYTES:
                content += part
    finally:
        os.close(descriptor)
    try:
        document: dict[str, Any] = json.loads(content)
    except (ValueError, RecursionError):
        raise OSError(f"{directory / SOCKET_FILE}: the agent's answer is incomplete") from None
    return document
