"""Long-running parts side by side: if one fails, all end, and the failure is raised."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(asyncio.Event):
    """Set once a signal came; `number` is the first one's."""

    number = 0


@contextmanager
def until_signal(*more: signal.Signals) -> Iterator[Stop]:
    """Yield an event that SIGINT, SIGTERM or one of `more` sets; a second SIGINT interrupts as by default.

    Signals of `more` that are ignored, as SIGHUP is under nohup, stay so.
    """
    loop = asyncio.get_running_loop()
    stop = Stop()

    def on_signal(number: int) -> None:
        stop.number = stop.number or number
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    heeded = [number for number in more if signal.getsignal(number) is not signal.SIG_IGN]
    numbers = (signal.SIGINT, signal.SIGTERM, *heeded)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def cancel_on_signal(task: asyncio.Task[Any]) -> None:
    """Let SIGINT, SIGTERM and SIGHUP cancel a task and nothing else, so that its caller can clean up."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, task.cancel)


def ignore_signals() -> None:
    """Let no signal interrupt what is left to do until the process ends; closing a loop would allow that."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


async def completes(body: Coroutine[Any, Any, None], *, unless: asyncio.Event) -> bool:
    """Return whether `body` ended before the event was set; cancel it otherwise. Raises its exceptions."""
    task, stopped = asyncio.ensure_future(body), asyncio.ensure_future(unless.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            return False
        task.result()
        return True
    finally:
        task.cancel()
        stopped.cancel()


class Parts:
    """Named tasks that should run until they are cancelled."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def start(self, name: str, body: Coroutine[Any, Any, Any]) -> None:
        self._tasks[name] = asyncio.create_task(body, name=name)

    async def first_of(self, waiting: Awaitable[Any]) -> None:
        """Wait for `waiting`; raise PartEnded if a part ends before that."""
        other = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({other, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks.values():
                if task.done():
                    raise PartEnded(task.get_name(), task.exception()) from task.exception()
            await other
        finally:
            other.cancel()

    async def cancel(self) -> None:
        """End all parts, the last started first, and wait for them."""
        for task in reversed(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()


class PartEnded(Exception):  # noqa: N818 - names an event
    """A part that should run until cancelled ended; `__cause__` is its exception."""

    def __init__(self, name: str, why: BaseException | None) -> None:
        super().__init__(f"{name} ended unexpectedly: {_described(why)}")


def innermost(error: BaseException | None) -> BaseException | None:
    """Return the first exception in a group, however deep; another exception as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _described(error: BaseException | None) -> str:
    error = innermost(error)
    return f"{type(error).__name__}: {error}" if error else "without an exception"
