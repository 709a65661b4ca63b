"""The running containers of a node's pods, each with its cpuset, read from the kubelet's cgroups.

Both cgroup versions and both drivers: `kubepods/burstable/podUID/ID` (cgroupfs) and
`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope` (systemd).
Where the kubelet's driver is systemd and the runtime's is not, runc takes systemd's triple for a directory,
mostly below the runtime's group: `system.slice/containerd.service/kubepods-podUID.slice:cri-containerd:ID`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane.app.state.files import StateFileError
from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel import proc as processes
from corelane.kernel.files import Directory
from corelane.node.recovery.cpu_owners import RunningContainer

_MAX_DEPTH: Final = 5
"""Levels below the mount point at which pods may begin: kind and nested kubelets put them lower."""
_TOP = re.compile(r"(?:.+-)?kubepods(?:\.slice)?")
_QOS = re.compile(r"(?:.+-)?(burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*kubepods-(?:burstable-|besteffort-)?)?pod(.+?)(?:\.slice)?")
_TRIPLE = re.compile(r"((?:.+-)?kubepods-(?:(burstable|besteffort)-)?pod[^:]+\.slice):[^:]*:(.+)")
_ID = re.compile(r"(?:cri-containerd-|crio-|docker-|libpod-)?(.+?)(?:\.scope)?")
_UNITS = ("slice", "scope", "service")
_KUBELETS = ("kubelet", "kubelite", "k3s-server", "k3s-agent")
_MONITORS = ("crio-conmon-", "libpod-conmon-", "conmon-")


def read(root: str) -> list[RunningContainer]:
    """Return every container with processes below `root` (such as /sys/fs/cgroup), ordered by path.

    Raises StateFileError where there are no cgroups, or a cpuset cannot be parsed.
    """
    tree = _hierarchy(Directory(root), root)
    running: list[RunningContainer] = []
    for path in _tops(tree.directory, "", _MAX_DEPTH):
        match = _TRIPLE.fullmatch(path.rpartition("/")[2])
        if not match:
            running += _pods(tree, path, "")
        elif (pod := _POD.fullmatch(match[1])) and has_processes(tree.directory, path):
            own = _cpus(tree, f"{path}/{tree.cpus}")
            uid = pod[1].replace("_", "-")
            running.append(RunningContainer(uid, match[3], own, match[2] or "", path=path))
    return sorted(running, key=lambda container: container.path)


def is_kubelets(name: str) -> bool:
    """Whether a directory of this name is one in which the kubelet's pods begin, or a container of one."""
    return _TOP.fullmatch(name) is not None or _TRIPLE.fullmatch(name) is not None


def has_pods(root: str) -> bool:
    """Whether a kubelet's cgroups are in view, with or without pods. Raises StateFileError, as `read`."""
    return any(True for _ in _tops(_hierarchy(Directory(root), root).directory, "", _MAX_DEPTH))


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A hierarchy with cpusets, and its files' names: the configured and the effective CPUs."""

    directory: Directory
    cpus: str
    effective: str


def _hierarchy(directory: Directory, root: str) -> _Hierarchy:
    """The whole tree in version 2, else the cpuset controller's own."""
    if directory.read("cgroup.controllers") is not None:
        return _Hierarchy(directory, "cpuset.cpus", "cpuset.cpus.effective")
    for name in directory.names(""):
        if "cpuset" in name.split(",") and directory.names(name):
            return _Hierarchy(Directory(f"{root}/{name}"), "cpuset.cpus", "cpuset.effective_cpus")
    raise StateFileError(
        f"{root}: has no cgroups (neither cgroup.controllers nor a cpuset hierarchy); "
        "give the node's root directory with --root"
    )


def _tops(directory: Directory, path: str, depth: int) -> Iterator[str]:
    """The outermost directories in which pods begin, and containers that lie in no pod's directory."""
    for name in directory.names(path or "."):
        below = f"{path}/{name}" if path else name
        if is_kubelets(name):
            yield below
        elif depth and ("." not in name or name.rpartition(".")[2] in _UNITS):
            yield from _tops(directory, below, depth - 1)


def _pods(tree: _Hierarchy, path: str, qos: str) -> Iterator[RunningContainer]:
    for name in tree.directory.names(path):
        below = f"{path}/{name}"
        if match := _POD.fullmatch(name):
            # systemd separates slices by dashes, so the kubelet writes underscores in the UID.
            uid = match[1].replace("_", "-") if name.endswith(".slice") else match[1]
            yield from _containers(tree, below, uid, qos)
        elif match := _QOS.fullmatch(name):
            yield from _pods(tree, below, match[1])


def _containers(tree: _Hierarchy, path: str, uid: str, qos: str) -> Iterator[RunningContainer]:
    pod_cpus = _cpus(tree, f"{path}/{tree.effective}") or _cpus(tree, f"{path}/{tree.cpus}")
    for name in tree.directory.names(path):
        below = f"{path}/{name}"
        if (
            name.startswith(_MONITORS)
            or not tree.directory.names(below)
            or not has_processes(tree.directory, below)
        ):
            continue
        match = _ID.fullmatch(name)
        ident = match[1] if match else name
        yield RunningContainer(uid, ident, _cpus(tree, f"{below}/{tree.cpus}"), qos, pod_cpus, below)


def has_processes(directory: Directory, path: str) -> bool:
    """Whether the cgroup has processes; one without either file counts as running."""
    events = directory.read(f"{path}/cgroup.events")
    if events is not None:
        return "populated 0" not in events
    pids = directory.read(f"{path}/cgroup.procs")
    return (
        pids is None
        or bool(pids.strip())
        or any(directory.names(f"{path}/{name}") for name in directory.names(path))
    )


def _cpus(tree: _Hierarchy, path: str) -> CPUSet:
    text = (tree.directory.read(path) or "").strip()
    try:
        return CPUSet.parse(text)
    except CPUSetError as error:
        raise StateFileError(f"{tree.directory.root}/{path}: {text!r} is not a CPU list: {error}") from None


def kubelets(proc: Path) -> list[str]:
    """Return a note for each running kubelet, which would overwrite a repaired file."""
    return [
        f"kubelet is running (process {pid}); stop it, or it overwrites the file with its own state"
        for pid in sorted(processes.pids(proc))
        if (stat := processes.stat(pid, proc)) and stat.name in _KUBELETS
    ]
