"""Where `corelane up` keeps its state: one directory, used by one process at a time.

lock          held while corelane runs; names its process
kubeconfig    address and token, mode 0600
scheduler.json  address and token of the scheduler's debug endpoint, mode 0600, while corelane runs
apiserver.db  the API server's objects
server.pem    the API server's key and certificate, and in ca.crt the authority that signed it
nodes/NAME/   an agent's ledger, and the records and logs of its containers
"""

from __future__ import annotations

import asyncio
import base64
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import yaml

from corelane.embedded.up import log_file
from corelane.kernel import files, ownership, proc
from corelane.kernel.proc import Identity
from corelane.kube.yaml_keys import BoundedLoader

_LOCK_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_ADDRESS = re.compile(r"https://127\.0\.0\.1:([0-9]{1,5})")
_ENTRY = "corelane"
_LAST_PORT = 65535
_SHORTEST_TOKEN = 16

Config: TypeAlias = dict[str, Any]
"""A kubeconfig, as read from YAML."""


class DataDirError(Exception):
    """The data directory cannot be used; the message has file, cause and remedy."""


def make(root: Path) -> None:
    """Make a data directory that only root and this user can change. Raises DataDirError."""
    try:
        ownership.make(root)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> DataDirError:
    if isinstance(error, ownership.UntrustedPath):
        return DataDirError(str(error))
    return DataDirError(f"{text(error)}; give another directory with --data-dir")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def holder(root: Path) -> Identity | None:
    """Return the process that uses a data directory; None if none does. Raises DataDirError.

    It is one of our user that holds the lock, which the kernel shows. What the lock's text names is a hint:
    in another PID namespace, or after that process ended, it is another process.
    """
    try:
        ownership.check(root)
        handle = os.open(root / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataDirError(text(error)) from error
    with os.fdopen(handle, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            process, where = _holder(lock.fileno())
            if process is None:
                raise DataDirError(f"{root}: its lock is held by {where}; end that first") from None
            return process
    return None


def text(error: OSError) -> str:
    """Return file and cause."""
    cause = error.strerror or str(error)
    return f"{error.filename}: {cause}" if error.filename else cause


def _holder(lock: int) -> tuple[Identity | None, str]:
    """Return the process of our user that holds a lock, and a description of the one that does."""
    named_pid, file = os.pread(lock, 64, 0).decode(errors="replace").strip(), os.fstat(lock)
    hint = int(named_pid) if named_pid.isdecimal() else 0
    for pid in dict.fromkeys([hint, *proc.pids()]):
        process, user = proc.identity(pid), proc.owner(pid)
        if process and pid != os.getpid() and proc.holds(pid, file):
            if user == os.geteuid():
                return process, f"process {pid}"
            return None, f"process {pid} of another user ({user}), which opened the lock while it could"
    named = f"; it recorded the id {hint} there" if hint else ""
    where = "a process that cannot be read from here, as one in another PID or user namespace"
    return None, f"{where}{named}"


@dataclass(frozen=True, slots=True)
class Access:
    """Port and token of the embedded server."""

    port: int
    token: str


def _access(config: Config) -> Access:
    """Return what our entries say; no port and a new token where they are missing or invalid."""
    address = _ADDRESS.fullmatch(str(_inner(config, "clusters").get("server")))
    port = int(address[1]) if address and int(address[1]) <= _LAST_PORT else 0
    token = _inner(config, "users").get("token")
    if not isinstance(token, str) or len(token) < _SHORTEST_TOKEN:  # an empty one would be an administrator's
        token = secrets.token_urlsafe(32)
    return Access(port, token)


def _inner(config: Config, kind: str) -> dict[str, Any]:
    """Return the content of our entry of a kind, empty where it has none; kubectl may have added others."""
    for entry in config.get(kind) or []:
        if entry.get("name") == _ENTRY:
            return dict(entry.get(kind[:-1]) or {})
    return {}


def _renewed(config: Config, kind: str, values: Mapping[str, Any]) -> list[Config]:
    """Return the entries of a kind with these values in ours, and everything else as it is."""
    ours = {"name": _ENTRY, kind[:-1]: {**_inner(config, kind), **values}}
    entries = list(config.get(kind) or [])
    places = [place for place, entry in enumerate(entries) if entry.get("name") == _ENTRY]
    for place in places[:1]:
        entries[place] = {**entries[place], **ours}
    return entries if places else [*entries, ours]


def _parsed(data: bytes) -> Config:
    """Raises YAMLError, UnicodeDecodeError, RecursionError, ValueError for what is no kubeconfig."""
    config = yaml.load(data, BoundedLoader)  # noqa: S506 - a SafeLoader
    config = {} if config is None else config
    if not isinstance(config, dict):
        raise ValueError("not a YAML mapping")
    for kind in ("clusters", "users", "contexts"):
        entries = config.get(kind) or []
        if not isinstance(entries, list) or not all(map(_is_entry(kind[:-1]), entries)):
            raise ValueError(f"{kind}: not a list of named entries")
    return config


def _is_entry(inner: str) -> Callable[[Any], bool]:
    return lambda entry: isinstance(entry, dict) and isinstance(entry.get(inner) or {}, dict)


def _open_lock(path: Path) -> TextIO:
    """Open a lock that only our user can open: who can may hold it. Raises DataDirError, OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise
        raise DataDirError(f"{path}: not a regular file; remove it") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise DataDirError(f"{path}: not a regular file of this user; remove it")
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "a+")


class DataDir:
    """A data directory, locked while this object is open."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.notes: list[str] = []
        """What was found and changed in the directory, a sentence each."""
        try:
            self.is_new = not os.path.lexists(self.root) or (
                self.root.is_dir() and {one.name for one in self.root.iterdir()} <= {log_file.NAME}
            )
            ownership.make(self.root)
            self._lock = _open_lock(self.root / "lock")
        except OSError as error:
            raise _unusable(error) from error
        self._take_lock()
        for name in ("kubeconfig", "scheduler.json", "server.pem", "ca.crt"):
            files.remove_temporary(self.root / name)  # of killed processes

    def _take_lock(self) -> None:
        if not self._try_lock():
            _, where = _holder(self._lock.fileno())
            self._lock.close()
            raise DataDirError(
                f"{self.root}: in use by another corelane ({where}); "
                "stop it, or give another directory with --data-dir"
            )
        try:
            self._lock.truncate(0)
            os.write(self._lock.fileno(), f"{os.getpid()}\n".encode())
        except OSError as error:
            self._lock.close()
            raise DataDirError(
                f"cannot write {self.root / 'lock'}: {error.strerror}; free space on its file system"
            ) from error

    def _try_lock(self) -> bool:
        """Retry for a second: a child of a killed corelane may hold the lock until it execs."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            else:
                return True

    def close(self) -> None:
        self._lock.close()

    async def lost(self) -> str:
        """Wait until the directory, its lock or the API server's file is deleted or replaced; say so."""
        watched = [self.root / "lock", self.root / "apiserver.db"]
        identities = [_identity(path) for path in watched]
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_SECONDS - now() % _CHECK_SECONDS)  # a wake-up with the runtime's sweep
            for path, identity in zip(watched, identities, strict=True):
                if _identity(path) != identity:
                    return (
                        f"{path}: deleted or replaced while corelane runs; no write is accepted any more, "
                        "and corelane stops"
                    )

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    def node(self, name: str) -> Path:
        path = self.root / "nodes" / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def access(self) -> Access:
        """Return the port and token of the last start, so that copies of the kubeconfig stay valid."""
        config = self._config()
        access = _access(config)
        if config and access.token != _inner(config, "users").get("token"):
            self.notes.append(f"{self.kubeconfig}: no valid token of user {_ENTRY}: a new one was created")
        return access

    def _config(self) -> Config:
        """Return the kubeconfig; one that is not readable as such is renamed, and then it is empty."""
        path = self.kubeconfig
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise DataDirError(f"{path}: {error.strerror}") from error
            return self._keep_aside("a symbolic link or socket")
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return self._keep_aside("not a file")
            return _parsed(files.read_all(fd))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            return self._keep_aside("not YAML")
        except ValueError as error:
            return self._keep_aside(str(error))
        finally:
            os.close(fd)

    def _keep_aside(self, why: str) -> Config:
        """Rename what is in place of the kubeconfig. Raises DataDirError."""
        path = self.kubeconfig
        names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
        backup = next(name for name in names if not os.path.lexists(name))
        try:
            path.rename(backup)
        except OSError as error:
            raise DataDirError(f"{path}: {why}, and cannot be renamed: {error.strerror}") from error
        self.notes.append(f"{path}: {why}: renamed to {backup}, a new one with a new token was created")
        return {}

    def write_kubeconfig(self, url: str, token: str, authority: bytes) -> None:
        """Bring our entries of the kubeconfig up to date; what users changed beside them stays.

        The file has mode 0600. `authority` is the PEM certificate that signs the server's.
        """
        before = self._config()
        context = {"namespace": "default", **_inner(before, "contexts"), "cluster": _ENTRY, "user": _ENTRY}
        cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            **before,
            "clusters": _renewed(before, "clusters", cluster),
            "users": _renewed(before, "users", {"token": token}),
            "contexts": _renewed(before, "contexts", context),
            "current-context": before.get("current-context", _ENTRY),
        }
        if config != before or stat.S_IMODE(self.kubeconfig.stat().st_mode) != 0o600:
            text = yaml.safe_dump(config, sort_keys=False)
            files.write_atomic(self.kubeconfig, text.encode(), mode=0o600)
