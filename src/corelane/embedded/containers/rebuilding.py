"""Records of running containers that are lost or unreadable, rebuilt from what the kernel shows.

The process goes on as it is. What the kernel cannot tell (the pod's manifest, the command as it was ordered,
how a process ended) is named. A state directory that is a copy of another one (`cp -a`) is recognised before
anything is adopted: it has the records of the original's containers, and its instance name, which is part of
their cgroups' names, so that two owners would adopt, move and end the same processes.
"""

import os
import re
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.embedded.containers import container_search
from corelane.embedded.containers.container_search import LogName, Shim
from corelane.embedded.containers.records import (
    LOCK_SECONDS,
    ContainerRecord,
    RecordStore,
    ShimOutcome,
    StateInUse,
)
from corelane.kernel import cfs, cgroup, cgroup_tree, ownership, proc
from corelane.kernel.cgroup import CgroupError
from corelane.kernel.proc import Identity
from corelane.runtime.base import ContainerSpec

_OURS: Final = (container_search.MARK, "HOSTNAME")
_SETTLED_SECONDS: Final = 2.0
"""A shim records within milliseconds that its container runs; later the record is lost."""


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A container with processes: its id, its main process, and its shim and log where they are there."""

    id: str
    main: Identity
    shim: Shim | None = None
    log: LogName | None = None


def live_containers(store: RecordStore, groups: cgroup.Groups | None) -> dict[str, LiveContainer]:
    """Return the running containers of a state directory by id: those of its shims, and in its cgroups.

    A process whose shim was killed is known by its mark; it is of this directory if it has a record there or
    is in a cgroup of this instance. Shims and marks are believed of our own user alone: see
    `container_search`.
    """
    containers: dict[str, LiveContainer] = {}
    for shim in container_search.shims():
        main = container_search.main_process(shim) if shim.directory.parent == store.containers else None
        if main is not None:
            containers[shim.id] = LiveContainer(shim.id, main, shim, container_search.log_name(shim))
    recorded = set(store.ids())
    for container_id, processes in container_search.marked().items():
        group = container_search.group_of(processes[0].pid, groups)
        ours = container_id in recorded or (group and group.split("/")[1] == store.instance)
        if container_id not in containers and ours and re.fullmatch(r"[0-9a-f]{8,64}", container_id):
            containers[container_id] = LiveContainer(container_id, processes[0])
    return containers


def rebuild(store: RecordStore, groups: cgroup.Groups | None) -> list[str]:
    """Rebuild the records that are missing or damaged, and return a sentence for each. Raises OSError."""
    live = live_containers(store, groups)
    if groups is not None:
        live |= _without_mark(store, groups, live)
    ids = set(store.ids())
    damaged = {container_id for container_id in ids if store.faults(container_id)}
    missing = {container_id for container_id, one in live.items() if _lacks_record(store, one)}
    wrong = {container_id for container_id, one in live.items() if _contradicts(store, one)}
    for container_id in wrong:
        store.set_aside(container_id, ["status.json"])
    rebuilt = [_rebuild_one(store, groups, one, live.get(one)) for one in sorted((damaged | missing) - wrong)]
    return rebuilt + [_rebuild_one(store, groups, one, live[one], wrong=True) for one in sorted(wrong)]


def _contradicts(store: RecordStore, live: LiveContainer) -> bool:
    """Whether a readable record says that a container has ended whose main process is there.

    A shim records the end when no process is left, but those that it names. One in another PID namespace
    records pids that name other processes here.
    """
    outcome = store.outcome(live.id)
    if outcome is None or not proc.is_alive(live.main):
        return False
    if outcome.state == "running" and live.shim and outcome.shim != live.shim.process:
        return True
    if outcome.boot_id != proc.boot_id() or (outcome.pid == live.main.pid and outcome.main != live.main):
        return True
    left_by_shim = live.shim is None or live.main.pid in outcome.left
    return outcome.state != "running" and (outcome.main == live.main or not left_by_shim)


def _lacks_record(store: RecordStore, live: LiveContainer) -> bool:
    if store.load(live.id) is None:
        return True
    if store.outcome(live.id) is not None:
        return False
    return time.time() - container_search.started_at(live.main) > _SETTLED_SECONDS  # else it is just starting


def _without_mark(
    store: RecordStore, groups: cgroup.Groups, live: Mapping[str, LiveContainer]
) -> dict[str, LiveContainer]:
    """Return containers of this instance's cgroups that have neither record nor mark, with a new id."""
    records = (store.load(container_id) for container_id in store.ids())
    taken = {record.group for record in records if record}
    taken |= {container_search.group_of(one.main.pid, groups) for one in live.values()}
    found = {}
    root = cgroup.join(store.instance)
    for uid in groups.children(root):
        for name in groups.children(f"{root}/{uid}"):
            group = f"{root}/{uid}/{name}"
            pids = [] if group in taken else groups.pids(group)
            processes = [process for pid in pids if (process := proc.identity(pid))]
            if processes:
                first = min(processes, key=lambda one: (one.start_ticks, one.pid))
                new = secrets.token_hex(16)
                found[new] = LiveContainer(new, first)
    return found


def _rebuild_one(
    store: RecordStore,
    groups: cgroup.Groups | None,
    container_id: str,
    live: LiveContainer | None,
    *,
    wrong: bool = False,
) -> str:
    """Return what was rebuilt; `wrong` for a status that was readable, but not that of the process."""
    faults = store.faults(container_id)
    store.set_aside(container_id, faults)
    record = store.load(container_id)
    if live is None:
        return _ended(store, container_id, record, _files(faults))
    lost = ""
    if record is None:
        record = _record(store, groups, live)
        store.save(record)
        request = "that of its cgroup" if record.spec.cpu_shares_milli else "unknown"
        what = (
            "environment and CPUs are those that the process has now"
            if container_search.described(live.main).command
            else "and environment are unknown, as the process is not of this user alone"
        )
        lost = f"; command, {what}, the CPU request is {request}, the pod's manifest is lost"
    if store.outcome(container_id) is None:
        store.save_outcome(container_id, _running(live))
    what = f"{_files(faults)} unreadable" if faults else "record missing"
    if wrong:
        what = f"{_files([*faults, 'status.json'])} not that of the running process"
    return (
        f"{_title(record, container_id)}: {what}, rebuilt from process {live.main.pid}, which goes on{lost}"
    )


def _ended(store: RecordStore, container_id: str, record: ContainerRecord | None, files: str) -> str:
    if record is not None and store.outcome(container_id) is None:
        ended = ShimOutcome(boot_id=proc.boot_id(), shim_pid=0, shim_ticks=0, state="running")
        store.save_outcome(container_id, ended)
    what = f"{_title(record, container_id)}: {files} unreadable, and no process of it is left"
    return f"{what}; exit code unknown" if record else f"{what}; record dropped"


def _files(names: Sequence[str]) -> str:
    return " and ".join(names)


def _title(record: ContainerRecord | None, container_id: str) -> str:
    if record is None:
        return f"container {container_id}"
    return f"container {record.spec.namespace}/{record.spec.pod}/{record.spec.name} ({container_id})"


def _running(live: LiveContainer) -> ShimOutcome:
    shim = live.shim.process if live.shim else Identity(0, 0)
    return ShimOutcome(
        boot_id=proc.boot_id(),
        shim_pid=shim.pid,
        shim_ticks=shim.start_ticks,
        state="running",
        pid=live.main.pid,
        ticks=live.main.start_ticks,
        started_at=container_search.started_at(live.main),
    )


def _record(store: RecordStore, groups: cgroup.Groups | None, live: LiveContainer) -> ContainerRecord:
    group = container_search.group_of(live.main.pid, groups)
    seen = container_search.described(live.main)
    settings = _settings(groups, group)
    cpus = settings.cpus if settings and settings.cpus else _affinity(live)
    spec = ContainerSpec(
        **_names(live, group, seen.environment.get("HOSTNAME", "")),
        command=seen.command or ("unknown",),
        env=tuple((name, value) for name, value in seen.environment.items() if name not in _OURS),
        working_dir=seen.working_dir,
        cpus=cpus,
        cpu_shares_milli=_milli(settings),
        quota_us=settings.quota_us if settings else None,
        period_us=settings.period_us if settings else cfs.PERIOD_US,
        burst_us=settings.burst_us if settings else 0,
        memory_limit=_memory_limit(groups, group),
    )
    return ContainerRecord(
        id=live.id,
        spec=spec,
        created_at=container_search.started_at(live.main),
        log=live.log.path if live.log else store.log_path(spec),
        group=group or None,
        directories=tuple(map(str, groups.directories(group))) if groups and group else (),
    )


def _names(live: LiveContainer, group: str, host: str) -> Mapping[str, Any]:
    """Return namespace, pod, UID, container and attempt: by the log, else by cgroup and host name."""
    if log := live.log:
        return {
            "pod_uid": log.uid,
            "namespace": log.namespace,
            "pod": log.pod,
            "name": log.name,
            "attempt": log.attempt,
        }
    uid, name = group.split("/")[2:4] if group else (live.id, "container")
    pod = host if re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,240}[a-z0-9])?", host) else f"unknown-{live.id[:8]}"
    return {"pod_uid": uid, "namespace": "default", "pod": pod, "name": name, "attempt": 0}


def _settings(groups: cgroup.Groups | None, group: str) -> cgroup.GroupSettings | None:
    if groups is None or not group:
        return None
    try:
        return groups.read(group)
    except (CgroupError, ValueError):
        return None


def _memory_limit(groups: cgroup.Groups | None, group: str) -> int:
    """Return the memory limit of a cgroup in bytes, 0 without one."""
    if groups is None or not group:
        return 0
    try:
        return cgroup_tree.limit(groups, group) or 0
    except (CgroupError, ValueError):
        return 0


def _affinity(live: LiveContainer) -> CPUSet:
    """Return the CPUs on which the main process's tasks may run; those of this process if it is just gone."""
    tasks = proc.tasks_allowed([live.main.pid])
    return CPUSet(cpu for task in tasks for cpu in task.cpus) or CPUSet(os.sched_getaffinity(0))


def _milli(settings: cgroup.GroupSettings | None) -> int:
    """Return the CPU request by cpu.shares (cgroup v1), rounded up as shares round down; 0 for unknown."""
    if settings is None or settings.shares is None or settings.shares <= cfs.MIN_SHARES:
        return 0
    return -(-settings.shares * 1000 // 1024)


def name_instance(store: RecordStore, hierarchies: cgroup.Groups | None = None) -> list[str]:
    """Give a directory whose instance's name is lost the name by which its cgroups are known, else a new one.

    Return a sentence about a name that was lost. Raises OSError.
    """
    records = (store.load(container_id) for container_id in store.ids())
    groups = [record.group for record in records if record and record.group]
    for shim in container_search.shims():
        main = container_search.main_process(shim) if shim.directory.parent == store.containers else None
        if main is not None:
            groups.append(container_search.group_of(main.pid, hierarchies))
    names = Counter(group.split("/")[1] for group in groups if group.count("/") >= 2)
    if store.instance and (store.instance in names or not names):
        return []
    lost = bool(store.instance) or os.path.lexists(store.root / "instance") or bool(names)
    store.set_instance(names.most_common(1)[0][0] if names else "")
    if not lost:
        return []
    source = "by the cgroups of its containers" if names else "new, as no container is known"
    return [f"{store.root / 'instance'}: missing or wrong, written again: {store.instance} ({source})"]


def check_no_copy(store: RecordStore) -> None:
    """Raise StateInUse if containers recorded here were started from another directory that is still there.

    The shims name the directory that they were started with: it is ours, or gone if ours was moved. Also if
    containers run whose processes cannot be read: their pids name other processes here, or none.
    """
    recorded = set(store.ids())
    if not recorded:
        return
    if hidden := container_search.unreadable(store.containers):
        raise StateInUse(
            f"{store.root}: {len(hidden)} of its containers run in another PID or user namespace, or their "
            f"processes cannot be read ({hidden[0].name}); start corelane there, or end them there with "
            "corelane down"
        )
    theirs = [
        shim.directory
        for shim in container_search.shims()
        if shim.id in recorded and _is_another(shim.directory, store.directory(shim.id))
    ]
    if theirs:
        original, number = theirs[0].parent.parent, len(theirs)
        count, them = (
            ("1 container still runs", "it") if number == 1 else (f"{number} containers run", "them")
        )
        raise StateInUse(
            f"{store.root}: a copy of {original}, of which {count}; use the original, or end {them}"
            f"{_ended_by(original)}, or start the copy without {them}: rm -r {_quoted(store.root)}"
        )


def _ended_by(state: Path) -> str:
    """Return the command that ends containers of a state directory, where it has a data directory's place."""
    is_of_node = len(state.parts) > 3 and state.parts[-3] == "nodes"
    return f" (corelane down --data-dir {_quoted(state.parents[2])})" if is_of_node else ""


def _is_another(directory: Path, ours: Path) -> bool:
    try:
        return not directory.samefile(ours)
    except OSError:
        return False


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def check_name(store: RecordStore) -> None:
    """Raise StateInUse if a process of our user has another state directory with our instance's name open.

    Such a process holds the lock of that directory, which no other user can open.
    """
    deadline = time.monotonic() + LOCK_SECONDS  # a child of a killed process may hold it until it execs
    while (other := _other_owner(store)) is not None:
        if time.monotonic() > deadline:
            pid, directory = other
            raise StateInUse(
                f"{store.root}: the instance name {store.instance} is in use by another corelane (process "
                f"{pid}) with {directory}: one directory is a copy of the other; stop that process, and "
                f"use one of them{_remedy(store)}"
            )
        time.sleep(0.02)


def _remedy(store: RecordStore) -> str:
    """Return how to start a directory anew that is the copy; "" if containers of it run."""
    if any(map(store.is_supervised, store.ids())):
        return ""
    return f"; if this is the copy: rm -r {_quoted(store.root)}"


def _other_owner(store: RecordStore) -> tuple[int, Path] | None:
    """Return a process of our user that has another directory with this name open, and that directory."""
    for pid in filter(proc.is_own, proc.pids()):
        for descriptor in proc.descriptors(pid):
            directory = _state_directory(pid, descriptor)
            if directory and not store.is_at(directory) and _name(directory) == store.instance:
                return pid, directory
    return None


def _state_directory(pid: int, descriptor: int) -> Path | None:
    """Return the state directory whose lock a process holds by a descriptor."""
    with suppress(OSError):
        path = (proc.PROC / str(pid) / "fd" / str(descriptor)).readlink()
        if path.name == "lock" and (held := proc.lock_held(pid, descriptor)):
            return path.parent if os.path.samestat(held, path.stat()) else None
    return None


def _name(directory: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return ownership.read(directory / "instance").decode().strip()
    return ""
