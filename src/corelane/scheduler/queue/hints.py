"""Changes of the cluster that parked groups have yet to be asked about, in bounded portions.

A change is looked at once by each group that listens to its kind. Few of them are so at once; a storm, 5,000
nodes that change under 10,000 groups, is worked off between attempts, some thousand questions at a time.
Changes of one node that wait together are asked as one. With too many waiting, every group is tried.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint

MOST_WAITING: Final = 20_000
_MERGED: Final = ChangeKind.NODE | ChangeKind.TOPOLOGY
"""Kinds for which only the node counts."""


@dataclass(slots=True, eq=False)
class PendingChange:
    """A change, and its number in the order of all changes."""

    change: ClusterChange
    sequence: int


class Backlog:
    """Changes in their order."""

    def __init__(self) -> None:
        self._pending: deque[PendingChange] = deque()
        self._of_node: dict[str, PendingChange] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, change: ClusterChange, sequence: int) -> bool:
        """Add a change; False if there are too many, and all of them are dropped."""
        waiting = self._of_node.get(change.node) if change.kind in _MERGED and change.node else None
        if waiting is not None:
            kinds = waiting.change.kind | change.kind
            # What happened in between is not known: nothing may be concluded from the state before.
            waiting.change = replace(change, kind=kinds, old=None, before=None, merged=True)
            waiting.sequence = sequence
            return True
        if len(self._pending) >= MOST_WAITING:
            self._pending.clear()
            self._of_node.clear()
            return False
        pending = PendingChange(change, sequence)
        self._pending.append(pending)
        if change.kind in _MERGED and change.node:
            self._of_node[change.node] = pending
        return True

    def take(self) -> PendingChange | None:
        """Remove the oldest change, and return it."""
        if not self._pending:
            return None
        pending = self._pending.popleft()
        if self._of_node.get(pending.change.node) is pending:
            del self._of_node[pending.change.node]
        return pending


def helps(hints: Iterable[tuple[ChangeKind, Hint]], pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether a hint says that the change may help; one that fails says so, as upstream."""
    return any(kinds & change.kind and _says_so(hint, pod, change) for kinds, hint in hints)


def _says_so(hint: Hint, pod: PodInfo, change: ClusterChange) -> bool:
    try:
        return bool(hint(pod, change))
    except Exception:  # noqa: BLE001 - a third party's hint may raise anything, and must not lose a pod
        return True
