"""What Ctrl-C does while no command runs: it ends the process silently."""

import os
import signal
from types import FrameType


def end_on_interrupt() -> None:
    """Let SIGINT end the process at once with status 130: there is nothing to clean up yet.

    A signal that is ignored, as in the background of a shell without job control, stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Undo `end_on_interrupt`: SIGINT raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(128 + signal.SIGINT)
