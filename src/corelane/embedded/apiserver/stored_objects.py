"""Values that the store, the handlers and the answers share: a stored object, an event, a change.

A stored object is its JSON at one revision, and what selectors look at; `store.database` keeps them.
"""

import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Object = dict[str, Any]
Describe = Callable[[str, Object], Mapping[str, str]]
EventKind = Literal["ADDED", "MODIFIED", "DELETED"]

_decode = msgspec.json.Decoder(Object).decode


def copied(value: Any) -> Any:
    """Copy a JSON value; much faster than `copy.deepcopy`, and through `marshal` than in Python."""
    try:
        return marshal.loads(marshal.dumps(value))  # noqa: S302 - of this process
    except ValueError:  # a value of a reader's own type
        return _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


class StoreError(Exception):
    """The state file cannot be used; the message names it and says what to do."""


class Compacted(Exception):  # noqa: N818 - etcd's word
    """The history asked for is no longer kept."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One state of one object: its JSON as stored, and what selectors look at."""

    key: str
    revision: int
    value: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def object(self) -> Object:
        """A fresh copy that the caller may change."""
        return _decode(self.value)


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One revision; `record` is the state after it (a deletion's: the last state under the new revision)."""

    kind: EventKind
    resource: str
    record: StoredObject
    previous: StoredObject | None
    frames: dict[Any, bytes] = field(default_factory=dict, compare=False)
    """Encoded once per form, shared by all watchers."""

    @property
    def revision(self) -> int:
        return self.record.revision


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Change to write: an object in stored form, or None for a deletion."""

    resource: str
    key: str
    obj: Object | None
