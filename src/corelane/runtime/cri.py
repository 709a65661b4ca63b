"""Pods and containers of a container runtime through the CRI: a client that only reads.

Kubernetes' container runtime interface (KEP-2041, `runtime.v1`): containerd from 1.6 and CRI-O from 1.24 on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

CONTAINERD: Final = "unix:///run/containerd/containerd.sock"
"""Where containerd listens by default; CRI-O: unix:///var/run/crio/crio.sock."""

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
"""Labels that the kubelet puts on what it has the runtime make."""

_STATES = ("created", "running", "exited", "unknown")
_MOST_BYTES = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_retries", 0),
)


class CRIError(Exception):
    """A runtime that cannot be reached; names the endpoint and the remedy."""


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Which runtime answers: containerd 1.7.24, say."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod as the runtime lists it. `uid` is the kubelet's, for static pods too."""

    id: str
    uid: str
    namespace: str
    name: str
    ready: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CRIContainer:
    """A container, an ended one too as long as the runtime lists it."""

    id: str
    sandbox: str
    """The id of its pod's sandbox."""
    name: str
    state: str
    """created, running, exited or unknown."""
    attempt: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CRIResources:
    """A container's CPU settings as passed to the runtime; 0 and "" where none was passed."""

    shares: int = 0
    """cpu.shares of cgroup v1: 1024 for each CPU requested."""
    quota: int = 0
    """Microseconds in each period; -1 is no limit."""
    period: int = 0
    cpus: str = ""
    mems: str = ""


class CRIClient:
    """A connection; every call raises CRIError. Made by `connect`."""

    def __init__(self, channel: Any, endpoint: str, seconds: float) -> None:
        self._channel, self._endpoint, self._seconds = channel, endpoint, seconds

    async def version(self) -> RuntimeVersion:
        answer = await self._call("Version", version="v1")
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    async def sandboxes(self) -> list[Sandbox]:
        """Every pod's sandbox, those that ended too, by namespace and name."""
        answer = await self._call("ListPodSandbox")
        return sorted(map(_sandbox, answer.items), key=lambda one: (one.namespace, one.name, one.id))

    async def containers(self) -> list[CRIContainer]:
        """Every container, those that ended too."""
        answer = await self._call("ListContainers")
        return sorted(map(_container, answer.containers), key=lambda one: (one.sandbox, one.name, one.id))

    async def resources(self, container: str) -> CRIResources | None:
        """The CPU settings of a container, as far as this runtime reports them.

        None also where it is gone.
        """
        answer = await self._call("ContainerStatus", missing=True, container_id=container, verbose=True)
        return _resources(answer) if answer is not None else None

    async def _call(self, method: str, *, missing: bool = False, **fields: Any) -> Any:
        """The answer; None where `missing` is allowed and there is no such thing."""
        import grpc

        from corelane.runtime.cri_messages import SERVICE, message

        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=message(f"{method}Request").SerializeToString,
            response_deserializer=message(f"{method}Response").FromString,
        )
        try:
            return await call(message(f"{method}Request")(**fields), timeout=self._seconds)
        except grpc.aio.AioRpcError as error:
            if missing and error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise CRIError(f"{self._endpoint}: {method}: {_said(error, self._seconds)}") from None


def _said(error: Any, seconds: float) -> str:
    """A gRPC status as a sentence with the remedy."""
    code, details = error.code().name, " ".join((error.details() or "").split())
    if code == "UNIMPLEMENTED":
        return (
            f"answers gRPC, but not the CRI v1 ({details}): "
            "it takes containerd from 1.6 with its CRI plugin on, or CRI-O from 1.24"
        )
    if code == "DEADLINE_EXCEEDED":
        return f"no answer within {seconds:g} s: is this a container runtime's CRI socket, and is it well?"
    if code in ("UNAVAILABLE", "UNKNOWN", "INTERNAL"):
        return f"{details or code}: is this a container runtime's CRI socket?"
    return f"{code}: {details}"


@asynccontextmanager
async def connect(endpoint: str = CONTAINERD, seconds: float = 10.0) -> AsyncIterator[CRIClient]:
    """A client for the runtime that listens there; a call may take so many seconds.

    Raises CRIError where the socket is missing or refuses, or something else than a runtime listens; and
    ImportError where grpcio is not installed.
    """
    import grpc

    path = _path(endpoint)
    await _reach(endpoint, path, seconds)
    channel = grpc.aio.insecure_channel(f"unix://{path}", options=_OPTIONS)
    try:
        yield CRIClient(channel, endpoint, seconds)
    finally:
        await channel.close(grace=0)


def _path(endpoint: str) -> str:
    path = endpoint.removeprefix("unix://").removeprefix("unix:")
    if not path.startswith("/"):
        raise CRIError(
            f"{endpoint}: is not a socket on this machine: give it as unix:///run/containerd/containerd.sock"
        )
    return path


async def _reach(endpoint: str, path: str, seconds: float) -> None:
    """The operating system's error for an unreachable socket; gRPC's codes do not tell these errors apart."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        why = error.strerror or f"no answer within {seconds:g} s"
        raise CRIError(
            f"{endpoint}: {why}: is the container runtime running, and is this its CRI socket?"
        ) from None
    writer.close()


def _sandbox(item: Any) -> Sandbox:
    labels, meta = dict(item.labels), item.metadata
    return Sandbox(
        item.id,
        labels.get(POD_UID) or meta.uid,
        labels.get(POD_NAMESPACE) or meta.namespace,
        labels.get(POD_NAME) or meta.name,
        item.state == 0,
        labels,
        dict(item.annotations),
    )


def _container(item: Any) -> CRIContainer:
    labels = dict(item.labels)
    return CRIContainer(
        item.id,
        item.pod_sandbox_id,
        labels.get(CONTAINER_NAME) or item.metadata.name,
        _STATES[item.state] if 0 <= item.state < len(_STATES) else "unknown",
        item.metadata.attempt,
        labels,
        dict(item.annotations),
    )


def _resources(answer: Any) -> CRIResources | None:
    """Of the status where the runtime fills it in (containerd from 1.7), else of the specification it ran."""
    linux = answer.status.resources.linux
    if answer.status.resources.HasField("linux"):
        return CRIResources(
            linux.cpu_shares, linux.cpu_quota, linux.cpu_period, linux.cpuset_cpus, linux.cpuset_mems
        )
    cpu = _specified(answer.info.get("info", ""))
    if cpu is None:
        return None
    shares, quota, period = (cpu.get(key) or 0 for key in ("shares", "quota", "period"))
    return CRIResources(shares, quota, period, cpu.get("cpus") or "", cpu.get("mems") or "")


def _specified(info: str) -> dict[str, Any] | None:
    """`linux.resources.cpu` of the OCI specification, which containerd and CRI-O give on request."""
    try:
        cpu = json.loads(info)["runtimeSpec"]["linux"]["resources"]["cpu"]
    except (ValueError, KeyError, TypeError):
        return None
    return cpu if isinstance(cpu, dict) else None
