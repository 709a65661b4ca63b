"""Requests from this process to its own API server, without HTTP, TLS and sockets in between.

They take the same way from there on: the same handlers, checks, bodies, answers and counters.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict, MultiDict

from corelane import __version__
from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.handlers import Body, LocalRequest
from corelane.embedded.apiserver.http.responses import Reply, Stream
from corelane.embedded.apiserver.http.server import APIServer
from corelane.kube.connection import Answer, Request

_HEADERS: Final = {"User-Agent": f"corelane/{__version__}", "Accept": "application/json"}


class InProcess:
    """A `kube.connection.Transport` to `server`, as `user`.

    A request is answered at once, or fails as any other would. After it other tasks run: without that one
    which writes much would keep the loop. Limits of time are not needed, and not kept.
    """

    def __init__(self, server: APIServer, user: User) -> None:
        self._server, self._user = server, user

    @property
    def server(self) -> str:
        return self._server.url

    async def call(self, request: Request, seconds: float | None = None) -> Answer:
        """Send a request, and return the whole answer."""
        response = _Response(await self._answer(request))
        retry_after = response.headers.get("Retry-After", "")
        answer = Answer(response.status, response.reason, await response.read(), retry_after)
        await asyncio.sleep(0)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request, read_seconds: float | None) -> AsyncIterator["_Response"]:
        """Send a request; a stream ends with the context."""
        reply = await self._answer(request)
        try:
            yield _Response(reply)
        finally:
            if isinstance(reply, Stream):
                await responses.close(reply.chunks)

    async def _answer(self, request: Request) -> Reply:
        local = LocalRequest(
            request.method,
            unquote(request.path),
            MultiDict(request.query or {}),
            CIMultiDict({**_HEADERS, **(request.headers or {})}),
            Body(request.body or b""),
        )
        return await self._server.answer(local, self._user)

    async def renew(self) -> bool:
        """Return False: there are no credentials."""
        return False

    async def close(self) -> None:
        """Do nothing: nothing is open."""


@dataclass(frozen=True, slots=True)
class _Response:
    reply: Reply

    @property
    def status(self) -> int:
        return 200 if isinstance(self.reply, Stream) else self.reply.status

    @property
    def reason(self) -> str:
        return "" if isinstance(self.reply, Stream) else self.reply.reason

    @property
    def headers(self) -> Mapping[str, str]:
        return self.reply.headers

    @property
    def content(self) -> "_Response":
        return self

    def iter_any(self) -> AsyncIterator[bytes]:
        """Return the body as it comes."""
        return self.reply.chunks if isinstance(self.reply, Stream) else Body(self._whole()).iter_any()

    async def read(self) -> bytes:
        """Return the whole body."""
        if isinstance(self.reply, Stream):
            return b"".join([chunk async for chunk in self.reply.chunks])
        return self._whole()

    def _whole(self) -> bytes:
        assert isinstance(self.reply, web.Response)
        assert isinstance(self.reply.body, bytes | bytearray)
        return bytes(self.reply.body)
