"""The messages of NRI (nri.pkg.api.v1alpha1) as a table of field numbers, and plain values from and to them.

Numbers are those of containerd/nri `pkg/api/api.proto`, v0.3 (containerd 1.7.0) to v0.12.2; none changed in
between. What came later: `more` and the timeouts in v0.7, calls of their own for what were StateChange
events and `NRI_version` in v0.12. Importing this needs protobuf.

An optional number is a message with one field, `value`, so that absent and 0 differ. Texts have no such
wrapper: an empty `cpus` or `mems` means "as it is". In resources of an update that the kubelet sent, 0
means the same.
"""

from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.runtime.base import KEEP, ContainerState, ResourceUpdate
from corelane.runtime.nri.values import Answer, CPUResources, NRIContainer, NRIPod, Updates
from corelane.runtime.protobuf_table import MessageTable, Table

PLUGIN: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"

EVENTS: Final = {
    "RunPodSandbox": 1,
    "StopPodSandbox": 2,
    "RemovePodSandbox": 3,
    "CreateContainer": 4,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "PostStartContainer": 7,
    "UpdateContainer": 8,
    "PostUpdateContainer": 9,
    "StopContainer": 10,
    "RemoveContainer": 11,
}
"""Events by the name of their call.

Later ones exist (up to 14), but containerd 1.7 refuses a plugin that asks for them.
"""

STATES: Final[tuple[ContainerState, ...]] = ("unknown", "created", "running", "running", "exited")
"""States by their number; 2 is paused."""

_POD_ONLY: Final = {"pod": (1, "PodSandbox")}
_POD_AND_CONTAINER: Final = {"pod": (1, "PodSandbox"), "container": (2, "Container")}
_MESSAGES: Final[Table] = {
    "Empty": {},
    "RegisterPluginRequest": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
    "ConfigureRequest": {
        "config": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
        "registration_timeout": (4, "int64"),
        "request_timeout": (5, "int64"),
        "NRI_version": (6, "string"),
    },
    "ConfigureResponse": {"events": (2, "int32")},
    "SynchronizeRequest": {
        "pods": (1, "[PodSandbox]"),
        "containers": (2, "[Container]"),
        "more": (3, "bool"),
    },
    "SynchronizeResponse": {"update": (1, "[ContainerUpdate]"), "more": (2, "bool")},
    "PodRequest": _POD_ONLY,
    "ContainerRequest": _POD_AND_CONTAINER,
    "UpdateContainerRequest": {**_POD_AND_CONTAINER, "linux_resources": (3, "LinuxResources")},
    "StateChangeEvent": {"event": (1, "int32"), "pod": (2, "PodSandbox"), "container": (3, "Container")},
    "CreateContainerResponse": {"adjust": (1, "ContainerAdjustment"), "update": (2, "[ContainerUpdate]")},
    "UpdateContainerResponse": {"update": (1, "[ContainerUpdate]")},
    "PodSandbox": {
        "id": (1, "string"),
        "name": (2, "string"),
        "uid": (3, "string"),
        "namespace": (4, "string"),
        "labels": (5, "strings"),
        "annotations": (6, "strings"),
        "runtime_handler": (7, "string"),
        "linux": (8, "LinuxPodSandbox"),
    },
    "LinuxPodSandbox": {"cgroup_parent": (3, "string")},
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "name": (3, "string"),
        "state": (4, "int32"),
        "labels": (5, "strings"),
        "annotations": (6, "strings"),
        "linux": (11, "LinuxContainer"),
        "pid": (12, "uint32"),
    },
    "LinuxContainer": {"resources": (3, "LinuxResources"), "cgroups_path": (5, "string")},
    "LinuxResources": {"cpu": (2, "LinuxCPU")},
    "LinuxCPU": {
        "shares": (1, "OptionalUInt64"),
        "quota": (2, "OptionalInt64"),
        "period": (3, "OptionalUInt64"),
        "cpus": (6, "string"),
        "mems": (7, "string"),
    },
    "OptionalInt64": {"value": (1, "int64")},
    "OptionalUInt64": {"value": (1, "uint64")},
    "ContainerAdjustment": {"linux": (6, "LinuxContainerAdjustment")},
    "LinuxContainerAdjustment": {"resources": (2, "LinuxResources")},
    "ContainerUpdate": {
        "container_id": (1, "string"),
        "linux": (2, "LinuxContainerUpdate"),
        "ignore_failure": (3, "bool"),
    },
    "LinuxContainerUpdate": {"resources": (1, "LinuxResources")},
}
_TABLE: Final = MessageTable("nri.pkg.api.v1alpha1", _MESSAGES)


def message(name: str) -> Any:
    """Return the class of a message of the table."""
    return _TABLE.message(name)


def parse(name: str, data: bytes) -> Any:
    """Return a message of the table. Raises ValueError for bytes that are not one."""
    return _TABLE.parse(name, data)


NO_QUOTA = -1


def pod_of(item: Any) -> NRIPod:
    """Return the value of a PodSandbox message."""
    return NRIPod(
        item.id,
        item.uid,
        item.namespace,
        item.name,
        dict(item.labels),
        dict(item.annotations),
        item.linux.cgroup_parent,
        item.runtime_handler,
    )


def container_of(item: Any) -> NRIContainer:
    """Return the value of a Container message; an unknown state is "unknown"."""
    return NRIContainer(
        item.id,
        item.pod_sandbox_id,
        item.name,
        STATES[item.state] if 0 <= item.state < len(STATES) else "unknown",
        dict(item.labels),
        dict(item.annotations),
        item.linux.cgroups_path,
        resources_of(item.linux.resources),
        item.pid,
    )


def resources_of(item: Any) -> CPUResources:
    """Return the CPU settings of a LinuxResources message."""
    cpu = item.cpu
    fields = ("shares", "quota", "period")
    shares, quota, period = (getattr(cpu, name).value if cpu.HasField(name) else None for name in fields)
    return CPUResources(shares, quota, period, cpu.cpus, cpu.mems)


def created(answer: Answer, container_id: str) -> Any:
    """Return the response to CreateContainer.

    Updates of the container itself are left out: the runtime would fail its creation for one.
    """
    response = message("CreateContainerResponse")(update=_updates(answer.updates, without=container_id))
    if answer.adjust is not None:
        response.adjust.linux.resources.CopyFrom(_resources(answer.adjust))
    return response


def updated(answer: Answer, container: NRIContainer, requested: CPUResources) -> Any:
    """Return the response to UpdateContainer.

    An update of the container itself is left out where it would change nothing: nri v0.6 loses memory swap
    and unified fields of the request when a plugin answers with one.
    """
    changes = tuple(
        (container_id, update)
        for container_id, update in answer.updates
        if container_id != container.id or _changes(update, container.resources, requested)
    )
    return message("UpdateContainerResponse")(update=_updates(changes))


def synchronized(answer: Answer) -> Any:
    """Return the response to Synchronize. Raises ValueError for an empty set."""
    return message("SynchronizeResponse")(update=_updates(answer.updates))


def _updates(updates: Updates, without: str = "") -> list[Any]:
    """Return one message a container: the runtime takes a second one for a conflict with the first.

    A failure is to be ignored: else a conflict with another plugin about one container fails the creation of
    another one. What was applied is read back from the kernel.
    """
    last = {container_id: update for container_id, update in updates if container_id != without}
    return [
        message("ContainerUpdate")(
            container_id=container_id, linux={"resources": _resources(update)}, ignore_failure=True
        )
        for container_id, update in last.items()
    ]


def _resources(update: ResourceUpdate) -> Any:
    resources = message("LinuxResources")()
    cpu = resources.cpu
    cpu.cpus, cpu.mems = _set("cpus", update.cpus), _set("mems", update.mems)
    if update.shares_milli is not None:
        cpu.shares.value = cfs.shares(update.shares_milli)
    if update.quota_us is not KEEP:
        cpu.quota.value = NO_QUOTA if update.quota_us is None else update.quota_us
    if update.period_us is not KEEP:
        cpu.period.value = update.period_us
    return resources


def _set(name: str, ids: CPUSet | None) -> str:
    """Return the list text of a set, "" for none given. Raises ValueError for an empty set."""
    if ids is not None and not ids:
        raise ValueError(f"NRI: {name} is an empty set, which the runtime would read as no change")
    return "" if ids is None else str(ids)


def _changes(update: ResourceUpdate, recorded: CPUResources, requested: CPUResources) -> bool:
    """Whether an update sets a field to another value than it will have after the request alone."""
    change = resources_of(_resources(update))
    return any(
        value and value != (request or record)
        for value, request, record in (
            (change.shares, requested.shares, recorded.shares),
            (change.quota_us, requested.quota_us, recorded.quota_us or NO_QUOTA),
            (change.period_us, requested.period_us, recorded.period_us),
            (change.cpus, requested.cpus, recorded.cpus),
            (change.mems, requested.mems, recorded.mems),
        )
    )
