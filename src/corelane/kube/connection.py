"""Transports to one API server: HTTP over a pool that is renewed with its credentials, or in-process.

A replaced pool ends with its last request, so that watches outlive a rotated token.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from corelane import __version__
from corelane.kube import kubeconfig
from corelane.kube.kubeconfig import (
    Authorization,
    ClusterForm,
    ConfigError,
    ServerConfig,
    UserForm,
    tls_context,
)

# Transports. Each raises `NETWORK_ERRORS` where there is no whole answer.


class AnswerTooLongError(Exception):
    """An answer has more bytes than are read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    reason: str
    body: bytes
    retry_after: str = ""
    """Text of the header."""


class Chunks(Protocol):
    """A body that is read as it comes."""

    def iter_any(self) -> AsyncIterator[bytes]: ...


class Response(Protocol):
    """The head of an answer, whose body is not read yet."""

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> Chunks: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; `path` begins with a slash."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport(Protocol):
    """Requests to one API server."""

    @property
    def server(self) -> str:
        """The server's URL, or other name."""

    def stream(self, request: Request, read_seconds: float | None) -> AbstractAsyncContextManager[Response]:
        """Send a request, whose answer's body is not read yet; `read_seconds` is the longest silence."""

    async def call(self, request: Request, seconds: float | None = None) -> Answer:
        """Send a request, and read the whole answer, within `seconds` in all if given."""

    async def renew(self) -> bool:
        """Read the credentials again; return whether they changed."""

    async def close(self) -> None:
        """Release what is open."""


CONFIGURATION_ERRORS: Final = (ConfigError, OSError, ValueError)
"""Errors of configurations and of the files that they name."""
NETWORK_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""Errors of a request without a whole answer; CredentialsError is none of them."""
_READ_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_CALL_SECONDS: Final = 300.0
"""Longest time of a whole answer; an API server ends requests after 60 s."""
_LONGEST_ANSWER: Final = 128 << 20
"""Most bytes of an answer, after decompression."""
_CONNECTIONS: Final = 100
_KEEPALIVE_SECONDS: Final = 30.0
"""Idle connections live longer than a heartbeat's period, and shorter than a proxy's usual minute."""
_CHECK_SECONDS: Final = 1.0
"""Least time between two looks at the files that credentials are from; a 401 looks at once."""

_Versions: TypeAlias = tuple[tuple[int, ...], ...]


_TIMEOUT: Final = aiohttp.ClientTimeout(
    total=_CALL_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
)


class CredentialsError(Exception):
    """The token file cannot be read, or the credential plugin fails."""


class _Pool:
    """Connections with one version of the credentials, and the number of requests under way."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises ConfigError, OSError."""
        self.requests = 0
        self.authorization = Authorization(config)
        self._cluster = config.cluster
        self._context = tls_context(config)
        self._options = {"server_hostname": config.cluster.tls_server_name, **_proxy(config.cluster)}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def start(
        self,
        request: Request,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> aiohttp.ClientResponse:
        """Send a request. Raises CredentialsError, NETWORK_ERRORS."""
        try:
            headers = await self.authorization.headers()
        except CONFIGURATION_ERRORS as error:
            raise CredentialsError(str(error)) from error
        if self._closed:  # a session made now would stay open
            raise aiohttp.ClientConnectionError("the client is closed")
        if self._session is None:
            self._session = self._new_session()
        return await self._session.request(
            request.method,
            self._cluster.server.rstrip("/") + request.path,
            params=request.query or None,
            data=request.body,
            headers={**headers, **request.headers} if request.headers else headers,
            timeout=timeout,
            allow_redirects=False,
            **self._options,
        )

    def _new_session(self) -> aiohttp.ClientSession:
        """Return a session; within the machine, compressing answers takes longer than sending them."""
        headers = {"User-Agent": f"corelane/{__version__}", "Accept": "application/json"}
        if _is_loopback(URL(self._cluster.server).host or ""):
            headers["Accept-Encoding"] = "identity"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._context or True, limit=_CONNECTIONS, keepalive_timeout=_KEEPALIVE_SECONDS
            ),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _proxy(cluster: ClusterForm) -> dict[str, Any]:
    """Return the request's options for the proxy of the kubeconfig, else of the environment.

    As with client-go, none of the environment is used for a loopback address. It is looked up once, because
    aiohttp's `trust_env` reads environment and .netrc with every request (300 µs).
    """
    url = URL(cluster.server)
    if cluster.proxy_url or _is_loopback(url.host or ""):
        return {"proxy": cluster.proxy_url}
    try:
        proxy, credentials = get_env_proxy_for_url(url)
    except LookupError:
        return {}
    return {"proxy": proxy, "proxy_auth": credentials}


class Connection:
    """The pool in use. Made by `of_kubeconfig` or `of_server`."""

    def __init__(self, config: ServerConfig, load: Callable[[], ServerConfig] | None = None) -> None:
        """`load` reads the configuration again; without it the pool stays as it is.

        Raises ConfigError, OSError.
        """
        self._load = load
        self._config = config
        self._versions = _versions(config.files)
        self._checked = time.monotonic()
        self._pool = _Pool(config)

    @classmethod
    def of_kubeconfig(cls, path: Path | None, context: str | None) -> "Connection":
        """Read kubeconfig or service account. Raises ConfigError, OSError."""

        def load() -> ServerConfig:
            return kubeconfig.load(path, context)

        return cls(load(), load)

    @classmethod
    def of_server(cls, url: str, token: str | None) -> "Connection":
        """Use this URL. Raises ConfigError."""
        return cls(ServerConfig(ClusterForm(server=url), UserForm(token=token)))

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._config.cluster.server

    @asynccontextmanager
    async def stream(
        self, request: Request, read_seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with the credentials as the files have them now. Raises as `call` does."""
        pool = await self._current_pool()
        pool.requests += 1
        try:
            timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=read_seconds)
            async with await pool.start(request, timeout) as response:
                yield response
        finally:
            await self._finished(pool)

    async def call(self, request: Request, seconds: float | None = None) -> Answer:
        """Send a request, and read the whole answer, within `seconds` in all if given.

        Raises CredentialsError, NETWORK_ERRORS, AnswerTooLongError.
        """
        pool = await self._current_pool()
        pool.requests += 1
        timeout = _TIMEOUT if seconds is None else _timeout(seconds)
        try:
            response = await pool.start(request, timeout)
            try:
                chunks, size = [], 0
                async for chunk in response.content.iter_any():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > _LONGEST_ANSWER:
                        raise AnswerTooLongError(f"an answer of more than {_LONGEST_ANSWER >> 20} MiB")
            except BaseException:
                response.close()
                raise
            retry_after = response.headers.get("Retry-After", "")
            return Answer(response.status, response.reason or "", b"".join(chunks), retry_after)
        finally:
            await self._finished(pool)

    async def _current_pool(self) -> _Pool:
        """The pool, made anew if the files of the credentials changed."""
        if self._load and time.monotonic() - self._checked >= _CHECK_SECONDS:
            self._checked = time.monotonic()
            if _versions(self._config.files) != self._versions:
                await self.renew()
        return self._pool

    async def _finished(self, pool: _Pool) -> None:
        pool.requests -= 1
        if pool is not self._pool and not pool.requests:
            await pool.close()

    async def renew(self) -> bool:
        """Read the configuration again; return whether it changed. An invalid one changes nothing."""
        given_by_plugin = self._pool.authorization.renew()
        if self._load is None:
            return given_by_plugin
        files = self._config.files
        versions = _versions(files)
        try:
            config = self._load()
            changed = config != self._config or versions != self._versions
            pool = _Pool(config) if changed else None
        except CONFIGURATION_ERRORS:
            self._versions = versions
            return given_by_plugin
        if pool is None:
            return given_by_plugin
        old, self._pool, self._config = self._pool, pool, config
        self._versions = versions if config.files == files else _versions(config.files)
        if not old.requests:
            await old.close()
        return True

    async def close(self) -> None:
        await self._pool.close()


@lru_cache(maxsize=16)
def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    connect = min(seconds, _CONNECT_SECONDS)
    return aiohttp.ClientTimeout(total=seconds, sock_connect=connect, sock_read=seconds)


def _versions(files: tuple[Path, ...]) -> _Versions:
    """Return what changes with a file's content; () for a file that cannot be read."""
    versions: list[tuple[int, ...]] = []
    for file in files:
        try:
            status = file.stat()
            versions.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            versions.append(())
    return tuple(versions)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
