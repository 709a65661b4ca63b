"""Containers without a kubelet (Docker, Podman, containerd, LXC) and systemd's units, as cgroups with names.

Both drivers and both versions: `docker/ID` and `libpod_parent/libpod-ID` (cgroupfs), `docker-ID.scope` and
`libpod-ID.scope` in any slice (systemd), rootless ones below `user@UID.service`. Layouts as documented by
Docker (`--cgroup-parent`), Podman (`--cgroup-manager`) and systemd (Control Group APIs and Delegation).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corelane.app.state import cgroups
from corelane.kernel import cgroup_tree
from corelane.kernel.cpu_time import counters
from corelane.kernel.cpu_time.counters import CounterError
from corelane.kernel.files import Directory

SYSTEMD: Final = "systemd"
_MAX_DEPTH: Final = 8
_SCOPES: Final = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "nerdctl": "containerd",
    "cri-containerd": "containerd",
    "crio": "cri-o",
}
_PARENTS: Final = {
    "docker": "docker",
    "libpod_parent": "podman",
    "k8s.io": "containerd",
    "default": "containerd",
}
_CONTAINER: Final = re.compile(rf"(?:({'|'.join(_SCOPES)})-)?([0-9a-f]{{64}})(?:\.scope)?")
_LXC: Final = re.compile(r"lxc(?:\.payload)?\.(.+)")
_UNIT: Final = re.compile(r".+\.(?:service|scope|slice)")
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")
_DOCKER_NAMES: Final = (
    "var/lib/docker/containers/{}/config.v2.json",
    "home/*/.local/share/docker/containers/{}/config.v2.json",
)
_PODMAN_NAMES: Final = (
    "var/lib/containers/storage/*-containers/containers.json",
    "home/*/.local/share/containers/storage/*-containers/containers.json",
    "root/.local/share/containers/storage/*-containers/containers.json",
)


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """A running container or unit: its engine, its name, its id ("" for a unit), its path below the mount."""

    engine: str
    name: str
    id: str
    path: str


@dataclass(frozen=True, slots=True)
class ServiceGroups:
    """What was found. `unlimited` units have processes but no CPU limit, so nothing throttles them."""

    groups: tuple[ServiceGroup, ...] = ()
    unlimited: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Paths of other groups with processes and a CPU limit."""


def find(root: Path) -> ServiceGroups:
    """Find every container, and every unit with a CPU limit, outside of the kubelet's cgroups.

    `root` is the node's root directory.
    """
    # A limit on CPU time is in the version 2 hierarchy, else in the cpu controller's.
    top = root / "sys/fs/cgroup"
    if (top / "cgroup.controllers").exists():
        directory = Directory(str(top))
    elif names := [name for name in Directory(str(top)).names("") if "cpu" in name.split(",")]:
        directory = Directory(str(top / names[0]))
    else:
        return ServiceGroups()
    named = _Names(root)
    groups, unlimited, unknown = list[ServiceGroup](), list[str](), list[str]()
    for engine, ident, path in _walk(directory, "", _MAX_DEPTH):
        if not cgroups.has_processes(directory, path):
            continue
        if not engine:
            unknown += [path] if _limited(directory, path) else []
        elif engine != SYSTEMD:
            groups.append(ServiceGroup(engine, named.name(engine, ident), ident, path))
        elif _limited(directory, path):
            # Without systemd's escapes; a user's own unit has the user manager before it.
            *above, name = path.split("/")
            manager = next((part.removesuffix(".service") for part in above if part.startswith("user@")), "")
            plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)
            groups.append(ServiceGroup(engine, f"{manager}/{plain}" if manager else plain, "", path))
        elif not path.endswith(".slice"):
            unlimited.append(path)
    return ServiceGroups(tuple(groups), tuple(unlimited), tuple(unknown))


def _walk(directory: Directory, path: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """Engine, id and path of each group, the first two "" for an unknown one.

    Containers' own groups, the kubelet's and corelane's are not entered.
    """
    for name in directory.names(path or ".") if depth else ():
        below = f"{path}/{name}" if path else name
        if not directory.names(below) or cgroups.is_kubelets(name) or below == cgroup_tree.OWN:
            continue
        if container := _container(name, path.rpartition("/")[2]):
            yield *container, below
            continue
        yield SYSTEMD if _UNIT.fullmatch(name) else "", "", below
        yield from _walk(directory, below, depth - 1)


def _container(name: str, parent: str) -> tuple[str, str] | None:
    if match := _CONTAINER.fullmatch(name):
        prefix = match[1]
        return (_SCOPES[prefix] if prefix else _PARENTS.get(parent, "container")), match[2]
    if match := _LXC.fullmatch(name):
        return ("lxc", match[1]) if not match[1].startswith("monitor") else None
    return None


def _limited(directory: Directory, path: str) -> bool:
    """Whether the group has a quota of its own."""
    try:
        if (version2 := directory.read(f"{path}/cpu.max")) is not None:
            return counters.quota_v2(version2, None).quota_us is not None
        version1 = directory.read(f"{path}/cpu.cfs_quota_us")
        period = directory.read(f"{path}/cpu.cfs_period_us") or ""
        return version1 is not None and counters.quota_v1(version1, period, None).quota_us is not None
    except CounterError:
        return True  # so that reading it reports the file


class _Names:
    """Containers' names, from the files in which Docker and Podman keep them; short ids elsewhere."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._podman: dict[str, str] | None = None

    def name(self, engine: str, ident: str) -> str:
        if engine == "lxc":
            return ident
        if engine == "docker":
            for path in (
                path for pattern in _DOCKER_NAMES for path in self._root.glob(pattern.format(ident))
            ):
                match _json(path):
                    case {"Name": str(name)} if name:
                        return name.removeprefix("/")
        if engine == "podman" and self._podman is None:
            self._podman = {}
            for path in (path for pattern in _PODMAN_NAMES for path in self._root.glob(pattern)):
                listed = _json(path)
                for container in listed if isinstance(listed, list) else ():
                    match container:
                        case {"id": str(own), "names": [str(name), *_]}:
                            self._podman[own] = name
        return (self._podman or {}).get(ident) or ident[:12]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
