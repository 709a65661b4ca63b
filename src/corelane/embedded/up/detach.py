"""`corelane up --detach`: start corelane in the background, and return once it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from corelane.embedded.up import datadir, log_file

_READY_FD: Final = "CORELANE_READY_FD"
"""Environment variable of the background process: its parent, and the descriptor on which it reports that it
is ready."""
_LOG_FILE: Final = "CORELANE_BACKGROUND_LOG"
"""Environment variable with the path of the background process's log."""
_CRASH: Final = "Fatal Python error: "
_TRACE: Final = ("Thread 0x", "Current thread", "  ", "Extension modules: ")
"""How the lines of a crash's trace begin, after the first one."""
_TRACE_BYTES: Final = 64 << 10


def main(arguments: Sequence[str], data_dir: Path, say: Callable[[str], None]) -> int:
    """Start `corelane` with these arguments in a session of its own; return 0 once it serves.

    That process has the same options, from arguments and environment, and is `in_background`: there,
    --detach has no effect, and no module of the current directory, which may be another user's, is loaded
    (-P). If it ends before, print what it printed, and return its exit status.
    Raises DataDirError, OSError.
    """
    missing = [one for one in (data_dir, *data_dir.parents) if not one.exists()]
    datadir.make(data_dir)
    path = (data_dir / log_file.NAME).resolve()
    crash = last_crash(path)
    log_file.make_room(path)
    reader, writer = os.pipe()
    with path.open("a+b") as log, os.fdopen(reader) as ready:
        offset = log.tell()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "corelane", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                env={**os.environ, _READY_FD: f"{os.getpid()}:{writer}", _LOG_FILE: str(path)},
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            welcome = ready.read()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            _remove(path, missing)
            raise
        if not welcome:
            status = process.wait()
            log.seek(offset)
            printed = log.read().decode(errors="replace").rstrip()
            say(printed or _without_output(status, path, log.fileno()))
            _remove(path, missing)
            return status or 1
    note = f"\n  note: the run before crashed ({crash}); its trace is in the log" if crash else ""
    say(f"{welcome}\n  pid {process.pid}, log {path}{note}")
    return 0


def _remove(log: Path, made: Sequence[Path]) -> None:
    """Remove the directories made for a run that did not start, if nothing but its log is there."""
    if made:
        log.unlink(missing_ok=True)
    for directory in made:
        with suppress(OSError):  # gone already, or another's file is there: then its parents stay, too
            directory.rmdir()


def last_crash(log: Path) -> str:
    """Return what crashed the run that wrote the end of a log; "" where it ended otherwise."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TRACE_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line]
    while lines and lines[-1].startswith(_TRACE):
        lines.pop()
    return lines[-1].removeprefix(_CRASH) if lines and lines[-1].startswith(_CRASH) else ""


def _without_output(status: int, path: Path, descriptor: int) -> str:
    """Return the message for a start that failed, with a log that has no word of it."""
    free = os.fstatvfs(descriptor).f_bavail
    cause = "" if free else f"; no space is left on the file system of {path}: free some"
    return f"Error: corelane up ended before it was ready, with status {status} and without output{cause}"


def in_background() -> bool:
    """Whether `main` started this process, which did not report yet."""
    return _report_pipe() is not None


def _report_pipe() -> int | None:
    """Return the descriptor on which to report; None where the variable is not from `main` for us."""
    parent, _, descriptor = os.environ.get(_READY_FD, "").partition(":")
    return int(descriptor) if parent == str(os.getppid()) and descriptor.isdecimal() else None


def log_path() -> Path | None:
    """Return the log to which `main` sent stdout and stderr of this process; None if it did not start it."""
    path = os.environ.pop(_LOG_FILE, "")
    if not in_background():
        os.environ.pop(_READY_FD, None)
        return None
    return Path(path) if path else None


def report_ready(welcome: str) -> None:
    """Report to `main`, if this process was started by it, that it serves."""
    descriptor = _report_pipe()
    os.environ.pop(_READY_FD, None)
    if descriptor is not None:
        with os.fdopen(descriptor, "w") as ready:
            ready.write(welcome)
