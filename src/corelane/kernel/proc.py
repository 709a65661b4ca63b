"""Processes as /proc shows them: identity (despite reused pids), descendants, allowed CPUs.

Everything takes `proc`, the directory that plays /proc. A process that ends while it is read is left out,
never an error.
"""

import os
import random
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corelane.cpuset import CPUSet
from corelane.kernel import files

PROC = Path("/proc")
MIXED = -1
"""Stands for the user of a process whose uids differ."""
_DEAD = "ZXx"
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's name of the first PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for good: a pid is used again, but not with this start time (clock ticks since boot)."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/PID/stat that are needed; `state` is the kernel's letter."""

    pid: int
    name: str
    state: str
    ppid: int
    session: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class TaskAffinity:
    """The CPUs that the kernel lets one task (thread) run on."""

    pid: int
    tid: int
    cpus: CPUSet


# Paths below are text: these files are read hundreds of times a second, and pathlib costs more than the read.


def _read(path: str) -> str | None:
    """The text of a /proc file, or None once its process is gone or hidden from us."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return files.read_all(fd).decode(errors="replace")
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _ids(directory: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def boot_id(proc: Path = PROC) -> str:
    """The kernel's random name for this boot; identities of another boot mean nothing in this one."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def in_inner_namespace() -> bool:
    """Whether there may be processes outside this process's PID namespace, which have no pid here."""
    try:
        return str((PROC / "self/ns/pid").readlink()) != _FIRST_NAMESPACE
    except OSError:
        return False


def pids(proc: Path = PROC) -> list[int]:
    """Every process, ascending."""
    return _ids(str(proc))


def stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """Return the state of a process; None when there is none."""
    text = _read(f"{proc}/{pid}/stat")
    return None if text is None else _parse_stat(text)


def _parse_stat(text: str) -> ProcessStat:
    """The name stands in parentheses and may hold any character, so the last ends it (proc_pid_stat(5))."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return ProcessStat(int(pid), name, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def identity(pid: int, proc: Path = PROC) -> Identity | None:
    """The identity of the process that has this pid now; None when there is none."""
    process = stat(pid, proc)
    return None if process is None else Identity(process.pid, process.start_ticks)


def is_alive(process: Identity, proc: Path = PROC) -> bool:
    """Whether that very process still has a thread that runs; one that only waits to be reaped has not."""
    current = stat(process.pid, proc)
    if current is None or current.start_ticks != process.start_ticks:
        return False
    return current.state not in _DEAD or any(
        _task_lives(process.pid, tid, proc) for tid in tasks(process.pid, proc)
    )


def _task_lives(pid: int, tid: int, proc: Path) -> bool:
    text = _read(f"{proc}/{pid}/task/{tid}/stat")
    return text is not None and _parse_stat(text).state not in _DEAD


def owner(pid: int, proc: Path = PROC) -> int | None:
    """Return the user of a process: real, effective, saved and file-system uid are the same one.

    `MIXED` where they differ, as of a setuid program; None once it is gone.
    """
    text = _read(f"{proc}/{pid}/status")
    uids = (_field(text, "Uid") or "").split() if text else []
    if not uids:
        return None
    return int(uids[0]) if len(set(uids)) == 1 else MIXED


def is_own(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is of our user alone: what it says (command line, environment) is our own word."""
    return owner(pid, proc) == os.geteuid()


def lock_held(pid: int, descriptor: int, proc: Path = PROC) -> os.stat_result | None:
    """Return the file that a process holds locked (flock) by a descriptor; None if it holds none by that.

    /proc/PID/fdinfo lists the locks of an open file. No other program can show such a line for our file:
    it would have to open it. Source: proc_pid_fdinfo(5).
    """
    info = _read(f"{proc}/{pid}/fdinfo/{descriptor}")
    if info is None or re.search(r"^lock:.* FLOCK .* WRITE ", info, re.MULTILINE) is None:
        return None
    try:
        return os.stat(f"{proc}/{pid}/fd/{descriptor}")  # noqa: PTH116 - as above
    except OSError:
        return None


def descriptors(pid: int, proc: Path = PROC) -> list[int]:
    """Return the open file descriptors of a process, ascending; none if they may not be read."""
    return _ids(f"{proc}/{pid}/fd")


def holds(pid: int, file: os.stat_result, proc: Path = PROC) -> bool:
    """Whether a process holds this very file locked."""
    held = (lock_held(pid, descriptor, proc) for descriptor in descriptors(pid, proc))
    return any(handle is not None and os.path.samestat(handle, file) for handle in held)


def tasks(pid: int, proc: Path = PROC) -> list[int]:
    """The ids of all threads of a process, ascending; the process's own pid is the first thread's."""
    return _ids(f"{proc}/{pid}/task")


def allowed(pid: int, tid: int | None = None, proc: Path = PROC) -> CPUSet | None:
    """Cpus_allowed_list of a task (by default the main thread); None once it has ended."""
    text = _read(f"{proc}/{pid}/task/{tid or pid}/status")
    if text is None:
        return None
    cpus = _field(text, "Cpus_allowed_list")
    return CPUSet.parse(cpus) if cpus is not None and (_field(text, "State") or "?")[0] not in _DEAD else None


def _field(status: str, name: str) -> str | None:
    """The value of a field of /proc/PID/status that is not its first one."""
    _, label, rest = status.partition(f"\n{name}:\t")
    return rest.partition("\n")[0] if label else None


def tasks_allowed(
    processes: Iterable[int], proc: Path = PROC, *, most: int | None = None
) -> list[TaskAffinity]:
    """Return the affinity of the living tasks of these processes, of `most` chosen at random.

    A sample takes the same number of tasks from each process, in random order, and may then miss some.
    """
    chosen = list(processes)
    if most is None:
        return list(_affinities(((pid, tid) for pid in chosen for tid in tasks(pid, proc)), proc))
    random.shuffle(chosen)
    chosen = chosen[:most]
    each = most // max(len(chosen), 1)
    sampled = ((pid, tid) for pid in chosen for tid in _some(tasks(pid, proc), each))
    return list(_affinities(sampled, proc))


def _some(ids: list[int], most: int) -> list[int]:
    return random.sample(ids, most) if len(ids) > most else ids


def _affinities(ids: Iterable[tuple[int, int]], proc: Path) -> Iterator[TaskAffinity]:
    for pid, tid in ids:
        if (cpus := allowed(pid, tid, proc)) is not None:
            yield TaskAffinity(pid, tid, cpus)


def children(pid: int, proc: Path = PROC) -> list[int]:
    """The processes that any thread of this one has for children."""
    return (
        _children_listed(pid, proc) if _lists_children(pid, proc) else _children_by_parent(proc).get(pid, [])
    )


def descendants(pid: int, proc: Path = PROC) -> list[int]:
    """Children, their children and so on, parents first, without `pid` itself.

    A process whose parent ended is its nearest subreaper's child, so below a subreaper no process is lost.
    What forks while it is listed may be missed: a caller that must have them all looks again until nothing
    new turns up.
    """
    if _lists_children(pid, proc):
        return list(_walk(pid, lambda parent: _children_listed(parent, proc)))
    table = _children_by_parent(proc)
    return list(_walk(pid, lambda parent: table.get(parent, [])))


def _walk(pid: int, children_of: Callable[[int], list[int]]) -> Iterator[int]:
    seen, todo = {pid}, [pid]
    while todo:
        new = [child for child in children_of(todo.pop(0)) if child not in seen]
        seen.update(new)
        todo.extend(new)
        yield from new


def _lists_children(pid: int, proc: Path) -> bool:
    """Whether this kernel lists children (CONFIG_PROC_CHILDREN), so that not all of /proc need be read."""
    return os.access(f"{proc}/{pid}/task/{pid}/children", os.F_OK)


def _children_listed(pid: int, proc: Path) -> list[int]:
    lists = (_read(f"{proc}/{pid}/task/{tid}/children") for tid in tasks(pid, proc))
    return [int(child) for text in lists for child in (text or "").split()]


def _children_by_parent(proc: Path) -> dict[int, list[int]]:
    table: dict[int, list[int]] = {}
    for process in _all(proc):
        table.setdefault(process.ppid, []).append(process.pid)
    return table


def bearing(variable: str, proc: Path = PROC) -> list[int]:
    """Every process of our user that was started with this `NAME=value` in its environment.

    Wherever its parent is; another user's can have any environment.
    """
    text = f"\0{variable}\0"
    bearers = (pid for pid in pids(proc) if text in f"\0{_read(f'{proc}/{pid}/environ')}\0")
    return [pid for pid in bearers if is_own(pid, proc)]


def _all(proc: Path) -> Iterator[ProcessStat]:
    return (process for pid in pids(proc) if (process := stat(pid, proc)) is not None)


def open_pidfd(process: Identity) -> int:
    """A descriptor that becomes readable when the process ends.

    Raises ProcessLookupError if it has ended, and OSError where the kernel has no such descriptors.
    """
    fd = os.pidfd_open(process.pid)
    if identity(process.pid) == process:
        return fd
    os.close(fd)
    raise ProcessLookupError(f"process {process.pid} has ended")


def send(process: Identity, number: int) -> bool:
    """Send a signal; False if the process has ended. Raises PermissionError."""
    try:
        fd = open_pidfd(process)
    except ProcessLookupError:
        return False
    except OSError:
        if identity(process.pid) != process:
            return False
        os.kill(process.pid, number)
        return True
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def kill_all(processes: Callable[[], Iterable[int]]) -> list[int]:
    """Send SIGKILL to the processes that `processes` lists; return those listed last.

    A pid may be used again at any time. So the identity of each process is read between two listings: who has
    it before and after the second is the process that was listed. What is new in that waits for another call.
    Processes of other users, which may not be killed, are left out.
    """
    before = {pid: identity(pid) for pid in processes()}
    listed = list(processes()) if before else []
    for pid in listed:
        process = before.get(pid)
        if process is not None:
            with suppress(PermissionError):
                send(process, signal.SIGKILL)
    return listed
