"""The connection pool to one API server, made anew when the files that its credentials are from change.

lightkube reads kubeconfigs, service accounts and credentials. A replaced pool ends with its last request, so
that watches outlive a rotated token.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError
from yaml import YAMLError

CREDENTIAL_ERRORS: Final = (ConfigError, OSError, ValueError, KeyError)
"""Errors of a request whose token file or credential plugin fails."""
TIMEOUT: Final = httpx2.Timeout(30.0, connect=10.0)
_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)
"""Idle connections live longer than a heartbeat's period, and shorter than a proxy's usual minute."""
_DEFAULT_KUBECONFIG: Final = Path("~/.kube/config")

_Versions: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass
class _Params(ConnectionParams):
    """The library's parameters for httpx, and the limits of the connection pool."""

    limits: httpx2.Limits = field(default_factory=lambda: _LIMITS)


@dataclass
class _Pool:
    """Connections with one version of the credentials, and the number of requests under way."""

    http: httpx2.AsyncClient
    requests: int = 0


class Connection:
    """The pool in use. Made by `of_kubeconfig` or `of_server`, or from an HTTP client as it is."""

    def __init__(self, http: httpx2.AsyncClient, load: Callable[[], SingleConfig] | None = None) -> None:
        """`load` reads the configuration again; without it the pool stays as it is."""
        self._pool = _Pool(http)
        self._load = load
        self._config: SingleConfig | None = None
        self._files: tuple[Path, ...] = ()
        self._versions: _Versions = ()

    @classmethod
    def of_kubeconfig(cls, kubeconfig: Path | None, context: str | None) -> "Connection":
        """Read kubeconfig or service account. Raises ConfigError, OSError."""

        def load() -> SingleConfig:
            return _config(kubeconfig, context)

        config = load()
        connection = cls(_http(config), load)
        connection._config = config
        connection._files = tuple(_files(kubeconfig, config))
        connection._versions = _versions(connection._files)
        return connection

    @classmethod
    def of_server(cls, url: str, token: str | None) -> "Connection":
        """Use this URL. Raises ConfigError."""
        config = KubeConfig.from_one(cluster=Cluster(server=url), user=User(token=token)).get()
        return cls(_http(_required(config)))

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Lend the HTTP client for one request, with the credentials as the files have them now."""
        if self._files and _versions(self._files) != self._versions:
            await self.renew()
        pool = self._pool
        pool.requests += 1
        try:
            yield pool.http
        finally:
            pool.requests -= 1
            if pool is not self._pool and not pool.requests:
                await pool.http.aclose()

    async def renew(self) -> bool:
        """Read the configuration again; return whether it changed. An invalid one changes nothing."""
        if self._load is None:
            return False
        versions = _versions(self._files)
        try:
            config = self._load()
            changed = config != self._config or versions != self._versions
            http = _http(config) if changed else None
        except CREDENTIAL_ERRORS:
            return False
        finally:
            self._versions = versions
        if http is None:
            return False
        old, self._pool, self._config = self._pool, _Pool(http), config
        if not old.requests:
            await old.http.aclose()
        return True

    async def close(self) -> None:
        await self._pool.http.aclose()


def _versions(files: tuple[Path, ...]) -> _Versions:
    return tuple(map(_version, files))


def _version(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _files(kubeconfig: Path | None, config: SingleConfig) -> Iterator[Path]:
    """The files that the configuration came from, and those that it names."""
    yield from [kubeconfig] if kubeconfig else _kubeconfig_files()
    user = config.user or User()
    for name in (config.cluster.certificate_auth, user.client_cert, user.client_key, user.token_file):
        if name:
            yield Path(config.abs_file(name))


def _http(config: SingleConfig) -> httpx2.AsyncClient:
    """A connection pool; as with client-go, no proxy is used for a loopback address."""
    # The library insists on a user, also where the server asks for none.
    user = config.user or User()
    if user.token_file:
        user = msgspec.structs.replace(user, token_file=str(config.abs_file(user.token_file)))
    loopback = _is_loopback(urlsplit(config.cluster.server).hostname or "")
    return AsyncClient(config._replace(user=user), _Params(timeout=TIMEOUT, trust_env=not loopback))


def _config(kubeconfig: Path | None, context: str | None) -> SingleConfig:
    files = [kubeconfig] if kubeconfig else _kubeconfig_files()
    if not files:
        return _required(KubeConfig.from_service_account().get())
    read = [_read(file) for file in files]
    wanted = context or next((config.current_context for config in read if config.current_context), None)
    for file, config in zip(files, read, strict=True):
        if wanted in config.contexts:
            return _selected(file, config, wanted)
    names = ", ".join(map(str, files))
    raise ConfigError(f"{names}: no context {wanted!r}" if wanted else f"{names}: no current-context")


def _kubeconfig_files() -> list[Path]:
    """The existing files of $KUBECONFIG, else the default; outside a cluster the first in any case."""
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = named or [_DEFAULT_KUBECONFIG.expanduser()]
    existing = [path for path in candidates if path.is_file()]
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    return existing if existing or in_cluster else candidates[:1]


def _read(file: Path) -> KubeConfig:
    """Read one file. Raises ConfigError, OSError."""
    try:
        if not isinstance(yaml.safe_load(file.read_bytes()), dict):
            raise ConfigError(f"{file}: not a kubeconfig: the file is not a mapping")
        return KubeConfig.from_file(file)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file; give a kubeconfig that exists") from None
    except KeyError as error:
        raise ConfigError(f"{file}: lacks {error}") from error
    except (TypeError, AttributeError, ValueError, YAMLError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{file}: not a kubeconfig: {' '.join(str(error).split())}") from error


def _selected(file: Path, config: KubeConfig, context: str) -> SingleConfig:
    try:
        return _required(config.get(context))
    except KeyError as error:
        raise ConfigError(f"{file}: context {context!r} names {error}, which does not exist") from error


def _required(config: SingleConfig | None) -> SingleConfig:
    if config is None:
        raise ConfigError("no current-context")
    return config


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
