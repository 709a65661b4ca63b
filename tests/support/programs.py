"""Programs that a test starts and ends: bounded waits, and a log that a failure quotes."""

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest


class Program:
    """A started program; it ends with the test, also where the test is killed."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log, self.name = log, Path(str(command[0])).name
        # A killed pytest must not leave servers behind.
        watched = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
        with log.open("ab") as out:
            self.process = subprocess.Popen(watched, stdout=out, stderr=out, start_new_session=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120) -> None:
        """Send a signal and wait for the end; SIGKILL after so many seconds."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            return
        self.process.kill()
        self.process.wait(30)

    def wait_until(self, ready: Callable[[], object], seconds: float) -> None:
        """Wait until `ready` returns something true; fail with the log where the program ends before."""
        deadline = time.monotonic() + seconds
        while not _value(ready):
            if self.process.poll() is not None:
                pytest.fail(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                pytest.fail(f"{self.name} is not ready after {seconds:g} s:\n{self.tail()}")
            time.sleep(0.2)


def _value(ready: Callable[[], object]) -> object:
    try:
        return ready()
    except OSError:
        return False


def wait_for(what: str, value: Callable[[], object], seconds: float = 180) -> object:
    """Return the first true value; fail, naming `what`, where there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := value()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s; last value: {answer!r}")
        time.sleep(0.2)
    return answer


def free_port() -> int:
    """A TCP port on loopback that nothing listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
