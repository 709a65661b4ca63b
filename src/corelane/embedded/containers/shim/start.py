"""Starting a container's main process: the part that runs between fork and exec."""
# ruff: noqa: PTH110, PTH118, SIM105

from __future__ import annotations

import errno
import os

from .processes import put
from .signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Spec = dict[str, Any]

OOM_SCORE = "/proc/self/oom_score_adj"
ALL_CPUS = range(8192)  # as many as Linux can have; it keeps those that exist and are in the cpuset


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
