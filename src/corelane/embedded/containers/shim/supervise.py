"""A container's whole life under its shim: its start, its log, its end, and the record of these."""
# ruff: noqa: PTH102, PTH104, PTH110, PTH112, PTH118, PTH120, PTH123, SIM105

from __future__ import annotations

import ctypes
import errno
import faulthandler
import marshal
import os
import select
import sys
import time

from .processes import descendants, kill_all, members, oom_kills, put, start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn

    Spec = dict[str, Any]
else:  # see `processes`
    import _signal as signal

PR_SET_CHILD_SUBREAPER = 36
CHUNK = 65536
LARGEST_PIPE = 1 << 22
KILL_SECONDS = 10.0
OOM_SCORE = "/proc/self/oom_score_adj"
ALL_CPUS = range(8192)  # as many as Linux can have; it keeps those that exist and are in the cpuset
RECORD_ATTEMPTS = 30
LONGEST_LINE = 16384  # CRI: longer lines are written in parts
DIRECTORIES = 3  # logs/POD/CONTAINER: what lies above them is not ours to make


class ShimProcess:
    """A container that runs: its output is logged, its processes are waited for until the main one ended."""

    def __init__(self, pid: int, log: Log, output: dict[str, int], wakeup: int) -> None:
        self.pid, self.log, self.wakeup = pid, log, wakeup
        self.streams = {fd: name for name, fd in output.items()}
        self.ended: int | None = None
        self.poller = select.poll()
        for fd in (*self.streams, wakeup):
            self.poller.register(fd, select.POLLIN)

    def run(self) -> int:
        """The main process's wait status, as soon as it ended."""
        self.reap()
        while self.ended is None:
            for fd, _ in self.poller.poll():
                if fd == self.wakeup:
                    os.read(fd, CHUNK)
                    self.reap()
                else:
                    self.pump(fd)
        return self.ended

    def pump(self, fd: int) -> bool:
        """Log what a stream has to say; False if that is nothing (more)."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.log.feed(self.streams[fd], data)
        else:
            self.poller.unregister(fd)
            del self.streams[fd]
        return bool(data)

    def reap(self) -> bool:
        """Collect all processes that have ended; False once none is left to wait for."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.ended = status

    def end_rest(self, cgroups: list[str]) -> list[int]:
        """Kill what the main process left behind; what is left after `KILL_SECONDS` may not be ours."""
        deadline = time.monotonic() + KILL_SECONDS
        while True:
            unreaped = self.reap()
            left = kill_all(lambda: remaining(cgroups))
            if not (left or unreaped) or time.monotonic() > deadline:
                return sorted(left)
            self.drain()
            time.sleep(0.002)

    def drain(self) -> None:
        """Log what is in the pipes; with all writers gone that is all there will be."""
        for fd in list(self.streams):
            for _ in range(LARGEST_PIPE // CHUNK):
                if not self.pump(fd):
                    break


def remaining(cgroups: list[str]) -> set[int]:
    """The processes in the container's cgroups, and all that are below the shim."""
    return {pid for directory in cgroups for pid in members(directory)}.union(descendants(os.getpid()))


def detach() -> tuple[int, str]:
    """Become a subreaper that only SIGKILL ends; the fd that SIGCHLD writes to, and the OOM score found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    put("/proc/self/comm", "corelane-shim")
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    return reader, protect()


def protect() -> str:
    """Lower our OOM score as far as allowed, so that the end of the container is recorded."""
    with open(OOM_SCORE) as file:
        score = file.read().strip()
    try:
        put(OOM_SCORE, "-998")
    except OSError:
        pass
    return score


def pipes() -> tuple[dict[str, int], dict[str, int]]:
    """Reading and writing ends of stdout and stderr."""
    ends = {name: os.pipe() for name in ("stdout", "stderr")}
    for reader, _ in ends.values():
        os.set_blocking(reader, False)
    return {name: end[0] for name, end in ends.items()}, {name: end[1] for name, end in ends.items()}


class Failed(Exception):  # noqa: N818 - not an error of the shim
    """A stage of the start that went wrong."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(stage)
        self.stage, self.error = stage, error


def become(spec: Spec, output: dict[str, int], oom_score: str) -> NoReturn:
    """In the child: enter cgroups or take the affinity, then execute the command. Raises Failed."""
    stage = "session"
    try:
        os.setsid()
        stage = "cgroup"
        for directory in spec["cgroups"]:
            put(f"{directory}/cgroup.procs", "0")
        stage = "affinity"
        # What corelane itself is pinned to was inherited, and would narrow the cpuset.
        os.sched_setaffinity(0, ALL_CPUS if spec["cgroups"] else spec["cpus"])
        stage = "chdir"
        os.chdir(spec["working_dir"] or "/")
        stage = "prepare"
        prepare(output, oom_score)
        stage = "exec"
        execute(spec["command"], dict(spec["env"]))
    except OSError as error:
        raise Failed(stage, error) from error
    except ValueError as error:  # a NUL in the command or its environment
        raise Failed(stage, OSError(errno.EINVAL, str(error))) from error


def execute(command: list[str], env: dict[str, str]) -> NoReturn:
    """Execute a command found through PATH; a directory there that we may not read does not hold it."""
    try:
        os.execvpe(command[0], command, env)  # noqa: S606
    except PermissionError:
        places = os.get_exec_path(env) if "/" not in command[0] else [""]
        if any(os.path.exists(os.path.join(place, command[0])) for place in places):
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None


def prepare(output: dict[str, int], oom_score: str) -> None:
    """Give the container a plain process: default signals, no stdin, its output to our pipes."""
    try:
        put(OOM_SCORE, oom_score)
    except OSError:
        pass
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output["stdout"], 1)
    os.dup2(output["stderr"], 2)


def start(spec: Spec, output: dict[str, int], oom_score: str) -> int:
    """Fork the container's main process; its pid once it executes the command. Raises Failed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(spec, output, oom_score)
        except Failed as failed:
            os.write(writer, f"{failed.stage} {failed.error.errno or 0}".encode())
        finally:
            os._exit(127)
    os.close(writer)
    answer = os.read(reader, 100).decode()
    os.close(reader)
    if answer:
        os.waitpid(pid, 0)
        stage, number = answer.split()
        raise Failed(stage, OSError(int(number), os.strerror(int(number))))
    return pid


class OutcomeRecord:
    """status.json, replaced atomically."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "status.json")
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        me = os.getpid()
        self.fields: dict[str, Any] = {
            "version": 1,
            "boot_id": boot,
            "shim_pid": me,
            "shim_ticks": start_ticks(me),
        }

    def write(self, **fields: object) -> None:
        self.fields |= fields
        temporary = f"{self.path}.tmp"
        with open(temporary, "w") as file:
            shown = (  # every string is one of our own plain words
                f'"{key}": "{value}"' if isinstance(value, str) else f'"{key}": {value!r}'
                for key, value in self.fields.items()
            )
            file.write("{" + ", ".join(shown) + "}\n")
            file.flush()
            if fields["state"] != "running":  # nothing that runs outlives the machine
                os.fsync(file.fileno())
        os.rename(temporary, self.path)

    def write_at_last(self, **fields: object) -> None:
        """Write what must not be lost, be the disk full just now; give up once our directory is gone."""
        for _ in range(RECORD_ATTEMPTS):
            try:
                return self.write(**fields)
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(1)
        return None


class Log:
    """A log in CRI's format, `TIME STREAM F|P TEXT`, moved aside to .1, .2 … when it has grown to its size.

    A full disk loses lines, never the container.
    """

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        self.path, self.max_bytes, self.max_files = path, max_bytes, max_files
        self.rest = {"stdout": b"", "stderr": b""}
        self.file = self._open()

    def _open(self) -> int:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.size = os.fstat(file).st_size
        return file

    def feed(self, stream: str, data: bytes) -> None:
        """Log every line that `data` completes."""
        *lines, rest = (self.rest[stream] + data).split(b"\n")
        whole = len(rest) - len(rest) % LONGEST_LINE
        self.rest[stream] = rest[whole:]
        head = _head(stream)
        records = [record for line in lines for record in _records(head, line, b"F")]
        self._write(records + _records(head, rest[:whole], b"P") if whole else records)

    def finish(self) -> None:
        """Log what came without a newline at its end."""
        for stream, rest in self.rest.items():
            self._write(_records(_head(stream), rest, b"P") if rest else [])

    def _write(self, records: list[bytes]) -> None:
        if not records:
            return
        if self.size >= self.max_bytes:
            self._rotate()
        elif not os.fstat(self.file).st_nlink:
            self._reopen()
        try:
            self.size += os.write(self.file, b"".join(records))
        except OSError:
            pass

    def _rotate(self) -> None:
        """Go on in a new file; in the old one, should that fail, until it has grown as much again."""
        self.size = 0
        old = self.file
        try:
            for number in range(self.max_files - 1, 0, -1):
                self._move(f".{number - 1}" if number > 1 else "", f".{number}")
            self.file = self._open()
        except OSError:
            return
        os.close(old)

    def _reopen(self) -> None:
        """Go on in a new file where the log was deleted; in the old one if the data directory was, too."""
        old = self.file
        missing: list[str] = []
        directory = os.path.dirname(self.path)
        while not os.path.isdir(directory) and len(missing) < DIRECTORIES:
            missing.append(directory)
            directory = os.path.dirname(directory)
        try:
            for path in reversed(missing):
                os.mkdir(path, 0o700)
            self.file = self._open()
        except OSError:
            return
        os.close(old)

    def _move(self, old: str, new: str) -> None:
        try:
            os.rename(self.path + old, self.path + new)
        except FileNotFoundError:
            pass


def _head(stream: str) -> bytes:
    """What a record written now begins with."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{moment}.{nanoseconds:09}Z {stream} ".encode()


def _records(head: bytes, line: bytes, tag: bytes) -> list[bytes]:
    """One line as records; all but the last are partial."""
    parts = [line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE)] or [b""]
    return [head + b"P " + part + b"\n" for part in parts[:-1]] + [head + tag + b" " + parts[-1] + b"\n"]


def supervise(spec: Spec, record: OutcomeRecord, report: int) -> None:
    """A container's whole life.

    `spec`: command (list), env (list of pairs), working_dir, cgroups (directories to enter), cpus (list,
    taken where there are no cgroups), log_path, log_bytes (size at which it is moved aside), log_files (how
    many there may be).
    """
    wakeup, oom_score = detach()
    readers, writers = pipes()
    began = time.time()
    try:
        log = Log(spec["log_path"], spec["log_bytes"], spec["log_files"])
        pid = start(spec, writers, oom_score)
    except (Failed, OSError) as error:
        stage, cause = (error.stage, error.error) if isinstance(error, Failed) else ("log", error)
        record.write(state="failed", stage=stage, errno=cause.errno or 0, finished_at=began)
        return
    for fd in writers.values():
        os.close(fd)
    try:
        record.write(state="running", pid=pid, ticks=start_ticks(pid), started_at=began)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # nothing would ever find it again
        raise
    os.close(report)
    container = ShimProcess(pid, log, readers, wakeup)
    status = container.run()
    finished, killed = time.time(), oom_kills(spec["cgroups"])
    left = container.end_rest(spec["cgroups"])
    container.drain()
    log.finish()
    record.write_at_last(
        state="exited", wait_status=status, finished_at=finished, left=left, oom_kills=killed
    )


def main() -> None:
    if os.fork():
        os._exit(0)  # reparented to init: corelane need not wait for us, and may end at any time
    faulthandler.enable()  # to shim.err
    directory, lock, report = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for fd in (lock, report):
        os.set_inheritable(fd, False)
    spec: Spec = marshal.load(sys.stdin.buffer)  # noqa: S302 - from the corelane that started us
    os.chdir("/")
    supervise(spec, OutcomeRecord(directory), report)
