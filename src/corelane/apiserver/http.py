"""aiohttp's server with answers of our kind for what is not HTTP, and without its tracebacks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod

from corelane.apiserver import responses, status
from corelane.apiserver.status import StatusError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_silent = logging.getLogger("corelane.apiserver.http")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class _Protocol(web.RequestHandler):
    """One connection."""

    __slots__ = ()

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


def _fault(code: int, error: BaseException | None, message: str | None) -> StatusError:
    if isinstance(error, BadHttpMethod):
        return status.method_not_allowed()
    if code >= 500:
        return StatusError(code, "InternalError", "Internal error occurred: the request could not be served")
    return StatusError(code, "BadRequest", " ".join((message or "malformed HTTP request").split()))


class Server(web.Server):
    """Hands every request to `handler`. Create it inside the running loop."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)

    def __call__(self) -> web.RequestHandler:
        return _Protocol(self, loop=asyncio.get_running_loop(), access_log=None, logger=_silent)  # type: ignore[arg-type]
