"""Standard streams that are closed, full or non-blocking: a command ends as it would, or by one line.

Python raises in the middle of a command, or ends with status 120 when it flushes for the last time. Here a
command runs to its end, and output that was lost is reported then. Only a pipe without a reader ends a
command, as SIGPIPE would. What cannot be written to stderr is dropped.
"""

from __future__ import annotations

import errno
import faulthandler
import io
import os
import select
import sys
from typing import Any, Final, TextIO

import click

from corelane.cli._errors import text_for_users

_STDOUT: Final = 1
_STDERR: Final = 2
LOST: Final = 2
"""Exit status where stdout took less than was printed."""
BROKEN_PIPE: Final = 1
"""As click has it."""


class _Descriptor(io.FileIO):
    """A descriptor for writing that drops what cannot be written, and keeps the latest error."""

    error: OSError | None = None
    is_log = False
    """Output may be lost without consequences, and is tried again."""

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.error is not None and not self.is_log:
            return size
        try:
            while (written := super().write(data)) is None:
                poll = select.poll()
                poll.register(self.fileno(), select.POLLOUT)
                poll.poll()
        except OSError as error:
            first, self.error = self.error is None, error
            if first and error.errno == errno.EPIPE and self.name == "stdout":
                raise
            return size
        return written


_descriptors: dict[str, _Descriptor] = {}


def prepare() -> None:
    """Replace standard streams that are closed, and Python's own for writing; let a crash leave a trace.

    A file that is opened while a standard descriptor is closed gets its number, and with it what is printed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if not faulthandler.is_enabled():
        faulthandler.enable(_STDERR)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False))
    if sys.stdout is sys.__stdout__:
        sys.stdout = _writer(_STDOUT, "stdout", sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _writer(_STDERR, "stderr", sys.stderr)


def _writer(number: int, name: str, before: TextIO | None) -> TextIO:
    descriptor = _descriptors[name] = _Descriptor(number, "w", closefd=False)
    descriptor.name, descriptor.is_log = name, number == _STDERR
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(descriptor))
    at_once = bool(before.line_buffering or getattr(before, "write_through", False))
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor), before.encoding, before.errors, line_buffering=at_once
    )


def treat_stdout_as_log() -> None:
    """Let a daemon run, and end with its own status, though nothing more can be printed."""
    for descriptor in _descriptors.values():
        descriptor.is_log = True


def status_after(status: Any) -> Any:
    """Flush; return the exit status of a command that would end with this one, and report lost output."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptor = _descriptors.get("stdout")
    if descriptor is None or descriptor.error is None or descriptor.is_log:
        return status
    error = descriptor.error
    if error.errno == errno.EPIPE:
        return status or BROKEN_PIPE
    if status in (None, 0, 1):  # Others have printed what is wrong.
        click.echo(f"Error: {text_for_users(OSError(error.errno, error.strerror, 'stdout'))}", err=True)
    return LOST
