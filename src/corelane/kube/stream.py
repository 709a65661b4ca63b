"""A watch's bytes to events: bytes in, whole lines and immutable events out, no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from corelane.kube import decode, errors
from corelane.kube.decode import Malformed
from corelane.kube.errors import Unreachable
from corelane.kube.meta import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event: `type` is ADDED, MODIFIED, DELETED or BOOKMARK.

    A bookmark carries a version only; an event whose object cannot be read carries `malformed`.
    """

    type: str
    resource_version: str
    object: T | None = None
    malformed: Malformed | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Lines:
    """Cuts chunks into lines, however long those are."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end within this chunk; blank ones are left out."""
        first, *others = chunk.split(b"\n")
        self._pending.append(first)
        for following in others:
            line = b"".join(self._pending)
            self._pending = [following]
            if line.strip():
                yield line

    def close(self) -> None:
        """The stream ended. Raises Unreachable if that was within a line."""
        if b"".join(self._pending).strip():
            raise Unreachable("the watch was cut off within a line")


def event(kind: type[T], line: bytes) -> WatchEvent[T]:
    """Read one line of a watch. Raises the APIError that an ERROR event stands for (Gone if it is 410)."""
    try:
        read = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"watch of {kind.api.plural}: a line is not an event: {error}") from error
    if read.type == "ERROR":
        raise errors.of_status(0, decode.tree(read.object), f"watch of {kind.api.plural} failed")
    version = decode.version(read.object)
    if read.type == "BOOKMARK":
        return WatchEvent(read.type, version)
    found = decode.one(kind, read.object)
    if isinstance(found, Malformed):
        return WatchEvent(read.type, version, malformed=found)
    return WatchEvent(read.type, version, found)
