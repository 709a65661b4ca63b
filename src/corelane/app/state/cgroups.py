"""What really runs in the pods of a node: every container's cpuset, read from the kubelet's cgroups.

Both cgroup versions and both drivers: `kubepods/burstable/podUID/ID` (cgroupfs) and
`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope` (systemd).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corelane.app.state.errors import StateFileError
from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel import proc as processes
from corelane.kernel.files import Directory

__all__ = ["Group", "kubelets", "read"]

DEPTH: Final = 5
"""How far below the mount the hierarchy of pods may begin: kind and nested kubelets put it lower."""
_TOP = re.compile(r"(?:.+-)?kubepods(?:\.slice)?")
_QOS = re.compile(r"(?:.+-)?(burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*kubepods-(?:burstable-|besteffort-)?)?pod(.+?)(?:\.slice)?")
_ID = re.compile(r"(?:cri-containerd-|crio-|docker-|libpod-)?(.+?)(?:\.scope)?")
_UNITS = ("slice", "scope", "service")
_KUBELETS = ("kubelet", "kubelite", "k3s-server", "k3s-agent")
_MONITORS = ("crio-conmon-", "libpod-conmon-", "conmon-")


@dataclass(frozen=True, slots=True)
class Group:
    """A container's cgroup. `cpus` is what was set for it; empty where it runs wherever its pod may."""

    uid: str
    id: str
    """The runtime's id, without its name and ending."""
    cpus: CPUSet
    qos: str = ""
    """burstable or besteffort; "" is Guaranteed."""
    pod_cpus: CPUSet = field(default_factory=CPUSet)
    """What the pod's own cgroup has."""
    path: str = ""


def read(root: str) -> list[Group]:
    """Every container with processes below `root` (a directory like /sys/fs/cgroup), ordered by path.

    Raises StateFileError where there are no cgroups, or a cpuset makes no sense.
    """
    tree, files = _hierarchy(Directory(root), root)
    tops = list(_tops(tree, "", DEPTH))
    return sorted((group for top in tops for group in _pods(tree, files, top, "")), key=lambda g: g.path)


@dataclass(frozen=True, slots=True)
class _Files:
    """The names of the files in a version: what was set, and what is in effect."""

    cpus: str
    effective: str


_V1 = _Files("cpuset.cpus", "cpuset.effective_cpus")
_V2 = _Files("cpuset.cpus", "cpuset.cpus.effective")


def _hierarchy(tree: Directory, root: str) -> tuple[Directory, _Files]:
    """The tree that has cpusets: all of it in version 2, else the controller's own."""
    if tree.read("cgroup.controllers") is not None:
        return tree, _V2
    for name in tree.names(""):
        if "cpuset" in name.split(",") and tree.names(name):
            return Directory(f"{root}/{name}"), _V1
    raise StateFileError(
        f"{root}: no cgroups there (neither cgroup.controllers nor a cpuset hierarchy): "
        "name the root of the node's file system with --root"
    )


def _tops(tree: Directory, path: str, depth: int) -> Iterator[str]:
    """The directories in which pods begin, the outermost ones."""
    for name in tree.names(path or "."):
        below = f"{path}/{name}" if path else name
        if _TOP.fullmatch(name):
            yield below
        elif depth and ("." not in name or name.rpartition(".")[2] in _UNITS):
            yield from _tops(tree, below, depth - 1)


def _pods(tree: Directory, files: _Files, path: str, qos: str) -> Iterator[Group]:
    for name in tree.names(path):
        below = f"{path}/{name}"
        if found := _POD.fullmatch(name):
            yield from _containers(tree, files, below, _uid(found[1], name), qos)
        elif found := _QOS.fullmatch(name):
            yield from _pods(tree, files, below, found[1])


def _uid(text: str, name: str) -> str:
    """Systemd has no dashes in the last part of a slice's name, so the kubelet writes underscores."""
    return text.replace("_", "-") if name.endswith(".slice") else text


def _containers(tree: Directory, files: _Files, path: str, uid: str, qos: str) -> Iterator[Group]:
    pod_cpus = _cpus(tree, f"{path}/{files.effective}") or _cpus(tree, f"{path}/{files.cpus}")
    for name in tree.names(path):
        below = f"{path}/{name}"
        if name.startswith(_MONITORS) or not _is_group(tree, below) or not _runs(tree, below):
            continue
        yield Group(uid, _id(name), _cpus(tree, f"{below}/{files.cpus}"), qos, pod_cpus, below)


def kubelets(proc: Path) -> list[str]:
    """A note for each kubelet that runs: it would write over whatever is repaired."""
    return [
        f"a kubelet runs (process {pid}): stop it, or it writes over the file with what it remembers"
        for pid in sorted(processes.pids(proc))
        if (found := processes.stat(pid, proc)) and found.name in _KUBELETS
    ]


def _id(name: str) -> str:
    found = _ID.fullmatch(name)
    return found[1] if found else name


def _is_group(tree: Directory, path: str) -> bool:
    return bool(tree.names(path))


def _runs(tree: Directory, path: str) -> bool:
    """Whether there are processes, as far as the kernel says; a group that does not say counts as running."""
    events = tree.read(f"{path}/cgroup.events")
    if events is not None:
        return "populated 0" not in events
    processes = tree.read(f"{path}/cgroup.procs")
    return (
        processes is None
        or bool(processes.strip())
        or any(_is_group(tree, f"{path}/{name}") for name in tree.names(path))
    )


def _cpus(tree: Directory, path: str) -> CPUSet:
    text = (tree.read(path) or "").strip()
    try:
        return CPUSet.parse(text)
    except CPUSetError as error:
        raise StateFileError(f"{tree.root}/{path}: {text!r} is no CPU list: {error}") from None
