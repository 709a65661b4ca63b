"""Decode the API server's JSON: objects, pages of lists and watch events, to slim structs. No I/O.

A malformed object is reported with the reason, and the others are decoded. Fields that are not read may hold
anything: what is nested too deep there, or not UTF-8, is cut out. Of a malformed pod that is
bound to a node, the fields that say what it occupies there are decoded.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from corelane.kube import apierrors
from corelane.kube.apierrors import MalformedObject, Unreachable
from corelane.kube.meta import Object, Wire

# Repair of JSON that a strict decoder rejects as a whole. An API server passes on what a tenant wrote into
# `managedFields` byte by byte: nested to 10,000 levels, and in any encoding. Brackets are counted here in a
# loop, in linear time, so that no depth ends in a RecursionError.


MOST_LEVELS: Final = 100
"""Deepest nesting that is read; no field that corelane reads lies deeper than 20."""
_MOST_DIGITS: Final = 30

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Strings and all else up to the next bracket; stops at a quote that begins no string, and at the end.
_BRACKET: Final = re.compile(rb'[^"\[\]{}]*+(?:%b[^"\[\]{}]*+)*+(?:([\[\]{}])|"|\Z)' % _STRING, re.DOTALL)
_SCALAR: Final = re.compile(rb"%b|[^,\s]+" % _STRING, re.DOTALL)
_ITEMS: Final = re.compile(rb'"items"\s*+:\s*+\Z')
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)
_OPENING, _CLOSING = b"[{", b"]}"


def split_items(body: bytes) -> tuple[bytes, list[bytes]]:
    """Return a list object without its items, and each item's JSON.

    Raises ValueError for invalid brackets.
    """
    items: list[bytes] = []
    rest, begin = b"", 0
    for depth, at in _brackets(body):
        if depth == 2 and body[at] == ord("[") and not rest and _ITEMS.search(body[max(0, at - 99) : at]):
            rest, begin = body[: at + 1], at + 1
        elif rest and not begin:
            continue
        elif depth == 3 and body[at] in _OPENING and begin:
            items += _SCALAR.findall(body[begin:at])
            begin = at
        elif depth == 2 and body[at] in _CLOSING and begin:
            items.append(body[begin : at + 1])
            begin = at + 1
        elif depth == 1 and body[at] in _CLOSING and begin:
            items += _SCALAR.findall(body[begin:at])
            rest, begin = rest + body[at:], 0
    return rest or body, items


def repaired(raw: bytes) -> bytes:
    """Return JSON with null for what is nested too deep, and U+FFFD for what is not UTF-8, as Go reads it.

    Raises ValueError for invalid brackets.
    """
    pieces, begin = [], 0
    for depth, at in _brackets(raw):
        if depth == MOST_LEVELS + 1 and raw[at] in _OPENING:
            pieces.append(raw[begin:at])
        elif depth == MOST_LEVELS and raw[at] in _CLOSING:
            pieces.append(b"null")
            begin = at + 1
    whole = b"".join((*pieces, raw[begin:]))
    text = whole.decode(errors="replace").encode()
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text) if b"\\u" in text else text


def _brackets(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the depth after each bracket outside strings, and its position.

    Raises ValueError if unbalanced.
    """
    depth = 0
    for found in _BRACKET.finditer(body):
        if not found.lastindex:
            break
        at = found.end() - 1
        depth += 1 if body[at] in _OPENING else -1
        if depth < 0:
            break
        yield depth, at
    if depth:
        raise ValueError("JSON is cut short or its brackets do not match")


def plain_values(raw: bytes) -> Any:
    """Return JSON as plain values; an integer of more digits than any field holds is a string.

    Raises ValueError, RecursionError.
    """
    return json.loads(raw, parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else digits)


T = TypeVar("T", bound=Object)

UNDECODABLE: Final = (ValueError, RecursionError, OverflowError)
"""What decoders raise for data from outside; msgspec's and Unicode's errors are ValueErrors."""
LONGEST_LINE: Final = 32 << 20
"""Most bytes of one event of a watch; objects have 3 MiB at most."""
_LONGEST_ERROR: Final = 300
_LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that could not be decoded, as far as it can be identified, and the error."""

    kind: str
    namespace: str
    name: str
    error: str
    uid: str = ""
    remainder: Any = None
    """The object with the fields alone that say what it occupies, where they are valid; else None."""

    @property
    def key(self) -> tuple[str, str]:
        """As `Object.key`."""
        return self.namespace, self.name

    def __str__(self) -> str:
        title = "/".join(filter(None, self.key)) or "(without a name)"
        left = "counted by its requests only" if self.remainder else "left out"
        return f"{self.kind} {title} is malformed and {left}: {self.error}"


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
    except UNDECODABLE as error:
        return _leniently(kind, bytes(raw), error)


def resource_version_of(raw: bytes | Raw) -> str:
    """Return the resourceVersion of an object of any kind, "" without one."""
    try:
        return _decoder(_Versioned).decode(raw).metadata.resource_version  # type: ignore[no-any-return]
    except UNDECODABLE:
        tree = plain_json(raw)
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def plain_json(body: bytes | Raw) -> Any:
    """Return JSON as plain values, without what is nested too deep; None for invalid JSON."""
    try:
        return msgspec.json.decode(body)
    except UNDECODABLE:
        pass
    try:
        return plain_values(repaired(bytes(body)))
    except UNDECODABLE:
        return None


def decode_valid_page(kind: type[T], body: bytes) -> DecodedPage[T]:
    """Decode a list without a malformed item. Raises UNDECODABLE."""
    listed = _decoder(_TypedList[kind]).decode(body)  # type: ignore[valid-type]
    return DecodedPage(listed.items, [], listed.metadata.resource_version, listed.metadata.continuation)


def decode_page(kind: type[T], body: bytes) -> DecodedPage[T]:
    """Decode a list. Raises msgspec.DecodeError for invalid JSON, ValidationError for another object."""
    try:
        return decode_valid_page(kind, body)
    except UNDECODABLE:
        pass
    metadata, items = split_list(body)
    read = [decode_object(kind, raw) for raw in items]
    good = [item for item in read if not isinstance(item, Malformed)]
    bad = [item for item in read if isinstance(item, Malformed)]
    return DecodedPage(good, bad, metadata.resource_version, metadata.continuation)


def split_list(body: bytes) -> tuple[_ListMeta, list[Raw] | list[bytes]]:
    """Return a list's metadata, and the JSON of each item.

    Raises msgspec.DecodeError for invalid JSON, ValidationError for another object.
    """
    try:
        listed = _decoder(_RawList).decode(body)
    except UNDECODABLE as error:
        try:
            rest, items = split_items(body)
            return _decoder(_RawList).decode(repaired(rest)).metadata, items
        except UNDECODABLE:
            if isinstance(error, msgspec.MsgspecError):
                raise error from None
            raise msgspec.DecodeError(f"JSON is malformed: {error}") from None
    return listed.metadata, listed.items or []


def _leniently(kind: type[T], raw: bytes, error: Exception) -> T | Malformed:
    try:
        tree = plain_values(repaired(raw))
        return _of_tree(kind, tree)
    except UNDECODABLE as again:
        error = again if isinstance(again, msgspec.MsgspecError) else error
    whole = plain_json(raw)
    part = whole.get("metadata") if isinstance(whole, dict) else None
    metadata = part if isinstance(part, dict) else {}
    namespace, name, uid = (
        str(metadata.get(key) or "")[:_LONGEST_NAME] for key in ("namespace", "name", "uid")
    )
    why = " ".join(str(error).split())[:_LONGEST_ERROR]
    try:
        essentials = kind.essentials(whole)
        remainder = None if essentials is None else _of_tree(kind, essentials)
    except (*UNDECODABLE, AttributeError, TypeError, KeyError):  # any field of any type
        remainder = None
    return Malformed(kind.api.kind, namespace, name, why, uid, remainder)


def _of_tree(kind: type[T], tree: Any) -> T:
    # Through JSON, because msgspec.convert cannot make raw fields.
    pruned = msgspec.json.encode(without_nulls(tree))
    return _decoder(kind).decode(pruned)  # type: ignore[no-any-return]


def without_nulls(value: Any) -> Any:
    """Return plain JSON values without the members that are null, which Go treats as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value if member is not None]
    return value


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
    """Splits chunks of bytes into lines."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end within this chunk, without blank ones. Raises MalformedObject."""
        first, *others = chunk.split(b"\n")
        self._add(first)
        for following in others:
            line = b"".join(self._pending)
            self._pending, self._length = [], 0
            self._add(following)
            if line.strip():
                yield line

    def _add(self, part: bytes) -> None:
        self._pending.append(part)
        self._length += len(part)
        if self._length > LONGEST_LINE:
            raise MalformedObject(f"the watch sent a line of more than {LONGEST_LINE >> 20} MiB")

    def close(self) -> None:
        """End the stream. Raises Unreachable within a line."""
        if b"".join(self._pending).strip():
            raise Unreachable("the watch ended within a line")


def decode_event(kind: type[T], line: bytes) -> WatchEvent[T]:
    """Decode one line of a watch. Raises the APIError of an ERROR event (Gone for 410)."""
    raw: bytes | Raw
    try:
        read = msgspec.json.decode(line, type=_Line)
        type_, raw = read.type, read.object
    except UNDECODABLE as error:
        tree = plain_json(line)
        if not (isinstance(tree, dict) and isinstance(tree.get("type"), str) and "object" in tree):
            why = f"watch of {kind.api.plural}: a line is not an event: {error}"
            raise Unreachable(why) from error
        type_, raw = tree["type"], msgspec.json.encode(tree["object"])
    if type_ == "ERROR":
        raise apierrors.of_status(0, plain_json(raw), f"watch of {kind.api.plural} failed")
    if type_ == "BOOKMARK":
        return WatchEvent(type_, resource_version_of(raw))
    obj = decode_object(kind, raw)
    if isinstance(obj, Malformed):
        return WatchEvent(type_, resource_version_of(raw), malformed=obj)
    return WatchEvent(type_, obj.metadata.resource_version, obj)
