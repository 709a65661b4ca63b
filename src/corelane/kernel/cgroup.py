"""Control groups of our own: found where they are mounted and writable.

`find` returns a `Groups`, whose methods speak of groups by paths below the hierarchy such as
`corelane/<instance>/<pod>`; version 1 (one hierarchy a controller) and version 2 (one for all) look the
same from here. Groups whose path does not begin with `corelane` are never touched, save that version 2
needs controllers enabled above ours.
"""

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corelane.kernel import cfs
from corelane.kernel.cgroup_tree import CONTROLLER as MEMORY
from corelane.kernel.cgroup_tree import OWN, Groups, GroupSettings, Level, join
from corelane.kernel.cgroupfs import KERNEL, CgroupError, CgroupsUnavailable, Files

__all__ = ["OWN", "CgroupError", "CgroupsUnavailable", "GroupSettings", "Groups", "Level", "join"]

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted hierarchy: its directory, its controllers (v1), and our own group's directory in it."""

    version: int
    controllers: frozenset[str]
    directory: Path
    own: Path


def mounts(root: Path = Path("/")) -> list[Mount]:
    """The cgroup hierarchies that /proc/self/mountinfo and /proc/self/cgroup name, below `root`."""
    own = _own_groups((root / "proc/self/cgroup").read_bytes().decode(errors="replace"))
    lines = (root / "proc/self/mountinfo").read_bytes().decode(errors="replace").split("\n")
    return [mount for line in lines if line and (mount := _mount(line, own, root)) is not None]


def _own_groups(text: str) -> dict[str, str]:
    """Controller → our own path, from lines such as `3:cpuset:/a` (v1) and `0::/b` (v2, no name)."""
    paths: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mount(line: str, own: dict[str, str], root: Path) -> Mount | None:
    """One line of mountinfo (man proc_pid_mountinfo); None if no cgroups are mounted there."""
    fields, _, tail = line.partition(" - ")
    kind, _, options = tail.split(" ", 2)
    if kind not in ("cgroup", "cgroup2"):
        return None
    within, place = (_ESCAPE.sub(lambda code: chr(int(code[1], 8)), text) for text in fields.split(" ")[3:5])
    directory = root / place.lstrip("/")
    names = frozenset(options.split(",")) & own.keys() if kind == "cgroup" else frozenset[str]()
    path = own.get(min(names, default=""), "/")
    return Mount(1 if kind == "cgroup" else 2, names, directory, directory / _relative(path, within))


def _relative(path: str, within: str) -> str:
    """Our path as seen from a mount that shows what lies below `within`; empty if we are not there."""
    inside = path == within or path.startswith(within.rstrip("/") + "/")
    return path[len(within.rstrip("/")) :].lstrip("/") if inside else ""


class Groups1(Groups):
    """Groups in version 1. Only a cpuset with CPUs and memory may be entered, so new ones inherit."""

    version = 1

    def _create(self, group: str) -> None:
        for path in (*self._above(group), group):
            for controller in self.bases:
                self.files.mkdir(self._directory(path, controller))
            self._inherit(path, "cpus")
            self._inherit(path, "mems")

    def _inherit(self, group: str, resource: Literal["cpus", "mems"]) -> None:
        path = self._directory(group, "cpuset") / f"cpuset.{resource}"
        if not self.files.read(path):
            self.files.write(path, self.files.read(path.parent.parent / path.name))

    def set_request(self, group: str, milli: int, level: Level) -> None:
        self._write(group, "cpu", "cpu.shares", str(cfs.shares(milli)))


class Groups2(Groups):
    """Groups in version 2. Processes live in leaves only; a group without a cpuset uses the one above."""

    version = 2

    def _create(self, group: str) -> None:
        for path in (*self._above(group), group):
            directory = self._directory(path, self._controller)
            self._enable(directory.parent)
            self._make(directory)

    def _enable(self, directory: Path) -> None:
        """Hand our controllers down from `directory`; only what is missing is written."""
        control = directory / "cgroup.subtree_control"
        enabled = self.files.read(control).split()
        missing = [name for name in self.bases if name not in enabled]
        if missing:
            text = " ".join(f"+{name}" for name in missing)
            self._refuse_to_thread(directory, f"write {text!r} to", control)
            self.files.write(control, text)

    def _refuse_to_thread(self, directory: Path, action: str, control: Path) -> None:
        """Beside processes the kernel hands cpu and cpuset down, but to groups that can hold only threads.

        What it would be left as can hardly be undone, so it is refused before (cgroup-v2.rst, "Threads").
        """
        if self._type(directory) == "domain" and self.files.read(directory / "cgroup.procs"):
            raise CgroupError(action, control, OSError(errno.EBUSY, os.strerror(errno.EBUSY)))

    def _make(self, directory: Path) -> None:
        """Make a group that can hold processes; below a threaded one it could not, and is not left there."""
        made = self.files.mkdir(directory)
        if self._type(directory) == "domain invalid":
            if made:
                self.files.rmdir(directory)
            reason = "the group above is threaded, as processes live in it while it hands cpu or cpuset down"
            raise CgroupError("create", directory, OSError(errno.EOPNOTSUPP, reason))

    def _type(self, directory: Path) -> str:
        """The hierarchy's root has no type: it may hold processes whatever it hands down."""
        try:
            return self.files.read(directory / "cgroup.type")
        except CgroupError as error:
            if error.errno != errno.ENOENT:
                raise
            return "root"

    def set_request(self, group: str, milli: int, level: Level) -> None:
        """By the kubelet's formula for pods, by the runtimes' newer one for containers."""
        formula = cfs.container_weight if level == "container" else cfs.pod_weight
        self._write(group, "cpu", "cpu.weight", str(formula(cfs.shares(milli))))

    def kill(self, group: str) -> list[int]:
        """By the kernel where it can (Linux 5.14), so that no process escapes by forking."""
        pids = self.pids(group)
        try:
            self.files.write(self._directory(group, self._controller) / "cgroup.kill", "1")
        except CgroupError:
            return super().kill(group)
        return pids

    @property
    def _controller(self) -> str:
        return next(iter(self.bases))


_NEEDED = ("cpuset", "cpu")
_USEFUL = ("cpuacct", MEMORY)


def find(root: Path = Path("/"), files: Files = KERNEL) -> Groups:
    """The hierarchies in which we can have groups of our own; version 1 where that holds the controllers.

    Needs cpuset and cpu; memory is used where it is there. Our topmost group is made as the proof. Raises
    CgroupsUnavailable.
    """
    mounted = mounts(root)
    reasons: list[str] = []
    for groups in (*_version1(mounted, files, reasons), *_version2(mounted, files, reasons)):
        try:
            groups.create(OWN)
        except CgroupError as error:
            if str(error) not in reasons:
                reasons.append(str(error))
        else:
            return groups
    raise CgroupsUnavailable("; ".join(reasons) or "no cgroup file system is mounted")


def _version1(mounted: list[Mount], files: Files, reasons: list[str]) -> Iterator[Groups]:
    by_controller = {name: mount for mount in mounted for name in mount.controllers}
    if not any(name in by_controller for name in _NEEDED):
        return
    bases: dict[str, Path] = {}
    lacks: dict[str, str] = {}
    for name in (*_NEEDED, *_USEFUL):
        mount = by_controller.get(name)
        base = next(filter(_writable, _lineage(mount)), None) if mount else None
        if base:
            bases[name] = base
            continue
        place = f"{mount.directory} may not be written" if mount else "mounted nowhere in version 1"
        lacks[name] = f"cgroup v1 {name}: {place}"
    reasons += (lacks[name] for name in _NEEDED if name in lacks)
    if bases.keys() >= {*_NEEDED}:
        yield Groups1(bases, files, lacks.get(MEMORY, ""))
        if MEMORY in bases:
            rest = {name: base for name, base in bases.items() if name != MEMORY}
            yield Groups1(rest, files, f"cgroup v1 memory: no group can be made in {bases[MEMORY]}")


def _version2(mounted: list[Mount], files: Files, reasons: list[str]) -> Iterator[Groups]:
    for base in (base for mount in mounted if mount.version == 2 for base in _lineage(mount)):
        there = _controllers(base, files)
        missing = [name for name in _NEEDED if name not in there]
        if missing:
            reasons.append(f"cgroup v2 {base}: no controller {' and '.join(missing)} there")
        elif not all(map(_writable, (base, base / "cgroup.procs", base / "cgroup.subtree_control"))):
            reasons.append(f"cgroup v2 {base} may not be written")
        else:
            names = [*_NEEDED, *({MEMORY} & {*there})]
            lacks = "" if MEMORY in there else f"cgroup v2 {base}: no controller memory there"
            yield Groups2(dict.fromkeys(names, base), files, lacks)


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
