"""Starting a shim, which then starts the container. Blocks until the container runs or has failed."""

import marshal
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from corelane.embedded.containers import shim
from corelane.embedded.containers.enforce import mark
from corelane.embedded.containers.records import ContainerRecord, RecordStore, ShimOutcome
from corelane.runtime.base import ContainerSpec

_TIMEOUT_SECONDS = 60.0
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR")
_OF_SHIM = ("PATH", "LD_LIBRARY_PATH")
"""What Python may need to start."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LaunchError(Exception):
    """The shim itself came to nothing."""


def environment(spec: ContainerSpec, container_id: str) -> list[tuple[str, str]]:
    """The environment of an image (here: a few variables of corelane's own), then that of the spec."""
    own = {"PATH": _DEFAULT_PATH, **_inherited(_INHERITED), "HOSTNAME": spec.pod, **dict(spec.env)}
    name, _, value = mark(container_id).partition("=")
    return [*own.items(), (name, value)]


def _inherited(names: Iterable[str]) -> dict[str, str]:
    """Nothing else of corelane's environment, with its options and secrets, reaches shim or container."""
    return {name: value for name in names if (value := os.environ.get(name)) is not None}


def launch(state: RecordStore, stored: ContainerRecord, log_bytes: int, log_files: int) -> ShimOutcome:
    """Start the container in a shim of its own, and return what the shim recorded.

    Raises LaunchError, OSError.
    """
    stored.log.parent.mkdir(parents=True, exist_ok=True)
    spec = stored.spec
    instructions = {
        "command": list(spec.command),
        "env": environment(spec, stored.id),
        "working_dir": spec.working_dir,
        "cgroups": list(stored.directories),
        "cpus": list(spec.cpus),
        "log_path": str(stored.log),
        "log_bytes": log_bytes,
        "log_files": log_files,
    }
    _run(state, stored.id, marshal.dumps(instructions))
    outcome = state.outcome(stored.id)
    if outcome is None:
        raise LaunchError(state.complaint(stored.id) or "the shim ended without a word")
    return outcome


def _run(state: RecordStore, container_id: str, instructions: bytes) -> None:
    """Start a shim that holds the container's lock, and wait until it closes its end of the report pipe."""
    lock = state.supervise(container_id)
    reader, writer = os.pipe()
    try:
        try:
            process = _spawn(state.directory(container_id), lock, writer)
        finally:
            os.close(writer)
        process.communicate(instructions)
        if not _closed(reader):
            _give_up(process)
    finally:
        os.close(reader)
        os.close(lock)


def _closed(reader: int) -> bool:
    poller = select.poll()
    poller.register(reader)
    return bool(poller.poll(_TIMEOUT_SECONDS * 1000))


def _spawn(directory: Path, lock: int, report: int) -> subprocess.Popen[bytes]:
    home = str(Path(shim.__file__).parent.parent)
    python = [sys.executable, "-I", "-S", "-c", shim.COMMAND, home]
    with (directory / "shim.err").open("wb") as complaints:
        return subprocess.Popen(
            [*python, str(directory), str(lock), str(report)],
            stdin=subprocess.PIPE,
            stdout=complaints,
            stderr=complaints,
            pass_fds=(lock, report),
            env=_inherited(_OF_SHIM),
            start_new_session=True,
        )


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """The shim has left our process tree, but is still in the process group that we gave it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    raise LaunchError(f"the shim did not start the container within {_TIMEOUT_SECONDS:.0f} s")
