"""Containers of local runtimes as the kernel shows them, without a record: shims, processes, cgroups, logs.

A shim of our own user proves itself by the lock of its container's record, which it holds: no other user can
open that. Its command line names the container's directory, its open files the container's log, and the log's
path namespace, pod, UID, container and attempt. A process of a container has the mark `CORELANE_CONTAINER_ID`
in the environment that it was started with.

A process that another user controls can show any name, command line, environment and open files. It is listed
as a claim, and nothing follows from it but a report.
"""

import fcntl
import os
import re
import stat as modes
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from corelane.cpuset import CPUSet
from corelane.kernel import cgroup
from corelane.kernel import proc as kernel_proc
from corelane.kernel.proc import PROC, Identity

MARK: Final = "CORELANE_CONTAINER_ID"
SHIM_NAME: Final = "corelane-shim"
_SETTLING_SECONDS: Final = 1.0
_ENTRY: Final = "from shim.supervise import main"
_LOG: Final = re.compile(
    r"/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/_]+)/(?P<name>[^/]+)/(?P<attempt>\d+)\.log"
    r"( \(deleted\))?$"
)
_GROUP: Final = re.compile(r"/corelane/(?P<group>[^/\n]+/[^/\n]+/[^/\n]+)")


@dataclass(frozen=True, slots=True)
class Shim:
    """A living shim, and the directory of its container's record, which may be deleted by now.

    One of another user than ours may be anything.
    """

    process: Identity
    directory: Path
    user: int = field(default_factory=os.geteuid)

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
    """Return the living shims of our user, of all data directories, of the processes `among` accepts."""
    candidates = (shim_of(pid, proc) for pid in kernel_proc.pids(proc) if among(pid))
    return [shim for shim in candidates if shim and shim.user == os.geteuid()]


def shim_of(pid: int, proc: Path = PROC) -> Shim | None:
    """Return the shim that a process is, or claims to be if another user controls it; None for others."""
    stat = kernel_proc.stat(pid, proc)
    if stat is None or stat.name != SHIM_NAME or stat.state in "ZXx":
        return None
    arguments = command_line(pid, proc)
    user = kernel_proc.owner(pid, proc)
    entry = next((i for i, text in enumerate(arguments) if _ENTRY in text), len(arguments))
    if user is None or len(arguments) < entry + 3:
        return None
    process, named = Identity(pid, stat.start_ticks), Path(arguments[entry + 2])
    if user != os.geteuid():
        return Shim(process, named, user)
    directory = _locked_record(pid, arguments[entry + 3 : entry + 4], named, proc)
    return Shim(process, directory) if directory and kernel_proc.identity(pid, proc) == process else None


def _locked_record(pid: int, descriptor: Collection[str], named: Path, proc: Path) -> Path | None:
    """Return the directory of the record that a process of our user holds locked, where that is now.

    `named` is the directory on its command line; it counts where the record is deleted, or cannot be seen.
    """
    number = next(filter(str.isdecimal, descriptor), "")
    held = kernel_proc.lock_held(pid, int(number), proc) if number else None
    if held is None or held.st_uid != os.geteuid() or modes.S_IMODE(held.st_mode) & 0o077:
        return None
    with suppress(OSError):
        here = (proc / str(pid) / "fd" / number).readlink()
        if os.path.samestat(held, here.stat(follow_symlinks=False)):
            return here.parent
    return named


def main_process(shim: Shim, proc: Path = PROC) -> Identity | None:
    """Return the main process of a shim's container: the session leader that it started first."""
    stats = (kernel_proc.stat(pid, proc) for pid in kernel_proc.children(shim.process.pid, proc))
    leaders = [stat for stat in stats if stat and stat.session == stat.pid and stat.state not in "ZXx"]
    first = min(leaders, key=lambda stat: (stat.start_ticks, stat.pid), default=None)
    return Identity(first.pid, first.start_ticks) if first else None


def unreadable(containers: Path) -> list[Path]:
    """Return the records below a directory whose shims live, but are no processes that can be read from here.

    Their locks are held, and no process shows that it does: they are in another PID or user namespace. A
    process that is being forked, or ends, does not show that for a moment. Raises OSError.
    """
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (hidden := _unreadable_now(containers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return hidden


def _unreadable_now(containers: Path) -> list[Path]:
    locks = {path: lock for path in containers.glob("*/lock") if (lock := _held(path))}
    pids = kernel_proc.pids() if locks else []
    return sorted(
        path.parent for path, lock in locks.items() if not any(kernel_proc.holds(pid, lock) for pid in pids)
    )


def _held(lock: Path) -> os.stat_result | None:
    """Return the file of a lock that a process holds; None if none does."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return None


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
    """Return the processes of our user that carry a mark, oldest first, by container id."""
    by_mark: dict[str, list[Identity]] = defaultdict(list)
    for pid in kernel_proc.pids(proc):
        mark = environment(pid, proc).get(MARK)
        process = kernel_proc.identity(pid, proc) if mark and kernel_proc.is_own(pid, proc) else None
        if mark and process and kernel_proc.is_alive(process, proc):
            by_mark[mark].append(process)
    for processes in by_mark.values():
        processes.sort(key=lambda process: (process.start_ticks, process.pid))
    return dict(by_mark)


@dataclass(frozen=True, slots=True)
class Traces:
    """What shows that containers run: the living shims, and the marked processes by container id.

    Both are of our user. `claims` are processes that look like shims of others, `confined` those that belong
    to no container and may not use all CPUs.
    """

    shims: list[Shim]
    marked: dict[str, list[Identity]]
    claims: list[Shim] = field(default_factory=list)
    confined: list[Identity] = field(default_factory=list)


def traces(proc: Path = PROC) -> Traces:
    """Look at all processes."""
    return KnownTraces(proc).look()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process as it was read; `again`: with the same name the second time, so it has its program."""

    start_ticks: int
    name: str
    shim: Shim | None
    mark: str
    again: bool = False
    stray: bool | None = None
    """Whether it is a program beside all containers; None if that was not asked yet."""

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
        traces = Traces([], defaultdict(list))
        for pid in kernel_proc.pids(self._proc):
            self._look_at(pid, before.get(pid), own, traces)
        for processes in traces.marked.values():
            processes.sort(key=lambda process: (process.start_ticks, process.pid))
        if self._proc is PROC:
            traces.confined.extend(self._confined())
        return traces

    def _look_at(self, pid: int, seen: _Seen | None, own: Collection[str], traces: Traces) -> None:
        share = pid % self._SHARE != self._looks % self._SHARE
        if seen and seen.again and share and seen.is_one_of(own):
            self._seen[pid] = seen
            self._note(traces, Identity(pid, seen.start_ticks), seen, dead=False)
            return
        stat = kernel_proc.stat(pid, self._proc)
        if stat is None:
            return
        if seen is not None and (seen.start_ticks, seen.name) == (stat.start_ticks, stat.name):
            seen = seen if seen.again else replace(seen, again=True)
        else:
            mark = environment(pid, self._proc).get(MARK, "")
            mark = mark if mark and kernel_proc.is_own(pid, self._proc) else ""
            seen = _Seen(stat.start_ticks, stat.name, shim_of(pid, self._proc), mark)
        self._seen[pid] = seen
        self._note(traces, Identity(pid, stat.start_ticks), seen, dead=stat.state in "ZXx")

    def _confined(self) -> Iterator[Identity]:
        """Yield the programs beside all containers that may not use all CPUs, by their main threads."""
        online = _online()
        for pid, seen in self._seen.items():
            if seen.stray is False:
                continue
            try:
                everywhere = os.sched_getaffinity(pid) >= online
            except OSError:
                continue
            if everywhere:
                continue
            if seen.stray is None:
                seen = self._seen[pid] = replace(seen, stray=self._is_stray(pid, seen))
            if seen.stray:
                yield Identity(pid, seen.start_ticks)

    def _is_stray(self, pid: int, seen: _Seen) -> bool:
        """Whether a process is neither a thread of the kernel (a child of process 2) nor below a shim."""
        if seen.mark or seen.shim:
            return False
        stat = kernel_proc.stat(pid, self._proc)
        while stat is not None and stat.ppid:
            stat = kernel_proc.stat(stat.ppid, self._proc)
            if stat is None or (stat.name == SHIM_NAME and shim_of(stat.pid, self._proc)):
                return False
        return stat is not None and stat.name != "kthreadd"

    def _note(self, traces: Traces, process: Identity, seen: _Seen, *, dead: bool) -> None:
        if seen.shim is not None and not dead:
            (traces.shims if seen.shim.user == os.geteuid() else traces.claims).append(seen.shim)
        if seen.mark and (not dead or kernel_proc.is_alive(process, self._proc)):
            traces.marked[seen.mark].append(process)


@dataclass(frozen=True, slots=True)
class Description:
    """Command line, environment and working directory of a process."""

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    working_dir: str = ""


def described(process: Identity, proc: Path = PROC) -> Description:
    """Return what a process of our user says of itself; nothing of one that another user controls.

    It is asked before and after: a program may leave its user meanwhile, another process get its id.
    """
    pid = process.pid
    own = kernel_proc.is_own(pid, proc)
    description = Description(command_line(pid, proc), environment(pid, proc), working_directory(pid, proc))
    still = kernel_proc.is_own(pid, proc) and kernel_proc.identity(pid, proc) == process
    return description if own and still else Description()


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


def group_of(pid: int, groups: cgroup.Groups | None, proc: Path = PROC) -> str:
    """Return the container's cgroup `corelane/INSTANCE/UID/NAME` that a process is in; "" if in none.

    Its path in /proc is a hint: a group of the same name may lie in a hierarchy, or a part of one, that was
    delegated to another user. Where processes are is listed by the group itself.
    """
    if groups is None:
        return ""
    with suppress(OSError, ValueError):
        text = (proc / str(pid) / "cgroup").read_text(errors="replace")
        named = {f"{cgroup.OWN}/{match['group']}" for match in _GROUP.finditer(text)}
        return next((group for group in sorted(named) if pid in groups.pids(group)), "")
    return ""


def started_at(process: Identity, proc: Path = PROC) -> float:
    """Return when a process started, in Unix seconds."""
    lines = (proc / "stat").read_bytes().decode(errors="replace").split("\n")
    booted = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted + process.start_ticks / os.sysconf("SC_CLK_TCK")


def _online() -> frozenset[int]:
    """Return the CPUs of the machine, those of this process where they are not to be seen."""
    try:
        return frozenset(CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip()))
    except (OSError, ValueError):
        return frozenset(os.sched_getaffinity(0))


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
