"""A client of the CRI, Kubernetes' container runtime interface (KEP-2041, `runtime.v1`).

containerd from 1.6 and CRI-O from 1.24 on. A lost connection is made again by the next call, so a restarted
runtime needs no new client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from corelane.runtime.base import RuntimeVersion
from corelane.runtime.cri import values
from corelane.runtime.cri.values import (
    Change,
    ChangeKind,
    ContainerDetails,
    CRIContainer,
    CRIError,
    CRIResources,
    Sandbox,
)

if TYPE_CHECKING:
    from corelane.runtime.grpc_channel import RPCError

CONTAINERD: Final = "unix:///run/containerd/containerd.sock"
"""Where containerd listens by default; CRI-O: unix:///var/run/crio/crio.sock."""

_MOST_BYTES = 64 << 20
_MOST_CALLS = 8
"""Calls in flight at a time, so that a slow runtime is not overloaded."""
_CHANGES: Final[dict[int, ChangeKind]] = {1: "started", 2: "stopped", 3: "deleted"}
_CONTAINERD_METADATA: Final = {"containerd-namespace": "k8s.io"}
_CONTAINERD_EVENTS: Final = ('namespace==k8s.io,topic~="^/tasks/(start|exit)$"',)


class CRIClient:
    """A connection; every call raises CRIError. At most `_MOST_CALLS` are in flight, others wait."""

    def __init__(self, endpoint: str = CONTAINERD, seconds: float = 10.0) -> None:
        """`seconds` is the deadline of a call. Raises ImportError where h2 is not installed.

        Nothing is sent before the first call. To be made in a running event loop.
        """
        from corelane.runtime.grpc_channel import Channel

        self.endpoint, self._seconds = endpoint, seconds
        self._path = _path(endpoint)
        self._channel = Channel(self._path, _MOST_BYTES)
        self._calls = asyncio.Semaphore(_MOST_CALLS)

    async def version(self) -> RuntimeVersion:
        """Return name and version of the runtime."""
        answer = await self._call("Version", version="v1")
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    async def sandboxes(self) -> list[Sandbox]:
        """Return every pod's sandbox, those that ended too, by namespace and name."""
        answer = await self._call("ListPodSandbox")
        return sorted(map(values.sandbox, answer.items), key=lambda pod: (pod.namespace, pod.name, pod.id))

    async def containers(self) -> list[CRIContainer]:
        """Return every container, those that ended too."""
        answer = await self._call("ListContainers")
        listed = map(values.container, answer.containers)
        return sorted(listed, key=lambda container: (container.sandbox, container.name, container.id))

    async def resources(self, container: str) -> CRIResources | None:
        """Return a container's CPU settings as far as this runtime reports them; None also if it is gone."""
        status = await self.details(container)
        return status.resources if status else None

    async def details(self, container: str) -> ContainerDetails | None:
        """Return a container's status with pid and cgroup; None if it is gone."""
        try:
            return values.details(await self._call("ContainerStatus", container_id=container, verbose=True))
        except CRIError as error:
            if error.code == "NOT_FOUND":
                return None
            raise

    async def update(self, container: str, resources: CRIResources) -> None:
        """Change the given resources of a container and the runtime's record; 0 and "" change nothing.

        The runtime applies its whole record: what was written to the cgroup behind its back is overwritten.
        Raises CRIError with NOT_FOUND for a container that is gone.
        """
        fields: dict[str, Any] = {
            "cpu_shares": resources.shares,
            "cpu_quota": resources.quota,
            "cpu_period": resources.period,
            "cpuset_cpus": resources.cpus,
            "cpuset_mems": resources.mems,
        }
        given = {name: value for name, value in fields.items() if value}
        await self._call("UpdateContainerResources", container_id=container, linux=given)

    async def changes(self, runtime: RuntimeVersion) -> AsyncGenerator[Change, None]:
        """Yield starts and ends of containers and sandboxes from about now on.

        CRI's own events (evented PLEG) but for containerd 1.x: 1.6 has none, and 1.7 gives each event to only
        one of its listeners, so that listening would take them from a kubelet. There it is containerd's own
        service of events. Raises CRIError, with UNIMPLEMENTED where the runtime has no events.
        """
        if runtime.name == "containerd" and _major(runtime.version) < 2:
            stream = self._stream(
                "containerd.services.events.v1.Events/Subscribe",
                "SubscribeRequest",
                "Envelope",
                filters=_CONTAINERD_EVENTS,
            )
            async for envelope in stream:
                if change := _task_change(envelope):
                    yield change
        else:
            service = "runtime.v1.RuntimeService/GetContainerEvents"
            async for event in self._stream(service, "GetEventsRequest", "ContainerEventResponse"):
                yield Change(event.container_id, _CHANGES.get(event.container_event_type, "created"))

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        self._channel.close()

    async def _call(self, method: str, **fields: Any) -> Any:
        from corelane.runtime.cri.messages import SERVICE, message
        from corelane.runtime.grpc_channel import RPCError

        request = message(f"{method}Request")(**fields).SerializeToString()
        async with self._calls:
            try:
                answer = await self._channel.unary(f"/{SERVICE}/{method}", request, self._seconds)
            except (RPCError, OSError) as error:
                failure = error
            else:
                return self._parsed(f"{method}Response", answer)
        raise await self._failed(method, failure) from None

    async def _stream(self, path: str, request: str, response: str, **fields: Any) -> AsyncIterator[Any]:
        """Yield the messages of a stream. It has no deadline: a runtime that stops ends the stream."""
        from corelane.runtime.cri.messages import message
        from corelane.runtime.grpc_channel import RPCError

        asked = message(request)(**fields).SerializeToString()
        try:
            async with aclosing(self._channel.stream(f"/{path}", asked, _CONTAINERD_METADATA)) as answers:
                async for answer in answers:
                    yield self._parsed(response, answer)
        except (RPCError, OSError) as error:
            failure = error
        else:
            return
        raise await self._failed(path.rpartition("/")[2], failure) from None

    def _parsed(self, name: str, answer: bytes) -> Any:
        from corelane.runtime.cri.messages import parse

        try:
            return parse(name, answer)
        except ValueError as error:
            raise CRIError(f"{self.endpoint}: {error}; see the runtime's log", "INTERNAL") from None

    async def _failed(self, method: str, error: RPCError | OSError) -> CRIError:
        """Return a failure as an error with the remedy; the socket's own error where nothing answers."""
        if isinstance(error, OSError):
            return _unreachable(self.endpoint, error, self._seconds)
        if error.code == "UNAVAILABLE":
            try:
                await reach(self.endpoint, self._path, self._seconds)
            except CRIError as unreachable:
                return unreachable
        return CRIError(
            f"{self.endpoint}: {method}: {_text(error.code, str(error), self._seconds)}", error.code
        )


def _task_change(envelope: Any) -> Change | None:
    """Return a containerd event about a task; None for the end of a process executed in the container."""
    from corelane.runtime.cri.messages import parse

    try:
        task = parse("TaskEvent", envelope.event.value)
    except ValueError:
        return None
    if envelope.topic == "/tasks/start":
        return Change(task.container_id, "started")
    return Change(task.container_id, "stopped") if task.id in ("", task.container_id) else None


def _major(version: str) -> int:
    """Return the first number of a version such as 1.7.24 or v2.1; 2 for a version without a number."""
    number = version.removeprefix("v").partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 2


def _text(code: str, details: str, seconds: float) -> str:
    if code == "UNIMPLEMENTED":
        return (
            f"answers gRPC, but not the CRI v1 ({details}); "
            "use containerd 1.6 or later with its CRI plugin enabled, or CRI-O 1.24 or later"
        )
    if code == "DEADLINE_EXCEEDED":
        return f"no answer within {seconds:g} s; check that this is a CRI socket and the runtime responds"
    if code in ("UNAVAILABLE", "INTERNAL"):
        return f"{details or code}; check that this is a container runtime's CRI socket"
    return f"{code}: {details}"


@asynccontextmanager
async def connect(endpoint: str = CONTAINERD, seconds: float = 10.0) -> AsyncIterator[CRIClient]:
    """Connect to the runtime behind an endpoint; `seconds` is the deadline of a call.

    Raises CRIError where the socket is missing or refuses, or something else than a runtime listens; and
    ImportError where h2 is not installed.
    """
    await reach(endpoint, _path(endpoint), seconds)
    client = CRIClient(endpoint, seconds)
    try:
        yield client
    finally:
        await client.close()


def _path(endpoint: str) -> str:
    path = endpoint.removeprefix("unix://").removeprefix("unix:")
    if not path.startswith("/"):
        raise CRIError(
            f"{endpoint}: is not a socket on this machine; give a path, as in {CONTAINERD}",
            "INVALID_ARGUMENT",
        )
    return path


async def reach(endpoint: str, path: str, seconds: float) -> None:
    """Raise the operating system's error for an unreachable socket, as gRPC's code is the same for all."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise _unreachable(endpoint, error, seconds) from None
    writer.close()


def _unreachable(endpoint: str, error: OSError, seconds: float) -> CRIError:
    why = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else error.strerror or error
    remedy = "check that the container runtime is running and this is its CRI socket"
    if isinstance(error, PermissionError):
        remedy = "run as a user who may open the socket, as a rule root"
    return CRIError(f"{endpoint}: {why}; {remedy}")
