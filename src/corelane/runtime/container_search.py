"""Containers of local runtimes as the kernel shows them, without a record: shims, processes, cgroups, logs.

A shim's command line names its container's directory, its open files the container's log, and the log's path
namespace, pod, UID, container and attempt. A process of a container has the mark `CORELANE_CONTAINER_ID` in
the environment that it was started with.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corelane.kernel import proc as kernel_proc
from corelane.kernel.proc import PROC, Identity

MARK: Final = "CORELANE_CONTAINER_ID"
SHIM_NAME: Final = "corelane-shim"
_ENTRY: Final = "from shim.supervise import main"
_LOG: Final = re.compile(
    r"/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/_]+)/(?P<name>[^/]+)/(?P<attempt>\d+)\.log"
    r"( \(deleted\))?$"
)
_GROUP: Final = re.compile(r"/corelane/(?P<group>[^/\n]+/[^/\n]+/[^/\n]+)")


@dataclass(frozen=True, slots=True)
class Shim:
    """A living shim, and the directory of its container's record, which may be deleted by now."""

    process: Identity
    directory: Path

    @property
    def id(self) -> str:
        """Id of the container."""
        return self.directory.name


@dataclass(frozen=True, slots=True)
class LogName:
    """What the path of a container's log says; see `RecordStore.log_path`."""

    path: Path
    namespace: str
    pod: str
    uid: str
    name: str
    attempt: int


def shims(proc: Path = PROC, *, among: Callable[[int], bool] = lambda _: True) -> list[Shim]:
    """Return the living shims on this machine, of all data directories, of the processes `among` accepts."""
    return [found for pid in kernel_proc.pids(proc) if among(pid) and (found := shim_of(pid, proc))]


def shim_of(pid: int, proc: Path = PROC) -> Shim | None:
    """Return the shim that a process is, None if it is another program or has ended."""
    stat = kernel_proc.stat(pid, proc)
    if stat is None or stat.name != SHIM_NAME or stat.state in "ZXx":
        return None
    arguments = command_line(pid, proc)
    entry = next((i for i, text in enumerate(arguments) if _ENTRY in text), len(arguments))
    if len(arguments) < entry + 3:
        return None
    return Shim(Identity(pid, stat.start_ticks), Path(arguments[entry + 2]))


def main_process(shim: Shim, proc: Path = PROC) -> Identity | None:
    """Return the main process of a shim's container: the session leader that it started first."""
    stats = (kernel_proc.stat(pid, proc) for pid in kernel_proc.children(shim.process.pid, proc))
    leaders = [one for one in stats if one and one.session == one.pid and one.state not in "ZXx"]
    first = min(leaders, key=lambda one: (one.start_ticks, one.pid), default=None)
    return Identity(first.pid, first.start_ticks) if first else None


def log_name(shim: Shim, proc: Path = PROC) -> LogName | None:
    """Return the log that a shim writes; None where its open files cannot be read."""
    for target in _links(proc / str(shim.process.pid) / "fd"):
        if match := _LOG.search(target):
            part = match.groupdict()
            path = Path(target.removesuffix(" (deleted)"))
            return LogName(
                path, part["namespace"], part["pod"], part["uid"], part["name"], int(part["attempt"])
            )
    return None


def marked(proc: Path = PROC) -> dict[str, list[Identity]]:
    """Return the processes that carry a mark, oldest first, by container id."""
    found: dict[str, list[Identity]] = defaultdict(list)
    for pid in kernel_proc.pids(proc):
        mark = environment(pid, proc).get(MARK)
        process = kernel_proc.identity(pid, proc) if mark else None
        if mark and process and kernel_proc.is_alive(process, proc):
            found[mark].append(process)
    for processes in found.values():
        processes.sort(key=lambda process: (process.start_ticks, process.pid))
    return dict(found)


@dataclass(frozen=True, slots=True)
class Traces:
    """What shows that containers run: the living shims, and the marked processes by container id."""

    shims: list[Shim]
    marked: dict[str, list[Identity]]


def traces(proc: Path = PROC) -> Traces:
    """Look at all processes."""
    return Traces(shims(proc), marked(proc))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process as it was read; `again`: with the same name the second time, so it has its program."""

    start_ticks: int
    name: str
    shim: Shim | None
    mark: str
    again: bool = False

    def is_one_of(self, own: Collection[str]) -> bool:
        """Whether it belongs to no container, or to one of `own`."""
        return (not self.mark or self.mark in own) and (self.shim is None or self.shim.id in own)


class KnownTraces:
    """As `traces`, again and again: of a process that was looked at before, only its state is read.

    Command line and environment change with a new program only, and so does the name, but for a program that
    starts one of its own name: so every `_EVERY` looks all is read again. The state of processes that belong
    to no container, or to a known one, is read every `_SHARE` looks, a part of them in each: all that can
    have happened is that another process got the id.
    """

    _EVERY: Final = 30
    _SHARE: Final = 5

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._seen: dict[int, _Seen] = {}
        self._looks = 0

    def look(self, own: Collection[str] = ()) -> Traces:
        """Look at all processes. `own`: ids of containers whose processes may be listed after they ended."""
        before, self._seen = self._seen if self._looks % self._EVERY else {}, {}
        self._looks += 1
        found = Traces([], defaultdict(list))
        for pid in kernel_proc.pids(self._proc):
            seen = before.get(pid)
            if seen and seen.again and pid % self._SHARE != self._looks % self._SHARE and seen.is_one_of(own):
                self._seen[pid] = seen
                self._note(found, Identity(pid, seen.start_ticks), seen, dead=False)
                continue
            stat = kernel_proc.stat(pid, self._proc)
            if stat is None:
                continue
            if seen is not None and (seen.start_ticks, seen.name) == (stat.start_ticks, stat.name):
                seen = seen if seen.again else replace(seen, again=True)
            else:
                mark = environment(pid, self._proc).get(MARK, "")
                seen = _Seen(stat.start_ticks, stat.name, shim_of(pid, self._proc), mark)
            self._seen[pid] = seen
            self._note(found, Identity(pid, stat.start_ticks), seen, dead=stat.state in "ZXx")
        for processes in found.marked.values():
            processes.sort(key=lambda process: (process.start_ticks, process.pid))
        return found

    def _note(self, found: Traces, process: Identity, seen: _Seen, *, dead: bool) -> None:
        if seen.shim is not None and not dead:
            found.shims.append(seen.shim)
        if seen.mark and (not dead or kernel_proc.is_alive(process, self._proc)):
            found.marked[seen.mark].append(process)


def environment(pid: int, proc: Path = PROC) -> dict[str, str]:
    """Return the environment with which a process was started; empty where it cannot be read."""
    pairs = (text.partition("=") for text in _strings(proc / str(pid) / "environ"))
    return {name: value for name, separator, value in pairs if separator and name}


def command_line(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """Return a process's command line as it is now; empty where it cannot be read."""
    return tuple(_strings(proc / str(pid) / "cmdline"))


def working_directory(pid: int, proc: Path = PROC) -> str:
    """Return a process's working directory; empty where it cannot be read."""
    with suppress(OSError):
        return str((proc / str(pid) / "cwd").readlink())
    return ""


def group_of(pid: int, proc: Path = PROC) -> str:
    """Return the container's cgroup `corelane/INSTANCE/UID/NAME` that a process is in; "" if in none."""
    with suppress(OSError):
        if match := _GROUP.search((proc / str(pid) / "cgroup").read_text(errors="replace")):
            return f"corelane/{match['group']}"
    return ""


def started_at(process: Identity, proc: Path = PROC) -> float:
    """Return when a process started, in Unix seconds."""
    lines = (proc / "stat").read_text().splitlines()
    booted = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted + process.start_ticks / os.sysconf("SC_CLK_TCK")


def _strings(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.removesuffix("\0").split("\0") if text else []


def _links(directory: Path) -> Iterator[str]:
    with suppress(OSError):
        for link in sorted(directory.iterdir()):
            with suppress(OSError):
                yield str(link.readlink())
