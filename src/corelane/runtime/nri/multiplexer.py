"""The NRI multiplexer, sans I/O: several logical connections over one stream of bytes.

Frame (containerd/nri, pkg/net/multiplex/mux.go): 4 bytes connection id, 4 bytes payload length, both
big-endian, then the payload. Connections are not opened on the wire; both ends know their ids. Id 0 is
reserved, and a frame of an id that the other end does not serve is dropped.

Limits of the Go end that a sender has to keep:

* It reads a connection through a buffered reader of 4,096 bytes, one frame a read, and fails the connection
  where the frame is larger than the buffer. Go's own ttrpc writes messages through a buffer of the same
  size. So `encode` cuts into frames of `MAX_SENT` bytes.
* It queues 256 frames a connection, and closes everything when a further one arrives before one is read.

Its payloads are at most 4 MiB + 10 bytes (16 MiB up to nri v0.6.1).
"""

import struct
from dataclasses import dataclass
from typing import Final

PLUGIN_SERVICE: Final = 1
"""Connection of the calls that the runtime makes (service Plugin)."""
RUNTIME_SERVICE: Final = 2
"""Connection of the calls that the plugin makes (service Runtime)."""

MAX_SENT: Final = 4096
MAX_RECEIVED: Final = 16 << 20
_HEADER: Final = struct.Struct(">II")


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
            start += _HEADER.size + len(frame.payload)
        del self._buffer[:start]
        return frames

    def _frame(self, start: int) -> Frame | None:
        if len(self._buffer) - start < _HEADER.size:
            return None
        connection, length = _HEADER.unpack_from(self._buffer, start)
        if length > MAX_RECEIVED:
            raise ProtocolError(f"NRI multiplexer: frame of {length} bytes; the limit is {MAX_RECEIVED}")
        start += _HEADER.size
        if len(self._buffer) - start < length:
            return None
        return Frame(connection, bytes(self._buffer[start : start + length]))


def encode(connection: int, data: bytes) -> bytes:
    """Return `data` in frames of one logical connection; nothing for no bytes."""
    return b"".join(
        _HEADER.pack(connection, len(piece)) + piece
        for piece in (data[start : start + MAX_SENT] for start in range(0, len(data), MAX_SENT))
    )
