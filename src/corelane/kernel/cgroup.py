"""Control groups of our own: found where they are mounted and writable.

`find` returns a `Groups`, whose methods speak of groups by paths below the hierarchy such as
`corelane/<instance>/<pod>`; version 1 (one hierarchy a controller) and version 2 (one for all) look the
same from here. Groups whose path does not begin with `corelane` are never touched, save that version 2
needs controllers enabled above ours.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from corelane.kernel.cgroup1 import Groups1
from corelane.kernel.cgroup2 import Groups2
from corelane.kernel.cgroup_mounts import Mount, mounts
from corelane.kernel.cgroup_tree import OWN, Groups, Level, Settings, join
from corelane.kernel.cgroupfs import KERNEL, CgroupError, Files

__all__ = ["OWN", "CgroupError", "CgroupsUnavailable", "Groups", "Level", "Settings", "find", "join"]

_NEEDED = ("cpuset", "cpu")
_USEFUL = ("cpuacct",)


class CgroupsUnavailable(Exception):  # noqa: N818 - says what is the case; often no error
    """No hierarchy with the needed controllers can be written; the message says why, place by place."""


def find(root: Path = Path("/"), files: Files = KERNEL) -> Groups:
    """The hierarchies in which we can have groups of our own; version 1 where that holds the controllers.

    Needs cpuset and cpu. Our topmost group is made as the proof. Raises CgroupsUnavailable.
    """
    found = mounts(root)
    reasons: list[str] = []
    for groups in (*_version1(found, files, reasons), *_version2(found, files, reasons)):
        try:
            groups.create(OWN)
        except CgroupError as error:
            reasons.append(str(error))
        else:
            return groups
    raise CgroupsUnavailable("; ".join(reasons) or "no cgroup file system is mounted")


def _version1(found: list[Mount], files: Files, reasons: list[str]) -> Iterator[Groups]:
    by_controller = {name: mount for mount in found for name in mount.controllers}
    if not any(name in by_controller for name in _NEEDED):
        return
    bases: dict[str, Path] = {}
    for name in (*_NEEDED, *_USEFUL):
        mount = by_controller.get(name)
        base = next(filter(_writable, _lineage(mount)), None) if mount else None
        if base:
            bases[name] = base
        elif name in _NEEDED:
            place = f"{mount.directory} may not be written" if mount else "mounted nowhere in version 1"
            reasons.append(f"cgroup v1 {name}: {place}")
    if bases.keys() >= {*_NEEDED}:
        yield Groups1(bases, files)


def _version2(found: list[Mount], files: Files, reasons: list[str]) -> Iterator[Groups]:
    for base in (base for mount in found if mount.version == 2 for base in _lineage(mount)):
        missing = [name for name in _NEEDED if name not in _controllers(base, files)]
        if missing:
            reasons.append(f"cgroup v2 {base}: no controller {' and '.join(missing)} there")
        elif not all(map(_writable, (base, base / "cgroup.procs", base / "cgroup.subtree_control"))):
            reasons.append(f"cgroup v2 {base} may not be written")
        else:
            yield Groups2(dict.fromkeys(_NEEDED, base), files)


def _controllers(base: Path, files: Files) -> list[str]:
    try:
        return files.read(base / "cgroup.controllers").split()
    except CgroupError:
        return []


def _lineage(mount: Mount) -> list[Path]:
    """From the mount down to our own group: to move a process we must own an ancestor of where it is now."""
    steps = mount.own.relative_to(mount.directory).parts
    return [mount.directory.joinpath(*steps[:depth]) for depth in range(len(steps) + 1)]


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)
