"""Protocols between the agent and what runs containers, and the plain values that cross them.

`Runtime` is what any runtime offers, also one whose containers a kubelet starts and ends; `LifecycleRuntime`
adds starting and ending them. Nothing here depends on how containers are run. Times are Unix seconds.
"""

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.kernel.proc import TaskAffinity

NO_IDS: Final = CPUSet()
OOM_KILLED: Final = "OOMKilled"
"""Reason of an end before which the kernel ended a process of the container for lack of memory; as
containerd, whatever the exit code then was."""

ContainerState = Literal["created", "running", "exited", "unknown"]


class Keep(enum.Enum):
    """The type of `KEEP`: an argument left as it is, where None already means something."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One run of one container, ready to start.

    `command` is complete (entry point and arguments, `$(VAR)` already expanded); an empty `working_dir` is
    `/`. `cpu_shares_milli` is the CPU request in milliCPU. `quota_us` of CPU time per `period_us` is the CFS
    quota, None for no quota. `memory_limit` is the container's, `pod_memory_limit` that of the whole pod,
    in bytes, 0 for no limit. `mems` None means every memory node. `log_path` None lets the runtime choose.
    `attempt` counts the runs of this container in its pod. `manifest` is the pod's, kept with the record and
    opaque to the runtime. `completes`: an init container, which has to end before others of its pod start.
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
    quota_us: int | None = None
    period_us: int = cfs.PERIOD_US
    burst_us: int = 0
    memory_limit: int = 0
    pod_memory_limit: int = 0
    log_path: Path | None = None
    attempt: int = 0
    manifest: str = field(default="", repr=False)
    completes: bool = False

    def updated(self, change: "ResourceUpdate") -> "ContainerSpec":
        """Return the spec with `change` made."""
        return replace(
            self,
            cpus=change.cpus or self.cpus,
            mems=change.mems or self.mems,
            quota_us=self.quota_us if isinstance(change.quota_us, Keep) else change.quota_us,
            period_us=self.period_us if isinstance(change.period_us, Keep) else change.period_us,
            burst_us=self.burst_us if isinstance(change.burst_us, Keep) else change.burst_us,
            cpu_shares_milli=self.cpu_shares_milli if change.shares_milli is None else change.shares_milli,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """One run of a container. A process ended by signal n has `signal` n and `exit_code` 128 + n.

    `exit_code` is never None once `state` is "exited": 255 stands for an unknown one, and `message` gives the
    cause. `cgroup` is the path of the container's cgroup as the runtime names it, empty without one;
    `sandbox_id` is empty where pods have no sandbox. `namespace` and `pod` name the pod. `record_differs`:
    the runtime's own record has other resources than the cgroup, and its next update brings them back.
    `oom_killed`: the kernel's OOM killer ended a process of the container, not always the main one.
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
    namespace: str = ""
    pod: str = ""
    sandbox_id: str = ""
    cgroup: str = ""
    record_differs: bool = False
    oom_killed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUpdate:
    """Change of a running container's resources; only the given fields change.

    `cpus`, `mems` and `shares_milli` (the CPU request) are left as they are by None. For `quota_us`, where
    None removes the quota, as for `period_us` and `burst_us`, `KEEP` does that.
    """

    cpus: CPUSet | None = None
    mems: CPUSet | None = None
    quota_us: int | Keep | None = KEEP
    period_us: int | Keep = KEEP
    burst_us: int | Keep = KEEP
    shares_milli: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedResources:
    """Resources of a container as the kernel reports them.

    `cpus` and `mems` are effective: what the kernel grants the container's cgroup now, which is less than
    `cpus_requested` (the cgroup's own setting) while CPUs are off-line or a cgroup above has fewer. Where
    affinity alone confines a container, `cpus` is the union over its tasks, and there is no `cgroup`.
    `quota_us` None is no quota, nor one of its pod that could be lifted. `populated` is False once no process
    is left in the cgroup.
    """

    cpus: CPUSet
    mems: CPUSet = NO_IDS
    quota_us: int | None = None
    period_us: int = cfs.PERIOD_US
    burst_us: int = 0
    cgroup: str = ""
    populated: bool = True
    cpus_requested: CPUSet = NO_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Properties of a runtime on which the agent's behaviour depends.

    `on_this_machine`: containers run on the agent's machine, whose addresses, kernel and CPUs are theirs.
    `kernel_confirms`: a kernel confines containers to their CPUs, and `observe` reports what it allows.
    `plain_processes`: containers are processes of the host, without image and network of their own.
    `memory_limits`: memory limits are enforced.
    """

    on_this_machine: bool = True
    kernel_confirms: bool = True
    plain_processes: bool = False
    memory_limits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which part of a log to return, and how; `since` in Unix seconds."""

    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


WHOLE_LOG: Final = LogSelection()


CPUS_OFFLINE: Final = "CPUsOffline"
"""Reason of a start on CPUs that went off-line since it was ordered: no process was to start."""


class RuntimeFailure(Exception):  # noqa: N818 - a failure of the runtime, which the agent turns into a pod's status
    """A container could not be started, changed or ended.

    `reason` is the kubelet's word: "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "StartError", "KillContainerError"; or CPUS_OFFLINE. `exit_code` is 127 for a command
    not found, 126 for one that may not be executed, 128 for everything else that kept a process from
    starting; None where no process was to start.
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


Observation = ObservedResources | Exception | None
"""What the kernel grants a container, None if there is nothing to read, or the error of reading it."""


async def each_observed(
    observe: Callable[[str], Awaitable[ObservedResources | None]], container_ids: Iterable[str]
) -> dict[str, Observation]:
    """Call `observe` for each id in turn, as `Runtime.observe_all`."""
    found: dict[str, Observation] = {}
    for container_id in container_ids:
        try:
            found[container_id] = await observe(container_id)
        except Exception as error:  # noqa: BLE001 - the caller's: other containers are read all the same
            found[container_id] = error
    return found


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Which runtime answers: containerd 1.7.24, say."""

    name: str
    version: str


class Runtime(Protocol):
    """Containers of one machine. Nothing blocks the event loop; every method may be called concurrently.

    Methods that take an id raise `UnknownContainer` for an id that the runtime does not have.
    """

    @property
    def name(self) -> str:
        """Scheme of container ids, before `://`, such as "corelane" or "containerd"."""

    @property
    def enforcement(self) -> str:
        """How CPU sets are enforced, for people: "cgroup v1", "cgroup v2", "affinity" or "simulated"."""

    @property
    def notice(self) -> str:
        """What this enforcement cannot do and why, in a sentence; empty where nothing is missing."""

    @property
    def capabilities(self) -> Capabilities:
        """Properties that the agent acts on."""

    async def containers(self) -> list[RuntimeStatus]:
        """Return every container, including those adopted after a restart and those that ended meanwhile."""

    def wait_events(self) -> AsyncIterator[RuntimeStatus]:
        """Yield changes of state from this call on: `async for status in runtime.wait_events()`."""

    async def update(self, container_id: str, change: ResourceUpdate) -> None:
        """Change resources of a running container. Raises RuntimeFailure."""

    async def apply(self, container_id: str, change: ResourceUpdate) -> None:
        """As `update`, but return once the kernel has the change: a record of it may follow."""

    async def observe(self, container_id: str) -> ObservedResources | None:
        """Return what the kernel grants the container now; None if there is nothing that could be read.

        That is so once the container and its cgroup are gone, and where no kernel is involved.
        """

    async def observe_all(self, container_ids: Iterable[str]) -> "dict[str, Observation]":
        """Observe containers one after the other; an id has what `observe` returns for it, or raises."""

    async def allowed(self, container_id: str, *, most: int | None = None) -> list[TaskAffinity]:
        """Return the CPUs that the kernel allows the tasks of every process; empty once it has ended.

        Costs two reads of /proc per task: so for samples, of `most` tasks chosen at random, and where there
        is no cgroup to observe.
        """

    async def close(self) -> None:
        """Release everything; containers go on running and are adopted by the next start."""


class LifecycleRuntime(Runtime, Protocol):
    """A runtime whose containers the agent itself starts and ends. `remove` is idempotent."""

    async def start(self, spec: ContainerSpec) -> RuntimeStatus:
        """Start a container, already pinned, and return it running. Raises RuntimeFailure."""

    async def signal(self, container_id: str, number: int) -> None:
        """Send one signal to the container's main process; nothing happens if it has ended."""

    async def stop(self, container_id: str, grace_seconds: float) -> None:
        """Send SIGTERM to the main process, after the grace SIGKILL to all; return when all have ended.

        Raises RuntimeFailure if it cannot be ended.
        """

    async def remove(self, container_id: str) -> None:
        """Remove an ended container's cgroup and records; the log stays. RuntimeFailure if it runs."""

    async def remove_pod(self, pod_uid: str) -> None:
        """Remove every ended container of a pod, and its logs. Raises RuntimeFailure if one still runs."""

    async def sweep(self, pods: Collection[str]) -> None:
        """Remove what crashes left of pods that have neither a container nor one of these UIDs."""

    def logs(
        self, container_id: str, choice: LogSelection = WHOLE_LOG, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the container's output in pieces; `follow` goes on until it ends."""
