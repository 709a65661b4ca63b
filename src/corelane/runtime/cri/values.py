"""Pods and containers as a CRI runtime reports them, as plain values, and how its messages become them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from corelane.runtime.base import ContainerState, RuntimeFailure

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
"""Labels that the kubelet puts on what it has the runtime make."""
CONFIG_SOURCE: Final = "kubernetes.io/config.source"
CONFIG_HASH: Final = "kubernetes.io/config.hash"
"""Annotations of a static pod's sandbox; the hash is the UID that the kubelet knows the pod by."""

_STATES: Final[tuple[ContainerState, ...]] = ("created", "running", "exited", "unknown")
_NANOSECONDS: Final = 1_000_000_000


ChangeKind: TypeAlias = Literal["created", "started", "stopped", "deleted"]


class Change(NamedTuple):
    """Start, end, creation or removal of a container or a sandbox; its status may show it only later."""

    id: str
    kind: ChangeKind


class CRIError(RuntimeFailure):
    """Failed call. `code` is gRPC's name: UNAVAILABLE where no runtime answers, NOT_FOUND, ….

    The text names the endpoint and the remedy.
    """

    def __init__(self, message: str, code: str = "UNAVAILABLE") -> None:
        super().__init__(code, message)
        self.code = code

    def __str__(self) -> str:
        return self.message


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

    @property
    def static(self) -> bool:
        """Whether the pod comes from the kubelet's own files, so that the API server has a mirror of it."""
        return self.annotations.get(CONFIG_SOURCE, "api") != "api"


@dataclass(frozen=True, slots=True)
class CRIContainer:
    """A container, an ended one too as long as the runtime lists it.

    Kubelet's labels do not tell init and ephemeral containers from others: only the pod does, by name.
    """

    id: str
    sandbox: str
    """The id of its pod's sandbox."""
    name: str
    state: ContainerState
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDetails:
    """The status of one container. Times in Unix seconds, None before the event.

    `pid` and `cgroups_path` (`linux.cgroupsPath` of the OCI specification) are given by containerd and CRI-O
    on request; `resources` is the runtime's record, None where it reports none, and `applied` the one that it
    applies with every update, which has what came through NRI as well.
    """

    id: str
    name: str
    attempt: int
    state: ContainerState
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    message: str = ""
    sandbox: str = ""
    pid: int | None = None
    cgroups_path: str = ""
    resources: CRIResources | None = None
    applied: CRIResources | None = None


def sandbox(item: Any) -> Sandbox:
    """Return the value of a PodSandbox."""
    labels, meta, annotations = dict(item.labels), item.metadata, dict(item.annotations)
    return Sandbox(
        item.id,
        labels.get(POD_UID) or meta.uid or annotations.get(CONFIG_HASH, ""),
        labels.get(POD_NAMESPACE) or meta.namespace,
        labels.get(POD_NAME) or meta.name,
        item.state == 0,
        labels,
        annotations,
    )


def container(item: Any) -> CRIContainer:
    """Return the value of a Container."""
    labels = dict(item.labels)
    return CRIContainer(
        item.id,
        item.pod_sandbox_id,
        labels.get(CONTAINER_NAME) or item.metadata.name,
        _state(item.state),
        item.metadata.attempt,
        labels,
        dict(item.annotations),
    )


def details(answer: Any) -> ContainerDetails:
    """Return the value of a ContainerStatusResponse."""
    status, info = answer.status, _info(answer.info.get("info", ""))
    labels = dict(status.labels)
    ended = _state(status.state) == "exited"
    return ContainerDetails(
        id=status.id,
        name=labels.get(CONTAINER_NAME) or status.metadata.name,
        attempt=status.metadata.attempt,
        state=_state(status.state),
        labels=labels,
        started_at=_seconds(status.started_at),
        finished_at=_seconds(status.finished_at),
        exit_code=status.exit_code if ended else None,
        message=status.message or status.reason,
        sandbox=info.sandbox,
        pid=info.pid or None,
        cgroups_path=info.spec.linux.cgroups_path if info.spec else "",
        resources=_resources(status.resources, info),
        applied=_specified(info),
    )


def _state(number: int) -> ContainerState:
    return _STATES[number] if 0 <= number < len(_STATES) else "unknown"


def _seconds(nanoseconds: int) -> float | None:
    return nanoseconds / _NANOSECONDS if nanoseconds > 0 else None


class _CPU(msgspec.Struct):
    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    cpus: str | None = None
    mems: str | None = None


class _Resources(msgspec.Struct):
    cpu: _CPU | None = None


class _Linux(msgspec.Struct):
    cgroups_path: str = msgspec.field(default="", name="cgroupsPath")
    resources: _Resources | None = None


class _Spec(msgspec.Struct):
    linux: _Linux = msgspec.field(default_factory=_Linux)


class _Info(msgspec.Struct):
    """What corelane reads of the verbose answer of containerd and CRI-O."""

    pid: int = 0
    sandbox: str = msgspec.field(default="", name="sandboxID")
    spec: _Spec | None = msgspec.field(default=None, name="runtimeSpec")


def _info(text: str) -> _Info:
    try:
        return msgspec.json.decode(text, type=_Info)
    except (ValueError, RecursionError):
        return _Info()


def _resources(resources: Any, info: _Info) -> CRIResources | None:
    """Of the status where the runtime fills it in (containerd from 1.7), else of the specification it ran."""
    if resources.HasField("linux"):
        linux = resources.linux
        return CRIResources(
            linux.cpu_shares, linux.cpu_quota, linux.cpu_period, linux.cpuset_cpus, linux.cpuset_mems
        )
    return _specified(info)


def _specified(info: _Info) -> CRIResources | None:
    """Return what the OCI specification has."""
    recorded = info.spec.linux.resources if info.spec else None
    if recorded is None or recorded.cpu is None:
        return None
    cpu = recorded.cpu
    return CRIResources(cpu.shares or 0, cpu.quota or 0, cpu.period or 0, cpu.cpus or "", cpu.mems or "")
