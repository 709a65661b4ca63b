"""Exclusive CPUs as the kubelet reports them: its podresources API (KEP-606, KEP-2043; v1).

The kubelet names pods by namespace and name, not by UID. Containers in the shared pool have no CPUs here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corelane.cpuset import MAX_CPU, CPUSet
from corelane.runtime.protobuf_table import MessageTable, Table

_MOST_BYTES: Final = 64 << 20


class PodResourcesError(Exception):
    """The kubelet did not answer; names the socket, what happened, and the remedy. `code` is gRPC's."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class NoSocket(PodResourcesError):  # noqa: N818 - a state
    """There is no socket: the kubelet has not started yet, or its directory is not mounted."""


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """Exclusive CPUs of a pod by container; `cpus` are those of pod-level resources (1.37)."""

    namespace: str
    name: str
    containers: Mapping[str, CPUSet]
    cpus: CPUSet = field(default_factory=CPUSet)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class PodResourcesClient:
    """A connection to the kubelet's socket. Every call raises PodResourcesError."""

    def __init__(self, socket: Path, seconds: float = 5.0) -> None:
        """`seconds` is the deadline of a call. Raises ImportError where h2 is not installed."""
        from corelane.runtime.grpc_channel import Channel

        self._socket, self._seconds = socket, seconds
        self._channel = Channel(str(socket), _MOST_BYTES)

    async def list(self) -> list[PodAllocation]:
        """Return every pod that the kubelet runs, with its exclusive CPUs if it has any.

        Of init containers those that restart (sidecars) alone are included.
        """
        answer = await self._call("List", "ListPodResources")
        return [_pod(pod) for pod in answer.pod_resources]

    async def allocatable(self) -> CPUSet:
        """Return the CPUs that may be exclusive: all but reserved ones, none under policy none."""
        return _cpus((await self._call("GetAllocatableResources", "AllocatableResources")).cpu_ids)

    async def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    async def _call(self, method: str, messages: str) -> Any:
        from corelane.runtime.grpc_channel import RPCError

        request = message(f"{messages}Request")().SerializeToString()
        try:
            answer = await self._channel.unary(f"/{SERVICE}/{method}", request, self._seconds)
        except RPCError as error:
            raise self._failed(method, error.code, str(error)) from None
        except OSError as error:
            kind = NoSocket if isinstance(error, FileNotFoundError) else PodResourcesError
            remedy = "check that the kubelet runs, and mount this socket's directory"
            raise kind(f"{self._socket}: {error.strerror or error}; {remedy}", "UNAVAILABLE") from None
        try:
            return parse(f"{messages}Response", answer)
        except ValueError as error:
            raise self._failed(method, "INTERNAL", str(error)) from None

    def _failed(self, method: str, code: str, details: str) -> PodResourcesError:
        text = f"{self._socket}: {method}: {code} {details}".rstrip()
        remedy = {
            "UNIMPLEMENTED": "the kubelet lacks this call; use Kubernetes 1.28 or later",
            "DEADLINE_EXCEEDED": f"no answer within {self._seconds:g} s; check the load of the kubelet",
            "RESOURCE_EXHAUSTED": "the kubelet allows 100 calls a second; ask less often",
        }.get(code, "see the kubelet's log")
        return PodResourcesError(f"{text}; {remedy}", code)


def _pod(pod: Any) -> PodAllocation:
    containers = {container.name: _cpus(container.cpu_ids) for container in pod.containers}
    return PodAllocation(
        pod.namespace,
        pod.name,
        {name: cpus for name, cpus in containers.items() if cpus},
        _cpus(pod.cpu_ids),
    )


def _cpus(ids: Sequence[int]) -> CPUSet:
    if invalid := [cpu for cpu in ids if not 0 <= cpu <= MAX_CPU]:
        raise PodResourcesError(f"cpu_ids: {invalid[0]} is not a CPU id; check that a kubelet answers")
    return CPUSet(ids)


# Messages, as a table of field numbers. Numbers are those of
# `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` (1.37), which never change.


SERVICE: Final = "v1.PodResourcesLister"
_MESSAGES: Final[Table] = {
    "ContainerResources": {"name": (1, "string"), "cpu_ids": (3, "[int64]")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "[ContainerResources]"),
        "cpu_ids": (4, "[int64]"),
    },
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, "[PodResources]")},
    "AllocatableResourcesRequest": {},
    "AllocatableResourcesResponse": {"cpu_ids": (2, "[int64]")},
}
_TABLE: Final = MessageTable("v1", _MESSAGES)


def message(name: str) -> Any:
    """Return the class of a message of the table."""
    return _TABLE.message(name)


def parse(name: str, data: bytes) -> Any:
    """Return a message of the table. Raises ValueError for bytes that are not one."""
    return _TABLE.parse(name, data)
