"""Where `corelane up` keeps its state: one directory, used by one process at a time.

lock          held while corelane runs; names its process
kubeconfig    address and token, mode 0600
scheduler.json  address and token of the scheduler's debug endpoint, mode 0600, while corelane runs
apiserver.db  the API server's objects
server.pem    the API server's key and certificate, and in ca.crt the authority that signed it
nodes/NAME/   an agent's ledger, and the records and logs of its containers
corelane.log  what a `corelane up` in the background prints: bounded in size, with one old file beside it
"""

from __future__ import annotations

import asyncio
import base64
import errno
import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias

import yaml

from corelane.kernel import files, ownership, proc
from corelane.kernel.proc import Identity
from corelane.yaml_keys import BoundedLoader

LOG_NAME: Final = "corelane.log"
LIMIT: Final = 10 << 20
"""Bytes after which the log is renamed to NAME.1, as a container's log is; an older NAME.1 is replaced."""
_LOCK_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_ADDRESS = re.compile(r"https://127\.0\.0\.1:([0-9]{1,5})")
_ENTRY = "corelane"
_LAST_PORT = 65535
_SHORTEST_TOKEN = 16
Config: TypeAlias = dict[str, Any]
"""A kubeconfig, as read from YAML."""
_OWN_FILES: Final = re.compile(
    r"lock|kubeconfig(\.damaged-\d+)?|scheduler\.json|server\.pem|ca\.crt|apiserver\.(lock|db.*)|\.(kubeconfig|apiserver"
    r"|scheduler|server|ca)\..*\.tmp|" + re.escape(LOG_NAME) + r"(\.1)?"
)
"""Names of the files of a data directory; only those that `_MARKS` has are names that others hardly use."""
_MARKS: Final = ("apiserver.db*", "apiserver.lock", LOG_NAME)
_NODE_MARKS: Final = re.compile(
    r"(ledger|settings|simulated)\.json.*|containers|\.(ledger|settings|simulated)\.json\..*"
)


def old_log(path: Path) -> Path:
    """Return the path of the old file."""
    return path.with_name(f"{path.name}.1")


def make_log_room(path: Path, limit: int = LIMIT) -> None:
    """Rename a log that has reached the limit. Raises OSError."""
    if path.exists() and path.stat().st_size >= limit:
        path.replace(old_log(path))


class BoundedLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to stderr, which is `path`; when that is full, deleted or renamed, goes on in a new file.

    stdout and stderr themselves are redirected, so that what is printed goes there, too.
    """

    def __init__(self, path: Path, limit: int = LIMIT, descriptors: Sequence[int] = (1, 2)) -> None:
        super().__init__()
        self.path, self.limit, self.descriptors = path, limit, descriptors

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            self._follow()
        except OSError:  # as with a deleted data directory, or without file descriptors
            with suppress(OSError):
                if os.fstat(self.descriptors[-1]).st_size >= 2 * self.limit:
                    os.ftruncate(self.descriptors[-1], 0)

    def _follow(self) -> None:
        ours = os.fstat(self.descriptors[-1])
        try:
            is_ours = os.path.samestat(ours, self.path.stat())
        except FileNotFoundError:
            is_ours = False
        if is_ours and ours.st_size < self.limit:
            return
        if is_ours:
            self.path.replace(old_log(self.path))
        new = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for descriptor in self.descriptors:
                os.dup2(new, descriptor)
        finally:
            os.close(new)


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
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
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
                self.root.is_dir() and {path.name for path in self.root.iterdir()} <= {LOG_NAME}
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
        address = _ADDRESS.fullmatch(str(_inner(config, "clusters").get("server")))
        port = int(address[1]) if address and int(address[1]) <= _LAST_PORT else 0
        token = _inner(config, "users").get("token")
        # An empty one would be an administrator's.
        if not isinstance(token, str) or len(token) < _SHORTEST_TOKEN:
            token = secrets.token_urlsafe(32)
        access = Access(port, token)
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
            data = files.read_all(fd)
            config = yaml.load(data, BoundedLoader)  # noqa: S506 - a SafeLoader
            config = {} if config is None else config
            if not isinstance(config, dict):
                raise ValueError("not a YAML mapping")
            for kind in ("clusters", "users", "contexts"):
                entries = config.get(kind) or []
                if not isinstance(entries, list) or not all(map(_is_entry(kind[:-1]), entries)):
                    raise ValueError(f"{kind}: not a list of named entries")
            return config
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


@dataclass(slots=True)
class Purged:
    """What became of a data directory: whether it was one, and the files that are left with the reason."""

    path: Path
    is_data_dir: bool
    foreign: list[Path] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)


def purge(directory: Path) -> Purged:
    """Remove what corelane wrote into a data directory, and the directory once it is empty.

    A directory without any file that only a data directory has is left as it is.
    """
    marked = any(True for mark in _MARKS for _ in directory.glob(mark))
    # A start that failed before it wrote anything else leaves its lock alone.
    locked = [path.name for path in _children(directory)] == ["lock"]
    purged = Purged(directory, marked or locked or any(map(_is_node, _children(directory / "nodes"))))
    if purged.is_data_dir:
        for path in sorted(directory.iterdir()):
            if path.name == "nodes" and path.is_dir() and not path.is_symlink():
                _purge_nodes(path, purged)
            elif _OWN_FILES.fullmatch(path.name):
                _remove(path, purged)
            else:
                purged.foreign.append(path)
        _remove_if_empty(directory, purged)
    return purged


def _is_node(path: Path) -> bool:
    return not path.is_symlink() and any(_NODE_MARKS.fullmatch(child.name) for child in _children(path))


def _children(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() else iter(())


def _purge_nodes(nodes: Path, purged: Purged) -> None:
    for path in sorted(nodes.iterdir()):
        if _is_node(path):
            _remove(path, purged)
        elif path.is_symlink() or not path.is_dir() or any(path.iterdir()):
            purged.foreign.append(path)
        else:
            _remove_if_empty(path, purged)
    _remove_if_empty(nodes, purged)


def _remove(path: Path, purged: Purged) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        purged.failed[Path(error.filename or path)] = error.strerror or str(error)


def _remove_if_empty(path: Path, purged: Purged) -> None:
    """Remove an empty directory; a symbolic link to one and a mount point stay."""
    if path.is_symlink() or path.is_mount() or any(path.iterdir()):
        return
    try:
        path.rmdir()
    except OSError as error:
        purged.failed[path] = error.strerror or str(error)
