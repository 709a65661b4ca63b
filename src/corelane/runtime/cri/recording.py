"""The runtime's own records of its containers, brought into line with what their cgroups have.

Without it the runtime would bring the old values back with its next update.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.kernel import cfs, container_cgroup
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView
from corelane.runtime.base import KEEP, ResourceUpdate, RuntimeFailure, UnknownContainer
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.following import ContainerIndex, TrackedContainer
from corelane.runtime.cri.values import CRIError, CRIResources
from corelane.runtime.process_watch import Tasks

_NOTHING = ResourceUpdate()


def cri_resources(change: ResourceUpdate) -> CRIResources:
    """Return a change as a CRI update, which has no field for the burst."""
    quota = change.quota_us
    return CRIResources(
        shares=0 if change.shares_milli is None else cfs.shares(change.shares_milli),
        quota=0 if quota is KEEP else -1 if quota is None else quota,
        period=0 if change.period_us is KEEP else change.period_us,
        cpus=str(change.cpus or ""),
        mems=str(change.mems or ""),
    )


def merged(first: ResourceUpdate, second: ResourceUpdate) -> ResourceUpdate:
    """Merge two changes; a field that both set has the value of the second."""
    return ResourceUpdate(**(_given(first) | _given(second)))


def without(change: ResourceUpdate, done: ResourceUpdate) -> ResourceUpdate | None:
    """Return a change without the fields that `done` sets; None if no field is left."""
    left = {name: value for name, value in _given(change).items() if name not in _given(done)}
    return ResourceUpdate(**left) if left else None


def _given(change: ResourceUpdate) -> dict[str, Any]:
    return {
        field.name: getattr(change, field.name)
        for field in fields(change)
        if getattr(change, field.name) != getattr(_NOTHING, field.name)
    }


def lacking(view: CgroupView, group: str, record: CRIResources) -> ResourceUpdate | None:
    """Return CPUs and quota of a cgroup where the runtime's record has others; None where both agree.

    CPUs that the record does not have were never set: they are those of the group above. Raises CgroupError.
    """
    kernel = container_cgroup.read(view, group)
    if record.cpus:
        agrees = kernel.cpus_requested == CPUSet.parse(record.cpus)
    else:
        agrees = kernel.cpus == container_cgroup.effective(view, group.rpartition("/")[0])
    change = ResourceUpdate() if agrees else ResourceUpdate(cpus=kernel.cpus_requested or kernel.cpus)
    if max(record.quota, 0) != (kernel.quota_us or 0):
        change = replace(change, quota_us=kernel.quota_us, period_us=kernel.period_us)
    return None if change == ResourceUpdate() else change


def write(view: CgroupView, group: str, change: ResourceUpdate, sandbox: str = "") -> None:
    """Write the files of a container's cgroup, but for its shares. Raises CgroupGone, CgroupError.

    With CPUs, tasks that were moved out of the cpuset come back. With the container's quota its pod's is
    lifted too; `sandbox` is the id of the pod's.
    """
    container_cgroup.write_cpuset(view, group, cpus=change.cpus, mems=change.mems)
    if change.cpus is not None:
        container_cgroup.bring_back(view, group)
    if (change.quota_us, change.period_us, change.burst_us) == (KEEP, KEEP, KEEP):
        return
    current = container_cgroup.read_bandwidth(view, group)
    bandwidth = Bandwidth(
        current.quota_us if change.quota_us is KEEP else change.quota_us,
        current.period_us if change.period_us is KEEP else change.period_us,
        current.burst_us if change.burst_us is KEEP else change.burst_us,
    )
    container_cgroup.write_bandwidth(view, group, bandwidth)
    if change.quota_us is None:
        container_cgroup.lift(view, group, sandbox)


_BACKOFF_SECONDS: Final = (0.1, 30.0)
_LAST_SECONDS: Final = 1.0
_AT_A_TIME: Final = 4
"""Fewer than the calls in flight, so that others need not wait."""

_log = logging.getLogger(__name__)

Write = Callable[[TrackedContainer, ResourceUpdate], Awaitable[None]]


class Recorder:
    """Sends changes to the runtime, at once or in the background; `write` writes a container's cgroup."""

    def __init__(self, index: ContainerIndex, client: CRIClient, tasks: Tasks, write: Write) -> None:
        self._index, self._client, self._tasks, self._write = index, client, tasks, write
        self._task: asyncio.Task[None] | None = None
        self._postponed = asyncio.Event()
        self._holders = 0
        self._released = asyncio.Event()
        self._released.set()

    @property
    def lacking(self) -> list[str]:
        """Ids of containers whose record lacks what their cgroup has."""
        return [container.status.id for container in self._lacking()]

    def _lacking(self) -> list[TrackedContainer]:
        return [one for one in self._index if one.unrecorded and one.status.state != "exited"]

    @property
    def are_held(self) -> bool:
        return self._holders > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin no update meanwhile: an NRI handler is at work, for whose end the update would wait."""
        self._holders += 1
        self._released.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._released.set()

    def note_recorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime gets a change by other means, as in the answer of an NRI handler."""
        if container := self._index.get(container_id):
            container.unrecorded = container.unrecorded and without(container.unrecorded, change)
            container.older = container.older and without(container.older, change)

    def note_unrecorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime did not get a change after all."""
        if container := self._index.get(container_id):
            self.postpone(container, change)

    async def record(self, container: TrackedContainer, change: ResourceUpdate) -> None:
        """Send a change, and what is not recorded yet: the runtime applies its record as a whole.

        Raises UnknownContainer, CRIError.
        """
        for earlier in (container.unrecorded, container.older):
            change = merged(earlier or ResourceUpdate(), change)
        resources = cri_resources(change)
        try:
            if resources != CRIResources():
                await self._client.update(container.status.id, resources)
        except CRIError as error:
            if error.code != "NOT_FOUND":
                raise
            self._index.retire(container.status.id)
            raise UnknownContainer(container.status.id) from None
        container.unrecorded = container.older = None

    def postpone(self, container: TrackedContainer, change: ResourceUpdate) -> None:
        """Send a change in the background."""
        container.unrecorded = merged(container.unrecorded or ResourceUpdate(), change)
        self._postponed.set()
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._record_all())

    async def _record_all(self) -> None:
        """Bring the runtime's record of every container into line, for as long as that takes."""
        least, most = _BACKOFF_SECONDS
        wait = least
        while pending := self._lacking():
            self._postponed.clear()
            places = asyncio.Semaphore(_AT_A_TIME)
            await asyncio.gather(*(self._record_postponed(one, places) for one in pending))
            if any(container.unrecorded for container in pending):
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._postponed.wait()
                wait = min(wait * 2, most)
            else:
                wait = least

    async def _record_postponed(self, container: TrackedContainer, places: asyncio.Semaphore) -> None:
        async with places:
            await self._released.wait()
            async with container.lock:
                change, container.newer = container.unrecorded, ResourceUpdate()
                try:
                    if change:
                        await self.record(container, change)
                except CRIError as failure:
                    _log.info(
                        "container %s: the runtime's record is behind: %s", container.status.id, failure
                    )
                except UnknownContainer:
                    return
                with suppress(RuntimeFailure, UnknownContainer):
                    await self.repeat_newer(container)

    async def repeat_newer(self, container: TrackedContainer) -> None:
        """Write again what a handler wrote meanwhile: the runtime may have applied its record after that."""
        if container.newer != ResourceUpdate():
            self.postpone(container, container.newer)
            await self._write(container, container.newer)

    async def close(self) -> None:
        """End; what can be recorded within a moment is."""
        if self._task:
            await asyncio.wait([self._task], timeout=_LAST_SECONDS)
            self._task.cancel()
