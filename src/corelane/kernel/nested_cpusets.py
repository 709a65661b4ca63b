"""Cpusets of version 1 with groups below, which processes in a container made: they follow their container.

The kernel refuses to take a CPU from a group while one below has it. In version 2 it takes it from both.
"""

import errno
from pathlib import Path
from typing import Literal

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel.cgroupfs import CgroupError, Files

Resource = Literal["cpus", "mems"]
_ATTEMPTS = 5
"""A process may make, fill or remove a group while those below are narrowed."""
_CHANGED = (errno.EBUSY, errno.EACCES, errno.ENOENT, errno.ENODEV)


def write(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    """Set CPUs or memory nodes of a group and of those below; what is set already is not written.

    Groups that had all of the group's CPUs get all of the new ones, others keep what lies within. No group
    may have less than one below it: all grow downwards, then shrink upwards. Raises CgroupError.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _write(files, group, resource, values)
            return
        except CgroupError as error:
            if error.errno not in _CHANGED or attempt == _ATTEMPTS - 1 or not group.is_dir():
                raise


def _write(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    old = _read(files, group, resource)
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
            listed.append((path, _read(files, path, resource)))
        except CgroupError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
        listed.extend(_below(files, path, resource))
    return listed


def _read(files: Files, group: Path, resource: Resource) -> CPUSet:
    path = group / f"cpuset.{resource}"
    try:
        return CPUSet.parse(files.read(path))
    except CPUSetError as error:
        raise CgroupError("read", path, OSError(errno.EINVAL, f"not a list: {error}")) from None


def _put(files: Files, group: Path, resource: Resource, values: CPUSet) -> None:
    files.write(group / f"cpuset.{resource}", str(values))
