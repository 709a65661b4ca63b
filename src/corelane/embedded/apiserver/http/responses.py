"""Answers: bodies, Status errors, warnings; and streams, which aiohttp sends with a write timeout."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from corelane import structured_log
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.http import negotiation
from corelane.embedded.apiserver.status_errors import StatusError

_log = structured_log.get_logger("corelane.embedded.apiserver")

TEXT = "text/plain; charset=utf-8"
_WRITE_TIMEOUT = 30.0  # seconds without progress after which the connection is closed
PIECE: Final = 32 * 1024
"""Bytes sent at once: OpenSSL keeps a buffer for the largest write, as long as the connection lasts."""
_THRESHOLD: Final = 128 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")


class BodyResponse(web.Response):
    """An answer that forgets its body once sent: aiohttp keeps answers until the next request."""

    async def write_eof(self, data: bytes = b"") -> None:
        body = self._body
        if isinstance(body, bytes) and not self._must_be_empty_body:
            rest = max(0, len(body) - 1) // PIECE * PIECE
            for start in range(0, rest, PIECE):
                await self.write(memoryview(body)[start : start + PIECE])
            self._body = body[rest:]
        await super().write_eof(data)
        self._body = None


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
    return BodyResponse(body=body, status=code, headers=found)


def warning(text: str) -> str:
    """A Warning header (RFC 7234) as kubectl shows it."""
    safe = _UNSENDABLE.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{safe}"'


def text(body: str, code: int = 200) -> web.Response:
    return data(body.encode(), TEXT, code, {"X-Content-Type-Options": "nosniff"})


def nothing() -> web.Response:
    """No content."""
    found = web.Response(body=b"", status=204, headers={"Cache-Control": "no-cache, private"})
    found.headers.popall("Content-Type", None)
    return found


def error(fault: StatusError, accept: str | None) -> web.Response:
    media = negotiation.for_error(accept)
    found = wire.body(wire.Representation(media), fault.body())
    return data(found, media, fault.code, fault.headers, fault.warnings)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is sent as its chunks come."""

    chunks: AsyncIterator[bytes]
    media: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.media, "Cache-Control": "no-cache, private"}


Reply = web.Response | Stream
"""What handlers return, whatever the request came by."""


async def send(request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
    """Send a stream. A client that has gone ends it quietly."""
    response = web.StreamResponse(headers=stream.headers)
    try:
        with _cancelled_with(request):
            await response.prepare(request)
            await _send(response, stream.chunks)
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
        await close(stream.chunks)
    return response


async def close(chunks: AsyncIterator[bytes]) -> None:
    """End a stream early."""
    closing = getattr(chunks, "aclose", None)
    if closing:
        await closing()


def _cancelled_with(request: web.BaseRequest) -> AbstractContextManager[None]:
    """Cancel the stream as soon as its connection is lost."""
    streaming = getattr(request.protocol, "streaming", None)
    return streaming() if streaming else nullcontext()


async def _send(response: web.StreamResponse, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        async with asyncio.timeout(_WRITE_TIMEOUT):
            await response.write(chunk)
        await asyncio.sleep(0)  # a fast stream must not keep the loop


# --- compression, as upstream: objects and lists of more than 128 KiB, at the fastest level


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether a request's headers ask for gzip; a value with a weight is none, as upstream."""
    return "gzip" in (value.strip() for value in headers.get("Accept-Encoding", "").split(","))


async def compress(headers: Mapping[str, str], answer: web.Response) -> web.Response:
    """Gzip a long answer to a request with these headers, in a thread."""
    body = answer.body
    if isinstance(body, bytes) and len(body) > _THRESHOLD and is_asked_for(headers):
        answer.body = await asyncio.to_thread(_gzipped, body)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers.add("Vary", "Accept-Encoding")
    return answer


def _gzipped(body: bytes) -> bytes:
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    return compressor.compress(body) + compressor.flush()
