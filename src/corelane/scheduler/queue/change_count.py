"""The number of changes in the cluster so far: a verdict holds until a change that could alter it."""

from corelane.scheduler.framework.changes import ChangeKind, members


class ChangeCount:
    """Number of changes so far, and of the latest one of each kind."""

    def __init__(self) -> None:
        self.number = 0
        self._latest: dict[ChangeKind, int] = {}

    def add(self, kinds: ChangeKind) -> None:
        """Count a change of these kinds."""
        self.number += 1
        for kind in members(kinds):
            self._latest[kind] = self.number

    def since(self, number: int, kinds: ChangeKind) -> bool:
        """Return whether a change of one of these kinds came after the change of that number."""
        return any(self._latest.get(kind, 0) > number for kind in members(kinds))
