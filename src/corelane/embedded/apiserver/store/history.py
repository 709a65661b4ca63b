"""Objects of one resource in memory, in etcd's order, as they are and as they were within its history.

Histories share one budget, so that no resource expires another's: when it is exceeded, the resource that uses
most of it drops its oldest event. A flood of one resource so shortens its own history; of k resources each
keeps at least a k-th part of the budget.

Lives say which revisions belong to the history, across starts of the server and loss of data. Every start
that writes begins at a number from the clock, far above all numbers before it. So a number is never given to
two states, whatever was lost in between: the file, its last writes in a power cut, or all since the backup
that was restored. A number between the last one of a life and the first one of the next belongs to lost
history, or to none: no watch can go on from there.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple, overload

from corelane.embedded.apiserver.stored_objects import StoredObject, StoreEvent

WINDOW: Final = 5_000
"""Budget of all resources together: an event weighs one, and one more for each 4 KiB of its object."""

_HOT: Final = 256
"""Number of the last events that keep their encoded frames, for watchers that are nearly up to date."""
_PAGE_BITS: Final = 12
KEPT: Final = 1_000
"""Number of lives kept; history before them has expired."""
EXPIRED: Final = -1
"""Stands in `Life.after` where all history before a life has expired."""
_PER_SECOND: Final = 1_000_000
"""Numbers a second of the clock: more than a server writes, and below 2^53 until the year 2255."""
_GAP: Final = 1_000_000
"""Gap between two lives where the clock is behind: more numbers than a power cut loses."""


@dataclass(slots=True)
class Shelf:
    """One resource: its objects, their keys in etcd's order, and its committed history."""

    records: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    events: deque[StoreEvent] = field(default_factory=deque)
    weight: int = 0
    """Sum of the weights of `events`, see `weight`."""
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
        events: list[StoreEvent] = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            events.append(event)
        events.reverse()
        return events

    def range(self, prefix: str, start: str = "", revision: int | None = None) -> "RecordRange":
        """The records from the key `prefix` + `start` on; as they were at `revision`."""
        first = bisect_left(self.keys, prefix + start)
        end = bisect_left(self.keys, prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else len(self.keys)
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


class Windows:
    """Histories of the shelves of a store."""

    def __init__(self, shelves: Mapping[str, Shelf], size: int) -> None:
        self._shelves = shelves
        self._size = size
        self._weight = 0
        self._hot: deque[StoreEvent] = deque()

    def add(self, event: StoreEvent) -> list[StoreEvent]:
        """Append an event to its resource's history; return the events dropped for it.

        The last event of a resource is never dropped.
        """
        shelf = self._shelves[event.resource]
        shelf.events.append(event)
        self._weigh(shelf, weight(event))
        self._hot.append(event)
        if len(self._hot) > _HOT:
            self._hot.popleft().frames.clear()
        dropped = []
        while self._weight > self._size and (heaviest := self._heaviest()) is not None:
            oldest = heaviest.events.popleft()
            heaviest.dropped = oldest.revision
            self._weigh(heaviest, -weight(oldest))
            dropped.append(oldest)
        return dropped

    def _weigh(self, shelf: Shelf, change: int) -> None:
        shelf.weight += change
        self._weight += change

    def _heaviest(self) -> Shelf | None:
        several = (shelf for shelf in self._shelves.values() if len(shelf.events) > 1)
        return max(several, key=attrgetter("weight"), default=None)


def weight(event: StoreEvent) -> int:
    """Return an event's part of the budget."""
    return 1 + (len(event.record.value) >> _PAGE_BITS)


class Life(NamedTuple):
    """One start of the server: its revisions are above `base`, those before it end with `after`."""

    base: int
    after: int


def begin_life(last: int, begun: float) -> Life:
    """Return the life after revision `last` of a server that started at `begun`, in Unix seconds."""
    now = int(begun * _PER_SECOND)
    return Life(now if now > last else last + _GAP, last)


class Lives:
    """Lives of one file, oldest first."""

    def __init__(self, lives: Iterable[Life]) -> None:
        self._lives = list(lives)

    @property
    def start(self) -> int:
        """Revision at and before which all history has expired."""
        first = self._lives[0] if self._lives else Life(0, 0)
        return first.base if first.after == EXPIRED else 0

    def followed_by(self, life: Life) -> list[Life]:
        """Return the lives with a new one; the oldest expire."""
        first, *others = [*self._lives, life][-KEPT:]
        expired = len(self._lives) >= KEPT
        return [first._replace(after=EXPIRED) if expired else first, *others]

    def covers(self, revision: int) -> bool:
        """Whether a revision, not above the last one, belongs to history that was not lost."""
        following = bisect_left(self._lives, (revision,))
        return following == len(self._lives) or revision <= self._lives[following].after
