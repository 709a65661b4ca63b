"""Responses: negotiation by Accept and Content-Type, bodies, Status errors, streams, and lost connections.

Answers are JSON or YAML, whole, as Table or as metadata alone; bodies may be protobuf too. aiohttp sends
streams with a write timeout, and leaves the handler of a lost connection waiting for its next write. A watch
of a quiet resource has none and would outlive its client by up to an hour; here the loss cancels the stream.
TCP keepalive detects clients that vanished without closing.
"""

import asyncio
import logging
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import BadHttpMethod
from multidict import CIMultiDict

from corelane import structured_log
from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.codec.wire import FORMS, JSON, YAML, Representation
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import patching

PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, YAML, PROTOBUF)
PATCHES = (patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_PATCH, patching.APPLY_PATCH)

_AGGREGATED = {"as": "APIGroupDiscoveryList", "g": "apidiscovery.k8s.io", "v": "v2"}
_TRANSFORMS = frozenset(_AGGREGATED)
TEXT = "text/plain; charset=utf-8"
_WRITE_TIMEOUT = 30.0  # seconds without progress after which the connection is closed
PIECE: Final = 32 * 1024
"""Bytes sent at once: OpenSSL keeps a buffer for the largest write, as long as the connection lasts."""
_THRESHOLD: Final = 128 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def representation(accept: str | None) -> Representation:
    """The best form that `accept` allows. Raises StatusError 406."""
    return _best(accept, _form)


def plain(accept: str | None) -> Representation:
    """The best media type for a document that has one form only. Raises StatusError 406."""
    return _best(accept, lambda media, asked: None if _TRANSFORMS & asked.keys() else Representation(media))


def aggregated_discovery(accept: str | None) -> Representation | None:
    """The media type in which an Accept header asks for aggregated discovery (v2), None if it does not.

    Plain documents in the same header do not count, whatever their quality.
    """

    def aggregated(media: str, asked: Mapping[str, str]) -> Representation | None:
        is_it = {name: asked.get(name) for name in _TRANSFORMS} == _AGGREGATED
        return Representation(media) if is_it else None

    try:
        return _best(accept, aggregated)
    except StatusError:
        return None


def _best(
    accept: str | None, form: Callable[[str, Mapping[str, str]], Representation | None]
) -> Representation:
    """The first form of a served media type among the clauses. Raises StatusError 406."""
    for media, parameters in _clauses(accept or "*/*"):
        for served in (JSON, YAML):
            wild = {served, "*/*", f"{served.partition('/')[0]}/*"}
            if media in wild and (representation := form(served, parameters)):
                return representation
    raise status_errors.not_acceptable(MEDIA_TYPES)


def aggregated_type(form: Representation) -> str:
    """The Content-Type of aggregated discovery."""
    return ";".join((form.media, *(f"{name}={_AGGREGATED[name]}" for name in ("g", "v", "as"))))


def for_error(accept: str | None) -> str:
    """The media type for an error: YAML if that is what was asked for, and not as a Table, else JSON."""
    try:
        return plain(accept).media
    except StatusError:
        return JSON


def body_type(content_type: str | None) -> str:
    """The type of a request's body, JSON if none is given. Raises StatusError 415."""
    media = bare(content_type) or JSON
    if media not in MEDIA_TYPES:
        raise status_errors.unsupported_media_type(MEDIA_TYPES)
    return media


def patch_type(content_type: str | None, *, custom: bool) -> str:
    """The bare media type of a patch. Raises StatusError 415; `custom` resources take no strategic patch."""
    media = bare(content_type)
    allowed = [patch for patch in PATCHES if not custom or patch != patching.STRATEGIC_PATCH]
    if media not in allowed:
        raise status_errors.unsupported_media_type(allowed)
    return media


def bare(header: str | None) -> str:
    """A media type without its parameters."""
    return (header or "").partition(";")[0].strip().lower()


def _clauses(accept: str) -> list[tuple[str, Mapping[str, str]]]:
    """Return media ranges with their parameters, best first: by q, then the exact before the wild."""

    def place(clause: tuple[str, Mapping[str, str]]) -> tuple[float, int]:
        try:
            return -float(clause[1].get("q", "1")), clause[0].count("*")
        except ValueError:
            return -1.0, clause[0].count("*")

    clauses: list[tuple[str, Mapping[str, str]]] = []
    for text in filter(str.strip, accept.split(",")):
        media, *rest = text.split(";")
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip(): value.strip() for name, _, value in pairs}
        clauses.append((media.strip().lower(), parameters))
    return sorted(clauses, key=place)


def _form(media: str, parameters: Mapping[str, str]) -> Representation | None:
    """Return the representation for a clause's `as`, `g` and `v`, None if it is unavailable."""
    name = parameters.get("as", "")
    if not name:
        return Representation(media)
    version = parameters.get("v", "")
    if name not in FORMS or parameters.get("g") != "meta.k8s.io" or version not in {"v1", "v1beta1"}:
        return None
    return Representation(media, FORMS[name], version)


_log = structured_log.get_logger("corelane.embedded.apiserver")


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
    merged: CIMultiDict[str] = CIMultiDict({"Content-Type": media, "Cache-Control": "no-cache, private"})
    merged.update(headers or {})
    for text in warnings:
        merged.add("Warning", warning(text))
    return BodyResponse(body=body, status=code, headers=merged)


def warning(text: str) -> str:
    """A Warning header (RFC 7234) as kubectl shows it."""
    safe = _UNSENDABLE.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{safe}"'


def text(body: str, code: int = 200) -> web.Response:
    return data(body.encode(), TEXT, code, {"X-Content-Type-Options": "nosniff"})


def nothing() -> web.Response:
    """No content."""
    response = web.Response(body=b"", status=204, headers={"Cache-Control": "no-cache, private"})
    response.headers.popall("Content-Type", None)
    return response


def error_response(fault: StatusError, accept: str | None) -> web.Response:
    media = for_error(accept)
    body = wire.body(wire.Representation(media), fault.body())
    return data(body, media, fault.code, fault.headers, fault.warnings)


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
        # the loss of the connection cancels the stream at once
        with getattr(request.protocol, "streaming", nullcontext)():
            await response.prepare(request)
            async for chunk in stream.chunks:
                async with asyncio.timeout(_WRITE_TIMEOUT):
                    await response.write(chunk)
                await asyncio.sleep(0)  # a fast stream must not keep the loop
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


KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 15, 15, 3
"""Seconds of silence before the first probe, seconds between probes, and how many go unanswered."""


_silent = logging.getLogger("corelane.embedded.apiserver.http")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


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
        response = error_response(_fault(status, exc, message), None)
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
