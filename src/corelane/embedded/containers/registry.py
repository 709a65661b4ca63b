"""The containers of a runtime, their status, and notification when it changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from corelane.embedded.containers import records as outcomes
from corelane.embedded.containers.enforce import Enforcements
from corelane.embedded.containers.records import ContainerRecord, RecordStore, ShimOutcome
from corelane.kernel import proc
from corelane.runtime.base import Observation, RuntimeStatus, UnknownContainer
from corelane.runtime.process_watch import Broadcast, ProcessWatch, watch

_SETTLE_SECONDS = 60.0
_SETTLE_POLL_SECONDS = 0.02
_BATCH: Final = 64
"""Containers read in one thread at a time: about 5 ms."""


@dataclass(slots=True, eq=False)
class LocalContainer:
    """One known container. `lock` is held while it is changed, `pod` while its pod's cgroup is.

    Until `started` is set it has no records; only the start or adoption under way changes it. `final` is its
    status once the main process has ended, reported when no process is left: then `ended` is set. `release`
    is the task that sees to that.
    """

    stored: ContainerRecord
    status: RuntimeStatus
    pod: asyncio.Lock
    outcome: ShimOutcome | None = None
    watch: ProcessWatch | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    final: RuntimeStatus | None = None
    release: asyncio.Task[None] | None = None


class ContainerRegistry:
    """The known containers by id.

    `on_end` is called for each whose main process has ended, again and again until `ended` is called for it.
    """

    def __init__(self, state: RecordStore, on_end: Callable[[LocalContainer], None]) -> None:
        self.events = Broadcast[RuntimeStatus]()
        self._state = state
        self._on_end = on_end
        self._boot = proc.boot_id()
        self._containers: dict[str, LocalContainer] = {}
        self._pods: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def all(self) -> list[LocalContainer]:
        return list(self._containers.values())

    def get(self, container_id: str) -> LocalContainer | None:
        return self._containers.get(container_id)

    def add(
        self, stored: ContainerRecord, outcome: ShimOutcome | None, *, supervised: bool
    ) -> LocalContainer:
        status = outcomes.status(stored, outcome, supervised=supervised, boot_id=self._boot)
        pod = self._pods.setdefault(stored.spec.pod_uid, asyncio.Lock())
        container = self._containers[stored.id] = LocalContainer(stored, status, pod, outcome)
        return container

    def find(self, container_id: str) -> LocalContainer:
        try:
            return self._containers[container_id]
        except KeyError:
            raise UnknownContainer(container_id) from None

    async def settled(self, container_id: str) -> LocalContainer:
        """The container once its start has come to an end, one way or the other. Raises UnknownContainer."""
        await self.find(container_id).started.wait()
        return self.find(container_id)

    async def settle(self, container: LocalContainer) -> None:
        """Wait for a start that a former owner began: its shim may still be starting."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while container.status.state == "created" and time.monotonic() < deadline:
            await asyncio.sleep(_SETTLE_POLL_SECONDS)
            self.refresh(container)
        container.started.set()

    def of_pod(self, pod_uid: str) -> list[LocalContainer]:
        return [c for c in self._containers.values() if c.stored.spec.pod_uid == pod_uid]

    def keep(self, container: LocalContainer, stored: ContainerRecord) -> None:
        self._state.save(stored)
        container.stored = stored

    def refresh(self, container: LocalContainer) -> None:
        """Read a container's status, publish a change, and watch for the next one.

        An end is not published here: processes may be left on the container's CPUs. The lock is
        tried before the record is read: once the shim is gone, what it wrote last is there.
        """
        if container.ended.is_set():
            return
        supervised = self._state.is_supervised(container.stored.id)
        outcome = container.outcome = self._state.outcome(container.stored.id) or container.outcome
        status = outcomes.status(container.stored, outcome, supervised=supervised, boot_id=self._boot)
        if status.state == "exited":
            container.final = status
            self._unwatch(container)
            self._publish(container, outcomes.lingering(status, container.status.message))
            self._on_end(container)
            return
        self._publish(container, status)
        if outcome and container.watch is None:
            container.watch = watch(
                outcome.shim if supervised else outcome.main, partial(self._changed, container)
            )

    def _publish(self, container: LocalContainer, status: RuntimeStatus) -> None:
        if status != container.status:
            container.status = status
            self.events.publish(status)

    def _changed(self, container: LocalContainer) -> None:
        container.watch = None
        self.refresh(container)

    def linger(self, container: LocalContainer, message: str) -> None:
        """Report that processes of an ended container are left."""
        if container.final is not None:
            self._publish(container, outcomes.lingering(container.final, message))

    def ended(self, container: LocalContainer) -> None:
        """Report the end: no process of the container is left."""
        container.ended.set()
        if container.final is not None:
            self._publish(container, container.final)

    def _unwatch(self, container: LocalContainer) -> None:
        if container.watch:
            container.watch.cancel()
            container.watch = None

    def forget(self, container: LocalContainer) -> bool:
        """Remove a container; False if it was not known."""
        return self._containers.pop(container.stored.id, None) is not None

    def close(self) -> None:
        for container in self.all():
            self._unwatch(container)
        self.events.close()


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
        running = [
            container
            for container in containers
            if container.started.is_set() and not container.ended.is_set()
        ]
        missing = [
            container for container in running if not self._store.directory(container.stored.id).is_dir()
        ]
        due = [container for container in missing if container.stored.id in self._missing]
        self._missing = {container.stored.id for container in missing}
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
            for container in due:
                if container.outcome is not None:
                    self._store.restore(container.stored, container.outcome)
        except OSError as error:
            _log.warning("records of running containers were deleted, and cannot be written: %s", error)
            return
        names = ", ".join(
            f"{container.stored.spec.namespace}/{container.stored.spec.pod}" for container in due
        )
        _log.warning("%s: deleted records of running containers written again: %s", self._store.root, names)


async def observe_all(
    registry: ContainerRegistry, enforcements: Enforcements, container_ids: Iterable[str]
) -> dict[str, Observation]:
    """As `Runtime.observe_all`; what is being started is observed once it has started."""
    observations: dict[str, Observation] = {}
    ids = iter(container_ids)
    while batch := list(islice(ids, _BATCH)):
        containers = []
        for container_id in batch:
            try:
                containers.append(await registry.settled(container_id))
            except UnknownContainer as error:
                observations[container_id] = error
        observations |= await asyncio.to_thread(_observed, enforcements, containers)
    return observations


def _observed(enforcements: Enforcements, containers: Sequence[LocalContainer]) -> dict[str, Observation]:
    return {container.stored.id: _reading(enforcements, container) for container in containers}


def _reading(enforcements: Enforcements, container: LocalContainer) -> Observation:
    stored, outcome = container.stored, container.outcome
    if outcome is None:
        return None
    try:
        return enforcements.of(stored).observe(stored, outcome)
    except Exception as error:  # noqa: BLE001 - the caller's: other containers are read all the same
        return error
