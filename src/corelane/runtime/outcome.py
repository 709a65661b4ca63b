"""How a container fares: from what was ordered and what its shim wrote to what is said of it."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corelane.cpuset import CPUSet
from corelane.kernel import proc
from corelane.runtime.base import ContainerSpec, ContainerState, ContainerStatus, RuntimeFailure

__all__ = ["UNKNOWN_EXIT", "Outcome", "Stored", "failure", "status"]

Known = dict[str, Any]

UNKNOWN_EXIT = 255
_NEVER = "its shim ended before it could start it"
_LOST = "nobody saw it end: its shim was killed"
_ORPHAN = "its shim was killed: it goes on, but its exit code will not be known"
_REBOOT = "the machine was restarted while it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One container as ordered. `group` is its cgroup, None where affinity alone holds it.

    `previous` is what it was pinned to before a change that is (or was, at a crash) under way.
    """

    id: str
    spec: ContainerSpec
    created_at: float
    log: Path
    group: str | None = None
    directories: tuple[str, ...] = ()
    previous: CPUSet | None = None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the shim wrote; see there."""

    boot_id: str
    shim_pid: int
    shim_ticks: int
    state: Literal["running", "failed", "exited"]
    pid: int = 0
    ticks: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    wait_status: int = 0
    stage: str = ""
    errno: int = 0
    left: tuple[int, ...] = ()

    @property
    def main(self) -> proc.Identity:
        return proc.Identity(self.pid, self.ticks)

    @property
    def shim(self) -> proc.Identity:
        return proc.Identity(self.shim_pid, self.shim_ticks)


def status(stored: Stored, outcome: Outcome | None, *, supervised: bool, boot_id: str) -> ContainerStatus:
    """What is to be said of a container, from what is on record and whether its shim lives."""
    if outcome is None:
        return (
            _status(stored, "created")
            if supervised
            else _status(stored, "exited", exit_code=128, message=_NEVER)
        )
    if outcome.state == "failed":
        failed = failure(stored, outcome)
        end: Known = {
            "exit_code": failed.exit_code,
            "finished_at": outcome.finished_at,
            "message": failed.message,
        }
        return _status(stored, "exited", **end)
    seen: Known = {"pid": outcome.pid, "started_at": outcome.started_at}
    if outcome.state == "exited":
        return _status(stored, "exited", **seen, **_end(outcome))
    if supervised:
        return _status(stored, "running", **seen)
    if outcome.boot_id == boot_id and proc.is_alive(outcome.main):
        return _status(stored, "running", **seen, message=_ORPHAN)
    message = _LOST if outcome.boot_id == boot_id else _REBOOT
    return _status(stored, "exited", **seen, exit_code=UNKNOWN_EXIT, message=message)


def _status(stored: Stored, state: ContainerState, **known: Any) -> ContainerStatus:
    spec = stored.spec
    identity: Known = {"id": stored.id, "pod_uid": spec.pod_uid, "name": spec.name, "attempt": spec.attempt}
    return ContainerStatus(**identity, state=state, **known)


def _end(outcome: Outcome) -> Known:
    killed = os.WTERMSIG(outcome.wait_status) if os.WIFSIGNALED(outcome.wait_status) else None
    code = 128 + killed if killed else os.waitstatus_to_exitcode(outcome.wait_status)
    left = (
        f"could not kill processes {', '.join(map(str, outcome.left))} that it left" if outcome.left else ""
    )
    return {"exit_code": code, "signal": killed, "finished_at": outcome.finished_at, "message": left}


def failure(stored: Stored, outcome: Outcome) -> RuntimeFailure:
    """A start that failed, in the words of Kubernetes and its runtimes."""
    command, why = stored.spec.command[0], os.strerror(outcome.errno).lower()
    if outcome.stage == "exec":
        missing = outcome.errno in (errno.ENOENT, errno.ENOTDIR)
        if missing and "/" not in command:
            why = "executable file not found in $PATH"
        return RuntimeFailure("StartError", f'exec: "{command}": {why}', 127 if missing else 126)
    if outcome.stage == "chdir":
        return RuntimeFailure("StartError", f'working directory "{stored.spec.working_dir}": {why}', 128)
    return RuntimeFailure("RunContainerError", f"{outcome.stage}: {why}", 128)
