"""What the agent asks of whatever runs containers: one small protocol, and the plain values that cross it.

Nothing here depends on how containers are run. Times are Unix seconds, CPU amounts are milliCPU.
"""

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from corelane.cpuset import CPUSet
from corelane.kernel.proc import TaskAffinity

__all__ = ["TaskAffinity"]

ContainerState = Literal["created", "running", "exited", "unknown"]


class Keep(enum.Enum):
    """The type of `KEEP`: an argument left as it is, where None already means something."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One run of one container, ready to start.

    `command` is complete (entry point and arguments, `$(VAR)` already expanded); an empty `working_dir` is
    `/`. `cpu_shares_milli` is the CPU request; `quota_milli` the CPU limit, None for no quota. `mems` None
    means every memory node. `log_path` None lets the runtime choose. `attempt` counts the runs of this
    container in its pod.
    """

    pod_uid: str
    namespace: str
    pod: str
    name: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    cpus: CPUSet
    mems: CPUSet | None = None
    cpu_shares_milli: int = 0
    quota_milli: int | None = None
    log_path: Path | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """What is known of one run. A process ended by signal n has `signal` n and `exit_code` 128 + n.

    `exit_code` is never None once `state` is "exited": 255 stands for an unknown one, and
    `message` gives the cause.
    """

    id: str
    pod_uid: str
    name: str
    attempt: int
    state: ContainerState
    pid: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which part of a log to return, and how; `since` in Unix seconds."""

    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


WHOLE_LOG: Final = LogSelection()


class RuntimeFailure(Exception):  # noqa: N818 - a failure of the runtime, which the agent turns into a pod's status
    """A container could not be started, changed or ended.

    `reason` is the kubelet's word: "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "StartError", "KillContainerError". `exit_code` is 127 for a command not found, 126
    for one that may not be executed, 128 for everything else that kept a process from starting; None where
    no process was to start.
    """

    def __init__(self, reason: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.exit_code = exit_code


class UnknownContainer(LookupError):  # noqa: N818 - reads as what it is at the call site
    """No container has this id (any more)."""

    def __init__(self, container_id: str) -> None:
        super().__init__(f"no container has the id {container_id!r}")
        self.container_id = container_id


class Runtime(Protocol):
    """Runs containers on one machine. Nothing blocks the event loop; every method may be called concurrently.

    Methods that take an id raise `UnknownContainer` for one that is not known, except `remove`, which is
    idempotent.
    """

    @property
    def name(self) -> str:
        """What stands before `://` in a container id, such as "corelane"."""

    @property
    def enforcement(self) -> str:
        """How CPU sets are enforced: "cgroup v1", "cgroup v2", "affinity" or "simulated"."""

    @property
    def notice(self) -> str:
        """What this enforcement cannot do and why, in a sentence; empty where nothing is missing."""

    async def start(self, spec: ContainerSpec) -> RuntimeStatus:
        """Start a container, already pinned, and return it running. Raises RuntimeFailure."""

    async def update(
        self,
        container_id: str,
        *,
        cpus: CPUSet | None = None,
        mems: CPUSet | None = None,
        quota_milli: int | Keep | None = KEEP,
        shares_milli: int | None = None,
    ) -> None:
        """Change what is given of a running container, keep what is not. Raises RuntimeFailure."""

    async def signal(self, container_id: str, number: int) -> None:
        """Send one signal to the container's main process; nothing happens if it has ended."""

    async def stop(self, container_id: str, grace_seconds: float) -> None:
        """SIGTERM to the main process, after the grace SIGKILL to all of it; returns when it has ended.

        Raises RuntimeFailure if it cannot be ended.
        """

    async def remove(self, container_id: str) -> None:
        """Forget an ended container: cgroup and records go, the log stays. RuntimeFailure if it runs."""

    async def remove_pod(self, pod_uid: str) -> None:
        """Remove every ended container of a pod, and its logs. Raises RuntimeFailure if one still runs."""

    async def containers(self) -> list[RuntimeStatus]:
        """Everything known, including what was adopted after a restart and what ended meanwhile."""

    def wait_events(self) -> AsyncIterator[RuntimeStatus]:
        """Changes of state from this call on: `async for status in runtime.wait_events()`."""

    async def allowed(self, container_id: str) -> list[TaskAffinity]:
        """What the kernel really allows now, for every task of every process; empty once it has ended."""

    def logs(
        self, container_id: str, choice: LogSelection = WHOLE_LOG, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """The container's output in pieces; `follow` goes on until it ends."""

    async def close(self) -> None:
        """Let go of everything; containers go on running and are adopted by the next start."""
