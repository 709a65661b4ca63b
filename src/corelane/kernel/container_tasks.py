"""Tasks of a container that a container runtime made: a sample of their CPUs, and the return of strays.

In version 1 a task, or a whole process, can be moved to another group with cpusets and stay in the
container's group for CPU time: it is still the container's. In version 2 it leaves the container altogether.
All of this blocks. Source: cgroups(7), "Cgroups v1 hierarchies".
"""

import errno
from collections.abc import Iterator
from pathlib import Path

from corelane.kernel import proc
from corelane.kernel.cgroupfs import CgroupError
from corelane.kernel.container_paths import CgroupView
from corelane.kernel.proc import PROC, TaskAffinity

_GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)


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
        if error.errno not in _GONE:
            raise
    for below in view.files.groups(directory):
        yield from _ids(view, directory / below, name)
