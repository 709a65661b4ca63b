"""Connections of clients: Status answers to what is not HTTP, and streams that end with their client.

aiohttp leaves the handler of a lost connection waiting for its next write. A watch of a quiet resource has
none, so that it would outlive its client by up to an hour; here the loss cancels the stream. TCP keepalive
finds the clients that vanished without closing.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import BadHttpMethod

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.status_errors import StatusError

KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 15, 15, 3
"""Seconds of silence before the first probe, seconds between probes, and how many go unanswered."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_silent = logging.getLogger("corelane.embedded.apiserver.http")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def ask_for_body(request: web.BaseRequest) -> None:
    """Have a client that waits with its body (`Expect: 100-continue`, as curl does) send it."""
    waits = request.headers.get("Expect", "").lower() == "100-continue"
    if waits and request.version >= HttpVersion11 and request.transport is not None:
        request.transport.write(_CONTINUE)


class Connection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_stream",)

    _stream: asyncio.Task[object] | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = None
        super().connection_made(transport)
        keep_alive(transport.get_extra_info("socket"))

    def connection_lost(self, exc: BaseException | None) -> None:
        stream = self._stream
        super().connection_lost(exc)
        if stream is not None:
            stream.cancel()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Cancel the current task if the connection is lost meanwhile."""
        self._stream = asyncio.current_task()
        try:
            yield
        finally:
            self._stream = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that could not be read, or whose handler failed; ends the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        response = responses.error(_fault(status, exc, message), None)
        response.force_close()
        return response


class Connections(web.Server):
    """aiohttp's server, without its tracebacks.

    Hands every request to `handler`. Create it inside the running loop.
    """

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=asyncio.get_running_loop(), access_log=None, logger=_silent)  # type: ignore[arg-type]


def keep_alive(connection: socket.socket | None) -> None:
    """Probe a silent client, and give a connection up that acknowledges nothing for as long."""
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limit = (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES) * 1000
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", limit),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _fault(code: int, error: BaseException | None, message: str | None) -> StatusError:
    if isinstance(error, BadHttpMethod):
        return status_errors.method_not_allowed()
    if code >= 500:
        return StatusError(code, "InternalError", "Internal error occurred: the request could not be served")
    return StatusError(code, "BadRequest", " ".join((message or "malformed HTTP request").split()))
