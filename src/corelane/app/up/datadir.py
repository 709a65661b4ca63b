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
import fcntl
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from corelane.kernel import files

_LOCK_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_ADDRESS = re.compile(r"https://127\.0\.0\.1:([0-9]{1,5})")
_ENTRY = "corelane"
_LAST_PORT = 65535
_SHORTEST_TOKEN = 16


class DataDirError(Exception):
    """The data directory cannot be used; the message has file, cause and remedy."""


def default() -> Path:
    """Return `/var/lib/corelane` for root, else the user's state directory (XDG)."""
    if os.geteuid() == 0:
        return Path("/var/lib/corelane")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "corelane"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def holder(root: Path) -> int | None:
    """Return the process that uses a data directory; None if none does. Raises DataDirError."""
    try:
        with (root / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read().strip() or 0) or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataDirError(f"{root / 'lock'}: {error}") from error
    return None


@dataclass(frozen=True, slots=True)
class Access:
    """Port and token of the embedded server."""

    port: int
    token: str


def _access(config: Any) -> Access:
    """Raises KeyError, TypeError, ValueError or StopIteration for a configuration that `up` did not write."""
    cluster, user = (_named(config[kind]) for kind in ("clusters", "users"))
    address, token = _ADDRESS.fullmatch(cluster["cluster"]["server"]), user["user"]["token"]
    if address is None or int(address[1]) > _LAST_PORT or not isinstance(token, str):
        raise ValueError
    if len(token) < _SHORTEST_TOKEN:  # an empty one would be that of an administrator
        raise ValueError
    return Access(int(address[1]), token)


def _named(entries: Any) -> Any:
    """Return the entry that `up` wrote; kubectl may have added others, in the order of their names."""
    return next(entry for entry in entries if entry["name"] == _ENTRY)


class DataDir:
    """A data directory, locked while this object is open."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (self.root / "lock").open("a+")
        except IsADirectoryError as error:
            raise DataDirError(
                f"{self.root / 'lock'}: a directory in place of the lock; remove it"
            ) from error
        except OSError as error:
            raise DataDirError(
                f"{error.filename or root}: {error.strerror}; give another directory with --data-dir"
            ) from error
        self._take_lock()
        for name in ("kubeconfig", "scheduler.json", "server.pem", "ca.crt"):
            files.remove_temporary(self.root / name)  # of killed processes

    def _take_lock(self) -> None:
        if not self._try_lock():
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise DataDirError(
                f"{self.root}: in use by another corelane (process {holder}); "
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
        try:
            return _access(yaml.safe_load(self.kubeconfig.read_bytes()))
        except FileNotFoundError:
            return Access(0, secrets.token_urlsafe(32))
        except OSError as error:
            why = error.strerror or str(error)
        except (yaml.YAMLError, UnicodeDecodeError):
            why = "not YAML"
        except (KeyError, TypeError, ValueError, StopIteration):
            why = "no cluster corelane at https://127.0.0.1:PORT, or no user corelane with a token"
        raise DataDirError(
            f"{self.kubeconfig}: not a kubeconfig that corelane wrote ({why}); "
            "remove it: a new one is created"
        )

    def write_kubeconfig(self, url: str, token: str, authority: bytes) -> None:
        """Write the kubeconfig with mode 0600; `authority` is the PEM certificate that signs the server's."""
        cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _ENTRY, "cluster": cluster}],
            "users": [{"name": _ENTRY, "user": {"token": token}}],
            "contexts": [
                {
                    "name": "corelane",
                    "context": {"cluster": "corelane", "user": "corelane", "namespace": "default"},
                }
            ],
            "current-context": "corelane",
        }
        files.write_atomic(self.kubeconfig, yaml.safe_dump(config, sort_keys=False).encode(), mode=0o600)
