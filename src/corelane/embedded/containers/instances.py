"""Running containers of every `corelane up` on this machine, found and ended without their records.

An instance is one state directory of a local runtime. Its containers are found by their shims, which name the
directory, by the cgroups `corelane/INSTANCE/UID/NAME`, and by the mark of processes whose shim was killed.
Those of other users can only claim to be containers: they are listed, and never ended.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from corelane.cpuset import CPUSet
from corelane.embedded.containers import container_search
from corelane.embedded.containers.container_search import KnownTraces, Shim, Traces
from corelane.kernel import cgroup, ownership, proc
from corelane.kernel.proc import Identity
from corelane.node.recovery.unplaced import Kind, OtherContainer

_POLL_SECONDS: Final = 0.05
_KILL_SECONDS: Final = 10.0
UNSEEN: Final = Identity(0, 0)
"""The main process of a container whose processes are in another PID namespace."""


@dataclass(frozen=True, slots=True)
class InstanceContainer:
    """A running container; what the kernel does not tell is empty, as `instance` is without cgroups.

    `state` is the instance's directory, which may be deleted; None once the shim was killed. `user` has its
    processes: what another one's are called is not believed. `main` is `UNSEEN` where they are in a PID
    namespace that we do not see, or may not be read.
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
    user: int = field(default_factory=os.geteuid)

    @property
    def is_own(self) -> bool:
        """Whether it is of our user, and its processes are to be seen: only then may it be ended."""
        return self.user == os.geteuid() and self.main != UNSEEN

    @property
    def title(self) -> str:
        """`namespace/pod/container`, as far as known."""
        if self.user != os.geteuid():
            return f"process {self.main.pid}"
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
        if self.user != os.geteuid():
            return user_title(self.user)
        return str(self.data_dir or self.state or self.instance or "unknown")


def user_title(user: int) -> str:
    """Return how the user of a process is called in messages."""
    if user == proc.MIXED:
        return "a setuid program"
    if ownership.is_outside(user):
        return "a user outside this user namespace"
    return f"user {user}" if user else "root"


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
    containers: dict[str, InstanceContainer] = {}
    traces = traces or container_search.traces()
    for shim in traces.shims:
        ours = shim.directory.parent.parent == own.state or shim.id in own.ids  # the directory may have moved
        if not ours and (main := container_search.main_process(shim)):
            containers[shim.id] = _of_shim(shim, main, groups)
    for shim in traces.claims:
        if main := container_search.main_process(shim):
            claim = f"process-{main.pid}"
            containers[claim] = InstanceContainer(claim, main, shim=shim.process, user=shim.user)
    for container_id, processes in traces.marked.items():
        if container_id not in containers and container_id not in own.ids:
            containers[container_id] = _of_group(
                container_id, processes[0], container_search.group_of(processes[0].pid, groups)
            )
    taken = {container.group for container in containers.values()} | {group for group in own.groups if group}
    for group in _container_groups(groups, own.instance) if groups else ():
        pids = groups.pids(group) if groups and group not in taken else []
        if pids or (groups and group not in taken and _hides_processes(groups)):
            containers[group] = _of_group(group.replace("/", "-"), _oldest(pids), group)
    states = {each.instance: each.state for each in containers.values() if each.instance and each.state}
    placed = (replace(each, state=each.state or states.get(each.instance)) for each in containers.values())
    others = (each for each in placed if not own.instance or each.instance != own.instance)
    return sorted(others, key=lambda each: (each.owner, each.title))


def _of_shim(shim: Shim, main: Identity, groups: cgroup.Groups | None) -> InstanceContainer:
    group, log = container_search.group_of(main.pid, groups), container_search.log_name(shim)
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
        if instance != excluded and all(map(_is_ours, groups.directories(f"{cgroup.OWN}/{instance}")))
        for uid in groups.children(f"{cgroup.OWN}/{instance}")
        for name in groups.children(f"{cgroup.OWN}/{instance}/{uid}")
    ]


def _hides_processes(groups: cgroup.Groups) -> bool:
    """Whether a group with processes may list none: version 1 leaves those out that have no pid here.

    Version 2 lists them as 0. A group is removed when its container ends, so one that is there counts.
    """
    return groups.version == 1 and proc.in_inner_namespace()


def _is_ours(directory: Path) -> bool:
    """Whether a group is root's or ours, or missing in this hierarchy: others cannot put processes there."""
    with suppress(OSError):
        user = directory.stat().st_uid
        return ownership.is_own(user) or ownership.is_outside(user)
    return True


def _oldest(pids: Iterable[int]) -> Identity:
    processes = [process for pid in pids if (process := proc.identity(pid))]
    return min(processes, key=lambda each: (each.start_ticks, each.pid), default=UNSEEN)


def processes(
    container: InstanceContainer,
    groups: cgroup.Groups | None,
    marked: Mapping[str, Sequence[Identity]] | None = None,
) -> list[int]:
    """Return the living processes of a container: below its shim, in its cgroup, and those with its mark.

    `marked` are those that were just looked for; None looks for them, at all processes.
    """
    marked = container_search.marked() if marked is None else marked
    pids = set()
    if container.shim is not None and proc.is_alive(container.shim):
        pids.update(proc.descendants(container.shim.pid))
    if groups and container.group:
        pids.update(groups.pids(container.group))
    pids.update(process.pid for process in marked.get(container.id, ()))
    living = ((pid, proc.identity(pid)) for pid in pids)
    return sorted(pid for pid, process in living if process and proc.is_alive(process))


def end(
    containers: Sequence[InstanceContainer], groups: cgroup.Groups | None, grace_seconds: float
) -> list[InstanceContainer]:
    """End containers of our user, by SIGTERM to the main processes and after the grace SIGKILL.

    Return what is left.
    """
    assert all(each.is_own for each in containers)
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
    left = [
        container
        for container in (_of_shim(shim, shim.process, None) for shim in shims)
        if is_chosen(container)
    ]
    while (
        any(_lives(container) and not _is_stopped(container) for container in left)
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_SECONDS)
    return [container for container in left if _lives(container)]


def _is_stopped(container: InstanceContainer) -> bool:
    stat = proc.stat(container.main.pid)
    return stat is not None and stat.state in "Tt"


def remove_groups(groups: cgroup.Groups, instances: Iterable[str]) -> list[str]:
    """Remove the cgroups of instances in which nothing runs any more; return their paths."""
    removed = []
    for instance in sorted(set(instances)):
        root = f"{cgroup.OWN}/{instance}"
        if not groups.exists(root):
            continue
        with suppress(cgroup.CgroupError):
            if groups.populated(root):
                for name in groups.children(root):
                    with suppress(cgroup.CgroupError):
                        if not groups.populated(f"{root}/{name}"):
                            groups.delete(f"{root}/{name}")
            else:
                groups.delete(root)
                removed.append(root)
    with suppress(cgroup.CgroupError):
        groups.prune(cgroup.OWN)
    return removed


class OtherContainers:
    """Finds the containers of other instances than the one with this state directory and name."""

    def __init__(self, state: Path, instance: str, groups: cgroup.Groups | None) -> None:
        self._state, self._instance, self._groups = state, instance, groups
        self._known = KnownTraces()

    def find(self, own: Collection[str], own_groups: Collection[str | None]) -> tuple[OtherContainer, ...]:
        """Return the others; `own` are ids and cgroups of this instance's containers. Blocks."""
        mine = Own(self._state, self._instance, own, own_groups)
        traces = self._known.look(own)
        others = running(self._groups, mine, traces)
        seen = [OtherContainer(one.owner, one.title, self._cpus(one, traces), _kind(one)) for one in others]
        listed = {one.main.pid for one in others}
        seen += (one for pid, one in self._beside(traces) if pid not in listed)
        seen += _unseen()
        return tuple(sorted((one for one in seen if one.cpus), key=lambda one: (one.owner, one.title)))

    def _beside(self, traces: Traces) -> Iterator[tuple[int, OtherContainer]]:
        """Yield the processes beside all containers that may not use all CPUs."""
        for process in traces.confined:
            user, cpus = proc.owner(process.pid), proc.allowed(process.pid)
            if cpus and user is not None and not container_search.group_of(process.pid, self._groups):
                owner = user_title(user)
                yield process.pid, OtherContainer(owner, f"process {process.pid}", cpus, "process")

    def _cpus(self, container: InstanceContainer, traces: Traces) -> CPUSet:
        """Return the CPUs of a container: its cgroup's effective set, and those that its tasks may use."""
        if self._groups and container.group:
            try:
                return self._groups.read(container.group).effective
            except (cgroup.CgroupError, ValueError):
                pass
        tasks = proc.tasks_allowed(processes(container, self._groups, traces.marked))
        return CPUSet(cpu for task in tasks for cpu in task.cpus)


def _kind(container: InstanceContainer) -> Kind:
    """Another user's word takes no CPUs from root; between ordinary users, each avoids the other's.

    Outside a user namespace its root is an ordinary user.
    """
    below_root = os.geteuid() == 0 != container.user and not ownership.is_outside(container.user)
    return "claim" if below_root or container.user == proc.MIXED else "container"


def _unseen() -> list[OtherContainer]:
    """Return what stands for processes that are hidden from us, on any CPU; nothing if we see all."""
    everywhere = CPUSet(os.sched_getaffinity(0))
    if proc.in_inner_namespace():
        where = "processes outside this PID namespace"
    elif proc.stat(1) is None:
        where = "processes of other users (/proc is mounted with hidepid)"
    else:
        return []
    return [OtherContainer(where, "what cannot be seen", everywhere, "unseen")]
