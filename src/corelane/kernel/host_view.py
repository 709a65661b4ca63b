"""Whether a process sees its node as the container runtime does: all processes, and cgroups from the root.

In a container the mounts decide that. Without the node's cgroups a container's own group looks like the root,
and its few CPUs like the machine's; without the node's PID namespace no container's task is seen. The
runtime's process tells what the node is, also where the node is a container itself (kind): it is the one
behind the socket, as the kernel says. Sources: unix(7) SO_PEERCRED, cgroup_namespaces(7), proc(5) mountinfo.
"""

import os
import re
import socket
import struct
from pathlib import Path
from typing import Final

from corelane.kernel.container_paths import HOST_ROOT, CgroupView
from corelane.kernel.proc import PROC

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
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid, uid, _ = _CREDENTIALS.unpack(found)
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
