"""A gRPC server and a client on Unix sockets for tests, in threads: what they call may block.

They are grpclib's, so that corelane's own client is not tested against itself.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from grpclib.server import Stream as Call


class Bytes(CodecBase):
    """Messages as they are: tests encode and decode them themselves."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class Context:
    """A call, as the function that answers it sees it."""

    def __init__(self) -> None:
        self._ended, self._callbacks = threading.Event(), []

    def abort(self, code: str, details: str) -> None:
        """End the call with a status."""
        raise GRPCError(Status[code], details)

    def is_active(self) -> bool:
        return not self._ended.is_set()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """To be called when the call has ended."""
        self._callbacks.append(callback)

    def end(self) -> None:
        self._ended.set()
        for callback in self._callbacks:
            callback()


Answer = Callable[[bytes, Context], bytes | Iterator[bytes]]


class _Server(Server):
    """A server that ends its connections with itself, as a process does."""

    def __init__(self, methods: Mapping[str, Answer], pool: ThreadPoolExecutor) -> None:
        self._methods, self._pool, self._protocols = methods, pool, []
        super().__init__([self], codec=Bytes())

    def __mapping__(self) -> dict[str, Handler]:
        return {
            f"/{path}": Handler(self._handler(answer), Cardinality.UNARY_STREAM, bytes, bytes)
            for path, answer in self._methods.items()
        }

    def _handler(self, answer: Answer):
        async def handle(call: Call) -> None:
            context = Context()
            try:
                answered = await self._run(answer, await call.recv_message() or b"", context)
                if isinstance(answered, bytes):
                    await call.send_message(answered)
                    return
                while (message := await self._run(next, answered, None)) is not None:
                    await call.send_message(message)
            finally:
                context.end()

        return handle

    async def _run(self, function: Callable, *args: object) -> Any:
        return await asyncio.wrap_future(self._pool.submit(function, *args))

    def _protocol_factory(self):
        self._protocols.append(super()._protocol_factory())
        return self._protocols[-1]

    async def stop(self) -> None:
        self.close()
        for protocol in self._protocols:
            if hasattr(protocol, "processor"):
                protocol.processor.close()
        await self.wait_closed()


@contextmanager
def serving(path: Path, methods: Mapping[str, Answer]) -> Iterator[None]:
    """Serve methods by `service/method`; others are unimplemented. The socket goes at the end."""
    pool, loop = ThreadPoolExecutor(16), _Loop()

    async def start() -> _Server:
        server = _Server(methods, pool)
        await server.start(path=str(path))
        return server

    try:
        server = loop.run(start())
        try:
            yield
        finally:
            loop.run(server.stop())
            path.unlink(missing_ok=True)
    finally:
        loop.close()
        pool.shutdown(wait=False)


class Client:
    """Calls from code that is not asynchronous; a lost connection is made again by the next one."""

    def __init__(self, path: Path) -> None:
        self._path, self._loop = path, _Loop()
        self._channel = self._loop.run(self._open())

    async def _open(self) -> Channel:
        return Channel(path=str(self._path), codec=Bytes())

    def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answer; raises GRPCError, and TimeoutError after so many seconds."""
        return self._loop.run(UnaryUnaryMethod(self._channel, method, bytes, bytes)(request, timeout=seconds))

    def close(self) -> None:
        self._loop.run(self._closed())
        self._loop.close()

    async def _closed(self) -> None:
        self._channel.close()


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
