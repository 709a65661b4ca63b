"""Memory of `corelane up`: small buffers for TLS connections, and no garbage that grows old."""

import asyncio
import gc
import ssl
import tracemalloc
import weakref
from asyncio import sslproto
from datetime import UTC, datetime

import pytest

from corelane.embedded.up import heap, tls
from corelane.scheduler.daemon import garbage

CONNECTIONS = 20


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    thresholds = gc.get_threshold()
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_tls_connection_takes_little_memory(tmp_path):
    heap.bound_tls_buffers()
    context, _ = tls.server_context(tmp_path, datetime.now(UTC))
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.crt")

    async def run():
        received = []

        async def serve(reader, writer):
            received.append(len(await reader.readexactly(200_000)))

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        writers = [
            (await asyncio.open_connection("127.0.0.1", port, ssl=trusting))[1] for _ in range(CONNECTIONS)
        ]
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        writers[0].write(bytes(200_000))
        await writers[0].drain()
        for _ in range(100):
            await asyncio.sleep(0.05)
            if received:
                break
        for writer in writers:
            writer.transport.abort()
        server.close()
        return taken, received

    taken, received = asyncio.run(run())
    assert received == [200_000], "more than a buffer is read as well"
    assert taken / CONNECTIONS < 100_000, "both ends of a connection"


def test_garbage_that_has_grown_old_is_collected():
    """Connections that lasted are cycles; the thresholds of `up` do not reach them."""

    async def run():
        garbage.collect_young()
        cycle = Cycle()
        alive = weakref.ref(cycle)
        gc.collect()
        del cycle
        gc.collect(1)
        assert alive() is not None
        keeping = asyncio.ensure_future(heap.keep_small(0.01))
        for _ in range(200):
            await asyncio.sleep(0.02)
            if alive() is None:
                break
        keeping.cancel()
        return alive()

    assert asyncio.run(run()) is None
