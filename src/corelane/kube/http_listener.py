"""Listen for HTTP connections within limits, so that clients without credentials exhaust nothing.

Theory of operation: a connection is unproven until a request on it has authenticated (`prove`), or for ever
where the server asks for no credentials. Unproven connections are limited in number and time: for the
handshake and the first request's head, between requests, and for a request. At the limit the oldest
connection of the address (on loopback: of the user) that has most of them is closed, so that another user
still gets in. Proven ones, such as watches, are never closed here. Without file descriptors, accepting pauses
for a second: asyncio's own servers log a traceback for each of 100 attempts instead.
"""

import asyncio
import errno
import socket
import ssl
import struct
from collections import Counter
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

try:
    import resource
except ImportError:  # pragma: no cover - not on Linux
    resource = None  # type: ignore[assignment]

HEAD_SECONDS: Final = 10.0
"""Longest time for the TLS handshake and the head of the first request."""
IDLE_SECONDS: Final = 75.0
"""Longest time between two requests on an unproven connection."""
REQUEST_SECONDS: Final = 120.0
"""Longest time from a request to the end of its answer on an unproven connection."""
MOST_UNPROVEN: Final = 256
_LEAST_UNPROVEN: Final = 16
_SHARE: Final = 8
"""Unproven connections take at most this part of the process's file descriptors."""
_ACCEPTED_AT_ONCE: Final = 32
_BACKLOG: Final = 128
_RETRY_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 60.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Guard(asyncio.Protocol):
    """An unproven connection: hands everything on to aiohttp's protocol."""

    def __init__(self, listener: "HTTPListener", connection: socket.socket) -> None:
        self.listener, self.connection = listener, connection
        self.inner: web.RequestHandler = listener.server()
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[Any] | None = None
        self.begun = listener.now()
        self.served = False
        self.busy = False
        self.owner: object = None
        """User or address of the client; None while it was not looked up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data_received = self.inner.data_received  # type: ignore[method-assign]
        self.inner.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.listener.forget(self)
        self.inner.connection_lost(exc)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def overdue(self, now: float) -> bool:
        """Whether the client takes too long; a change between waiting and answering begins a new time."""
        busy = getattr(self.inner, "_current_request", None) is not None
        if busy != self.busy:
            self.busy, self.served, self.begun = busy, True, now
        limit = REQUEST_SECONDS if busy else IDLE_SECONDS if self.served else HEAD_SECONDS
        return now - self.begun > limit

    def close(self) -> None:
        """Close the connection at once."""
        self.listener.forget(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class HTTPListener:
    """Listens for an aiohttp server's connections: `server` is the set-up runner's."""

    def __init__(
        self,
        name: str,
        server: web.Server,
        log: Any,
        tls: ssl.SSLContext | None = None,
        most: int | None = None,
    ) -> None:
        """`name` is the listener's in `log`, a structured logger; `most` are the unproven connections."""
        self.server = server
        self.now = asyncio.get_running_loop().time
        self._name, self._log, self._tls = name, log, tls
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource else -1
        share = limit // _SHARE if limit > 0 else MOST_UNPROVEN
        self._most = most or max(_LEAST_UNPROVEN, min(MOST_UNPROVEN, share))
        self._sockets: list[socket.socket] = []
        self._unproven: dict[web.RequestHandler, _Guard] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closed: Counter[object] = Counter()
        self._logged = float("-inf")

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on every address of the host; return the first one. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._sockets.append(_bound(family, address))
        except OSError:
            self.stop()
            raise
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)
        first = self._sockets[0].getsockname()
        return str(first[0]), int(first[1])

    def stop(self) -> None:
        """Stop to listen, and close what is unproven and not being answered."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        for guard in list(self._unproven.values()):
            if guard.transport is None:
                guard.close()
        if self._sweep is not None:
            self._sweep.cancel()

    def prove(self, protocol: object) -> None:
        """Note that a request on the connection with this protocol has authenticated."""
        self._unproven.pop(protocol, None)  # type: ignore[call-overload]

    def forget(self, guard: _Guard) -> None:
        self._unproven.pop(guard.inner, None)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                loop.remove_reader(listening)
                loop.call_later(_RETRY_SECONDS, self._accept_again, listening)
                self._make_room()
                self._report("connections wait: no file descriptors", error=error.strerror)
                return
            connection.setblocking(False)
            guard = _Guard(self, connection)
            self._unproven[guard.inner] = guard
            guard.task = loop.create_task(self._establish(guard))
            if len(self._unproven) > self._most:
                self._make_room()
            if self._sweep is None:
                self._sweep = loop.call_later(1.0, self._close_overdue)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def _establish(self, guard: _Guard) -> None:
        """Wait for the handshake; one that fails is the client's affair."""
        loop, seconds = asyncio.get_running_loop(), HEAD_SECONDS if self._tls else None
        try:
            with suppress(OSError, ssl.SSLError):
                await loop.connect_accepted_socket(
                    lambda: guard, guard.connection, ssl=self._tls, ssl_handshake_timeout=seconds
                )
        finally:
            if guard.transport is None:
                self.forget(guard)
                guard.connection.close()

    def _make_room(self) -> None:
        """Close the oldest connection of the client that has most unproven ones."""
        guards = list(self._unproven.values())
        for guard in guards:
            if guard.owner is None:
                guard.owner = _owner(guard.connection)
        if not guards:
            return
        ((owner, _),) = Counter(guard.owner for guard in guards).most_common(1)
        self._closed[owner] += 1
        next(guard for guard in guards if guard.owner == owner).close()
        if len(guards) > self._most:
            self._report("connections closed that had not authenticated", limit=self._most)

    def _close_overdue(self) -> None:
        self._sweep = None
        now = self.now()
        for guard in [guard for guard in self._unproven.values() if guard.overdue(now)]:
            guard.close()
        if self._unproven:
            self._sweep = asyncio.get_running_loop().call_later(1.0, self._close_overdue)

    def _report(self, what: str, **values: object) -> None:
        """Log at most one line a minute."""
        now = self.now()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            clients = ", ".join(f"{owner} {count}" for owner, count in self._closed.most_common(3))
            self._closed.clear()
            self._log.warning(what, listener=self._name, closed=clients or 0, **values)


def _bound(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        why = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {why}") from None
    return listening


# The user behind a connection on loopback, as the kernel tells it (sock_diag(7)).

_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST_FLAG = 4, 20, 1
_HEADER: Final = struct.Struct("=IHHII")
_QUERY: Final = struct.Struct("=BBBxI")
_UID_OFFSET: Final = _HEADER.size + 4 + 48 + 12


def _owner(connection: socket.socket) -> str:
    """Return the user of a client on this machine, else its address."""
    try:
        peer, own = connection.getpeername(), connection.getsockname()
        address = ip_address(peer[0].partition("%")[0])
        uid = _uid(connection.family, peer, own) if address.is_loopback else None
    except (OSError, ValueError, IndexError, struct.error):
        return "unknown"
    return str(address) if uid is None else f"uid {uid}"


def _uid(family: int, client: Any, server: Any) -> int | None:
    """Return the user of the socket at `client`, connected to `server`; None without an answer."""
    pack = [socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (client, server)]
    ports = struct.pack("!HH", client[1], server[1])
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ports + b"".join(pack)
    query += struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(0.1)
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, _REQUEST_FLAG, 1, 0) + query)
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _UID_OFFSET)[0])
