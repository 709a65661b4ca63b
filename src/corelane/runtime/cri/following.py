"""Containers of a CRI runtime: followed by its events, or by lists, and indexed with their cgroups."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from corelane.runtime.base import ContainerState, ResourceUpdate, RuntimeStatus, RuntimeVersion
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.values import (
    POD_NAME,
    POD_NAMESPACE,
    POD_UID,
    Change,
    ContainerDetails,
    CRIContainer,
    CRIError,
    Sandbox,
)
from corelane.runtime.process_watch import Tasks

_ORDER: Final[dict[ContainerState, int]] = {"created": 0, "running": 1, "unknown": 2, "exited": 3}
_MOST_RETIRED: Final = 4096
_UNKNOWN_EXIT_CODE: Final = 255


@dataclass(slots=True)
class TrackedContainer:
    """One container. `group` is its cgroup's path, None before it is found."""

    status: RuntimeStatus
    cgroups_path: str = ""
    described: bool = False
    """Whether `cgroups_path` was read from the runtime."""
    group: str | None = None
    older: ResourceUpdate | None = None
    """Values in the cgroup that the runtime's record lacked when the container was first described."""
    unrecorded: ResourceUpdate | None = None
    """Values written to the cgroup that the runtime's record lacks."""
    newer: ResourceUpdate = field(default_factory=ResourceUpdate)
    """Values written by a handler since the update under way began, which must not undo them."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during an update through the runtime, however long the runtime takes."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while files are written."""


class ContainerIndex:
    """Containers by id. States only advance, as a list may be older than an event."""

    def __init__(self, publish: Callable[[RuntimeStatus], None]) -> None:
        self._publish = publish
        self._containers: dict[str, TrackedContainer] = {}
        self._retired: OrderedDict[str, str] = OrderedDict()

    def __iter__(self) -> Iterator[TrackedContainer]:
        return iter(list(self._containers.values()))

    def ids(self) -> set[str]:
        """Return the ids of the containers that the runtime has."""
        return set(self._containers)

    def get(self, container_id: str) -> TrackedContainer | None:
        """Return a container that the runtime has; None for any other."""
        return self._containers.get(container_id)

    def is_news(self, container_id: str, state: ContainerState) -> bool:
        """Return whether a container is new, or has advanced to this state."""
        container = self._containers.get(container_id)
        return container is None or reached(state, container.status.state, strictly=True)

    def take_listed(self, listed: CRIContainer, pods: Mapping[str, Sandbox]) -> None:
        """Add or advance a container from a list."""
        if self.is_news(listed.id, listed.state):
            self._keep(listed.id, _status(listed, listed.sandbox, pods))

    def take_details(
        self,
        details: ContainerDetails,
        sandbox: str,
        pods: Mapping[str, Sandbox],
        group: str | None,
        older: ResourceUpdate | None = None,
    ) -> TrackedContainer:
        """Add or advance a container from its status; `group` is its cgroup, None if not looked up.

        `older` are the values in the cgroup that the runtime's record lacks.
        """
        container = self._containers.get(details.id)
        group = group or (container.group if container else None)
        if self.is_news(details.id, details.state):
            status = replace(
                _status(details, sandbox, pods),
                pid=details.pid,
                started_at=details.started_at,
                finished_at=details.finished_at,
                message=details.message,
            )
            self._keep(details.id, replace(status, cgroup=group or "", record_differs=older is not None))
        container = self._containers[details.id]
        container.older = older or container.older
        container.described, container.group = True, group
        container.cgroups_path = details.cgroups_path or container.cgroups_path
        return container

    def _keep(self, container_id: str, status: RuntimeStatus) -> None:
        container = self._containers.get(container_id)
        if container is None:
            self._containers[container_id] = TrackedContainer(status)
        else:
            container.status = status
        self._publish(status)

    def retire(self, container_id: str) -> None:
        """Drop a container that the runtime has removed, but its cgroup, which may still hold processes."""
        container = self._containers.pop(container_id, None)
        if container is None:
            return
        if container.group:
            self._retired[container_id] = container.group
            if len(self._retired) > _MOST_RETIRED:
                self._retired.popitem(last=False)
        if container.status.state != "exited":
            message = "removed by the container runtime; exit code unknown"
            self._publish(
                replace(container.status, state="exited", exit_code=_UNKNOWN_EXIT_CODE, message=message)
            )

    def retired_group(self, container_id: str) -> str | None:
        """Return the cgroup of a dropped container."""
        return self._retired.get(container_id)

    def forget_retired(self, container_id: str) -> None:
        """Forget the cgroup of a dropped container: it is gone."""
        self._retired.pop(container_id, None)


def reached(state: ContainerState, expected: ContainerState, *, strictly: bool = False) -> bool:
    """Return whether `state` is `expected` or a later state; `strictly`: only a later one."""
    return _ORDER[state] > _ORDER[expected] if strictly else _ORDER[state] >= _ORDER[expected]


def _status(
    source: CRIContainer | ContainerDetails, sandbox: str, pods: Mapping[str, Sandbox]
) -> RuntimeStatus:
    """Return a status; the pod is named by the kubelet's labels, else by those of the sandbox."""
    labels, pod = source.labels, pods.get(sandbox)
    code = source.exit_code if isinstance(source, ContainerDetails) else None
    exited = source.state == "exited"
    return RuntimeStatus(
        id=source.id,
        pod_uid=labels.get(POD_UID) or (pod.uid if pod else ""),
        namespace=labels.get(POD_NAMESPACE) or (pod.namespace if pod else ""),
        pod=labels.get(POD_NAME) or (pod.name if pod else ""),
        name=source.name,
        attempt=source.attempt,
        state=source.state,
        sandbox_id=sandbox,
        exit_code=(_UNKNOWN_EXIT_CODE if code is None else code) if exited else None,
        message="ended before it was first listed; exit code unknown" if exited else "",
    )


_EXPECTED: Final[dict[str, ContainerState]] = {"started": "running", "stopped": "exited"}
_LATE_SECONDS: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
"""Pauses between reads of a status: the event of a start or an end comes before the status shows it."""
_RELIST_SECONDS: Final = 1.0
_BACKOFF_SECONDS: Final = (0.1, 5.0)

_log = logging.getLogger(__name__)


class Containers(Protocol):
    """The containers that are followed; every method raises CRIError."""

    listed_at: float
    """On the monotonic clock."""

    async def containers(self) -> list[RuntimeStatus]: ...

    async def version(self, *, again: bool = False) -> RuntimeVersion: ...

    async def take(self, details: ContainerDetails) -> object:
        """Add what the runtime describes."""

    def retire(self, container_id: str) -> None:
        """Drop a container that the runtime does not have any more; sandboxes and unknown ids are ignored."""


class Follower:
    """Keeps containers up to date. `live`: whether a stream of events is open."""

    def __init__(self, containers: Containers, client: CRIClient, tasks: Tasks, list_seconds: float) -> None:
        self._containers, self._client, self._tasks = containers, client, tasks
        self._list_seconds = list_seconds
        self.live = False

    async def run(self) -> None:
        """Follow until cancelled; what fails is tried again with a growing pause."""
        least, most = _BACKOFF_SECONDS
        wait, logged = least, ""
        while True:
            began = time.monotonic()
            try:
                await self._run_once()
            except CRIError as error:
                if error.code == "UNIMPLEMENTED":
                    with suppress(CRIError):
                        while True:
                            if time.monotonic() - self._containers.listed_at >= 1.5 * self._list_seconds:
                                await self._containers.containers()
                            await asyncio.sleep(self._list_seconds / 2)
                if str(error) != logged:
                    _log.warning("events of containers are interrupted: %s", error)
                logged = str(error)
            except Exception:  # noqa: BLE001 - the next attempt may succeed; without one, no start is seen
                _log.exception("events of containers are interrupted by an unexpected error")
            self.live = False
            if time.monotonic() - began > most:
                wait, logged = least, ""
            else:
                wait = min(wait * 2, most)
            await asyncio.sleep(wait)

    async def _run_once(self) -> None:
        async with aclosing(self._client.changes(await self._containers.version(again=True))) as changes:
            ended = asyncio.Event()
            relist = self._tasks.spawn(self._relist(ended))
            try:
                async for change in changes:
                    self._tasks.spawn(self._handle(change))
            finally:
                ended.set()
                await asyncio.wait([relist])  # its own error must not replace a cancellation
            relist.result()

    async def _relist(self, ended: asyncio.Event) -> None:
        """List at once, and again when the stream has begun for certain: events before that are lost."""
        while True:
            with suppress(CRIError):
                await self._containers.containers()
                if self.live or ended.is_set():
                    return
                self.live = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELIST_SECONDS):
                    await ended.wait()
                return

    async def _handle(self, change: Change) -> None:
        try:
            details = await self._settled(change)
            if details is None:
                self._containers.retire(change.id)
            else:
                await self._containers.take(details)
        except CRIError as error:
            _log.warning("container %s: the next list shows what has changed: %s", change.id, error)

    async def _settled(self, change: Change) -> ContainerDetails | None:
        """Return the container of an event, read again while its state does not show the change yet."""
        expected = _EXPECTED.get(change.kind, "created")
        for seconds in _LATE_SECONDS:
            details = await self._client.details(change.id)
            if details is None or reached(details.state, expected):
                return details
            await asyncio.sleep(seconds)
        return await self._client.details(change.id)
