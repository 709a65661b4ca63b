"""Notification: of processes that end, and of changes to any number of listeners."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

from corelane.kernel.proc import Identity, open_pidfd

T = TypeVar("T")


class ProcessWatch:
    """One process being waited for."""

    def __init__(self, fd: int, ended: Callable[[], None]) -> None:
        self._fd: int | None = fd
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._ready, ended)

    def _ready(self, ended: Callable[[], None]) -> None:
        self.cancel()
        ended()

    def cancel(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


def watch(process: Identity, ended: Callable[[], None]) -> ProcessWatch | None:
    """Have `ended` called once the process has ended, soon if it has; None if this kernel has no pidfd."""
    try:
        return ProcessWatch(open_pidfd(process), ended)
    except ProcessLookupError:
        asyncio.get_running_loop().call_soon(ended)
    except OSError:
        pass
    return None


class Tasks:
    """Background tasks, referenced until they end; `finish` waits for all of them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn when no caller awaits the task

    async def finish(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


class Broadcast(Generic[T]):
    """Values to every listener, from when each began to listen; a slow listener delays no other."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[T | None]] = set()
        self._closed = False

    def publish(self, value: T) -> None:
        for queue in self._queues:
            queue.put_nowait(value)

    def listen(self) -> AsyncIterator[T]:
        queue: asyncio.Queue[T | None] = asyncio.Queue()
        self._queues.add(queue)
        if self._closed:
            queue.put_nowait(None)
        return self._values(queue)

    async def _values(self, queue: "asyncio.Queue[T | None]") -> AsyncIterator[T]:
        try:
            while (value := await queue.get()) is not None:
                yield value
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End all listeners, after the values published before."""
        self._closed = True
        for queue in self._queues:
            queue.put_nowait(None)
