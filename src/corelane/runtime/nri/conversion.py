"""NRI messages to plain values, and answers to NRI messages."""

from typing import Any

from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.runtime.base import KEEP, ResourceUpdate
from corelane.runtime.nri.messages import STATES, message
from corelane.runtime.nri.values import Answer, CPUResources, NRIContainer, NRIPod, Updates

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
    shares, quota, period = (_number(cpu, name) for name in ("shares", "quota", "period"))
    return CPUResources(shares, quota, period, cpu.cpus, cpu.mems)


def _number(cpu: Any, name: str) -> int | None:
    return getattr(cpu, name).value if cpu.HasField(name) else None


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
