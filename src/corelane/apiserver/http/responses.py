"""Answers as aiohttp sends them: bodies, Status errors, warnings, and streams with a write timeout."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import structlog
from aiohttp import web
from multidict import CIMultiDict

from corelane.apiserver.codec import wire
from corelane.apiserver.http import negotiation
from corelane.apiserver.status_errors import StatusError

_log = structlog.get_logger("corelane.apiserver")

TEXT = "text/plain; charset=utf-8"
_WRITE_TIMEOUT = 30.0  # seconds without progress after which the connection is closed
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")


def data(
    body: bytes,
    media: str = wire.JSON,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
    warnings: Iterable[str] = (),
) -> web.Response:
    found: CIMultiDict[str] = CIMultiDict({"Content-Type": media, "Cache-Control": "no-cache, private"})
    found.update(headers or {})
    for text in warnings:
        found.add("Warning", warning(text))
    return web.Response(body=body, status=code, headers=found)


def warning(text: str) -> str:
    """A Warning header (RFC 7234) as kubectl shows it."""
    safe = _UNSENDABLE.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{safe}"'


def text(body: str, code: int = 200) -> web.Response:
    return data(body.encode(), TEXT, code, {"X-Content-Type-Options": "nosniff"})


def error(fault: StatusError, accept: str | None) -> web.Response:
    media = negotiation.for_error(accept)
    found = wire.body(wire.Representation(media), fault.body())
    return data(found, media, fault.code, fault.headers, fault.warnings)


async def stream(
    request: web.BaseRequest, chunks: AsyncIterator[bytes], media: str, limit: int | None = None
) -> web.StreamResponse:
    """Send chunks as they come, at most `limit` bytes. A client that has gone ends it quietly."""
    response = web.StreamResponse(headers={"Content-Type": media, "Cache-Control": "no-cache, private"})
    try:
        with _cancelled_with(request):
            await response.prepare(request)
            await _send(response, chunks, limit)
            await response.write_eof()
    except TimeoutError:
        if request.transport:
            request.transport.abort()
    except ConnectionError:
        pass
    except Exception as error:
        if not response.prepared:
            raise
        _log.error("stream failed", path=request.path, error=repr(error))
        raise ConnectionError("the answer had begun") from error
    finally:
        close = getattr(chunks, "aclose", None)
        if close:
            await close()
    return response


def _cancelled_with(request: web.BaseRequest) -> AbstractContextManager[None]:
    """Cancel the stream as soon as its connection is lost."""
    streaming = getattr(request.protocol, "streaming", None)
    return streaming() if streaming else nullcontext()


async def _send(response: web.StreamResponse, chunks: AsyncIterator[bytes], limit: int | None) -> None:
    left = limit
    async for chunk in chunks:
        piece = chunk if left is None else chunk[:left]
        async with asyncio.timeout(_WRITE_TIMEOUT):
            await response.write(piece)
        await asyncio.sleep(0)  # a fast stream must not keep the loop
        if left is not None:
            left -= len(piece)
            if left <= 0:
                return
