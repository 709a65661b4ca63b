"""Groups of ours in cgroup versions 1 and 2: made, set, limited in memory, read back, emptied, removed."""

import errno
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from corelane.cpuset import CPUSet
from corelane.kernel import cfs, container_cgroup, proc
from corelane.kernel.cgroupfs import KERNEL, CgroupError, Files
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView

OWN = "corelane"
"""The first segment of every path of ours."""

Level = Literal["pod", "container"]
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_POLL_SECONDS = 0.005
_CREATE_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings in a group's files. `effective` is what the kernel grants now; v1 has `shares`, v2 `weight`.

    Times in microseconds; `quota_us` None is no limit.
    """

    cpus: CPUSet
    effective: CPUSet
    mems: CPUSet
    shares: int | None
    weight: int | None
    quota_us: int | None
    period_us: int
    burst_us: int = 0


def join(*names: str) -> str:
    """The path of one of our groups from names below `corelane`. Raises ValueError for an impossible name."""
    for name in names:
        if len(name) > 255 or not _SEGMENT.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a cgroup: letters, digits, - and _ only, at most 255")
    return "/".join((OWN, *names))


@lru_cache(maxsize=1024)
def _own(group: str) -> str:
    """The path of a group, if it is one of ours. Raises ValueError."""
    head, *names = group.split("/")
    if head != OWN or any(name in ("", ".", "..") for name in names):
        raise ValueError(f"the cgroup {group!r} is not one of ours: its path does not begin with {OWN}/")
    return group


class Groups(ABC):
    """Our groups in one set of hierarchies.

    `bases` is the directory of each controller below which they lie.
    """

    version: int

    def __init__(self, bases: dict[str, Path], files: Files = KERNEL, lacks: str = "") -> None:
        self.bases = bases
        ordered = sorted(bases, key=lambda controller: controller != "cpuset")
        self._hierarchies = tuple(dict.fromkeys(bases[controller] for controller in ordered))
        self.files = files
        self.lacks = lacks
        """Reason why the memory controller is not among `bases`; empty where it is."""

    # What the versions do differently.

    @abstractmethod
    def _create(self, group: str) -> None:
        """As `create`; may fail if a group above is removed meanwhile."""

    @abstractmethod
    def set_request(self, group: str, milli: int, level: Level) -> None:
        """Set cpu.shares or cpu.weight for a CPU request in milliCPU. Raises CgroupError."""

    # What they do alike.

    @property
    def _view(self) -> CgroupView:
        return CgroupView(self.version, self.bases["cpuset"], self.bases["cpu"], self.files)

    def create(self, group: str) -> None:
        """Make a group and those of ours above it, ready to hold processes. Raises CgroupError.

        Another instance may just be pruning an empty group above: then all is made again.
        """
        for _ in range(_CREATE_ATTEMPTS - 1):
            try:
                self._create(group)
                return
            except CgroupError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
        self._create(group)

    def directories(self, group: str) -> tuple[Path, ...]:
        """The group's directory in every hierarchy, the cpuset's first."""
        return tuple(base / _own(group) for base in self._hierarchies)

    def exists(self, group: str) -> bool:
        return any(directory.is_dir() for directory in self.directories(group))

    def children(self, group: str) -> list[str]:
        """The names of the groups directly below, in whichever hierarchy."""
        below = (self.files.groups(directory) for directory in self.directories(group))
        return sorted({name for names in below for name in names})

    def set_quota(
        self, group: str, quota_us: int | None, period_us: int = cfs.PERIOD_US, burst_us: int = 0
    ) -> None:
        """Set CFS quota, period and burst in microseconds; None removes the quota. Raises CgroupError."""
        target = Bandwidth(quota_us or None, period_us, burst_us)
        container_cgroup.write_bandwidth(self._view, _own(group), target)

    def read(self, group: str) -> GroupSettings:
        """Read the kernel's present value. Raises CgroupError."""
        view, name = self._view, "cpu.shares" if self.version == 1 else "cpu.weight"
        bandwidth, share = (
            container_cgroup.read_bandwidth(view, _own(group)),
            int(self._read(group, "cpu", name)),
        )
        return GroupSettings(
            cpus=container_cgroup.requested(view, group, "cpus") or CPUSet(),
            effective=container_cgroup.effective(view, group, "cpus"),
            mems=container_cgroup.effective(view, group, "mems"),
            shares=share if self.version == 1 else None,
            weight=share if self.version == 2 else None,
            quota_us=bandwidth.quota_us,
            period_us=bandwidth.period_us,
            burst_us=bandwidth.burst_us,
        )

    def set_cpus(self, group: str, cpus: CPUSet) -> None:
        """Set cpuset.cpus. Groups of ours above grow first if they lack any of `cpus`; those below follow.

        Raises CgroupError; ValueError if `cpus` is empty.
        """
        container_cgroup.write_resource(self._view, _own(group), "cpus", cpus, self._above(group))

    def set_mems(self, group: str, mems: CPUSet) -> None:
        """Set cpuset.mems, the memory nodes; as `set_cpus`."""
        container_cgroup.write_resource(self._view, _own(group), "mems", mems, self._above(group))

    def add(self, group: str, pid: int) -> None:
        """Move a process, all its threads included, into the group. Raises CgroupError."""
        for directory in self.directories(group):
            self.files.write(directory / "cgroup.procs", str(pid))

    def pids(self, group: str) -> list[int]:
        """The processes with any thread in the group or one below, in any hierarchy, ascending."""
        pids: set[int] = set()
        for directory in self.directories(group):
            pids.update(self._pids_below(directory))
        return sorted(pids)

    def confined(self, group: str) -> set[int]:
        """The processes with any thread in the group's cpuset or one below."""
        return set(self._pids_below(self.directories(group)[0]))

    def populated(self, group: str) -> bool:
        """Whether a process is in the group or one below, in any hierarchy."""
        name = _own(group)
        return any(True for base in self._hierarchies for _ in self._pids_below(base / name))

    def _pids_below(self, directory: Path) -> Iterable[int]:
        return self._ids_below(directory, "cgroup.procs")

    def _ids_below(self, directory: Path, name: str) -> Iterator[int]:
        try:
            yield from map(int, self.files.read(f"{directory}/{name}").split())
        except CgroupError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
                raise
        for below in self.files.groups(directory):
            yield from self._ids_below(directory / below, name)

    def gather(self, group: str) -> list[int]:
        """Bring back the tasks that were moved out of the group in some of its hierarchies, but not all.

        Returns their ids. Tasks that left all of them are not counted. Raises CgroupError.
        """
        if self.version == 2:
            return []
        inside = {
            directory: set(self._ids_below(directory, "tasks"))
            for directory in self.directories(group)
            if directory.is_dir()  # a group made by an earlier version may lack one
        }
        every = set().union(*inside.values())
        strays = [(directory, task) for directory, tasks in inside.items() for task in sorted(every - tasks)]
        for directory, task in strays:
            try:
                self.files.write(directory / "tasks", str(task))
            except CgroupError as error:
                if error.errno != errno.ESRCH:
                    raise
        return sorted({task for _, task in strays})

    def kill(self, group: str) -> list[int]:
        """Send SIGKILL to every process in the group and below, once; return the pids listed there."""
        return proc.kill_all(lambda: self.pids(group))

    def empty(self, group: str, timeout_seconds: float = 5.0) -> list[int]:
        """Kill until no process is left, blocking; the pids still there after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while (left := self.kill(group)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return left

    def delete(self, group: str, timeout_seconds: float = 1.0) -> None:
        """Remove a group without processes and all groups below it, in every hierarchy; fine if it is gone.

        Waits for processes that are just ending. Raises CgroupError.
        """
        deadline = time.monotonic() + timeout_seconds
        for directory in self.directories(group):
            self._delete_below(directory, deadline)

    def prune(self, group: str) -> None:
        """Remove a group wherever it is empty; a group that has just come into use stays.

        Raises CgroupError.
        """
        for directory in self.directories(group):
            try:
                self.files.rmdir(directory)
            except CgroupError as error:
                if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                    raise

    def _delete_below(self, directory: Path, deadline: float) -> None:
        for name in self.files.groups(directory):
            self._delete_below(directory / name, deadline)
        while True:
            try:
                self.files.rmdir(directory)
                return
            except CgroupError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _directory(self, group: str, controller: str) -> Path:
        return self.bases[controller] / _own(group)

    def _above(self, group: str) -> list[str]:
        """Our groups above this one, the highest first."""
        names = group.split("/")
        return ["/".join(names[:depth]) for depth in range(1, len(names))]

    def _read(self, group: str, controller: str, name: str) -> str:
        return self.files.read(f"{self.bases[controller]}/{_own(group)}/{name}")

    def _write(self, group: str, controller: str, name: str, text: str) -> None:
        self.files.write(self._directory(group, controller) / name, text)


# Memory limits. What a limited group may use includes no swap, as the kubelet has it (NoSwap). The kernel
# rounds a limit down to pages. In version 2 the OOM killer ends all processes of a container at once
# (memory.oom.group), as the kubelet asks for since 1.28; version 1 ends one process.


CONTROLLER: Final = "memory"
_UNLIMITED: Final = 1 << 62
"""Version 1 shows no limit as the largest multiple of a page (2^63 - 4096 bytes)."""


def is_limited(groups: Groups) -> bool:
    """Whether memory limits can be set: the memory controller is among those of the groups."""
    return CONTROLLER in groups.bases


def limit(groups: Groups, group: str) -> int | None:
    """Return a group's memory limit in bytes; None without one. Raises CgroupError."""
    if not is_limited(groups):
        return None
    return _amount(groups, group, "memory.max" if groups.version == 2 else "memory.limit_in_bytes")


def set_limit(groups: Groups, group: str, amount: int | None) -> None:
    """Limit a group's memory to an amount in bytes; None lifts the limit.

    Nothing is written where the controller is not available. Raises CgroupError.
    """
    if not is_limited(groups) or limit(groups, group) == amount:
        return
    if groups.version == 2:
        _write(groups, group, "memory.max", "max" if amount is None else str(amount))
        _write(groups, group, "memory.swap.max", "max" if amount is None else "0", optional=True)
    else:
        # The limit of memory and swap together may not be less than that of memory alone at any time.
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if _grows(groups, group, amount):
            names.reverse()
        for name in names:
            _write(groups, group, name, "-1" if amount is None else str(amount), optional="memsw" in name)


def end_together(groups: Groups, group: str) -> None:
    """Let the OOM killer end a container as a whole, where the kernel can (version 2). Raises CgroupError."""
    if is_limited(groups) and groups.version == 2:
        _write(groups, group, "memory.oom.group", "1", optional=True)


def _grows(groups: Groups, group: str, amount: int | None) -> bool:
    try:
        before = _amount(groups, group, "memory.memsw.limit_in_bytes")
    except CgroupError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return before is not None and (amount is None or amount > before)


def _amount(groups: Groups, group: str, name: str) -> int | None:
    text = groups.files.read(groups.bases[CONTROLLER] / group / name)
    return None if text == "max" or int(text) > _UNLIMITED else int(text)


def _write(groups: Groups, group: str, name: str, text: str, *, optional: bool = False) -> None:
    """`optional`: the kernel may lack the file (swap accounting is off, or the kernel is older)."""
    try:
        groups.files.write(groups.bases[CONTROLLER] / group / name, text)
    except CgroupError as error:
        if not (optional and error.errno == errno.ENOENT):
            raise
