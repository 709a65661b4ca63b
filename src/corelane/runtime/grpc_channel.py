"""gRPC calls over a Unix socket, by h2: no native code and no threads.

The other side is not trusted: what it sends is bounded in size and in number of frames, and whatever it sends
instead of an answer fails the calls of its connection, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import unquote_to_bytes

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error, TooManyStreamsError
from h2.settings import SettingCodes

_CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""Status codes in the order of their numbers."""
_OF_HTTP: Final = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
} | (dict.fromkeys((429, 502, 503, 504), "UNAVAILABLE"))
_OF_RESET: Final[dict[int, str]] = {
    ErrorCodes.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCodes.CANCEL: "CANCELLED",
    ErrorCodes.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCodes.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}

_MOST_DETAILS: Final = 1000
"""Characters of a status's text."""
_WINDOW: Final = 4 << 20
"""Bytes of an answer under way that were not read yet."""
_MOST_WINDOW: Final = (1 << 31) - 1
_MOST_UNREAD: Final = 1 << 20
"""Bytes to send that the other side does not read: answers to its pings, above all."""
_MOST_IDLE: Final = 128 << 10
"""Bytes in a second that bring neither data nor the end of a call: pings, settings, empty frames, headers."""
_FEED: Final = 16 << 10
"""Bytes that are parsed at a time: 1,800 frames at most."""


class RPCError(Exception):
    """A call that failed: `code` is the name of gRPC's status code, the text its details, on one line."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code


class Channel:
    """Calls to the server behind a socket. A lost connection is made again by the next call."""

    def __init__(self, path: str, most_bytes: int) -> None:
        """`most_bytes` is the size of a message; to be made in a running event loop."""
        self._path, self._most_bytes = path, most_bytes
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def unary(self, method: str, request: bytes, seconds: float) -> bytes:
        """Return the answer to a call, `/service/method`, within `seconds`.

        Raises RPCError, and OSError where the socket cannot be connected to.
        """
        try:
            async with (
                asyncio.timeout(seconds),
                self._call(method, request, {"grpc-timeout": f"{max(1, round(seconds * 1000))}m"}) as call,
            ):
                answer = await call.message()
                if answer is None:
                    raise RPCError("INTERNAL", "the answer has no message")
                if await call.message() is not None:
                    raise RPCError("INTERNAL", "the answer has more than one message")
                return answer
        except TimeoutError:
            raise RPCError("DEADLINE_EXCEEDED", f"no answer within {seconds:g} s") from None

    async def stream(
        self, method: str, request: bytes, metadata: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the messages of an answer as they come. Raises as `unary` does; there is no deadline."""
        async with self._call(method, request, metadata) as call:
            while (message := await call.message()) is not None:
                yield message

    def close(self) -> None:
        """Close the connection; calls under way fail."""
        if self._connection is not None:
            self._connection.lose(RPCError("CANCELLED", "the connection was closed here"))

    @asynccontextmanager
    async def _call(
        self, method: str, request: bytes, metadata: Mapping[str, str]
    ) -> AsyncGenerator[_Call, None]:
        connection = await self._connected()
        call = connection.begin(method, metadata, self._most_bytes)
        try:
            await call.send(len(request).to_bytes(5, "big") + request)
            yield call
        finally:
            connection.end(call)

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.lost is not None:
                loop = asyncio.get_running_loop()
                _, self._connection = await loop.create_unix_connection(_Connection, self._path)
            return self._connection


class _H2(H2Connection):
    MAX_CLOSED_STREAMS = 64
    """Calls that are remembered after their end; 65,536 in h2 itself."""


class _Connection(asyncio.Protocol):
    """One connection and its calls. `lost` is why it ended."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.h2 = _H2(H2Configuration(client_side=True, header_encoding=None))
        self.lost: RPCError | None = None
        self._calls: dict[int, _Call] = {}
        self._idle, self._idle_since, self._greeting = 0, 0.0, b""

    def begin(self, method: str, metadata: Mapping[str, str], most_bytes: int) -> _Call:
        """Send the headers of a call. Raises RPCError."""
        if self.lost is not None:
            raise self.lost
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "corelane",
            **metadata,
        }
        try:
            stream = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream, list(headers.items()))
        except TooManyStreamsError:
            raise RPCError("RESOURCE_EXHAUSTED", "the server takes no more calls at a time") from None
        except H2Error as error:
            raise RPCError("UNAVAILABLE", f"no call can be sent: {error}") from None
        call = self._calls[stream] = _Call(self, stream, most_bytes)
        self.flush()
        return call

    def end(self, call: _Call) -> None:
        """Forget a call, and cancel it if it has not ended."""
        self._calls.pop(call.stream, None)
        if self.lost is None:
            call.acknowledge()
            if not call.ended:
                with suppress(H2Error):
                    self.h2.reset_stream(call.stream, ErrorCodes.CANCEL)
            self.flush()

    def lose(self, why: RPCError) -> None:
        """Close the connection and fail its calls."""
        if self.lost is None:
            self.lost = why
            for call in self._calls.values():
                call.fail(why)
            self.transport.abort()

    def flush(self) -> None:
        if self.lost is None and (data := self.h2.data_to_send()):
            self.transport.write(data)
            if self.transport.get_write_buffer_size() > _MOST_UNREAD:
                self.lose(RPCError("UNAVAILABLE", f"{_MOST_UNREAD} bytes sent are not read"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.ENABLE_PUSH: 0})
        self.h2.increment_flow_control_window(_MOST_WINDOW - self.h2.inbound_flow_control_window)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(
            RPCError(
                "UNAVAILABLE", f"the connection was closed: {exc}" if exc else "the connection was closed"
            )
        )

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _FEED):
            if self.lost is not None:
                return
            piece = data[start : start + _FEED]
            try:
                if len(self._greeting) < 4:  # h2 would wait for the end of what is no settings frame
                    self._greeting += piece[:4]
                    if self._greeting[:1] > b"\0" or self._greeting[3:4] not in (b"", b"\4"):
                        raise RPCError("UNAVAILABLE", "what was received is not HTTP/2")
                progress = [self._handle(event) for event in self.h2.receive_data(piece)]
                size = 0 if any(progress) else len(piece)
                now = asyncio.get_running_loop().time()
                if not size or now > self._idle_since + 1:
                    self._idle, self._idle_since = 0, now
                self._idle += size
                if self._idle > _MOST_IDLE:
                    raise RPCError("UNAVAILABLE", f"{self._idle} bytes came in a second without an answer")
                self.flush()
            except RPCError as why:
                self.lose(why)
            except Exception as error:  # noqa: BLE001 - h2 raises errors of other kinds than its own, too
                text = _text(str(error).encode())
                self.lose(RPCError("UNAVAILABLE", f"what was received is not HTTP/2: {text}"))

    def _handle(self, event: events.Event) -> bool:
        """Note what came; return whether it is of use to a call. Raises RPCError to end the connection."""
        if isinstance(event, events.ConnectionTerminated):
            code = getattr(event.error_code, "name", event.error_code)
            raise RPCError("UNAVAILABLE", f"the server ended the connection: {code}")
        if isinstance(event, events.RemoteSettingsChanged | events.WindowUpdated):
            for call in self._calls.values():
                call.changed.set()
            return False
        addressee = self._calls.get(getattr(event, "stream_id", 0))
        return addressee is not None and addressee.handle(event)


class _Call:
    """A call under way: what came of its answer, and was not read yet."""

    def __init__(self, connection: _Connection, stream: int, most_bytes: int) -> None:
        self.stream, self.ended, self.changed = stream, False, asyncio.Event()
        self._connection, self._most_bytes = connection, most_bytes
        self._data, self._unacknowledged = bytearray(), 0
        self._failure: RPCError | None = None
        self._succeeded = False

    async def send(self, data: bytes) -> None:
        """Send the request, as fast as it is taken. An answer that came before goes first."""
        h2 = self._connection.h2
        while data and not self.ended and self._failure is None:
            try:
                room = min(h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size)
                if room > 0:
                    h2.send_data(self.stream, data[:room], end_stream=room >= len(data))
                    data = data[room:]
                    self._connection.flush()
                    continue
            except H2Error as error:
                self.fail(RPCError("UNAVAILABLE", f"the request cannot be sent: {error}"))
                return
            self.changed.clear()
            await self.changed.wait()

    async def message(self) -> bytes | None:
        """Return the next message, None after the last one. Raises RPCError."""
        while (message := self._next()) is None:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                if self._data:
                    raise RPCError("INTERNAL", "the answer ends within a message")
                return None
            self.acknowledge()
            self.changed.clear()
            await self.changed.wait()
        return message

    def _next(self) -> bytes | None:
        """Take a message if one is complete. Raises RPCError for one that must not be read."""
        if len(self._data) < 5:
            return None
        size = int.from_bytes(self._data[1:5], "big")
        if self._data[0]:
            raise RPCError("INTERNAL", "the answer is compressed, which was not asked for")
        if size > self._most_bytes:
            raise RPCError(
                "RESOURCE_EXHAUSTED", f"the answer has {size} bytes; at most {self._most_bytes} are read"
            )
        if len(self._data) < 5 + size:
            return None
        message = bytes(memoryview(self._data)[5 : 5 + size])
        del self._data[: 5 + size]
        return message

    def acknowledge(self) -> None:
        """Let the server send as much again as was received."""
        if self._unacknowledged and self._connection.lost is None:
            with suppress(H2Error):
                self._connection.h2.acknowledge_received_data(self._unacknowledged, self.stream)
            self._unacknowledged = 0
            self._connection.flush()

    def fail(self, why: RPCError) -> None:
        """End the answer with an error, unless it has a status already."""
        if self._failure is None and not self._succeeded:
            self._failure = why
        self.changed.set()

    def handle(self, event: events.Event) -> bool:
        """Note what came of the answer; return whether that is data, or its end."""
        self.changed.set()
        match event:
            case events.DataReceived():
                self._data += event.data
                self._unacknowledged += event.flow_controlled_length
                return bool(event.data)
            case events.ResponseReceived():
                headers = dict(event.headers)
                http, kind = headers.get(b":status", b""), headers.get(b"content-type", b"")
                if b"grpc-status" in headers:
                    self._finish(headers)
                elif http != b"200":
                    number = int(http) if http.isdigit() and len(http) == 3 else 0
                    self.fail(RPCError(_OF_HTTP.get(number, "UNKNOWN"), f"HTTP status {_text(http)}"))
                elif not kind.startswith(b"application/grpc"):
                    self.fail(
                        RPCError("UNKNOWN", f"the answer is of type {_text(kind) or 'none'}, not gRPC's")
                    )
            case events.TrailersReceived():
                self._finish(dict(event.headers))
            case events.StreamEnded():
                self.fail(RPCError("INTERNAL", "the answer ends without a status"))
                self.ended = True
                return True
            case events.StreamReset():
                code = event.error_code
                text = f"the server broke off the call: {getattr(code, 'name', code)}"
                self.fail(RPCError(_OF_RESET.get(code, "INTERNAL"), text))
                self.ended = True
        return False

    def _finish(self, headers: _Headers) -> None:
        """Read the status, after which the answer ends."""
        number = headers.get(b"grpc-status", b"")
        if number == b"0":
            self._succeeded = True
        else:
            known = number.isdigit() and len(number) < 3 and int(number) < len(_CODES)
            code = _CODES[int(number)] if known else "UNKNOWN"
            text = _text(unquote_to_bytes(headers.get(b"grpc-message", b"")))
            self.fail(
                RPCError(code, text if known else f"status {_text(number) or 'missing'} {text}".rstrip())
            )


_Headers = dict[bytes, bytes]


def _text(received: bytes) -> str:
    """Return what was received as one line, short enough for a message."""
    line = " ".join(received[: 4 * _MOST_DETAILS].decode(errors="replace").split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:_MOST_DETAILS]
