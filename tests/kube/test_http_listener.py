import asyncio
import contextlib
import datetime
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from corelane.embedded.up import tls
from corelane.kube import http_listener
from corelane.kube.http_listener import HTTPListener

HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX-a: "
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n"


class Log:
    def warning(self, what: str, **values: object) -> None:
        pass


Story = Callable[[HTTPListener, tuple[str, int]], Awaitable[None]]


@asynccontextmanager
async def listening(
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[HTTPListener, tuple[str, int]]]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "Authorization" in request.headers:
            listener.prove(request.protocol)
        if request.path == "/never":
            await asyncio.Event().wait()
        return web.Response(text="ok")

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    listener = HTTPListener("test", runner.server, Log(), context, most=8)
    address = await listener.start("127.0.0.1", 0)
    try:
        yield listener, address
    finally:
        listener.stop()
        await runner.cleanup()


def run(story: Story, context: ssl.SSLContext | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), listening(context) as (listener, address):
            await story(listener, address)

    asyncio.run(main())


async def opened(address: tuple[str, int], sent: bytes = b"") -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, address)
    if sent:
        await asyncio.get_running_loop().sock_sendall(connection, sent)
    return connection


async def answered(connection: socket.socket) -> bytes:
    """What the server sends next; empty where it closed the connection."""
    try:
        return await asyncio.get_running_loop().sock_recv(connection, 4096)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("sent", [b"", HALF, b"GET"])
def test_a_client_gets_in_while_others_hold_open_what_they_never_finish(sent: bytes) -> None:
    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        held = [await opened(address, sent) for _ in range(50)]
        assert b"200 OK" in await answered(await opened(address, WHOLE))
        assert [await answered(connection) for connection in held[:40]] == [b""] * 40

    run(story)


def test_a_connection_that_authenticated_stays_open_whatever_others_do() -> None:
    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        own = await opened(address, WHOLE)
        assert b"200 OK" in await answered(own)
        for _ in range(50):
            await opened(address, HALF)
        await asyncio.get_running_loop().sock_sendall(own, WHOLE)
        assert b"200 OK" in await answered(own)

    run(story)


@pytest.mark.parametrize("sent", [b"", HALF, b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_client_that_takes_too_long_is_closed(sent: bytes, monkeypatch) -> None:
    for limit in ("HEAD_SECONDS", "REQUEST_SECONDS"):
        monkeypatch.setattr(http_listener, limit, 0.2)

    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        assert await answered(await opened(address, sent)) == b""

    run(story)


def test_requests_behind_one_that_is_being_answered_are_not_read_without_end() -> None:
    """They would be held in memory; aiohttp bounds them since 3.14.1."""

    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        connection = await opened(address, b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n")
        requests, sent, loop = WHOLE * 2000, 0, asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            while sent < 24 << 20:  # more than the kernel keeps for both ends
                await asyncio.wait_for(loop.sock_sendall(connection, requests), 1)
                sent += len(requests)
        assert b"200 OK" in await answered(await opened(address, WHOLE))

    run(story)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03", b"not tls at all\r\n\r\n"])
def test_a_half_handshake_is_closed(sent: bytes, monkeypatch, tmp_path: Path) -> None:
    context, _ = tls.server_context(tmp_path, datetime.datetime.now(datetime.UTC))
    monkeypatch.setattr(http_listener, "HEAD_SECONDS", 0.2)

    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        connection = await opened(address, sent)
        while await answered(connection):
            pass
        assert not listener._unproven

    run(story, context)


def test_the_user_with_most_connections_loses_one(monkeypatch) -> None:
    users = iter(["uid 0"] + ["uid 65534"] * 99)
    monkeypatch.setattr(http_listener, "_owner", lambda _: next(users))

    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        own = await opened(address, HALF)
        for _ in range(40):
            await opened(address)
            await asyncio.sleep(0)
        await asyncio.get_running_loop().sock_sendall(own, b"1\r\n\r\n")
        assert b"200 OK" in await answered(own)

    run(story)


def test_the_user_behind_a_connection_on_loopback_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        with connection:
            assert http_listener._owner(connection) == f"uid {os.getuid()}"


def test_without_file_descriptors_the_log_has_one_line_and_clients_wait(caplog, monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Log, "warning", lambda _, what, **values: lines.append(what))
    monkeypatch.setattr(http_listener, "_RETRY_SECONDS", 0.05)
    caplog.set_level(logging.DEBUG)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story(listener: HTTPListener, address: tuple[str, int]) -> None:
        waiting = socket.socket()
        waiting.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 4, limits[1]))
        filled = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    filled.append(os.dup(0))
            await asyncio.get_running_loop().sock_connect(waiting, address)
            await asyncio.get_running_loop().sock_sendall(waiting, WHOLE)
            await asyncio.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in filled:
                os.close(descriptor)
        assert b"200 OK" in await answered(waiting)

    run(story)
    assert lines == ["connections wait: no file descriptors"]
    assert "Traceback" not in caplog.text
