"""Descriptors of processes (Linux 5.3): to wait for one, or to signal it, never its pid's next owner."""

import os
import signal

from corelane.kernel import proc
from corelane.kernel.proc import Identity

__all__ = ["open_pidfd", "send"]


def open_pidfd(who: Identity) -> int:
    """A descriptor that becomes readable when the process ends.

    Raises ProcessLookupError if it has ended, and OSError where the kernel has no such descriptors.
    """
    fd = os.pidfd_open(who.pid)
    if proc.identity(who.pid) == who:
        return fd
    os.close(fd)
    raise ProcessLookupError(f"process {who.pid} has ended")


def send(who: Identity, number: int) -> bool:
    """Send a signal; False if the process has ended. Raises PermissionError."""
    try:
        fd = open_pidfd(who)
    except ProcessLookupError:
        return False
    except OSError:
        return _send_by_pid(who, number)
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _send_by_pid(who: Identity, number: int) -> bool:
    if proc.identity(who.pid) != who:
        return False
    os.kill(who.pid, number)
    return True
