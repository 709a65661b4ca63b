"""A container's whole life under its shim."""
# ruff: noqa: PTH123, SIM105

from __future__ import annotations

import ctypes
import faulthandler
import marshal
import os
import select
import sys
import time

from .log import Log
from .memory import oom_kills
from .outcome import OutcomeRecord
from .processes import descendants, kill_all, members, put, start_ticks
from .signals import signal
from .start import OOM_SCORE, Failed, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Spec = dict[str, Any]

PR_SET_CHILD_SUBREAPER = 36
CHUNK = 65536
LARGEST_PIPE = 1 << 22
KILL_SECONDS = 10.0


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
        found = file.read().strip()
    try:
        put(OOM_SCORE, "-998")
    except OSError:
        pass
    return found


def pipes() -> tuple[dict[str, int], dict[str, int]]:
    """Reading and writing ends of stdout and stderr."""
    ends = {name: os.pipe() for name in ("stdout", "stderr")}
    for reader, _ in ends.values():
        os.set_blocking(reader, False)
    return {name: end[0] for name, end in ends.items()}, {name: end[1] for name, end in ends.items()}


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
