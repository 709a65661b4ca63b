"""Cgroup paths of a container runtime's containers, and whether this process sees the node's hierarchies.

Groups are paths below a hierarchy's root, without a leading slash. Sources: runc `libcontainer/specconv`
(linux.cgroupsPath) and opencontainers/cgroups `systemd` (units), cgroups(7) for /proc/PID/cgroup.
"""

import os
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane.kernel.cgroupfs import KERNEL, CgroupsUnavailable, Files
from corelane.kernel.proc import PROC

DEFAULT_ROOT = Path("/sys/fs/cgroup")
HOST_ROOT = Path("/host/sys/fs/cgroup")
"""Where a pod of corelane's DaemonSet mounts the node's."""

_KUBEPODS = re.compile(r"(?:.+-)?kubepods(?:\.slice)?")
_MAX_DEPTH = 8
"""Levels searched for a container whose path is known only in part."""


@dataclass(frozen=True, slots=True)
class CgroupView:
    """The node's hierarchies: the directories that hold cpuset and cpu (the same one in version 2)."""

    version: int
    cpuset: Path
    cpu: Path
    files: Files = KERNEL

    @property
    def name(self) -> str:
        return f"cgroup v{self.version}"

    def exists(self, group: str) -> bool:
        return (self.cpuset / group).is_dir()


def view(root: Path = DEFAULT_ROOT, files: Files = KERNEL) -> CgroupView:
    """Return the hierarchies at or below `root`. Raises CgroupsUnavailable without cpuset or cpu."""
    controllers = root / "cgroup.controllers"
    if controllers.exists():
        enabled = files.read(controllers).split()
        missing = [name for name in ("cpuset", "cpu") if name not in enabled]
        if missing:
            raise CgroupsUnavailable(
                f"{root}: cgroup v2 without the controllers {' and '.join(missing)}; "
                "enable them (kernel parameter cgroup_disable, cgroup.subtree_control of the group above)"
            )
        return CgroupView(2, root, root, files)
    mounted = {name: path for path in _directories(root) for name in path.name.split(",")}
    if not {"cpuset", "cpu"} <= mounted.keys():
        raise CgroupsUnavailable(
            f"{root}: neither cgroup v2 (cgroup.controllers) nor the cgroup v1 hierarchies cpuset and cpu; "
            f"mount the node's /sys/fs/cgroup there, in a pod as a hostPath at {HOST_ROOT}"
        )
    return CgroupView(1, mounted["cpuset"], mounted["cpu"], files)


def _directories(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return []


def group_of_spec(cgroups_path: str) -> str:
    """Return the group that `linux.cgroupsPath` of an OCI specification names.

    `/kubepods/podUID/ID` with the cgroupfs driver; `kubepods-podUID.slice:cri-containerd:ID` with systemd's,
    which is the unit `cri-containerd-ID.scope` in that slice.
    """
    parts = cgroups_path.split(":")
    if len(parts) != 3 or "/" in parts[0]:
        return cgroups_path.strip("/")
    parent, prefix, name = parts
    unit = name if name.endswith(".slice") else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    return "/".join((*_slices(parent or "system.slice"), unit))


def _slices(slice_name: str) -> Iterator[str]:
    """Yield a slice's directories: `a-b.slice` is in `a.slice` (systemd.slice(5)), `-.slice` the root."""
    names = slice_name.removesuffix(".slice").split("-")
    if any(names):
        for depth in range(1, len(names) + 1):
            yield f"{'-'.join(names[:depth])}.slice"


def group_of_process(view: CgroupView, pid: int, proc: Path = PROC) -> str | None:
    """Return the group with cpusets that /proc names for a process; None once the process is gone.

    A path that leaves our own cgroup namespace begins with `/..`: only its tail is known then.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return None
    for line in filter(None, lines):
        number, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(",") if view.version == 1 else number == "0":
            return path.lstrip("/")
    return None


def locate(
    view: CgroupView, container_id: str, cgroups_path: str = "", pid: int | None = None, proc: Path = PROC
) -> str | None:
    """Return a container's group, by its specification, else by its process; None if there is none.

    Where only the tail of the path is known, the group is searched for by the id. A group below the
    container's own, made by the processes in it, is never returned, nor one without the container's id: the
    process of a container in a virtual machine lives in a group of its pod.
    """
    candidates = [group_of_spec(cgroups_path)] if cgroups_path else []
    of_process = group_of_process(view, pid, proc) if pid else None
    if of_process and (own := _down_to(of_process, container_id)):
        candidates.append(own)
    complete = [group for group in candidates if ".." not in group.split("/")]
    existing = (group for group in complete if group and view.exists(group))
    if (group := next(existing, None)) is not None or complete == candidates != []:
        return group
    return next(_search(view.cpuset, container_id), None)


def _down_to(group: str, container_id: str) -> str:
    """Return the part of a path that ends with the container's own directory; "" without one."""
    names = group.split("/")
    depths = (depth for depth, name in enumerate(names, 1) if container_id in name)
    return "/".join(names[: next(depths, 0)])


def _search(root: Path, container_id: str, below: str = "", depth: int = _MAX_DEPTH) -> Iterator[str]:
    """Yield groups whose name has the id, for paths that leave our cgroup namespace."""
    try:
        with os.scandir(root / below) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        path = f"{below}/{name}" if below else name
        if container_id in name and not name.startswith(("crio-conmon-", "libpod-conmon-")):
            yield path
        elif depth:
            yield from _search(root, container_id, path, depth - 1)


def kubelet_ancestors(group: str) -> list[str]:
    """Return the groups above a container's that a kubelet made (kubepods, QoS class, pod), highest first."""
    names = group.split("/")
    tops = [depth for depth, name in enumerate(names[:-1]) if _KUBEPODS.fullmatch(name)]
    if not tops:
        return []
    return ["/".join(names[:depth]) for depth in range(tops[0] + 1, len(names))]


# Whether this process sees the node as the container runtime does. In a container the mounts decide that.
# Without the node's cgroups a container's own group looks like the root, and its few CPUs like the machine's;
# without the node's PID namespace no container's task is seen. The runtime's process tells what the node is,
# also where the node is a container itself (kind): it is the one behind the socket, as the kernel says.
# Sources: unix(7) SO_PEERCRED, cgroup_namespaces(7), proc(5) mountinfo.


_CONNECT_SECONDS: Final = 2.0
_CREDENTIALS: Final = struct.Struct("3i")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class NotTheHost(Exception):  # noqa: N818 - a state of affairs
    """The process does not see the node; says what to set or mount."""


def check(view: CgroupView, runtime: Path, proc: Path = PROC) -> None:
    """Raise NotTheHost unless this process sees the processes and cgroups of the node with this socket.

    Without an answer there, process 1 stands for the node, unless it is this one.
    """
    pid = _listening_process(runtime)
    if pid == 0 or (pid is None and os.getpid() == 1):
        where = f"the container runtime ({runtime})" if pid == 0 else "the node"
        raise NotTheHost(
            f"{where} has another PID namespace than this agent, which sees no task of a container: drift "
            "would stay unseen; set hostPID: true in the pod template of the DaemonSet"
        )
    groups = _groups(proc / str(pid or 1)) or _groups(proc / "1")
    for hierarchy, controller in ((view.cpuset, "cpuset"), (view.cpu, "cpu")):
        root = _mounted_group(hierarchy, proc)
        group = groups.get("" if view.version == 2 else controller)
        if root is not None and group is not None and not _is_within(group, root):
            raise NotTheHost(
                f"{hierarchy}: is the group {root}, which does not hold the node's processes (the container "
                f"runtime is in {group}): its CPUs would be taken for the machine's; mount the node's "
                f"/sys/fs/cgroup, writable, as a hostPath at {HOST_ROOT}"
            )


def _listening_process(path: Path) -> int | None:
    """Return the pid behind a socket of root's or ours, 0 in another PID namespace; None if none listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(str(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid if uid in (0, os.geteuid()) else None


def _groups(process: Path) -> dict[str, str]:
    """Return a process's group by controller, "" for version 2, as seen from our own cgroup namespace."""
    try:
        lines = (process / "cgroup").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return {}
    parts = (line.split(":", 2) for line in lines if line)
    return {name: group for _, controllers, group in parts for name in controllers.split(",")}


def _mounted_group(hierarchy: Path, proc: Path) -> str | None:
    """Return which group is the root of what is mounted at a directory; None if it is no such mount."""
    where, group = str(hierarchy.resolve()), None
    for line in filter(None, (proc / "self/mountinfo").read_bytes().decode(errors="replace").split("\n")):
        fields, _, rest = line.partition(" - ")
        root, point = map(_unescaped, fields.split(" ")[3:5])
        if point == where:
            group = root if rest.startswith("cgroup") else None  # the last mount covers the others
    return group


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _is_within(group: str, root: str) -> bool:
    """Whether a group is `root` or below; both may lead out of our cgroup namespace (`/../..`)."""
    ups, names = _steps(group)
    root_ups, root_names = _steps(root)
    if not root_names:
        return ups <= root_ups
    return ups == root_ups and names[: len(root_names)] == root_names


def _steps(group: str) -> tuple[int, list[str]]:
    names = [name for name in group.split("/") if name]
    ups = sum(name == ".." for name in names)
    return ups, names[ups:]
