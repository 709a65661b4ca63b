"""One connection to the runtime's socket: reads, answers in time, and ends when either side does."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Protocol

from corelane.runtime.nri.plugin import Plugin, State
from corelane.runtime.nri.values import (
    NOTHING,
    Answer,
    ContainerCreating,
    ContainerUpdating,
    Event,
    Lost,
    Outcome,
    Question,
    Synchronized,
)

HANDSHAKE_SECONDS: Final = 30.0
"""From connecting to the synchronisation: the runtime serves one new plugin at a time, up to 5 s each."""
NO_RUNTIME: Final = "is the container runtime running, with NRI enabled?"
_READ_BYTES: Final = 1 << 18
_MAX_UNREAD_BYTES: Final = 8 << 20


class Host(Protocol):
    """What a session asks and reports to."""

    def ask(self, question: Question) -> Awaitable[Answer | None]:
        """Return the handler's answer, None where it raised. Cancelling leaves the handler alone."""

    def tell(self, event: Event) -> None:
        """Pass on an event that waits for no answer."""

    def finished(self, question: Question, seconds: float, outcome: Outcome) -> None:
        """Note what became of a question."""

    def failed(self, error: Exception) -> None:
        """Note an answer that cannot be sent."""


class Session:
    """One connection; `serve` is called once."""

    def __init__(self, plugin: Plugin, host: Host, budget: float) -> None:
        self._plugin, self._host, self._budget = plugin, host, budget
        self._writer: asyncio.StreamWriter | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._reason = ""

    @property
    def synchronized(self) -> bool:
        return self._plugin.state is State.SYNCHRONIZED

    async def serve(self, socket: Path) -> str:
        """Connect, register and serve; return why it ended."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS) as deadline:
                await self._serve(socket, deadline)
        except TimeoutError:
            self._close(f"no synchronization within {HANDSHAKE_SECONDS:g} s of connecting")
        except (FileNotFoundError, ConnectionRefusedError) as error:
            self._close(f"{error.strerror}: {NO_RUNTIME}")
        except OSError as error:
            self._close(error.strerror or str(error))
        finally:
            self._close("the plugin ended")
            await self._clean_up()
        return self._reason

    async def _serve(self, socket: Path, deadline: asyncio.Timeout) -> None:
        reader, self._writer = await asyncio.open_unix_connection(socket)
        self._plugin.register()
        self._flush()
        while self._plugin.state is not State.CLOSED:
            data = await reader.read(_READ_BYTES)
            arrived = asyncio.get_running_loop().time()
            if not data:
                self._close("the runtime closed the connection")
            for event in self._plugin.receive(data):
                self._take(event, arrived)
            self._flush()
            if self.synchronized:
                deadline.reschedule(None)

    def _take(self, event: Event, arrived: float) -> None:
        if isinstance(event, Synchronized | ContainerCreating | ContainerUpdating):
            task = asyncio.create_task(self._answer(event, arrived))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        else:
            if isinstance(event, Lost):
                self._reason = event.reason
            self._host.tell(event)

    async def _answer(self, question: Question, arrived: float) -> None:
        outcome: Outcome = "lost"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(arrived + min(self._budget, question.timeout / 2)):
                answer = await self._host.ask(question)
            outcome = self._send(question, answer)
        except TimeoutError:
            outcome = "overrun" if self._plugin.answer(question.token, NOTHING) else "lost"
        finally:
            self._flush()
            self._host.finished(question, loop.time() - arrived, outcome)

    def _send(self, question: Question, answer: Answer | None) -> Outcome:
        """Send an answer; without adjustment where there is none, or where it cannot be expressed."""
        outcome: Outcome = "failed" if answer is None else "answered"
        try:
            sent = self._plugin.answer(question.token, answer or NOTHING)
        except Exception as error:  # noqa: BLE001 - the runtime must get an answer whatever a handler returns
            self._host.failed(error)
            sent, outcome = self._plugin.answer(question.token, NOTHING), "failed"
        return outcome if sent else "lost"

    def _flush(self) -> None:
        data = self._plugin.outgoing()
        if not data or self._writer is None:
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._close(f"the runtime left {_MAX_UNREAD_BYTES} bytes unread")
            self._writer.transport.abort()

    def _close(self, reason: str) -> None:
        for event in self._plugin.close(reason):
            self._take(event, 0.0)

    async def _clean_up(self) -> None:
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
