"""The state directory of a running agent: locked for one process, and with a socket that serves the status.

Both are looked after while the agent runs. A directory, lock or socket that was deleted is made again, and
what the agent has in memory is written again; where another agent has taken over meanwhile, this one ends.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from corelane.agent.reporting import AgentReporter
from corelane.agent.source import Source
from corelane.agent.status_socket import SOCKET_FILE, StatusServer
from corelane.runtime.nri.acting_lock import state_lock

_CHECK_SECONDS: Final = 1.0


class StateDirectoryTaken(Exception):  # noqa: N818 - a state of affairs
    """Another agent works with the state directory, which was deleted or replaced meanwhile."""


class StateDirectory:
    """`renewed` is called after the directory was made again, and has to write its files again."""

    def __init__(
        self,
        path: Path,
        status: Callable[[], dict[str, Any]],
        renewed: Callable[[], None],
        reporter: AgentReporter,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self.lock = state_lock(path)
        self._renewed = renewed
        self._server = StatusServer(path, status)
        self._directory = Source("state directory", _never, seconds=0, reporter=reporter, clock=clock)
        self._socket = Source("status socket", self._serve, seconds=0, reporter=reporter, clock=clock)
        self.sources = (self._directory, self._socket)

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the tasks to run until cancelled."""
        yield self._watch()
        yield self._socket.run()

    async def _watch(self) -> None:
        """Keep the lock. Raises StateDirectoryTaken."""
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
            raise StateDirectoryTaken(
                f"{holder}: the state directory was deleted or replaced, and another agent acts with it; "
                "this one ends, and containers keep their CPUs"
            )
        self._renewed()

    async def _serve(self) -> None:
        """Serve the status for as long as its socket is there. Raises OSError."""
        try:
            await self._server.run(self._socket.note_ok)
        except OSError as error:
            where = self.path / SOCKET_FILE
            raise _fault(where, error, "`corelane agent status` shows the saved state alone") from None


def _fault(path: Path, error: OSError, consequence: str) -> OSError:
    return OSError(f"{path}: {error.strerror or error}; {consequence}; make the state directory writable")


async def _never() -> None:
    await asyncio.Event().wait()
