"""What the kernel shows of a soak's pods, read from /proc and cgroup file systems without corelane's code."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
MARK: Final = "SOAK_CONTAINER"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SETTLED: Final = 5.0
"""Seconds after which a process has called exec if it ever will: until then its environment may change."""


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """A process: its start time in clock ticks since boot, and its id."""

    ticks: int
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} (started at tick {self.ticks})"


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none of a process that is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def identity(pid: int) -> Identity | None:
    """Return the identity of a process that lives."""
    fields = _fields(pid)
    return Identity(int(fields[19]), pid) if fields and fields[0] not in "ZXx" else None


def cpu_seconds(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def memory_mb(pid: int) -> float:
    fields = _fields(pid)
    return int(fields[21]) * _PAGE / 1e6 if fields else 0.0


def descriptors(pid: int) -> int:
    return sum(1 for _ in (PROC / str(pid) / "fd").iterdir())


def threads(pid: int) -> int:
    return sum(1 for _ in (PROC / str(pid) / "task").iterdir())


def pids() -> list[int]:
    return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list as Linux writes it, such as 0-3,8."""
    ranges = (part.partition("-") for part in text.strip().split(",") if part.strip())
    return frozenset(cpu for low, _, high in ranges for cpu in range(int(low), int(high or low) + 1))


def allowed(pid: int) -> frozenset[int]:
    """Return the CPUs on which any thread of a process may run."""
    found: set[int] = set()
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                lines = (task / "status").read_text().splitlines()
                found |= cpu_list(
                    next(line for line in lines if line.startswith("Cpus_allowed_list")).partition(":")[2]
                )
    return frozenset(found)


class Containers:
    """Processes that carry this soak's mark: `RUN/POD/CONTAINER` in the environment of each."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._names: dict[Identity, str] = {}

    def mark(self, pod: str, container: str) -> str:
        return f"{self.run}/{pod}/{container}"

    def processes(self) -> dict[str, list[Identity]]:
        """Return the living processes of every container (`POD/CONTAINER`), the main one first."""
        found = defaultdict(list)
        known = {}
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for pid in pids():
            process = identity(pid)
            if process is None:
                continue
            name = self._names.get(process)
            if name is None:
                name = self._name(pid)
                if not name and now - process.ticks / _TICKS < _SETTLED:
                    continue
            known[process] = name
            if name:
                found[name].append(process)
        self._names = known
        return {name: sorted(processes) for name, processes in found.items()}

    def _name(self, pid: int) -> str:
        try:
            strings = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        mark = f"{MARK}={self.run}/".encode()
        return next((text[len(mark) :].decode() for text in strings if text.startswith(mark)), "")


def shims(data: Path) -> list[int]:
    """Return the processes that name a directory below `data` in their command line, but this one."""
    return [pid for pid in pids() if pid != os.getpid() and str(data).encode() in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def instance_of(pid: int) -> str:
    """Return the name after `corelane/` in a process's cgroups."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "cgroup").read_text().splitlines():
            _, separator, rest = line.partition("/corelane/")
            if separator:
                return rest.split("/")[0]
    return ""


def directories(root: Path) -> Iterator[Path]:
    """Yield all directories below `root`; those that vanish meanwhile are left out."""
    for parent, names, _ in os.walk(root):
        yield from (Path(parent, name) for name in names)


def files(root: Path) -> Iterator[Path]:
    """Yield all files below `root`, likewise."""
    for parent, _, names in os.walk(root):
        yield from (Path(parent, name) for name in names)


def groups(instances: set[str]) -> Iterator[Path]:
    """Yield corelane/INSTANCE in every mounted cgroup hierarchy, and the directories below it."""
    for root in _hierarchies():
        for path in directories(root):
            inside = path.relative_to(root).parts
            if any(one == "corelane" and name in instances for one, name in pairwise(inside)):
                yield path


def _hierarchies() -> list[Path]:
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [Path(fields[1]) for fields in lines if fields[2] in ("cgroup", "cgroup2")]


def mounts(directory: Path) -> list[str]:
    """Return the mounts of this process's namespace that name a directory."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(directory) in line]
