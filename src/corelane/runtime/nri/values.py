"""What the NRI plugin reports and is answered with, as plain values: pods, containers, events, answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from corelane.runtime.base import ContainerState, ResourceUpdate
from corelane.runtime.cri.values import POD_NAME, POD_UID

DEFAULT_REQUEST_TIMEOUT: Final = 2.0
"""Seconds that a runtime waits for an answer unless configured otherwise."""


class Token(NamedTuple):
    """Names a call that waits for its answer: `session` counts connections, `stream` calls in it."""

    session: int
    stream: int


@dataclass(frozen=True, slots=True)
class RuntimeIdentity:
    """Which runtime is connected. `nri_version` is empty where the runtime does not report it (before v0.12).

    `request_timeout` is in seconds.
    """

    name: str = ""
    version: str = ""
    nri_version: str = ""
    request_timeout: float = DEFAULT_REQUEST_TIMEOUT


@dataclass(frozen=True, slots=True)
class CPUResources:
    """CPU settings as the runtime has them or passes them on: None and "" where there is none.

    `quota_us` -1 is no quota. In an update that was requested, 0 is "as it is" too.
    """

    shares: int | None = None
    quota_us: int | None = None
    period_us: int | None = None
    cpus: str = ""
    mems: str = ""


@dataclass(frozen=True, slots=True)
class NRIPod:
    """A pod sandbox; all fields empty where the runtime has forgotten it."""

    id: str = ""
    uid: str = ""
    namespace: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True)
class NRIContainer:
    """A container. `cgroup` is `cgroupsPath` of its OCI specification: a path, or `slice:prefix:name`.

    `annotations` hold the kubelet's and the runtime's; `pid` is 0 until the container's process exists.
    """

    id: str = ""
    sandbox: str = ""
    name: str = ""
    state: ContainerState = "unknown"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""
    resources: CPUResources = CPUResources()
    pid: int = 0

    @property
    def pod_uid(self) -> str:
        return self.labels.get(POD_UID, "")

    @property
    def pod_name(self) -> str:
        return self.labels.get(POD_NAME, "")


@dataclass(frozen=True, slots=True)
class Configured:
    """The runtime accepted the registration; synchronisation follows."""

    runtime: RuntimeIdentity


@dataclass(frozen=True, slots=True)
class Synchronized:
    """Every pod, and every container that has not ended. To be answered with updates."""

    token: Token
    pods: tuple[NRIPod, ...]
    containers: tuple[NRIContainer, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class ContainerCreating:
    """A container is about to be created. To be answered with its adjustment, and updates of others.

    The runtime waits `timeout` seconds from the call on.
    """

    token: Token
    pod: NRIPod
    container: NRIContainer
    timeout: float


@dataclass(frozen=True, slots=True)
class ContainerUpdating:
    """A CRI client (the kubelet, or corelane itself) updates a container. To be answered with updates.

    An update of this same container changes what is applied; the fields that it does not give stay as
    `requested`.
    """

    token: Token
    pod: NRIPod
    container: NRIContainer
    requested: CPUResources
    timeout: float


NotificationKind: TypeAlias = Literal[
    "PodStarted",
    "PodStopped",
    "PodRemoved",
    "ContainerStarted",
    "ContainerUpdated",
    "ContainerStopped",
    "ContainerRemoved",
]


@dataclass(frozen=True, slots=True)
class Notification:
    """A pod's sandbox changed, or one of its containers; the pod of a removed container may be empty.

    A container that stopped has ended, or its creation or start failed; its cgroup may still have processes.
    """

    kind: NotificationKind
    pod: NRIPod
    container: NRIContainer | None = None


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The runtime ends this plugin's service."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is of no further use; calls that wait for an answer are void."""

    reason: str


Question: TypeAlias = Synchronized | ContainerCreating | ContainerUpdating
"""Events that the runtime waits for an answer to."""
Event: TypeAlias = Question | Notification | Configured | ShutDown | Lost

Updates: TypeAlias = tuple[tuple[str, ResourceUpdate], ...]
"""Changes of containers, by container id."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question. `adjust` counts for a container being created only.

    `burst_us` is not part of NRI's messages and is left out of both.
    """

    adjust: ResourceUpdate | None = None
    updates: Updates = ()


NOTHING: Final = Answer()

Outcome: TypeAlias = Literal["answered", "overrun", "failed", "lost"]
"""What became of a question: answered, answered for (handler too slow, or raised), connection lost before."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that the handler's answer does not count for, `seconds` after it arrived.

    On "overrun" and "failed" the runtime went on without adjustment and updates; on "lost" without this
    plugin.
    """

    question: Question
    outcome: Outcome
    seconds: float
