"""Objects of one resource in memory, in etcd's order, as they are and as they were within its history."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from corelane.embedded.apiserver.stored_objects import StoredObject, StoreEvent


@dataclass(slots=True)
class Shelf:
    """One resource: its objects, their keys in etcd's order, and its committed history."""

    records: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    events: deque[StoreEvent] = field(default_factory=deque)
    weight: int = 0
    """Sum of the weights of `events`, see `windows`."""
    dropped: int = 0
    """Revision of the youngest event that is no longer in `events`."""
    wakers: set[Callable[[], None]] = field(default_factory=set)

    def set(self, record: StoredObject) -> None:
        if record.key not in self.records:
            insort(self.keys, record.key)
        self.records[record.key] = record

    def remove(self, key: str) -> None:
        del self.records[key]
        del self.keys[bisect_left(self.keys, key)]

    def apply(self, event: StoreEvent) -> None:
        """Bring the objects to the state after an event."""
        if event.kind == "DELETED":
            self.remove(event.record.key)
        else:
            self.set(event.record)

    def undo(self, event: StoreEvent) -> None:
        """Bring the objects back to the state before the event that was applied last."""
        if event.previous is None:
            self.remove(event.record.key)
        else:
            self.set(event.previous)

    def after(self, revision: int) -> list[StoreEvent]:
        """Events later than `revision`, oldest first."""
        found: list[StoreEvent] = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def range(self, prefix: str, start: str = "", revision: int | None = None) -> "RecordRange":
        """The records from the key `prefix` + `start` on; as they were at `revision`."""
        first = bisect_left(self.keys, prefix + start)
        end = bisect_left(self.keys, _after(prefix)) if prefix else len(self.keys)
        keys, former = self.keys[first:end], {}
        for event in reversed(self.events if revision is not None else ()):
            if revision is None or event.revision <= revision:
                break
            if event.record.key.startswith(prefix) and event.record.key >= prefix + start:
                former[event.record.key] = event.previous
        if former:
            present = {key for key, record in former.items() if record}
            keys = sorted(({*keys} - former.keys()) | present)
        return RecordRange(keys, self.records, former)


class RecordRange(Sequence[StoredObject]):
    """Records in the order of their keys, looked up as they are read: a page costs what is on it.

    Valid until the next write. `former` holds earlier states of records that were changed later.
    """

    __slots__ = ("_former", "_keys", "_records")

    def __init__(
        self,
        keys: list[str],
        records: Mapping[str, StoredObject],
        former: Mapping[str, StoredObject | None],
    ) -> None:
        self._keys, self._records, self._former = keys, records, former

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> StoredObject: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredObject]: ...

    def __getitem__(self, index: int | slice) -> StoredObject | list[StoredObject]:
        if isinstance(index, slice):
            return list(map(self._record, self._keys[index]))
        return self._record(self._keys[index])

    def _record(self, key: str) -> StoredObject:
        return self._former.get(key) or self._records[key]


def _after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
