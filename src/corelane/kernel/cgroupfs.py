"""The few operations that cgroup file systems know, and what their errors mean.

A cgroup file answers a bad write with a bare errno; `CgroupError` names file, errno and the reason behind it.
"""

import errno
import os
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 16
_SHORT = 2048
"""A read returns less only at the end: records are short, and a page of them is gathered (fs/seq_file.c)."""

_MEANING: dict[tuple[str, int], str] = {
    (
        "cpuset.cpus",
        errno.EACCES,
    ): "the group above does not have all of these CPUs, or writing is not permitted",
    (
        "cpuset.cpus",
        errno.EINVAL,
    ): "some of these CPUs do not exist, are offline, or belong to an exclusive sibling",
    ("cpuset.cpus", errno.EBUSY): "a group below still uses CPUs that would be taken away",
    ("cpuset.cpus", errno.ENOSPC): "the group has processes and would be left without a CPU",
    ("cpuset.cpus", errno.ERANGE): "some of these CPUs are beyond the highest CPU id of this kernel",
    (
        "cpuset.mems",
        errno.EACCES,
    ): "the group above does not have all of these memory nodes, or writing is not permitted",
    ("cpuset.mems", errno.EINVAL): "some of these memory nodes do not exist or have no memory",
    ("cpuset.mems", errno.EBUSY): "a group below still uses memory nodes that would be taken away",
    ("cpuset.mems", errno.ENOSPC): "the group has processes and would be left without a memory node",
    ("cpu.shares", errno.EINVAL): "the group is SCHED_IDLE (cpu.idle is 1), which has no shares",
    ("cpu.weight", errno.EINVAL): "the group is SCHED_IDLE (cpu.idle is 1), which has no weight",
    ("cpu.weight", errno.ERANGE): "a weight lies between 1 and 10000",
    (
        "cpu.cfs_quota_us",
        errno.EINVAL,
    ): "less than 1 ms, or more than the group above may use, or less than one below has",
    (
        "cpu.cfs_period_us",
        errno.EINVAL,
    ): "a period lies between 1 ms and 1 s, and a quota may not exceed the group above",
    (
        "cpu.max",
        errno.EINVAL,
    ): "a period lies between 1 ms and 1 s, a quota is at least 1 ms and not less than the burst",
    ("cpu.max.burst", errno.ENOENT): "this kernel has no CFS burst (Linux 5.14 or later); use burst 0",
    ("cpu.cfs_burst_us", errno.ENOENT): "this kernel has no CFS burst (Linux 5.14 or later); use burst 0",
    ("cpu.max.burst", errno.EINVAL): "a burst may not exceed the quota",
    ("cpu.cfs_burst_us", errno.EINVAL): "a burst may not exceed the quota",
    ("memory.limit_in_bytes", errno.EBUSY): "more memory is in use than the limit",
    (
        "memory.limit_in_bytes",
        errno.EINVAL,
    ): "not an amount of bytes, or more than memory.memsw.limit_in_bytes",
    ("memory.memsw.limit_in_bytes", errno.EBUSY): "more memory and swap are in use than the limit",
    ("memory.memsw.limit_in_bytes", errno.EINVAL): "less than memory.limit_in_bytes",
    ("cgroup.procs", errno.ESRCH): "the process has ended",
    ("cgroup.procs", errno.ENOSPC): "the group has no CPUs or no memory nodes yet (cpuset.cpus, cpuset.mems)",
    (
        "cgroup.procs",
        errno.EBUSY,
    ): "the group hands controllers to groups below, so it may hold no process itself",
    (
        "cgroup.procs",
        errno.EINVAL,
    ): "a kernel thread, or a real-time process and the group has no real-time budget",
    ("cgroup.procs", errno.EOPNOTSUPP): "the group is threaded, or lies below a threaded one",
    (
        "cgroup.subtree_control",
        errno.EBUSY,
    ): "processes live in this group, so it cannot hand controllers to groups below;"
    " start them in a group of their own (systemd: Delegate=yes with DelegateSubgroup=)",
    (
        "cgroup.subtree_control",
        errno.ENOENT,
    ): "the controller is not handed down to this group, or a v1 hierarchy holds it",
    ("mkdir", errno.EAGAIN): "cgroup.max.descendants or cgroup.max.depth is reached",
    ("mkdir", errno.ENOSPC): "the kernel has no more ids for groups of this hierarchy",
    ("rmdir", errno.EBUSY): "processes or groups are still in it",
}
_GENERAL = {
    errno.ENOENT: "no such group, or its controller is not enabled",
    errno.ENODEV: "the group was removed",
    errno.EACCES: "writing there is not permitted to this user",
    errno.EPERM: "writing there is not permitted to this user",
    errno.EROFS: "the cgroup file system is mounted read-only; mount it read-write",
    errno.EMFILE: "this process has too many open files; raise its limit (LimitNOFILE, ulimit -n)",
    errno.ENFILE: "the machine has too many open files; raise fs.file-max",
}


class CgroupError(OSError):
    """The kernel refused an operation on a cgroup; `path` and `errno` say where and what."""

    errno: int

    def __init__(self, action: str, path: Path, error: OSError) -> None:
        number = error.errno or 0
        name = errno.errorcode.get(number, str(number))
        super().__init__(number, f"cannot {action} {path}: {name}: {_meaning(action, path, error)}")
        self.path = path

    def __str__(self) -> str:
        return str(self.strerror)


class CgroupGone(CgroupError):  # noqa: N818 - a state, often not an error
    """The group does not exist (any more): its container has ended."""


class CgroupsUnavailable(Exception):  # noqa: N818 - a state, often not an error
    """No hierarchy with the needed controllers can be written; the message gives the cause for each place."""


def _meaning(action: str, path: Path, error: OSError) -> str:
    """Our own explanation where the error brings one, else what the kernel means by it."""
    number = error.errno or 0
    if error.strerror and error.strerror != os.strerror(number):
        return error.strerror
    about = {"create": "mkdir", "remove": "rmdir"}.get(action, path.name)
    return _MEANING.get((about, number)) or _GENERAL.get(number) or os.strerror(number)


class Files(Protocol):
    """The operations; tests put a directory with the kernel's rules in the kernel's place."""

    def read(self, path: Path | str) -> str:
        """The text of an interface file, stripped. Raises CgroupError."""

    def write(self, path: Path, text: str) -> None:
        """Write an interface file, which must exist. Raises CgroupError."""

    def mkdir(self, path: Path) -> bool:
        """Make one group; False if it was there. Raises CgroupError."""

    def rmdir(self, path: Path) -> bool:
        """Remove one group; False if it was gone. Raises CgroupError."""

    def groups(self, path: Path) -> list[str]:
        """The names of the groups directly below; empty when the group is gone."""


class _Kernel:
    """The kernel's own file systems."""

    def read(self, path: Path | str) -> str:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = chunk = os.read(file, _CHUNK)
                while len(chunk) >= _SHORT:
                    chunk = os.read(file, _CHUNK)
                    text += chunk
            finally:
                os.close(file)
        except OSError as error:
            raise CgroupError("read", Path(path), error) from error
        return text.decode().strip()

    def write(self, path: Path, text: str) -> None:
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
        except OSError as error:
            raise CgroupError(f"write {text!r} to", path, error) from error

    def mkdir(self, path: Path) -> bool:
        try:
            path.mkdir()
        except FileExistsError:
            return False
        except OSError as error:
            raise CgroupError("create", path, error) from error
        return True

    def rmdir(self, path: Path) -> bool:
        try:
            path.rmdir()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise CgroupError("remove", path, error) from error
        return True

    def groups(self, path: Path) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CgroupError("list", path, error) from error


KERNEL: Files = _Kernel()
