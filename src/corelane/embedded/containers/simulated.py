"""A runtime for nodes that exist only as a description: containers "run" there without any process.

Nothing is pinned, so the kernel confirms nothing, and `allowed` is empty. Init containers complete at once,
because nothing would ever end them; all others run until they are stopped.
Everything else is as with real containers: they outlive the agent, and a restarted one adopts them. Their
file has a list of them on the first line, then a line for each change since. A change is appended in one
write, so that it survives this process, however it ends; nothing is fsynced, for it need not survive the
machine. A last line without its end was never answered, and is dropped.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from corelane.cpuset import CPUSet
from corelane.kernel.files import append, remove_temporary, write_atomic
from corelane.kernel.proc import TaskAffinity
from corelane.runtime.base import (
    WHOLE_LOG,
    Capabilities,
    ContainerSpec,
    LogSelection,
    Observation,
    ObservedResources,
    ResourceUpdate,
    RuntimeFailure,
    RuntimeStatus,
    UnknownContainer,
    each_observed,
)
from corelane.runtime.process_watch import Broadcast

_MOST_CHANGES: Final = 200
"""Lines after which the list is written anew; more with many containers."""
_FILE_NAME = "simulated.json"
_NO_OUTPUT = b"corelane: this node is simulated: no process runs here, so there is no output\n"


class SimulationStateError(ValueError):
    """The file of simulated containers cannot be read; the message names the file and the remedy."""


class Row(msgspec.Struct):
    """A simulated container, and its CPUs as a list."""

    status: RuntimeStatus
    cpus: str


class _Removed(msgspec.Struct):
    removed: str


class _Change(msgspec.Struct):
    """A line: a container as it is now, or the id of one that is gone."""

    status: RuntimeStatus | None = None
    cpus: str = ""
    removed: str = ""


_encode: Final = msgspec.json.Encoder().encode
_CHANGES: Final = msgspec.json.Decoder(_Change)


class SimulatedRecords:
    """The file at `path`; None keeps nothing. `rows` returns all containers as they are."""

    def __init__(self, path: Path | None, rows: Callable[[], Iterable[Row]]) -> None:
        self._path = path
        self._rows = rows
        self._changes: int | None = None
        """Lines after the list; None where the list has to be written first."""
        self._most = _MOST_CHANGES

    def load(self) -> list[Row]:
        """Return what ran before. Raises SimulationStateError, OSError."""
        if self._path is None:
            return []
        remove_temporary(self._path)
        if not self._path.exists():
            return []
        try:
            content = self._path.read_bytes()
            first, *lines = content.split(b"\n")
            rows = {row.status.id: row for row in msgspec.json.decode(first, type=list[Row])}
            for line in lines[:-1]:
                change = _CHANGES.decode(line)
                if change.status is None:
                    rows.pop(change.removed, None)
                else:
                    rows[change.status.id] = Row(change.status, change.cpus)
            return list(rows.values())
        except (ValueError, RecursionError) as error:
            raise SimulationStateError(
                f"{self._path}: not a list of simulated containers ({error}); "
                "remove it, and they are started anew"
            ) from error

    def put(self, row: Row) -> None:
        """Record a container that is new or changed. Raises OSError."""
        self._append(row)

    def remove(self, container_id: str) -> None:
        """Record that a container is gone. Raises OSError."""
        self._append(_Removed(container_id))

    def _append(self, change: Row | _Removed) -> None:
        if self._path is None:
            return
        if self._changes is None or self._changes >= self._most:
            self._write_all(self._path)
            return
        try:
            append(self._path, _encode(change) + b"\n")
            self._changes += 1
        except FileNotFoundError:  # it was deleted
            self._write_all(self._path)

    def _write_all(self, path: Path) -> None:
        rows = list(self._rows())
        write_atomic(path, _encode(rows) + b"\n", durable=False)
        self._changes, self._most = 0, max(_MOST_CHANGES, 2 * len(rows))


@dataclass(slots=True)
class _Container:
    status: RuntimeStatus
    cpus: CPUSet
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class SimulatedRuntime:
    """The `LifecycleRuntime` of simulated nodes; with a `state` directory containers outlive the process."""

    name = "simulated"
    enforcement = "simulated"
    notice = "this node is simulated: no process runs, and no CPU is really pinned"
    capabilities = Capabilities(on_this_machine=False, kernel_confirms=False)

    def __init__(self, state: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Read what ran before. Raises SimulationStateError, OSError."""
        self._clock = clock
        self._events = Broadcast[RuntimeStatus]()
        self._containers: dict[str, _Container] = {}
        path = state / _FILE_NAME if state else None
        self._records = SimulatedRecords(path, lambda: map(_row, self._containers.values()))
        self._containers |= {row.status.id: _restored(row) for row in self._records.load()}

    async def start(self, spec: ContainerSpec) -> RuntimeStatus:
        """Take note of a container; there is no process. Raises RuntimeFailure if it runs already."""
        for other in self._containers.values():
            present = other.status
            if (present.pod_uid, present.name) == (spec.pod_uid, spec.name) and not other.ended.is_set():
                raise RuntimeFailure("CreateContainerError", f'"{spec.name}" runs already, as {present.id}')
        status = RuntimeStatus(
            id=secrets.token_hex(16),
            pod_uid=spec.pod_uid,
            namespace=spec.namespace,
            pod=spec.pod,
            name=spec.name,
            attempt=spec.attempt,
            state="running",
            started_at=self._clock(),
        )
        self._containers[status.id] = container = _Container(status, spec.cpus)
        self._records.put(_row(container))
        self._events.publish(status)
        if spec.completes:
            self._end(container, 0)
        return status

    async def update(self, container_id: str, change: ResourceUpdate) -> None:
        container = self._find(container_id)
        container.cpus = change.cpus or container.cpus
        self._records.put(_row(container))

    async def apply(self, container_id: str, change: ResourceUpdate) -> None:
        await self.update(container_id, change)

    async def signal(self, container_id: str, number: int) -> None:
        """End the container for a signal that ends a process by default, so far as Kubernetes sends one."""
        if number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
            self._end(self._find(container_id), number)

    async def stop(self, container_id: str, grace_seconds: float) -> None:
        self._end(self._find(container_id), signal.SIGTERM)

    async def remove(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is None:
            return
        if not container.ended.is_set():
            raise RuntimeFailure("RemoveContainerError", f"container {container_id} still runs")
        del self._containers[container_id]
        self._records.remove(container_id)

    async def remove_pod(self, pod_uid: str) -> None:
        for container_id in [
            id_ for id_, container in self._containers.items() if container.status.pod_uid == pod_uid
        ]:
            await self.remove(container_id)

    async def sweep(self, pods: Collection[str]) -> None:
        """Nothing: there are no files of pods."""

    async def containers(self) -> list[RuntimeStatus]:
        return [container.status for container in self._containers.values()]

    def wait_events(self) -> AsyncIterator[RuntimeStatus]:
        return self._events.listen()

    async def observe(self, container_id: str) -> ObservedResources | None:
        """None: no kernel grants anything."""
        self._find(container_id)
        return None

    async def observe_all(self, container_ids: Iterable[str]) -> dict[str, Observation]:
        return await each_observed(self.observe, container_ids)

    async def allowed(self, container_id: str, *, most: int | None = None) -> list[TaskAffinity]:
        """Nothing: there is no task, and so nothing to confirm."""
        self._find(container_id)
        return []

    def assigned(self, container_id: str) -> CPUSet:
        """The CPUs last set for a container; no kernel is involved."""
        return self._find(container_id).cpus

    def logs(
        self, container_id: str, choice: LogSelection = WHOLE_LOG, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """One line with the reason why there is no output.

        With `follow`, held open until the container ends.
        """
        return self._explain(self._find(container_id), follow=follow)

    @staticmethod
    async def _explain(container: _Container, *, follow: bool) -> AsyncIterator[bytes]:
        yield _NO_OUTPUT
        if follow:
            await container.ended.wait()

    async def close(self) -> None:
        self._events.close()

    def _find(self, container_id: str) -> _Container:
        try:
            return self._containers[container_id]
        except KeyError:
            raise UnknownContainer(container_id) from None

    def _end(self, container: _Container, number: int) -> None:
        """End a container by a signal, or with exit code 0 for none (0)."""
        if container.ended.is_set():
            return
        container.status = replace(
            container.status,
            state="exited",
            finished_at=self._clock(),
            exit_code=128 + number if number else 0,
            signal=number or None,
        )
        container.ended.set()
        self._records.put(_row(container))
        self._events.publish(container.status)


def _row(container: _Container) -> Row:
    return Row(container.status, str(container.cpus))


def _restored(row: Row) -> _Container:
    container = _Container(row.status, CPUSet.parse(row.cpus))
    if row.status.state == "exited":
        container.ended.set()
    return container
