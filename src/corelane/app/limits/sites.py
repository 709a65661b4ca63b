"""The containers of this node as cgroups with names: the kubelet's, corelane's own, and any by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from corelane.app.state import cgroups, pod_lists
from corelane.app.state.files import StateFileError
from corelane.app.up import datadir
from corelane.kernel import cgroup
from corelane.node.recovery.owners import ContainerName, ListedPod, RunningContainer

__all__ = ["Site", "Sites", "Where", "find"]

_OWN_SPECS: Final = "nodes/*/containers/containers/*/spec.json"


@dataclass(frozen=True, slots=True)
class Site:
    """A container, or a pod as a whole (`container` empty), with its directory in every hierarchy."""

    namespace: str
    pod: str
    container: str
    id: str
    directories: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What it is known by from one reading to the next."""
        return self.directories


@dataclass(frozen=True, slots=True)
class Sites:
    """What there is to watch, and what cannot be."""

    sites: tuple[Site, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look. `pods` is a file with the node's pods, `data_dir` what `corelane up` keeps."""

    root: Path = Path("/")
    pods: Path | None = None
    data_dir: Path | None = None
    groups: tuple[Path, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    """What we read of a record of corelane's own runtime; see `runtime.records`."""

    name: str
    namespace: str
    pod: str


class _Stored(msgspec.Struct, frozen=True):
    id: str
    spec: _Spec
    directories: tuple[str, ...] = ()


def find(where: Where) -> Sites:
    """Every container that runs. Groups named by path replace the search.

    Raises StateFileError for a list of pods that is none, and for groups that are not there.
    """
    if where.groups:
        return Sites(tuple(_named(path, where.root) for path in where.groups))
    pods, notes = _kubelets(where)
    own = tuple(_own(where.data_dir or datadir.default()))
    if not pods and not own:
        notes = (*notes, "no containers found: neither the kubelet's cgroups nor those of corelane up")
    return Sites((*pods, *own), notes)


def _kubelets(where: Where) -> tuple[tuple[Site, ...], tuple[str, ...]]:
    top = where.root / "sys/fs/cgroup"
    listed = pod_lists.read(where.pods) if where.pods else pod_lists.PodList({})
    logged = pod_lists.logged(str(where.root / "var/log/containers"))
    try:
        groups = cgroups.read(str(top))
    except StateFileError as error:
        return (), (*listed.notes, str(error))
    trees = _hierarchies(top)
    names = {group.id: _name(group, listed.pods, logged) for group in groups}
    sites = [Site(*names[group.id], group.id, _below(trees, group.path)) for group in groups]
    pods = {group.path.rpartition("/")[0]: names[group.id][:2] for group in groups}
    sites += [Site(*name, "", "", _below(trees, path)) for path, name in pods.items()]
    return tuple(sites), listed.notes


def _hierarchies(top: Path) -> list[Path]:
    """The mounted hierarchies: one in version 2, else one for each set of controllers."""
    if (top / "cgroup.controllers").exists():
        return [top]
    return sorted({path.resolve() for path in top.iterdir() if path.is_dir()})


def _below(trees: Iterable[Path], path: str) -> tuple[str, ...]:
    return tuple(str(tree / path) for tree in trees if (tree / path).is_dir())


def _name(
    group: RunningContainer,
    pods: Mapping[str, ListedPod],
    logged: Mapping[str, ContainerName],
) -> tuple[str, str, str]:
    """Namespace, pod and container; ids where nobody knows more."""
    link, pod = logged.get(group.id), pods.get(group.uid)
    short = group.id[:12]
    if pod:
        namespace, _, name = pod.title.partition("/")
        return namespace, name, pod.ids.get(group.id) or (link.container if link else short)
    return (link.namespace, link.pod, link.container) if link else ("", f"pod {group.uid}", short)


def _own(data_dir: Path) -> Iterator[Site]:
    """The containers of a `corelane up`, from the records of its runtime; those that ended have no group."""
    for path in sorted(data_dir.glob(_OWN_SPECS)):
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError):
            continue
        if directories := tuple(one for one in stored.directories if Path(one).is_dir()):
            yield Site(
                stored.spec.namespace, stored.spec.pod, stored.spec.name, stored.id, tuple(directories)
            )


def _named(path: Path, root: Path) -> Site:
    """A group by its directory in any hierarchy, with its directories in the others beside it."""
    if not (path / "cgroup.procs").exists():
        raise StateFileError(f"--cgroup {path}: is no cgroup: name a directory that has cgroup.procs")
    found = path.resolve()
    try:
        mounts = [mount.directory.resolve() for mount in cgroup.mounts(root)]
    except OSError:
        mounts = []
    own = [mount for mount in mounts if found.is_relative_to(mount)]
    if not own:
        return Site("", "", str(path), "", (str(found),))
    inside = found.relative_to(max(own, key=lambda mount: len(mount.parts)))
    others = [mount / inside for mount in mounts]
    beside = dict.fromkeys(map(str, [found, *(one for one in others if (one / "cgroup.procs").exists())]))
    return Site("", "", str(inside), "", tuple(beside))
