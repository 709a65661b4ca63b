"""Decode the API server's JSON: objects, pages of lists and watch events, to slim structs. No I/O.

A malformed object is reported with the reason, and the others are decoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from corelane.kube import apierrors
from corelane.kube.apierrors import Unreachable
from corelane.kube.meta import Object, Wire

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that could not be decoded, as far as it can be identified, and the error."""

    kind: str
    namespace: str
    name: str
    error: str
    uid: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """As `Object.key`."""
        return self.namespace, self.name

    def __str__(self) -> str:
        title = "/".join(filter(None, self.key)) or "(without a name)"
        return f"{self.kind} {title} is malformed and left out: {self.error}"


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list; a watch continues from `resource_version`."""

    items: tuple[T, ...]
    resource_version: str
    malformed: tuple[Malformed, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedPage(Generic[T]):
    """One answer to a list request. `continuation` is empty on the last page."""

    items: list[T]
    malformed: list[Malformed]
    resource_version: str
    continuation: str


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    continuation: str = field(name="continue", default="")


class _Versioned(Struct, gc=False):
    metadata: _ListMeta = _ListMeta()


class _RawList(Struct, gc=False):
    metadata: _ListMeta = _ListMeta()
    items: list[Raw] | None = None


class _TypedList(Struct, Generic[T]):
    metadata: _ListMeta = _ListMeta()
    items: list[T] = field(default_factory=list)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(of: Any) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(of)
    if decoder is None:
        decoder = _decoders[of] = msgspec.json.Decoder(of)
    return decoder


def decode_object(kind: type[T], raw: bytes | Raw) -> T | Malformed:
    """Decode one object; `null` counts as absent, as in Go."""
    try:
        return _decoder(kind).decode(raw)  # type: ignore[no-any-return]
    except msgspec.MsgspecError:
        return _leniently(kind, raw)


def resource_version_of(raw: bytes | Raw) -> str:
    """Return the resourceVersion of an object of any kind, "" without one."""
    try:
        return _decoder(_Versioned).decode(raw).metadata.resource_version  # type: ignore[no-any-return]
    except msgspec.MsgspecError:
        return ""


def plain_json(body: bytes | Raw) -> Any:
    """Return JSON as plain values; None for invalid JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def decode_page(kind: type[T], body: bytes) -> DecodedPage[T]:
    """Decode a list. Raises msgspec.DecodeError for invalid JSON, ValidationError for another object."""
    try:
        listed = _decoder(_TypedList[kind]).decode(body)  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return _item_by_item(kind, body)
    return DecodedPage(listed.items, [], listed.metadata.resource_version, listed.metadata.continuation)


def _item_by_item(kind: type[T], body: bytes) -> DecodedPage[T]:
    listed = _decoder(_RawList).decode(body)
    read = [decode_object(kind, raw) for raw in listed.items or ()]
    good = [item for item in read if not isinstance(item, Malformed)]
    bad = [item for item in read if isinstance(item, Malformed)]
    return DecodedPage(good, bad, listed.metadata.resource_version, listed.metadata.continuation)


def _leniently(kind: type[T], raw: bytes | Raw) -> T | Malformed:
    try:
        # Through JSON, because msgspec.convert cannot make raw fields.
        pruned = msgspec.json.encode(without_nulls(msgspec.json.decode(raw)))
        return _decoder(kind).decode(pruned)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError) as error:
        return _identify(kind, raw, str(error))


def without_nulls(value: Any) -> Any:
    """Return plain JSON values without the members that are null, which Go treats as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value if member is not None]
    return value


def _identify(kind: type[T], raw: bytes | Raw, error: str) -> Malformed:
    whole = plain_json(raw)
    part = whole.get("metadata") if isinstance(whole, dict) else None
    metadata = part if isinstance(part, dict) else {}
    namespace, name = (str(metadata.get(key) or "") for key in ("namespace", "name"))
    return Malformed(kind.api.kind, namespace, name, error, str(metadata.get("uid") or ""))


# Watches.


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event: `type` is ADDED, MODIFIED, DELETED or BOOKMARK.

    A bookmark carries a version only; an event with an invalid object carries `malformed`.
    """

    type: str
    resource_version: str
    object: T | None = None
    malformed: Malformed | None = None


class _Line(Struct):
    type: str
    object: Raw


class Lines:
    """Splits chunks of bytes into lines of any length."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end within this chunk, without blank ones."""
        first, *others = chunk.split(b"\n")
        self._pending.append(first)
        for following in others:
            line = b"".join(self._pending)
            self._pending = [following]
            if line.strip():
                yield line

    def close(self) -> None:
        """End the stream. Raises Unreachable within a line."""
        if b"".join(self._pending).strip():
            raise Unreachable("the watch ended within a line")


def decode_event(kind: type[T], line: bytes) -> WatchEvent[T]:
    """Decode one line of a watch. Raises the APIError of an ERROR event (Gone for 410)."""
    try:
        read = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"watch of {kind.api.plural}: a line is not an event: {error}") from error
    if read.type == "ERROR":
        raise apierrors.of_status(0, plain_json(read.object), f"watch of {kind.api.plural} failed")
    if read.type == "BOOKMARK":
        return WatchEvent(read.type, resource_version_of(read.object))
    obj = decode_object(kind, read.object)
    if isinstance(obj, Malformed):
        return WatchEvent(read.type, resource_version_of(read.object), malformed=obj)
    return WatchEvent(read.type, obj.metadata.resource_version, obj)
