"""Running containers of every `corelane up` on this machine, found and ended without their records.

An instance is one state directory of a local runtime. Its containers are found by their shims, which name the
directory, by the cgroups `corelane/INSTANCE/UID/NAME`, and by the mark of processes whose shim was killed.
"""

import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corelane.kernel import cgroup, proc
from corelane.kernel.proc import Identity
from corelane.runtime import container_search
from corelane.runtime.container_search import Shim, Traces

_POLL_SECONDS: Final = 0.05
_KILL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class InstanceContainer:
    """A running container; what the kernel does not tell is empty, as `instance` is without cgroups.

    `state` is the instance's directory, which may be deleted; None once the shim was killed.
    """

    id: str
    main: Identity
    instance: str = ""
    state: Path | None = None
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    name: str = ""
    group: str = ""
    shim: Identity | None = None

    @property
    def title(self) -> str:
        """`namespace/pod/container`, as far as known."""
        pod = f"{self.namespace}/{self.pod}" if self.pod else f"pod {self.uid or 'unknown'}"
        return f"{pod}/{self.name or self.id[:12]}"

    @property
    def data_dir(self) -> Path | None:
        """Data directory of the `corelane up` that started it: the state is in `nodes/NAME/containers`."""
        if self.state is None or len(self.state.parts) < 4 or self.state.parts[-3] != "nodes":
            return None
        return self.state.parents[2]

    @property
    def ended(self) -> bool:
        """Whether only its shim is left, which has not recorded the end."""
        return self.main == self.shim

    @property
    def owner(self) -> str:
        """The instance, for people: its data directory, else its name in the cgroups."""
        return str(self.data_dir or self.state or self.instance or "unknown")


def groups_here() -> cgroup.Groups | None:
    """Return the cgroup hierarchies in which instances have their groups; None where there are none."""
    try:
        return cgroup.find()
    except (cgroup.CgroupsUnavailable, cgroup.CgroupError):
        return None


@dataclass(frozen=True, slots=True)
class Own:
    """What belongs to the asking instance: state directory, name, ids and cgroups of its containers."""

    state: Path | None = None
    instance: str = ""
    ids: Collection[str] = ()
    groups: Collection[str | None] = ()


_NOTHING: Final = Own()


def running(
    groups: cgroup.Groups | None,
    own: Own = _NOTHING,
    traces: Traces | None = None,
) -> list[InstanceContainer]:
    """Return the running containers of all instances on this machine but `own`.

    `traces` is what was just found of them; None looks at all processes.
    """
    found: dict[str, InstanceContainer] = {}
    traces = traces or container_search.traces()
    for shim in traces.shims:
        ours = shim.directory.parent.parent == own.state or shim.id in own.ids  # the directory may have moved
        if not ours and (main := container_search.main_process(shim)):
            found[shim.id] = _of_shim(shim, main)
    for container_id, processes in traces.marked.items():
        if container_id not in found and container_id not in own.ids:
            found[container_id] = _of_group(
                container_id, processes[0], container_search.group_of(processes[0].pid)
            )
    taken = {container.group for container in found.values()} | {group for group in own.groups if group}
    for group in _container_groups(groups, own.instance) if groups else ():
        if group not in taken and groups and (first := _oldest(groups.pids(group))):
            found[group] = _of_group(group.replace("/", "-"), first, group)
    states = {one.instance: one.state for one in found.values() if one.instance and one.state}
    placed = (replace(one, state=one.state or states.get(one.instance)) for one in found.values())
    others = (one for one in placed if not own.instance or one.instance != own.instance)
    return sorted(others, key=lambda one: (one.owner, one.title))


def _of_shim(shim: Shim, main: Identity) -> InstanceContainer:
    group, log = container_search.group_of(main.pid), container_search.log_name(shim)
    return InstanceContainer(
        id=shim.id,
        main=main,
        instance=group.split("/")[1] if group else "",
        state=shim.directory.parent.parent,
        namespace=log.namespace if log else "",
        pod=log.pod if log else "",
        uid=log.uid if log else "",
        name=log.name if log else "",
        group=group,
        shim=shim.process,
    )


def _of_group(container_id: str, main: Identity, group: str) -> InstanceContainer:
    if not group:
        return InstanceContainer(container_id, main)
    _, instance, uid, name = group.split("/")
    return InstanceContainer(container_id, main, instance=instance, uid=uid, name=name, group=group)


def _container_groups(groups: cgroup.Groups, excluded: str) -> list[str]:
    return [
        f"{cgroup.OWN}/{instance}/{uid}/{name}"
        for instance in groups.children(cgroup.OWN)
        if instance != excluded
        for uid in groups.children(f"{cgroup.OWN}/{instance}")
        for name in groups.children(f"{cgroup.OWN}/{instance}/{uid}")
    ]


def _oldest(pids: Iterable[int]) -> Identity | None:
    processes = [process for pid in pids if (process := proc.identity(pid))]
    return min(processes, key=lambda one: (one.start_ticks, one.pid), default=None)


def processes(
    container: InstanceContainer,
    groups: cgroup.Groups | None,
    marked: Mapping[str, Sequence[Identity]] | None = None,
) -> list[int]:
    """Return the living processes of a container: below its shim, in its cgroup, and those with its mark.

    `marked` are those that were just looked for; None looks for them, at all processes.
    """
    marked = container_search.marked() if marked is None else marked
    found = set()
    if container.shim is not None and proc.is_alive(container.shim):
        found.update(proc.descendants(container.shim.pid))
    if groups and container.group:
        found.update(groups.pids(container.group))
    found.update(process.pid for process in marked.get(container.id, ()))
    living = ((pid, proc.identity(pid)) for pid in found)
    return sorted(pid for pid, process in living if process and proc.is_alive(process))


def end(
    containers: Sequence[InstanceContainer], groups: cgroup.Groups | None, grace_seconds: float
) -> list[InstanceContainer]:
    """End containers, by SIGTERM to the main processes and after the grace SIGKILL; return what is left."""
    for container in containers:
        with suppress(PermissionError):
            proc.send(container.main, signal.SIGTERM)
    left = _wait(containers, groups, grace_seconds, kill=False)
    return _wait(left, groups, _KILL_SECONDS, kill=True)


def _wait(
    containers: Sequence[InstanceContainer], groups: cgroup.Groups | None, seconds: float, *, kill: bool
) -> list[InstanceContainer]:
    """Wait until the containers' main processes, with `kill` all processes, have ended; return the others."""
    deadline = time.monotonic() + seconds
    left = list(containers)
    while left:
        if kill:
            for container in left:
                proc.kill_all(lambda one=container: processes(one, groups))  # type: ignore[misc]
        left = [one for one in left if (processes(one, groups) if kill else _lives(one))]
        if time.monotonic() > deadline:
            break
        if left:
            time.sleep(_POLL_SECONDS)
    return left if kill else list(containers)


def _lives(container: InstanceContainer) -> bool:
    return proc.is_alive(container.main)


def left_shims(
    is_chosen: Callable[[InstanceContainer], bool], seconds: float = 12.0
) -> list[InstanceContainer]:
    """Wait, so many seconds at most, until shims of ended containers have recorded that; return the others.

    A stopped one does not record anything, and its record is still its own.
    """
    deadline = time.monotonic() + seconds
    shims = [shim for shim in container_search.shims() if container_search.main_process(shim) is None]
    left = [one for one in (_of_shim(shim, shim.process) for shim in shims) if is_chosen(one)]
    while any(_lives(one) and not _is_stopped(one) for one in left) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return [one for one in left if _lives(one)]


def _is_stopped(container: InstanceContainer) -> bool:
    found = proc.stat(container.main.pid)
    return found is not None and found.state in "Tt"


def remove_groups(groups: cgroup.Groups, instances: Iterable[str]) -> list[str]:
    """Remove the cgroups of instances in which nothing runs any more; return their paths."""
    removed = []
    for instance in sorted(set(instances)):
        root = f"{cgroup.OWN}/{instance}"
        if not groups.exists(root):
            continue
        with suppress(cgroup.CgroupError):
            if groups.populated(root):
                _remove_empty(groups, root)
            else:
                groups.delete(root)
                removed.append(root)
    with suppress(cgroup.CgroupError):
        groups.prune(cgroup.OWN)
    return removed


def _remove_empty(groups: cgroup.Groups, root: str) -> None:
    for name in groups.children(root):
        with suppress(cgroup.CgroupError):
            if not groups.populated(f"{root}/{name}"):
                groups.delete(f"{root}/{name}")
