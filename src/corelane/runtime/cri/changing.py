"""Changes of a container's resources: what goes into a CRI update, and what goes into cgroup files."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from corelane.cpuset import CPUSet
from corelane.kernel import cfs, container_cgroup, container_tasks, pod_bandwidth
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView
from corelane.runtime.base import KEEP, ResourceUpdate
from corelane.runtime.cri.values import CRIResources

_NOTHING = ResourceUpdate()


def cri_resources(change: ResourceUpdate) -> CRIResources:
    """Return a change as a CRI update, which has no field for the burst."""
    quota = change.quota_us
    return CRIResources(
        shares=0 if change.shares_milli is None else cfs.shares(change.shares_milli),
        quota=0 if quota is KEEP else -1 if quota is None else quota,
        period=0 if change.period_us is KEEP else change.period_us,
        cpus=str(change.cpus or ""),
        mems=str(change.mems or ""),
    )


def merged(first: ResourceUpdate, second: ResourceUpdate) -> ResourceUpdate:
    """Merge two changes; a field that both set has the value of the second."""
    return ResourceUpdate(**(_given(first) | _given(second)))


def without(change: ResourceUpdate, done: ResourceUpdate) -> ResourceUpdate | None:
    """Return a change without the fields that `done` sets; None if no field is left."""
    left = {name: value for name, value in _given(change).items() if name not in _given(done)}
    return ResourceUpdate(**left) if left else None


def _given(change: ResourceUpdate) -> dict[str, Any]:
    return {
        field.name: getattr(change, field.name)
        for field in fields(change)
        if getattr(change, field.name) != getattr(_NOTHING, field.name)
    }


def lacking(view: CgroupView, group: str, record: CRIResources) -> ResourceUpdate | None:
    """Return CPUs and quota of a cgroup where the runtime's record has others; None where both agree.

    CPUs that the record does not have were never set: they are those of the group above. Raises CgroupError.
    """
    kernel = container_cgroup.read(view, group)
    if record.cpus:
        agrees = kernel.cpus_requested == CPUSet.parse(record.cpus)
    else:
        agrees = kernel.cpus == container_cgroup.effective(view, group.rpartition("/")[0])
    change = ResourceUpdate() if agrees else ResourceUpdate(cpus=kernel.cpus_requested or kernel.cpus)
    if max(record.quota, 0) != (kernel.quota_us or 0):
        change = replace(change, quota_us=kernel.quota_us, period_us=kernel.period_us)
    return None if change == ResourceUpdate() else change


def write(view: CgroupView, group: str, change: ResourceUpdate, sandbox: str = "") -> None:
    """Write the files of a container's cgroup, but for its shares. Raises CgroupGone, CgroupError.

    With CPUs, tasks that were moved out of the cpuset come back. With the container's quota its pod's is
    lifted too; `sandbox` is the id of the pod's.
    """
    container_cgroup.write_cpuset(view, group, cpus=change.cpus, mems=change.mems)
    if change.cpus is not None:
        container_tasks.bring_back(view, group)
    if (change.quota_us, change.period_us, change.burst_us) == (KEEP, KEEP, KEEP):
        return
    current = container_cgroup.read_bandwidth(view, group)
    bandwidth = Bandwidth(
        current.quota_us if change.quota_us is KEEP else change.quota_us,
        current.period_us if change.period_us is KEEP else change.period_us,
        current.burst_us if change.burst_us is KEEP else change.burst_us,
    )
    container_cgroup.write_bandwidth(view, group, bandwidth)
    if change.quota_us is None:
        pod_bandwidth.lift(view, group, sandbox)
