"""Processes of a container, from /proc and from cgroups, and how many of them the OOM killer ended."""
# ruff: noqa: PTH110, PTH123, PTH208

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
else:  # without its enumerations, which would take 0.9 MB in the shim of every container
    import _signal as signal


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def children(pid: int) -> list[int]:
    """The children of all threads of a process.

    On kernels that do not list them, by a look at all processes.
    """
    pids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                pids.extend(map(int, file.read().split()))
    except OSError:
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return children_by_parent(pid)
    return pids


def children_by_parent(pid: int) -> list[int]:
    pids = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            pids.append(int(entry))
    return pids


def descendants(pid: int) -> list[int]:
    pids = children(pid)
    for child in pids:  # which grows meanwhile
        pids.extend(children(child))
    return pids


def members(directory: str) -> list[int]:
    """The processes in a cgroup and the groups below it."""
    pids: list[int] = []
    for path, _, _ in os.walk(directory):
        try:
            with open(f"{path}/cgroup.procs") as file:
                pids.extend(map(int, file.read().split()))
        except OSError:
            pass
    return pids


def put(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def kill_all(processes: Callable[[], Iterable[int]]) -> set[int]:
    """Send SIGKILL to the processes that `processes` lists; return those listed last.

    As `kernel.proc.kill_all`: never to a process that merely got the pid of a listed one.
    """
    before = {pid: ticks_or_none(pid) for pid in processes()}
    listed = set(processes()) if before else set()
    for pid in listed:
        if before.get(pid) is not None:
            kill(pid, before[pid])
    return listed


def ticks_or_none(pid: int) -> int | None:
    try:
        return start_ticks(pid)
    except OSError:
        return None


def kill(pid: int, ticks: int | None) -> None:
    """Send SIGKILL, if this is still the process that was started then."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # this kernel has none (before Linux 5.3), or there are too many open files
        descriptor = None
    try:
        if ticks_or_none(pid) != ticks:
            return
        if descriptor is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        if descriptor is not None:
            os.close(descriptor)


def oom_kills(cgroups: Iterable[str]) -> int:
    """Return how many processes of a container the OOM killer has ended; 0 where that is not counted.

    Version 2 counts those of groups below as well (memory.events), version 1 those of each group alone
    (memory.oom_control, since Linux 4.13). The kernel counts before it sends SIGKILL.
    """
    for directory in cgroups:
        if (count := counted(f"{directory}/memory.events")) is not None:
            return count
        if counted(f"{directory}/memory.oom_control") is not None:
            counts = (counted(f"{path}/memory.oom_control") for path, _, _ in os.walk(directory))
            return sum(count or 0 for count in counts)
    return 0


def counted(path: str) -> int | None:
    try:
        with open(path) as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return None
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
