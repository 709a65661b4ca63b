"""Every container's records in files, from which a restarted runtime adopts it, and the status they mean.

    STATE/instance              the runtime's own name, made once; it is part of the names of its cgroups
    STATE/lock                  held by the runtime that uses STATE
    STATE/containers/ID/        spec.json (ours), status.json (the shim's), lock (held while the shim lives),
                                shim.err
    STATE/logs/NS_POD_UID/NAME/ATTEMPT.log

The records must survive corelane's own death, not the machine's; so they are replaced atomically, but not
fsynced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec

from corelane.cpuset import CPUSet
from corelane.kernel import cfs, ownership, proc
from corelane.kernel.files import write_atomic
from corelane.runtime.base import ContainerSpec, ContainerState, RuntimeFailure, RuntimeStatus

LOCK_SECONDS = 1.0
_WRITING_SECONDS = 60.0


class StateInUse(RuntimeError):  # noqa: N818 - a state
    """Another process has this state directory."""


def _encode(value: object) -> object:
    if isinstance(value, CPUSet | Path):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if kind is CPUSet:
        return CPUSet.parse(value)
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError(kind)


class RecordStore:
    """The state directory, ours alone until closed. Raises StateInUse, OSError.

    What is read here becomes commands of this user: no other may be able to write it (UntrustedPath).
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.containers = self.root / "containers"
        self.logs = self.root / "logs"
        self.replaced: list[str] = []
        """Files in place of a directory, or the reverse, that were renamed at the start, a sentence each."""
        ownership.make(self.root)
        for directory in (self.containers, self.logs):
            self._replace(directory, unless=Path.is_dir)
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            ownership.check(directory)
        self._replace(self.root / "lock", unless=lambda path: path.is_file() and not path.is_symlink())
        # If our predecessor was killed while it forked, its child still holds the lock for a moment.
        deadline = time.monotonic() + LOCK_SECONDS
        while (lock := _lock(self.root / "lock")) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._lock = lock
        if self._lock is None:
            raise StateInUse(
                f"{self.root}: another corelane uses this directory; stop it, or give another one"
            )
        self._remove_temporary()
        self.instance = self._read_instance()
        """Name of this directory's owner; "" until `set_instance` if it is missing or unreadable."""

    def _replace(self, path: Path, unless: Callable[[Path], bool]) -> None:
        if os.path.lexists(path) and not unless(path):
            aside = _set_aside(path)
            self.replaced.append(f"{path}: of another file type, renamed to {aside.name} and made again")

    def _remove_temporary(self) -> None:
        """Remove what killed processes left half written, but not what a living shim may be writing."""
        for path in (*self.root.glob("*.tmp"), *self.containers.glob("*/*.tmp")):
            with suppress(OSError):
                of_shim = path.name == "status.json.tmp"
                if not of_shim or time.time() - path.stat().st_mtime > _WRITING_SECONDS:
                    path.unlink()

    def _read_instance(self) -> str:
        try:
            name = ownership.read(self.root / "instance").decode().strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return name if is_instance_name(name) else ""

    def set_instance(self, name: str = "") -> None:
        """Write the instance's name, a new one by default; an unreadable file is kept under another name."""
        path = self.root / "instance"
        if path.exists():
            _set_aside(path)
        self.instance = name or secrets.token_hex(4)
        write_atomic(path, self.instance.encode(), durable=False)

    def is_at(self, directory: Path) -> bool:
        """Whether a directory is this one, under whatever name."""
        try:
            return directory.samefile(self.root)
        except OSError:
            return False

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def ids(self) -> list[str]:
        return sorted(path.name for path in self.containers.iterdir() if _is_directory(path))

    def directory(self, container_id: str) -> Path:
        return self.containers / container_id

    def log_path(self, spec: ContainerSpec) -> Path:
        pod = f"{spec.namespace}_{spec.pod}_{spec.pod_uid}"
        return spec.log_path or self.logs / pod / spec.name / f"{spec.attempt}.log"

    def pod_logs(self, pod_uid: str) -> list[Path]:
        """The log directories of a pod."""
        return [path for path in self._pod_directories() if path.name.rpartition("_")[2] == pod_uid]

    def logs_but(self, pods: Collection[str]) -> list[Path]:
        """The log directories of pods with other UIDs than these."""
        named = (path for path in self._pod_directories() if path.name.count("_") == 2 and path.is_dir())
        return [path for path in named if path.name.rpartition("_")[2] not in pods]

    def _pod_directories(self) -> list[Path]:
        return list(self.logs.iterdir()) if self.logs.is_dir() else []

    def save(self, stored: ContainerRecord) -> None:
        data = msgspec.json.encode(stored, enc_hook=_encode)
        write_atomic(self.directory(stored.id) / "spec.json", data, durable=False)

    def load(self, container_id: str) -> ContainerRecord | None:
        """What was ordered; None if it was never written, is no use, or is that of another container."""
        try:
            data = ownership.read(self.directory(container_id) / "spec.json")
            fields = msgspec.json.decode(data)
            match fields:  # version 1 has the quota in milliCPU
                case {"spec": {"quota_milli": int(milli)} as spec}:
                    spec["quota_us"] = cfs.quota_us(milli)
            record = msgspec.convert(fields, ContainerRecord, dec_hook=_decode)
        except (OSError, ValueError, RecursionError):  # a ValidationError, or CPUs that are not a list
            return None
        return record if record.id == container_id else None

    def outcome(self, container_id: str) -> ShimOutcome | None:
        """What the shim has written so far; None while it has not."""
        try:
            data = ownership.read(self.directory(container_id) / "status.json")
            return msgspec.json.decode(data, type=ShimOutcome)
        except (OSError, ValueError, RecursionError):
            return None

    def faults(self, container_id: str) -> tuple[str, ...]:
        """Return the names of a container's record files that are there, but cannot be read."""
        readers = (("spec.json", self.load), ("status.json", self.outcome))
        directory = self.directory(container_id)
        return tuple(
            name for name, read in readers if os.path.lexists(directory / name) and read(container_id) is None
        )

    def set_aside(self, container_id: str, names: Iterable[str]) -> None:
        """Rename damaged record files, and make the container's directory where it is missing."""
        directory = self.directory(container_id)
        if os.path.lexists(directory) and not _is_directory(directory):
            _set_aside(directory)
        self.make_directory(container_id)
        for name in names:
            _set_aside(directory / name)

    def make_directory(self, container_id: str) -> None:
        """Make a container's directory, also where ours was deleted; not where the data directory was."""
        for path in (self.root, self.containers, self.directory(container_id)):
            path.mkdir(mode=0o700, exist_ok=True)

    def restore(self, stored: ContainerRecord, outcome: ShimOutcome) -> None:
        """Write the deleted record of a running container again; what its shim wrote since stays."""
        self.make_directory(stored.id)
        self.save(stored)
        if self.outcome(stored.id) is None:
            self.save_outcome(stored.id, outcome)
        if not (self.root / "instance").exists():
            self.set_instance(self.instance)

    def save_outcome(self, container_id: str, outcome: ShimOutcome) -> None:
        """Write what a shim wrote, where that was lost; the shim replaces it when the container ends."""
        data = msgspec.json.encode(outcome)
        write_atomic(self.directory(container_id) / "status.json", data, durable=False)

    def supervise(self, container_id: str) -> int:
        """Take the lock that the shim is to inherit; its file descriptor."""
        lock = _lock(self.directory(container_id) / "lock")
        if lock is None:
            raise StateInUse(f"container {container_id} already has a shim")
        return lock

    def is_supervised(self, container_id: str) -> bool:
        """Whether the shim lives (or is just being started); if its lock was deleted, by its process."""
        path = self.directory(container_id) / "lock"
        if not path.is_file():
            outcome = self.outcome(container_id)
            return outcome is not None and outcome.boot_id == proc.boot_id() and proc.is_alive(outcome.shim)
        lock = _lock(path, fcntl.LOCK_SH)
        if lock is not None:
            os.close(lock)
        return lock is None

    def complaint(self, container_id: str) -> str:
        """The last line that a shim in trouble wrote."""
        with suppress(OSError):
            text = ownership.read(self.directory(container_id) / "shim.err")
            lines = text.decode(errors="replace").splitlines()
            crash = [line for line in lines if line.startswith("Fatal Python error")]
            return (crash or lines or [""])[-1]
        return ""


def _lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """A file descriptor that holds the lock of a file, or None if another process does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_directory(path: Path) -> bool:
    """Whether a path is a directory of ours, not a symbolic link to one."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and ownership.is_own(status.st_uid)


def is_instance_name(text: str) -> bool:
    """Whether a text can name an instance, and so a cgroup."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}", text) is not None


def _set_aside(path: Path) -> Path:
    """Rename what cannot be read to the first free name of `NAME.damaged-1`, `-2` and so on; return it."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    return path.rename(next(name for name in names if not os.path.lexists(name)))


Known = dict[str, Any]

UNKNOWN_EXIT = 255
_NEVER = "its shim ended before it could start it"
_LOST = "end not observed: its shim was killed"
_ORPHAN = "its shim was killed: it goes on, but its exit code will not be known"
_REBOOT = "the machine was restarted while it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
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
    version: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimOutcome:
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
    oom_kills: int = 0

    @property
    def main(self) -> proc.Identity:
        return proc.Identity(self.pid, self.ticks)

    @property
    def shim(self) -> proc.Identity:
        return proc.Identity(self.shim_pid, self.shim_ticks)


def status(
    stored: ContainerRecord, outcome: ShimOutcome | None, *, supervised: bool, boot_id: str
) -> RuntimeStatus:
    """A container's status from its records and whether its shim lives."""
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
    seen: Known = {"pid": outcome.pid, "started_at": outcome.started_at, "oom_killed": outcome.oom_kills > 0}
    if outcome.state == "exited":
        killed = os.WTERMSIG(outcome.wait_status) if os.WIFSIGNALED(outcome.wait_status) else None
        code = 128 + killed if killed else os.waitstatus_to_exitcode(outcome.wait_status)
        left = (
            f"could not kill processes {', '.join(map(str, outcome.left))} that it left"
            if outcome.left
            else ""
        )
        return _status(
            stored,
            "exited",
            **seen,
            exit_code=code,
            signal=killed,
            finished_at=outcome.finished_at,
            message=left,
        )
    if supervised:
        return _status(stored, "running", **seen)
    if outcome.boot_id == boot_id and proc.is_alive(outcome.main):
        return _status(stored, "running", **seen, message=_ORPHAN)
    message = _LOST if outcome.boot_id == boot_id else _REBOOT
    return _status(stored, "exited", **seen, exit_code=UNKNOWN_EXIT, message=message)


def lingering(final: RuntimeStatus, message: str) -> RuntimeStatus:
    """Return the status of a container whose main process has ended, while other processes may be left."""
    return replace(final, state="running", finished_at=None, exit_code=None, signal=None, message=message)


def _status(stored: ContainerRecord, state: ContainerState, **known: Any) -> RuntimeStatus:
    spec = stored.spec
    return RuntimeStatus(
        id=stored.id,
        pod_uid=spec.pod_uid,
        namespace=spec.namespace,
        pod=spec.pod,
        name=spec.name,
        attempt=spec.attempt,
        cgroup=stored.group or "",
        state=state,
        **known,
    )


def failure(stored: ContainerRecord, outcome: ShimOutcome) -> RuntimeFailure:
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
