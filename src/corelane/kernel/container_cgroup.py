"""Read and change, in place, the cgroup of a container, the quota of its pod, and the groups of its tasks.

The container is one of a container runtime, or one of ours. Both cgroup versions, by one set of functions on
a `CgroupView` and a group's path. Groups are never made or removed here; `cgroup_tree` does that with ours.
The kubelet's groups above (kubepods, QoS class, pod) grow where a container needs more than they have, and
never shrink: other containers may live in them. All of this blocks.
"""

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel import cfs, proc
from corelane.kernel.cgroupfs import CgroupError, CgroupGone, Files
from corelane.kernel.container_paths import CgroupView, kubelet_ancestors
from corelane.kernel.proc import PROC, TaskAffinity

Resource = Literal["cpus", "mems"]
_GONE = (errno.ENOENT, errno.ENODEV)
_ATTEMPTS = 5
"""A process may make, fill or remove a group while those below are narrowed."""
_CHANGED = (errno.EBUSY, errno.EACCES, *_GONE)
_EFFECTIVE = {
    1: {"cpus": "cpuset.effective_cpus", "mems": "cpuset.effective_mems"},
    2: {"cpus": "cpuset.cpus.effective", "mems": "cpuset.mems.effective"},
}
_BURST = {1: "cpu.cfs_burst_us", 2: "cpu.max.burst"}


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """Resources of a container's cgroup. `cpus` and `mems` are in effect.

    `cpus_requested` is what was set, empty in version 2 where the group uses what the one above has. Times
    are in microseconds; `quota_us` None is no limit. `populated` is False once no process is in the group or
    below.
    """

    cpus: CPUSet
    cpus_requested: CPUSet
    mems: CPUSet
    quota_us: int | None
    period_us: int
    burst_us: int
    populated: bool


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """CFS bandwidth to set. Microseconds; `quota_us` None is no limit."""

    quota_us: int | None
    period_us: int = cfs.PERIOD_US
    burst_us: int = 0


def read(view: CgroupView, group: str) -> ContainerGroup:
    """Return what the kernel has now. Raises CgroupGone if the group does not exist, else CgroupError."""
    with _noticing_end(view, group):
        bandwidth = read_bandwidth(view, group)
        return ContainerGroup(
            effective(view, group, "cpus"),
            requested(view, group, "cpus") or CPUSet(),
            effective(view, group, "mems"),
            bandwidth.quota_us,
            bandwidth.period_us,
            bandwidth.burst_us,
            populated(view, group),
        )


def effective(view: CgroupView, group: str, resource: Resource = "cpus") -> CPUSet:
    """Return CPUs or memory nodes in effect, of the nearest group above if this one has no cpusets.

    Raises CgroupError.
    """
    path = _path(view.cpuset, group, _EFFECTIVE[view.version][resource])
    try:
        return _parsed(view.files.read(path), path)
    except CgroupError as error:
        # Without its controller a group has no such file; a group that is gone has no directory.
        if error.errno != errno.ENOENT or not group or not view.exists(group):
            raise
    return effective(view, group.rpartition("/")[0], resource)


def read_bandwidth(view: CgroupView, group: str) -> Bandwidth:
    """Return quota, period and burst; no limit without the cpu controller. Raises CgroupError."""
    try:
        if view.version == 1:
            quota = int(view.files.read(_path(view.cpu, group, "cpu.cfs_quota_us")))
            period = int(view.files.read(_path(view.cpu, group, "cpu.cfs_period_us")))
        else:
            text, _, rest = view.files.read(_path(view.cpu, group, "cpu.max")).partition(" ")
            quota, period = -1 if text == "max" else int(text), int(rest)
    except CgroupError as error:
        if error.errno != errno.ENOENT or not (view.cpu / group).is_dir():
            raise
        return Bandwidth(None)
    return Bandwidth(None if quota < 0 else quota, period, _burst(view, group))


def _burst(view: CgroupView, group: str) -> int:
    """Return the burst; 0 also where this kernel has none (before Linux 5.14)."""
    try:
        return int(view.files.read(_path(view.cpu, group, _BURST[view.version])))
    except CgroupError as error:
        if error.errno != errno.ENOENT:
            raise
        return 0


def populated(view: CgroupView, group: str) -> bool:
    """Return whether a live process is in the group or below; False if there is no group.

    Raises CgroupError.
    """
    try:
        if view.version == 2:
            return "populated 0" not in view.files.read(_path(view.cpuset, group, "cgroup.events"))
        return _has_processes(view, group)
    except CgroupError as error:
        if error.errno not in _GONE:
            raise
        return False


def _has_processes(view: CgroupView, group: str) -> bool:
    if view.files.read(_path(view.cpuset, group, "cgroup.procs")):
        return True
    below = view.files.groups(view.cpuset / group)
    return any(_has_processes(view, f"{group}/{name}") for name in below)


def write_cpuset(
    view: CgroupView, group: str, *, cpus: CPUSet | None = None, mems: CPUSet | None = None
) -> None:
    """Set CPUs and memory nodes, whichever is given; a value that is set already is not written.

    Groups of the kubelet above grow first if they lack any of them. In version 1 groups below follow: those
    that had all of the group's CPUs get all of the new ones, others keep what lies within. Memory nodes go
    before CPUs, so that threads that move find their memory. Raises CgroupGone, CgroupError; ValueError for
    an empty set.
    """
    with _noticing_end(view, group):
        if mems is not None:
            write_resource(view, group, "mems", mems, kubelet_ancestors(group))
        if cpus is not None:
            write_resource(view, group, "cpus", cpus, kubelet_ancestors(group))


def write_resource(
    view: CgroupView, group: str, resource: Resource, values: CPUSet, ancestors: Iterable[str]
) -> None:
    """Set CPUs or memory nodes as `write_cpuset` does; the groups in `ancestors`, highest first, may grow."""
    if not values:
        raise ValueError(f"{view.cpuset / group}/cpuset.{resource} cannot become empty")
    for above in ancestors:
        has = requested(view, above, resource)
        inherits = view.version == 2 and not has
        if has is not None and not inherits and not values <= has:
            _put(view.files, view.cpuset / above, resource, has | values)
    old = requested(view, group, resource)
    if view.version == 1 and old is not None:
        _write_nested(view.files, view.cpuset / group, resource, values)
    elif old != values:
        _put(view.files, view.cpuset / group, resource, values)


def write_bandwidth(view: CgroupView, group: str, target: Bandwidth) -> None:
    """Set quota, period and burst; nothing is written where they are set already.

    Every write of a quota grants a fresh one. A burst may not exceed the quota, so it goes before a quota
    that shrinks, and behind one that grows. Raises CgroupGone, CgroupError.
    """
    with _noticing_end(view, group):
        current = read_bandwidth(view, group)
        directory = view.cpu / group
        if current.burst_us > target.burst_us:
            view.files.write(directory / _BURST[view.version], str(target.burst_us))
        if (current.quota_us, current.period_us) != (target.quota_us, target.period_us):
            _write_quota(view, directory, current, target)
        if current.burst_us < target.burst_us:
            view.files.write(directory / _BURST[view.version], str(target.burst_us))


def _write_quota(view: CgroupView, directory: Path, current: Bandwidth, target: Bandwidth) -> None:
    """In version 1 the limit is lifted while the period changes: the old quota may not suit the new one."""
    if view.version == 2:
        limit = "max" if target.quota_us is None else target.quota_us
        view.files.write(directory / "cpu.max", f"{limit} {target.period_us}")
        return
    if current.period_us != target.period_us:
        view.files.write(directory / "cpu.cfs_quota_us", "-1")
        view.files.write(directory / "cpu.cfs_period_us", str(target.period_us))
    quota = -1 if target.quota_us is None else target.quota_us
    view.files.write(directory / "cpu.cfs_quota_us", str(quota))


def requested(view: CgroupView, group: str, resource: Resource) -> CPUSet | None:
    """Return the set as configured; None without cpusets (version 2, controller not enabled)."""
    path = _path(view.cpuset, group, f"cpuset.{resource}")
    try:
        return _parsed(view.files.read(path), path)
    except CgroupError as error:
        if error.errno != errno.ENOENT or not view.exists(group):
            raise
        return None


# Version 1 with groups below, which processes in a container made: they follow their container. The kernel
# refuses to take a CPU from a group while one below has it; in version 2 it takes it from both.


def _write_nested(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    """Set CPUs or memory nodes of a group and of those below; what is set already is not written.

    Groups that had all of the group's CPUs get all of the new ones, others keep what lies within. No group
    may have less than one below it: all grow downwards, then shrink upwards. Raises CgroupError.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _write_levels(files, group, resource, values)
            return
        except CgroupError as error:
            if error.errno not in _CHANGED or attempt == _ATTEMPTS - 1 or not group.is_dir():
                raise


def _write_levels(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    old = _set_of(files, group, resource)
    below = _below(files, group, resource)
    targets = [(path, has, values if has >= old else has & values or values) for path, has in below if has]
    levels = [(group, old, values), *targets]
    for path, has, target in levels:
        if not target <= has:
            _put(files, path, resource, has | target)
    for path, has, target in reversed(levels):
        if not has <= target:
            _put(files, path, resource, target)


def _below(files: Files, group: Path, resource: Resource) -> list[tuple[Path, CPUSet]]:
    """Return the groups below, highest first, with their sets; groups removed meanwhile are left out."""
    listed: list[tuple[Path, CPUSet]] = []
    for name in files.groups(group):
        path = group / name
        try:
            listed.append((path, _set_of(files, path, resource)))
        except CgroupError as error:
            if error.errno not in _GONE:
                raise
        listed.extend(_below(files, path, resource))
    return listed


def _set_of(files: Files, group: Path, resource: Resource) -> CPUSet:
    path = group / f"cpuset.{resource}"
    return _parsed(files.read(path), path)


def _put(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    files.write(group / f"cpuset.{resource}", str(values))


# Reconciling reads some eight files of each container in every period: names and sets are not made anew each
# time. Names of containers that have ended stay until others push them out: a kilobyte each.
@lru_cache(maxsize=1 << 12)
def _path(hierarchy: Path, group: str, name: str) -> Path:
    return hierarchy / group / name


@lru_cache(maxsize=1 << 12)
def _cached(text: str) -> CPUSet:
    return CPUSet.parse(text)


def _parsed(text: str, path: Path) -> CPUSet:
    """A list as the kernel writes it. Raises CgroupError for anything else."""
    try:
        return _cached(text)
    except CPUSetError as error:
        raise CgroupError("read", path, OSError(errno.EINVAL, f"not a list: {error}")) from None


@contextmanager
def _noticing_end(view: CgroupView, group: str) -> Iterator[None]:
    """Turn an error because the container has just ended into CgroupGone."""
    try:
        yield
    except CgroupGone:
        raise
    except CgroupError as error:
        if error.errno in _GONE and not view.exists(group):
            gone = OSError(error.errno, "no such group; the container has ended")
            raise CgroupGone("use", view.cpuset / group, gone) from error
        raise


# The CFS quota that a kubelet sets on a pod's cgroup is the sum of the containers' limits (kubelet:
# ResourceConfigForPod). A container whose own quota is lifted is throttled by it all the same, so it is
# lifted as well: the other containers keep their own quotas.


_POD: Final = re.compile(r"(?:.+-)?pod[0-9a-f][0-9a-f_-]*(?:\.slice)?")

_MONITORS: Final = ("crio-conmon-", "libpod-conmon-")


def throttling(view: CgroupView, group: str, sandbox: str = "") -> Bandwidth | None:
    """Return the quota of the pod of a container that has none, where it may be lifted; else None.

    It may not where it is a limit of the pod's own (pod-level resources): one below the sum of what the
    containers may use, each its quota or, without one, its CPUs. The group of the `sandbox` (an id) is not
    counted. Raises CgroupError.
    """
    pod = _pod(group)
    if pod is None:
        return None
    limit = _existing(view, pod)
    if limit is None or limit.quota_us is None:
        return None
    bounds = [_bound(view, name, limit.period_us) for name in _containers(view, pod, sandbox)]
    # The kubelet rounds each container's quota up to what the kernel takes at least.
    rounded = limit.quota_us + len(bounds) * cfs.MIN_QUOTA_US
    return limit if sum(bounds) <= rounded else None


def lift(view: CgroupView, group: str, sandbox: str = "") -> None:
    """Lift the quota of a container's pod, unless it is a limit of the pod's own. Raises CgroupError."""
    limit, pod = throttling(view, group, sandbox), _pod(group)
    if limit is not None and pod is not None:
        write_bandwidth(view, pod, Bandwidth(None, limit.period_us))


def _pod(group: str) -> str | None:
    above = kubelet_ancestors(group)
    return above[-1] if above and _POD.fullmatch(above[-1].rpartition("/")[2]) else None


def _containers(view: CgroupView, pod: str, sandbox: str) -> Iterator[str]:
    for name in view.files.groups(view.cpu / pod):
        if not name.startswith(_MONITORS) and not (sandbox and sandbox in name):
            yield f"{pod}/{name}"


def _bound(view: CgroupView, group: str, period_us: int) -> float:
    """Microseconds of CPU time that a container may use in a period of the pod's; 0 once it has ended."""
    own = _existing(view, group)
    if own is None:
        return 0
    if own.quota_us is None:
        return len(effective(view, group)) * period_us
    return own.quota_us * period_us / own.period_us


def _existing(view: CgroupView, group: str) -> Bandwidth | None:
    """Bandwidth of a group; None once it is gone. Raises CgroupError."""
    try:
        return read_bandwidth(view, group)
    except CgroupError as error:
        if error.errno not in _GONE:
            raise
        return None


# Tasks: a sample of their CPUs, and the return of strays. In version 1 a task, or a whole process, can be
# moved to another group with cpusets and stay in the container's group for CPU time: it is still the
# container's. In version 2 it leaves the container altogether. All of this blocks. Source: cgroups(7),
# "Cgroups v1 hierarchies".


_TASKS_GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)


def sample(
    view: CgroupView, group: str, most: int | None = None, proc_root: Path = PROC
) -> list[TaskAffinity]:
    """Return the CPUs allowed to tasks of a container, of `most` tasks chosen at random.

    Without their /proc (another PID namespace) there are none. Raises CgroupError.
    """
    pids = {pid for directory in _directories(view, group) for pid in _ids(view, directory, "cgroup.procs")}
    return proc.tasks_allowed(sorted(pids), proc_root, most=most)


def bring_back(view: CgroupView, group: str) -> list[int]:
    """Version 1: move tasks that left the group with cpusets alone into it again; return their ids.

    Raises CgroupError.
    """
    if view.version == 2:
        return []
    inside = set(_ids(view, view.cpuset / group, "tasks"))
    strays = sorted(set(_ids(view, view.cpu / group, "tasks")) - inside)
    return [task for task in strays if _moved(view, view.cpuset / group / "tasks", task)]


def _moved(view: CgroupView, path: Path, task: int) -> bool:
    """Move a task; False if it has ended."""
    try:
        view.files.write(path, str(task))
    except CgroupError as error:
        if error.errno != errno.ESRCH:
            raise
        return False
    return True


def _directories(view: CgroupView, group: str) -> list[Path]:
    return list(dict.fromkeys((view.cpuset / group, view.cpu / group)))


def _ids(view: CgroupView, directory: Path, name: str) -> Iterator[int]:
    """Yield the ids in a group's file and in those below; none of other PID namespaces, which read as 0."""
    try:
        yield from filter(None, map(int, view.files.read(directory / name).split()))
    except CgroupError as error:
        if error.errno not in _TASKS_GONE:
            raise
    for below in view.files.groups(directory):
        yield from _ids(view, directory / below, name)
