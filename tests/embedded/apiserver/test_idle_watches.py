"""Watches of quiet resources: they sleep, and end with their client."""

import asyncio
import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.store.lists_and_watches import WatchTimer
from support.apiserver import ADMIN, CONFIG_MAPS, PODS

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@given(
    seconds=st.integers(1, 4000),
    period=st.none() | st.integers(1, 100),
    wakes=st.lists(st.integers(0, 4000), max_size=30),
)
@example(seconds=1800, period=None, wakes=[])
@example(seconds=1800, period=60, wakes=[])
@example(seconds=1800, period=None, wakes=[60, 61, 900])
@example(seconds=50, period=60, wakes=[])
def test_a_watch_wakes_for_writes_bookmarks_and_its_end_only(seconds, period, wakes):
    """Simulated on a clock of whole seconds: a pause is never nought before the end."""
    now, turns, sent = 0.0, 0, []
    timer = WatchTimer(now, seconds, period)
    pending = sorted(wake for wake in wakes if wake < seconds)
    while True:
        turns += 1
        if timer.bookmark(now):
            sent.append(now)
        if timer.expired(now):
            break
        pause = timer.pause(now)
        assert pause > 0
        while pending and pending[0] <= now:
            pending.pop(0)
        now = min(now + pause, pending.pop(0)) if pending else now + pause
    assert now == seconds
    assert turns <= len(wakes) + (seconds // period if period else 0) + 2
    if period is None:
        assert not sent
    else:
        assert sent == sorted({*range(period, seconds, period), seconds})


def test_a_clock_past_the_end_pauses_for_nothing_rather_than_for_ever():
    timer = WatchTimer(0, 10, None)
    assert timer.pause(11) == 0
    assert timer.expired(11)


async def until_gone(api, count=0):
    for _ in range(200):
        if len(api.server._context.watches) == count:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{len(api.server._context.watches)} watches are left of clients that have gone")


async def connect(api, path, **headers):
    """A watch over a bare socket."""
    port = int(api.server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {ADMIN}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    assert b"200" in await reader.readline()
    return writer


def close(writer):
    writer.transport.close()


def reset(writer):
    """Close with a reset in place of the orderly end."""
    held = writer.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def shut(writer):
    """Close the sending half only."""
    writer.write_eof()


async def test_a_watch_ends_with_its_client_although_nothing_is_written(api):
    for leave in (close, reset, shut):
        for query in ("?watch=1", "?watch=1&allowWatchBookmarks=true", "?watch=1&timeoutSeconds=900"):
            clients = [
                await connect(api, f"{CONFIG_MAPS}{query}"),
                await connect(api, f"{PODS}{query}", Accept=TABLE),
            ]
            await until_gone(api, 2)
            for client in clients:
                leave(client)
            await until_gone(api)
            for client in clients:
                client.transport.abort()


async def test_silent_clients_are_probed(api):
    """Idle time, interval and probes are set on every connection."""
    seen = []
    keep_alive = responses.keep_alive

    def noting(found):
        keep_alive(found)
        seen.append(
            [
                found.getsockopt(*option)
                for option in (
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                )
            ]
        )

    responses.keep_alive = noting
    try:
        (await connect(api, f"{CONFIG_MAPS}?watch=1")).transport.abort()
    finally:
        responses.keep_alive = keep_alive
    assert seen == [[1, 15, 15, 3]]
    await until_gone(api)
