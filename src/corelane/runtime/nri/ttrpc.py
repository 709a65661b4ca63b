"""ttrpc over NRI's multiplexer, sans I/O: gRPC's calls over one stream, as containerd makes them.

Message (containerd/ttrpc, PROTOCOL.md and channel.go): 4 bytes length of the data, 4 bytes stream id (both
big-endian), 1 byte type (1 request, 2 response, 3 stream data), 1 byte flags, then the data, at most 4 MiB.
Data of a request and of a response are protobuf envelopes (`ttrpc.Request`, `ttrpc.Response` with a
`google.rpc.Status`). The end that calls numbers its streams 1, 3, 5, …; calls may overlap and are answered
in any order. Messages of an unknown type are ignored. There is no handshake, ping or cancellation: a call
that is given up is answered all the same, and a deadline is only a number in the request (`timeout_ns`);
watching it is the shell's part.

NRI's services use unary calls only. `Server` therefore refuses requests with streaming flags. Where the Go
server answers a malformed message with a status and reads on, both ends here raise ProtocolError: the
stream cannot be trusted any more, and NRI is made to be reconnected.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from corelane.runtime.protobuf_table import MessageTable

# The multiplexer: several logical connections over one stream of bytes. Frame (containerd/nri,
# pkg/net/multiplex/mux.go): 4 bytes connection id, 4 bytes payload length, both big-endian, then the
# payload. Connections are not opened on the wire; both ends know their ids. Id 0 is reserved, and a frame of
# an id that the other end does not serve is dropped.
#
# Limits of the Go end that a sender has to keep:
#
# * It reads a connection through a buffered reader of 4,096 bytes, one frame a read, and fails the connection
#   where the frame is larger than the buffer. Go's own ttrpc writes messages through a buffer of the same
#   size. So `encode` cuts into frames of `MAX_SENT` bytes.
# * It queues 256 frames a connection, and closes everything when a further one arrives before one is read.
#
# Its payloads are at most 4 MiB + 10 bytes (16 MiB up to nri v0.6.1).


PLUGIN_SERVICE: Final = 1
"""Connection of the calls that the runtime makes (service Plugin)."""
RUNTIME_SERVICE: Final = 2
"""Connection of the calls that the plugin makes (service Runtime)."""

MAX_SENT: Final = 4096
MAX_RECEIVED: Final = 16 << 20
_FRAME_HEADER: Final = struct.Struct(">II")


class ProtocolError(Exception):
    """Bytes that violate the protocol; the connection is of no further use and has to be closed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of one logical connection."""

    connection: int
    payload: bytes


class Demultiplexer:
    """Bytes in, frames out. How the bytes are split makes no difference."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete. Raises ProtocolError."""
        self._buffer += data
        frames, start = [], 0
        while (frame := self._frame(start)) is not None:
            frames.append(frame)
            start += _FRAME_HEADER.size + len(frame.payload)
        del self._buffer[:start]
        return frames

    def _frame(self, start: int) -> Frame | None:
        if len(self._buffer) - start < _FRAME_HEADER.size:
            return None
        connection, length = _FRAME_HEADER.unpack_from(self._buffer, start)
        if length > MAX_RECEIVED:
            raise ProtocolError(f"NRI multiplexer: frame of {length} bytes; the limit is {MAX_RECEIVED}")
        start += _FRAME_HEADER.size
        if len(self._buffer) - start < length:
            return None
        return Frame(connection, bytes(self._buffer[start : start + length]))


def encode(connection: int, data: bytes) -> bytes:
    """Return `data` in frames of one logical connection; nothing for no bytes."""
    return b"".join(
        _FRAME_HEADER.pack(connection, len(piece)) + piece
        for piece in (data[start : start + MAX_SENT] for start in range(0, len(data), MAX_SENT))
    )


MAX_DATA: Final = 4 << 20
OK: Final = 0
UNKNOWN: Final = 2
UNIMPLEMENTED: Final = 12
"""Status codes: gRPC's."""

_HEADER: Final = struct.Struct(">IIBB")
_REQUEST, _RESPONSE = 1, 2
_MAX_STREAM: Final = (1 << 32) - 1
_ENVELOPES: Final = MessageTable(
    "ttrpc",
    {
        "Request": {
            "service": (1, "string"),
            "method": (2, "string"),
            "payload": (3, "bytes"),
            "timeout_nano": (4, "int64"),
        },
        "Status": {"code": (1, "int32"), "message": (2, "string")},
        "Response": {"status": (1, "Status"), "payload": (2, "bytes")},
    },
)


@dataclass(frozen=True, slots=True)
class Request:
    """A call to be answered. `timeout_ns` is 0 where the caller gave none."""

    stream: int
    service: str
    method: str
    payload: bytes
    timeout_ns: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a call: `payload` where `code` is OK, else `message` says why not."""

    stream: int
    payload: bytes = b""
    code: int = OK
    message: str = ""


class _Messages:
    """Bytes in, messages out as (stream, type, flags, data)."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, stream, kind, flags = _HEADER.unpack_from(self._buffer)
            if length > MAX_DATA:
                raise ProtocolError(f"ttrpc: message of {length} bytes; the limit is {MAX_DATA}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield stream, kind, flags, payload


class Server:
    """The end that is called: bytes in, requests out; answers in, bytes out."""

    def __init__(self) -> None:
        self._messages = _Messages()
        self._last = 0
        self._open: set[int] = set()

    def receive(self, data: bytes) -> list[Request]:
        """Return the requests that these bytes complete. Raises ProtocolError."""
        return [
            self._request(stream, flags, payload)
            for stream, kind, flags, payload in self._messages.receive(data)
            if kind == _REQUEST
        ]

    def _request(self, stream: int, flags: int, payload: bytes) -> Request:
        if stream % 2 == 0 or stream <= self._last:
            raise ProtocolError(f"ttrpc: request on stream {stream} after stream {self._last}")
        if flags:
            raise ProtocolError(f"ttrpc: request with streaming flags {flags:#x} on stream {stream}")
        envelope = decode("Request", payload)
        self._last = stream
        self._open.add(stream)
        return Request(stream, envelope.service, envelope.method, envelope.payload, envelope.timeout_nano)

    def respond(self, response: Response) -> bytes:
        """Return the bytes of an answer; none for a stream that was answered already, or was never opened.

        An answer above the limit becomes the status RESOURCE_EXHAUSTED.
        """
        if response.stream not in self._open:
            return b""
        self._open.remove(response.stream)
        return _response(response)


class Client:
    """The end that calls: calls in, bytes out; bytes in, responses out."""

    def __init__(self) -> None:
        self._messages = _Messages()
        self._next = 1
        self._open: set[int] = set()

    def call(self, service: str, method: str, payload: bytes, timeout_ns: int = 0) -> tuple[int, bytes]:
        """Return the stream of a new call and its bytes. Raises ProtocolError for one above the limit."""
        stream, self._next = self._next, self._next + 2
        if stream > _MAX_STREAM:
            raise ProtocolError("ttrpc: the stream ids of this connection are used up")
        envelope = message("Request")(
            service=service, method=method, payload=payload, timeout_nano=timeout_ns
        ).SerializeToString()
        if len(envelope) > MAX_DATA:
            raise ProtocolError(f"ttrpc: request of {len(envelope)} bytes; the limit is {MAX_DATA}")
        self._open.add(stream)
        return stream, _message(stream, _REQUEST, envelope)

    def receive(self, data: bytes) -> list[Response]:
        """Return the responses to open calls that these bytes complete. Raises ProtocolError."""
        return [
            self._response(stream, payload)
            for stream, kind, _, payload in self._messages.receive(data)
            if kind == _RESPONSE and stream in self._open
        ]

    def _response(self, stream: int, payload: bytes) -> Response:
        envelope = decode("Response", payload)
        self._open.remove(stream)
        return Response(stream, envelope.payload, envelope.status.code, envelope.status.message)


def message(name: str) -> Any:
    """Return the class of one of the envelopes."""
    return _ENVELOPES.message(name)


def decode(name: str, payload: bytes) -> Any:
    """Return an envelope. Raises ProtocolError where the bytes are not one."""
    try:
        return _ENVELOPES.parse(name, payload)
    except ValueError:
        raise ProtocolError(f"ttrpc: {len(payload)} bytes that are not a ttrpc.{name}") from None


def _response(response: Response) -> bytes:
    envelope = message("Response")(payload=response.payload)
    if response.code != OK:
        envelope.status.code, envelope.status.message = response.code, response.message
    data = envelope.SerializeToString()
    if len(data) > MAX_DATA:
        too_large = f"response of {len(data)} bytes; the limit is {MAX_DATA}"
        return _response(Response(response.stream, b"", 8, too_large))
    return _message(response.stream, _RESPONSE, data)


def _message(stream: int, kind: int, data: bytes) -> bytes:
    return _HEADER.pack(len(data), stream, kind, 0) + data
