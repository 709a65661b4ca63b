"""What is kept of every container in files, so that a restarted runtime knows it again.

STATE/instance             this runtime's own name, made once; it names our cgroups STATE/lock
held by the runtime that uses STATE STATE/containers/ID/       spec.json (ours), status.json (the shim's),
lock (held while the shim lives), shim.err STATE/logs/NS_POD_UID/NAME/ATTEMPT.log

Nothing of this must survive the machine, only corelane's own death; so it is replaced atomically, but not
fsynced.
"""

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from corelane.cpuset import CPUSet
from corelane.runtime.base import ContainerSpec
from corelane.runtime.outcome import Outcome, Stored

__all__ = ["State", "StateInUse"]

_LOCK_SECONDS = 1.0


class StateInUse(RuntimeError):  # noqa: N818 - says what is the case
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


class State:
    """The state directory, ours alone until closed. Raises StateInUse, OSError."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.containers = self.root / "containers"
        self.logs = self.root / "logs"
        for directory in (self.containers, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = self._take()
        if self._lock is None:
            raise StateInUse(
                f"{self.root}: another corelane uses this directory; stop it, or give another one"
            )
        self.instance = self._instance()

    def _take(self) -> int | None:
        """If our predecessor was killed while it forked, its child still holds the lock for a moment."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := _lock(self.root / "lock")) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return lock

    def _instance(self) -> str:
        path = self.root / "instance"
        with suppress(FileNotFoundError):
            if name := path.read_text().strip():
                return name
        _replace(path, (name := secrets.token_hex(4)).encode())
        return name

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def ids(self) -> list[str]:
        return sorted(path.name for path in self.containers.iterdir() if path.is_dir())

    def directory(self, container_id: str) -> Path:
        return self.containers / container_id

    def log_path(self, spec: ContainerSpec) -> Path:
        pod = f"{spec.namespace}_{spec.pod}_{spec.pod_uid}"
        return spec.log_path or self.logs / pod / spec.name / f"{spec.attempt}.log"

    def pod_logs(self, pod_uid: str) -> list[Path]:
        """The log directories of a pod."""
        return [path for path in self.logs.iterdir() if path.name.rpartition("_")[2] == pod_uid]

    def save(self, stored: Stored) -> None:
        data = msgspec.json.encode(stored, enc_hook=_encode)
        _replace(self.directory(stored.id) / "spec.json", data)

    def load(self, container_id: str) -> Stored | None:
        """What was ordered; None if it was never written, or is no use."""
        try:
            data = (self.directory(container_id) / "spec.json").read_bytes()
            return msgspec.json.decode(data, type=Stored, dec_hook=_decode)
        except (OSError, msgspec.DecodeError):
            return None

    def outcome(self, container_id: str) -> Outcome | None:
        """What the shim has written so far; None while it has not."""
        try:
            data = (self.directory(container_id) / "status.json").read_bytes()
            return msgspec.json.decode(data, type=Outcome)
        except (OSError, msgspec.DecodeError):
            return None

    def supervise(self, container_id: str) -> int:
        """Take the lock that the shim is to inherit; its file descriptor."""
        lock = _lock(self.directory(container_id) / "lock")
        if lock is None:
            raise StateInUse(f"container {container_id} already has a shim")
        return lock

    def is_supervised(self, container_id: str) -> bool:
        """Whether the shim lives (or is just being started)."""
        path = self.directory(container_id) / "lock"
        if not path.exists():
            return False
        lock = _lock(path, fcntl.LOCK_SH)
        if lock is not None:
            os.close(lock)
        return lock is None

    def complaint(self, container_id: str) -> str:
        """The last line that a shim in trouble wrote."""
        with suppress(OSError):
            lines = (self.directory(container_id) / "shim.err").read_text(errors="replace").splitlines()
            return lines[-1] if lines else ""
        return ""


def _lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """A file descriptor that holds the lock of a file, or None if somebody else does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
