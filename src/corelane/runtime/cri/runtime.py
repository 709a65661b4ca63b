"""The `Runtime` of a node on which a kubelet starts and ends containers, through CRI and cgroup files.

With nothing changed, a period costs one ListContainers: a container's status is read once, and observing
a container reads its cgroup's files alone. A change is written to these files, and the runtime's record is
brought into line through CRI: at once, or as soon as the runtime takes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext, suppress
from typing import Final

from corelane.cpuset import CPUSetError
from corelane.kernel import container_cgroup, container_paths
from corelane.kernel.cgroupfs import CgroupGone
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView
from corelane.kernel.proc import TaskAffinity
from corelane.runtime.base import (
    Capabilities,
    Observation,
    ObservedResources,
    ResourceUpdate,
    RuntimeFailure,
    RuntimeStatus,
    RuntimeVersion,
    UnknownContainer,
    each_observed,
)
from corelane.runtime.cri import recording
from corelane.runtime.cri.client import CONTAINERD, CRIClient
from corelane.runtime.cri.following import ContainerIndex, Follower, TrackedContainer
from corelane.runtime.cri.recording import Recorder
from corelane.runtime.cri.values import (
    POD_UID,
    ContainerDetails,
    CRIContainer,
    CRIError,
    Sandbox,
)
from corelane.runtime.process_watch import Broadcast, Tasks

_NO_ANSWER: Final = ("UNAVAILABLE", "DEADLINE_EXCEEDED")

_log = logging.getLogger(__name__)


class CRIRuntime:
    """Containers of a node with a kubelet. To be made in a running event loop.

    Raises CRIError, a RuntimeFailure, where the container runtime does not answer.
    """

    capabilities = Capabilities()
    notice = ""

    def __init__(
        self,
        view: CgroupView,
        endpoint: str = CONTAINERD,
        *,
        call_seconds: float = 10.0,
        list_seconds: float = 10.0,
    ) -> None:
        """`view` is the node's cgroups. Without events containers are listed every `list_seconds`."""
        self._view = view
        self._client = CRIClient(endpoint, call_seconds)
        self.listed_at = float("-inf")
        self._listing = asyncio.Lock()
        self._version: RuntimeVersion | None = None
        self._broadcast = Broadcast[RuntimeStatus]()
        self._index = ContainerIndex(self._broadcast.publish)
        self._pods: dict[str, Sandbox] = {}
        self._tasks = Tasks()
        self._follower = Follower(self, self._client, self._tasks, list_seconds)
        self._following: asyncio.Task[None] | None = None
        self.records = Recorder(self._index, self._client, self._tasks, self._write)

    @property
    def name(self) -> str:
        if self._version:
            return self._version.name
        return "cri-o" if "crio" in self._client.endpoint else "containerd"

    @property
    def enforcement(self) -> str:
        return self._view.name

    async def version(self, *, again: bool = False) -> RuntimeVersion:
        """Return name and version of the runtime, read once, or `again`. Raises CRIError."""
        if self._version is None or again:
            self._version = await self._client.version()
        return self._version

    # Listing and events.

    async def containers(self) -> list[RuntimeStatus]:
        """Return every container; changes since the last list go to the listeners too. Raises CRIError."""
        async with self._listing:  # one that waits reads no status again
            await self._list()
        return [container.status for container in self._index]

    async def _list(self) -> None:
        await self.version()
        before = self._index.ids()
        listed = await self._client.containers()
        self.listed_at = time.monotonic()
        if any(POD_UID not in container.labels for container in listed):
            self._pods = {pod.id: pod for pod in await self._client.sandboxes()}
        changed = [container for container in listed if self._index.is_news(container.id, container.state)]
        results = await asyncio.gather(*map(self._learn, changed), return_exceptions=True)
        for container_id in before - {container.id for container in listed}:
            self._index.retire(container_id)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _learn(self, listed: CRIContainer) -> None:
        """Add or advance a container from a list; the status of a running or just ended one is read once."""
        if listed.state == "created" or (listed.state == "exited" and not self._index.get(listed.id)):
            self._index.take_listed(listed, self._pods)
            return
        try:
            details = await self._client.details(listed.id)
        except CRIError as error:
            if error.code in _NO_ANSWER:
                raise
            _log.warning("container %s: taken as it is listed: %s", listed.id, error)
            self._index.take_listed(listed, self._pods)
            return
        if details is None:
            self._index.retire(listed.id)
        else:
            await self.take(details, listed.sandbox)

    def retire(self, container_id: str) -> None:
        """Drop a container that the runtime does not have any more."""
        self._index.retire(container_id)

    async def take(self, details: ContainerDetails, sandbox: str = "") -> TrackedContainer:
        """Add or advance a container from its status; its cgroup is looked up before that is reported."""
        group = older = None
        tracked = self._index.get(details.id)
        if details.state in ("running", "unknown") and not (tracked and tracked.group):
            group, older = await asyncio.to_thread(self._locate, details)
        return self._index.take_details(details, sandbox or details.sandbox, self._pods, group, older)

    def _locate(self, details: ContainerDetails) -> tuple[str | None, ResourceUpdate | None]:
        """Return a container's cgroup, and what an agent that was killed had written there alone."""
        group = container_paths.locate(self._view, details.id, details.cgroups_path, details.pid)
        older = None
        if group is not None and details.applied is not None:
            with suppress(OSError, CPUSetError):  # it is read again, and a fault is reported then
                older = recording.lacking(self._view, group, details.applied)
        return group, older

    def wait_events(self) -> AsyncIterator[RuntimeStatus]:
        """Yield changes from this call on: as the runtime reports them, or from a list once a period."""
        if self._following is None:
            self._following = self._tasks.spawn(self._follower.run())
        return self._broadcast.listen()

    @property
    def follows_events(self) -> bool:
        """Whether a stream of events is open; without one, a start is seen at the next list."""
        return self._follower.live

    # Changing and observing containers.

    async def update(self, container_id: str, change: ResourceUpdate) -> None:
        """Change a container's cgroup and, through CRI, the runtime's record of it; only the given fields.

        The files go first: they take microseconds, the record tens of milliseconds, as containerd has runc
        apply all of it. Where the runtime fails, its record follows in the background. A container without a
        cgroup here (not started yet, in a virtual machine) is changed by CRI alone; an ended one is left as
        it is. Raises RuntimeFailure with the kernel's reason, UnknownContainer.
        """
        container = await self._find(container_id)
        if container.status.state == "exited":
            return
        async with container.lock:
            container.newer = ResourceUpdate()
            in_cgroup = container.status.state != "created" and await self._group(container) is not None
            if in_cgroup:
                await self._write(container, change)
            try:
                await self.records.record(container, change)
            except CRIError as failure:
                if not in_cgroup:
                    raise
                text = "container %s: its cgroup is written, the runtime's record follows: %s"
                _log.info(text, container_id, failure)
                self.records.postpone(container, change)
            await self.records.repeat_newer(container)

    async def apply(self, container_id: str, change: ResourceUpdate) -> None:
        """As `update`, but return once the files are written: the runtime's record follows.

        So many containers are changed in the time that the record of one takes. An update of this container
        that is under way is waited for: the runtime may yet apply its older values, for milliseconds. Not
        while an NRI handler is at work: in the runtime that update may wait for the handler, whose answer
        has the newer values.
        """
        at_work = self.records.are_held
        container = await self._find(container_id)
        runs = container.status.state in ("running", "unknown")
        if runs and await self._group(container) is not None:
            async with nullcontext() if at_work else container.lock:
                await self.write_cgroup(container_id, change)
        elif not self.records.are_held:
            await self.update(container_id, change)
        else:
            raise RuntimeFailure("UpdateContainerError", f"{self._no_group(container)}; the runtime is busy")

    async def write_cgroup(
        self, container_id: str, change: ResourceUpdate, *, recorded: bool = False
    ) -> None:
        """Change a running container by its cgroup's files alone; the runtime is not called meanwhile.

        Its record is brought into line in the background, unless that is done otherwise: `recorded`. CPU
        shares change with the record. Raises RuntimeFailure, UnknownContainer.
        """
        container = await self._find(container_id)
        if recorded:
            self.records.note_recorded(container_id, change)
        container.newer = recording.merged(container.newer, change)
        await self._write(container, change)
        container.newer = recording.merged(container.newer, change)  # an update may have begun meanwhile
        if not recorded:
            self.records.postpone(container, change)

    @property
    def unrecorded(self) -> list[str]:
        """Ids of containers whose cgroup differs from the runtime's record."""
        return self.records.lacking

    async def _find(self, container_id: str) -> TrackedContainer:
        """Return a container, from its status if it was never listed. Raises UnknownContainer, CRIError."""
        if container := self._index.get(container_id):
            return container
        details = await self._client.details(container_id)
        if details is None:
            raise UnknownContainer(container_id)
        return await self.take(details)

    async def _write(self, container: TrackedContainer, change: ResourceUpdate) -> None:
        if change == ResourceUpdate():
            return
        group = await self._group(container)
        if group is None:
            raise RuntimeFailure("UpdateContainerError", self._no_group(container))
        try:
            async with container.writing:
                await asyncio.to_thread(
                    recording.write, self._view, group, change, container.status.sandbox_id
                )
        except CgroupGone:
            raise UnknownContainer(container.status.id) from None
        except OSError as error:
            raise RuntimeFailure("UpdateContainerError", str(error)) from error

    def _no_group(self, container: TrackedContainer) -> str:
        return (
            f"container {container.status.id}: no cgroup below {self._view.cpuset} "
            f"(the runtime names {container.cgroups_path or 'none'}); mount the node's /sys/fs/cgroup, in a "
            f"pod as a hostPath at {container_paths.HOST_ROOT}"
        )

    async def _group(self, container: TrackedContainer) -> str | None:
        if container.group is None:
            if not container.described:
                try:
                    details = await self._client.details(container.status.id)
                except CRIError as error:
                    if error.code in _NO_ANSWER:
                        raise
                    details = None
                container.described = True
                container.cgroups_path = details.cgroups_path if details else ""
            container.group = await asyncio.to_thread(
                container_paths.locate,
                self._view,
                container.status.id,
                container.cgroups_path,
                container.status.pid,
            )
        return container.group

    async def observe(self, container_id: str) -> ObservedResources | None:
        """Read a container's cgroup; of one that the runtime has removed too, while its cgroup is there.

        The quota of a container that has none is its pod's, where that can be lifted. Raises CgroupError,
        CRIError, UnknownContainer.
        """
        group, sandbox = self._index.retired_group(container_id), ""
        if group is None:
            container = await self._find(container_id)
            group, sandbox = await self._group(container), container.status.sandbox_id
        if group is None:
            return None
        try:
            reading = container_cgroup.read(self._view, group)
            bandwidth = Bandwidth(reading.quota_us, reading.period_us, reading.burst_us)
            if reading.quota_us is None:
                bandwidth = container_cgroup.throttling(self._view, group, sandbox) or bandwidth
        except CgroupGone:
            self._index.forget_retired(container_id)
            return None
        return ObservedResources(
            cpus=reading.cpus,
            mems=reading.mems,
            quota_us=bandwidth.quota_us,
            period_us=bandwidth.period_us,
            burst_us=bandwidth.burst_us,
            cgroup=group,
            populated=reading.populated,
            cpus_requested=reading.cpus_requested,
        )

    async def observe_all(self, container_ids: Iterable[str]) -> dict[str, Observation]:
        """As `Runtime.observe_all`."""
        return await each_observed(self.observe, container_ids)

    async def allowed(self, container_id: str, *, most: int | None = None) -> list[TaskAffinity]:
        """As `Runtime.allowed`. Needs the host's /proc (hostPID). Raises CgroupError."""
        group = await self._group(await self._find(container_id))
        if group is None:
            return []
        return await asyncio.to_thread(container_cgroup.sample, self._view, group, most)

    async def close(self) -> None:
        """As `Runtime.close`; what can be recorded within a moment is."""
        await self.records.close()
        if self._following:
            self._following.cancel()
        self._broadcast.close()
        await self._client.close()
        await self._tasks.finish()
