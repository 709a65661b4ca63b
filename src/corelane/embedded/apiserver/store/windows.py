"""How far the history of each resource goes back: one budget, shared so that no resource expires another's.

When the budget is exceeded, the resource that uses most of it drops its oldest event. A flood of one resource
so shortens its own history; of k resources each keeps at least a k-th part of the budget.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from corelane.embedded.apiserver.store.shelves import Shelf
from corelane.embedded.apiserver.stored_objects import StoreEvent

WINDOW: Final = 5_000
"""Budget of all resources together: an event weighs one, and one more for each 4 KiB of its object."""

_HOT: Final = 256
"""Number of the last events that keep their encoded frames, for watchers that are nearly up to date."""
_PAGE_BITS: Final = 12


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
        return max(several, key=_weight_of, default=None)


def weight(event: StoreEvent) -> int:
    """Return an event's part of the budget."""
    return 1 + (len(event.record.value) >> _PAGE_BITS)


def _weight_of(shelf: Shelf) -> int:
    return shelf.weight
