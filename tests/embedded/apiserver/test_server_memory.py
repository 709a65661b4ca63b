"""What the server keeps of answers that were sent, and of objects as they were: no more than it has to."""

import asyncio
import gc
import ssl
import tracemalloc
from asyncio import sslproto
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.served_kinds import CONFIG_MAPS
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.up import tls

TOKEN = "t"
PATH = "/api/v1/configmaps"
LARGE = 1 << 20
ROOM = 256 << 10


def thing(number, size=3_000):
    return {"metadata": {}, "parts": [{"number": number, "pad": "x" * 50} for _ in range(size // 80)]}


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def taken():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@asynccontextmanager
async def serving_tls(directory):
    """A server over TLS with objects of 1 MB, and a session of a client that keeps its connections."""
    context, _ = tls.server_context(directory, datetime.now(UTC))
    server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))}, tls=context)
    await server.start()
    for number in range(LARGE >> 12):
        meta = {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"}
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"pad": "x" * 4096}}
        server._store.put(CONFIG_MAPS.stored, f"default/c{number}", body)
    server._store.settle()
    trusting = ssl.create_default_context(cafile=directory / "ca.crt")
    connector = aiohttp.TCPConnector(ssl=trusting, limit=0)
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"}
    try:
        async with aiohttp.ClientSession(server.url, connector=connector, headers=headers) as session:
            yield session
    finally:
        await server.stop()


async def listed(session, path=PATH):
    async with session.get(path) as answer:
        assert answer.status == 200
        return len(await answer.read())


async def watched(session, path):
    """The bytes of a watch that ends after a second."""
    return await listed(session, f"{path}?watch=1&timeoutSeconds=1")


def test_answers_are_written_in_pieces(tmp_path, monkeypatch):
    """OpenSSL keeps a buffer for the largest write, for as long as the connection lasts."""
    sizes = []
    write = sslproto._SSLProtocolTransport.write

    def noted(self, data):
        sizes.append(len(data))
        write(self, data)

    monkeypatch.setattr(sslproto._SSLProtocolTransport, "write", noted)

    async def run():
        async with serving_tls(tmp_path) as session:
            assert await listed(session) > LARGE
            assert await watched(session, PATH) > LARGE

    asyncio.run(run())
    assert sum(sizes) > 2 * LARGE
    assert max(sizes) < responses.PIECE + 8192, "a piece, and headers or one more frame"


@pytest.mark.parametrize("size", [0, 1, responses.PIECE - 1, responses.PIECE, responses.PIECE + 1, 100_000])
async def test_an_answer_in_pieces_is_whole(size):
    body = bytes(number % 251 for number in range(size))

    async def answer(_request):
        return responses.data(body)

    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(answer))
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = "http://{}:{}".format(*runner.addresses[0])
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.get(url) as found:
                assert found.headers["Content-Length"] == str(size)
                assert await found.read() == body
        async with session.head(url) as found:
            assert await found.read() == b""
    await runner.cleanup()


async def test_idle_connections_keep_nothing_of_their_last_answer(tmp_path, traced):
    async with serving_tls(tmp_path) as session:
        small = "/api/v1/namespaces/default"
        await asyncio.gather(*(listed(session, small) for _ in range(4)))
        await asyncio.sleep(0.1)
        before = taken()
        await asyncio.gather(*(listed(session) for _ in range(4)))
        await asyncio.sleep(0.1)
        assert taken() - before < ROOM, "4 answers of 1 MB"


def test_objects_take_no_more_memory_than_their_json(traced):
    store = Store(None, lambda *_: {})
    before = taken()
    for number in range(500):
        store.put("things", str(number), thing(number))
    values = sum(len(one.record.value) for one in store.recent("things"))
    assert values > LARGE
    assert taken() - before < 1.2 * values + 500 * 1024


def test_history_of_objects_that_come_and_go_is_soon_full_and_grows_no_more():
    """What is kept of them is counted, not measured."""
    window = 1_000
    store = Store(None, lambda *_: {}, window)
    counts = []
    for round_ in range(4):
        for number in range(window // 4):
            key = f"{round_}-{number}"
            for size in (100, 3_000):
                event = store.put("things", key, thing(number, size))
                store.recent("things")[-1].frames["view"] = event.value
            store.delete("things", key)
        kept = store.recent("things")
        counts.append((len(kept), sum(len(one.frames) for one in kept), sum(store.counts().values())))
    assert counts[1] == counts[-1]
    assert counts[-1][0] <= window
    assert counts[-1][2] == 0
