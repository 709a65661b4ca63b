"""Records that are deleted while their containers run: written again from memory."""

import logging
from collections.abc import Iterable

from corelane.embedded.containers.records import RecordStore
from corelane.embedded.containers.registry import LocalContainer

_log = logging.getLogger(__name__)


class DeletedRecords:
    """Looks after the record directories of running containers.

    A directory is made again at the second look without it: a whole data directory that is being deleted is
    gone by then, and stays so.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._intact: int | None = None
        self._missing: set[str] = set()

    def look(self, containers: Iterable[LocalContainer]) -> None:
        """Restore records that were missing at the last look, too. One system call where none has changed."""
        version = self._version()
        if version is not None and version == self._intact:
            return
        running = [one for one in containers if one.started.is_set() and not one.ended.is_set()]
        missing = [one for one in running if not self._store.directory(one.stored.id).is_dir()]
        due = [one for one in missing if one.stored.id in self._missing]
        self._missing = {one.stored.id for one in missing}
        self._intact = None if missing else version
        if due and self._store.root.parent.is_dir():
            self._restore(due)

    def _version(self) -> int | None:
        """Return a number that changes when a container's directory comes or goes; None without any."""
        try:
            return self._store.containers.stat().st_mtime_ns
        except OSError:
            return None

    def _restore(self, due: list[LocalContainer]) -> None:
        try:
            for one in due:
                if one.outcome is not None:
                    self._store.restore(one.stored, one.outcome)
        except OSError as error:
            _log.warning("records of running containers were deleted, and cannot be written: %s", error)
            return
        names = ", ".join(f"{one.stored.spec.namespace}/{one.stored.spec.pod}" for one in due)
        _log.warning("%s: deleted records of running containers written again: %s", self._store.root, names)
