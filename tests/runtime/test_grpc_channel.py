"""gRPC calls to servers that lie, flood, break off or hang: one error for a call, and the next one works."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from hpack import Encoder
from hyperframe import frame

from corelane.runtime.grpc_channel import Channel, RPCError

MOST = 1000
OK = {":status": "200", "content-type": "application/grpc"}
HELLO = frame.SettingsFrame(0).serialize()


def head(headers, *flags, stream=1):
    block = Encoder().encode(list(headers.items()))
    return frame.HeadersFrame(stream, block, flags=["END_HEADERS", *flags]).serialize()


def data(payload, *flags):
    return frame.DataFrame(1, payload, flags=list(flags)).serialize()


def message(payload, *, compressed=False):
    return bytes([compressed]) + len(payload).to_bytes(4, "big") + payload


def status(number, text=""):
    return head({"grpc-status": number, "grpc-message": text}, "END_STREAM")


def good(stream):
    answer = frame.DataFrame(stream, message(b"answer")).serialize()
    return head(OK, stream=stream) + answer + head({"grpc-status": "0"}, "END_STREAM", stream=stream)


GOOD, BYE = HELLO + good(1), b"bye"
PING = frame.PingFrame(0, b"12345678").serialize()
LARGE = Encoder().encode([(f"h{n}", "x" * 400) for n in range(200)])
LONG = b"".join(
    kind(
        1, LARGE[start : start + 9000], flags=["END_HEADERS"] if start + 9000 > len(LARGE) else []
    ).serialize()
    for start in range(0, len(LARGE), 9000)
    for kind in [frame.ContinuationFrame if start else frame.HeadersFrame]
)


PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


@asynccontextmanager
async def server(path, script):
    """Answers the first call with a script, and all others as they should be; keeps connections open.

    Yields the frames that come: types and streams.
    """
    received, writers = [], []

    async def serve(reader, writer):
        writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readexactly(PREFACE)
            if len(writers) > 1:
                writer.write(HELLO)
            while header := await reader.readexactly(9):
                await reader.readexactly(int.from_bytes(header[:3], "big"))
                kind, stream = header[3], int.from_bytes(header[5:], "big")
                if kind == frame.HeadersFrame.type:
                    first = frame.HeadersFrame.type not in dict(received)
                    writer.write(script if first else good(stream))
                received.append((kind, stream))
                if script == BYE and len(writers) == 1:
                    writer.close()

    listening = await asyncio.start_unix_server(serve, path)
    try:
        yield received
    finally:
        for writer in writers:
            writer.close()
        listening.close()
        await asyncio.sleep(0)  # the connections' tasks end


def calling(tmp_path, script, calls=1, seconds=60.0):
    """The outcomes of calls through one channel, the first of which is answered by the script."""

    async def scene():
        async with server(tmp_path / "s", script):
            channel = Channel(str(tmp_path / "s"), MOST)
            outcomes = []
            for _ in range(calls):
                try:
                    outcomes.append(await channel.unary("/service/Method", b"request", seconds))
                except RPCError as error:
                    outcomes.append((error.code, str(error)))
            channel.close()
            return outcomes

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE", "not HTTP/2"),
        (b"\xff" * 100_000, "UNAVAILABLE", "not HTTP/2"),
        (BYE, "UNAVAILABLE", "closed"),
        (HELLO + frame.GoAwayFrame(0, 0).serialize() * 1000, "UNAVAILABLE", "NO_ERROR"),
        (HELLO + PING * 100_000, "UNAVAILABLE", "without an answer"),
        (HELLO + head(OK) + data(b"") * 100_000, "UNAVAILABLE", "without an answer"),
        (HELLO * 100_000, "UNAVAILABLE", "without an answer"),
        (HELLO + frame.RstStreamFrame(1, 8).serialize() * 100_000, "CANCELLED", "CANCEL"),
        (HELLO + frame.WindowUpdateFrame(0, (1 << 31) - 1).serialize() * 2, "UNAVAILABLE", "not HTTP/2"),
        (HELLO + frame.RstStreamFrame(1, 7).serialize(), "UNAVAILABLE", "REFUSED_STREAM"),
        (HELLO + frame.RstStreamFrame(1, 99).serialize(), "INTERNAL", "99"),
        (
            HELLO + frame.HeadersFrame(1, b"\xff" * 9000, flags=["END_HEADERS"]).serialize(),
            "UNAVAILABLE",
            "HTTP/2",
        ),
        (
            HELLO
            + frame.HeadersFrame(1, b"").serialize()
            + frame.ContinuationFrame(1, b"").serialize() * 9999,
            "UNAVAILABLE",
            "HTTP/2",
        ),
        (
            HELLO + head({**OK, "grpc-status": "5", "grpc-message": "x" * 9000}, "END_STREAM"),
            "NOT_FOUND",
            "xxx",
        ),
        (
            HELLO + head({":status": "404", "server": "nginx"}, "END_STREAM"),
            "UNIMPLEMENTED",
            "HTTP status 404",
        ),
        (HELLO + head({":status": "4" * 5000}, "END_STREAM"), "UNKNOWN", "HTTP status 444"),
        (HELLO + head({":status": "200", "content-type": "text/html"}), "UNKNOWN", "text/html"),
        (HELLO + head(OK) + data(message(b"x" * 10, compressed=True)), "INTERNAL", "compressed"),
        (
            HELLO + head(OK) + data(message(b"x" * (MOST + 1))[:9]),
            "RESOURCE_EXHAUSTED",
            "1001 bytes; at most 1000",
        ),
        (HELLO + head(OK) + data(message(b"answer")[:7], "END_STREAM"), "INTERNAL", "without a status"),
        (HELLO + head(OK) + data(message(b"answer")[:7]) + status("0"), "INTERNAL", "within a message"),
        (HELLO + head(OK) + status("0"), "INTERNAL", "no message"),
        (HELLO + head(OK) + data(message(b"a") * 2) + status("0"), "INTERNAL", "more than one"),
        (
            HELLO + head(OK) + data(message(b"a")) + status("7", "not%20you%0a"),
            "PERMISSION_DENIED",
            "not you",
        ),
        (HELLO + head(OK) + status("99"), "UNKNOWN", "status 99"),
        (HELLO + head(OK) + status("-1", "%ff\x1b%1b[31m"), "UNKNOWN", "status -1"),
        (HELLO + head(OK) + head({"other": "1"}, "END_STREAM"), "UNKNOWN", "status missing"),
        (HELLO + head(OK, stream=3) + status("0"), "UNAVAILABLE", "not HTTP/2"),
        (
            HELLO + frame.PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize(),
            "UNAVAILABLE",
            "HTTP/2",
        ),
    ],
)
def test_a_server_that_lies_costs_one_error_and_the_next_call_works(tmp_path, script, code, text):
    failure, answer = calling(tmp_path, script, 2)
    assert failure[0] == code
    assert text in failure[1]
    assert len(failure[1]) <= 1100
    assert failure[1].isprintable()
    assert answer == b"answer"


@pytest.mark.parametrize(
    "script", [b"", HELLO, HELLO + head(OK), HELLO + head(OK) + data(message(b"answer"))]
)
def test_a_server_that_hangs_costs_the_deadline(tmp_path, script):
    (failure,) = calling(tmp_path, script, seconds=0.2)
    assert failure == ("DEADLINE_EXCEEDED", "no answer within 0.2 s")


def test_frames_of_unknown_types_and_early_headers_are_passed_over(tmp_path):
    unknown = (3).to_bytes(3, "big") + b"\xbb\x00" + (1).to_bytes(4, "big") + b"new"
    early = head({":status": "103"})
    assert calling(tmp_path, HELLO + unknown + early + GOOD[len(HELLO) :] + unknown) == [b"answer"]


def test_a_call_that_is_cancelled_is_reset_and_leaves_the_connection(tmp_path):
    async def scene():
        async with server(tmp_path / "s", HELLO) as received:
            channel = Channel(str(tmp_path / "s"), MOST)
            call = asyncio.create_task(channel.unary("/service/Method", b"request", 60))
            async with asyncio.timeout(10):
                while (frame.DataFrame.type, 1) not in received:
                    await asyncio.sleep(0.01)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                while (frame.RstStreamFrame.type, 1) not in received:
                    await asyncio.sleep(0.01)
                assert await channel.unary("/service/Method", b"request", 5) == b"answer"
            channel.close()
            return received

    assert (frame.HeadersFrame.type, 3) in asyncio.run(scene()), "the connection is the same"


def test_a_stream_that_is_not_read_is_given_no_more_than_its_window(tmp_path):
    """The server sends as long as it may; what was read makes room for more."""
    part = data(message(b"x" * 900)) * 18  # of one read
    sent = 0

    async def serve(reader, writer):
        nonlocal sent
        await reader.read(1 << 16)
        writer.write(HELLO + head(OK))
        with suppress(ConnectionError):
            while sent < 8 << 20:  # more than the window, which h2 would punish: so stop where updates do
                writer.write(part)
                sent += 18 * 905
                await writer.drain()

    async def scene():
        listening = await asyncio.start_unix_server(serve, tmp_path / "s")
        channel = Channel(str(tmp_path / "s"), MOST)
        stream = channel.stream("/service/Method", b"", {})
        first = await anext(stream)
        with pytest.raises(RPCError, match="not HTTP/2"):
            async for _ in stream:
                await asyncio.sleep(0.001)
        listening.close()
        return first

    assert asyncio.run(scene()) == b"x" * 900


async def test_calls_under_way_end_when_the_channel_is_closed(tmp_path):
    async with server(tmp_path / "s", HELLO) as received:
        channel = Channel(str(tmp_path / "s"), MOST)
        call = asyncio.create_task(channel.unary("/service/Method", b"request", 60))
        async with asyncio.timeout(10):
            while (frame.DataFrame.type, 1) not in received:
                await asyncio.sleep(0.01)
            channel.close()
            with pytest.raises(RPCError, match="closed here"):
                await call


def test_a_request_larger_than_the_servers_window_is_sent_as_room_is_made(tmp_path):
    request = b"r" * 200_000

    async def serve(reader, writer):
        received = 0
        writer.write(HELLO)
        while received < len(request):
            more = await reader.read(1 << 16)
            received += len(more)
            for stream in (0, 1):
                writer.write(frame.WindowUpdateFrame(stream, len(more)).serialize())
        writer.write(GOOD[len(HELLO) :])

    async def scene():
        listening = await asyncio.start_unix_server(serve, tmp_path / "s")
        channel = Channel(str(tmp_path / "s"), MOST)
        try:
            return await channel.unary("/service/Method", request, 20)
        finally:
            channel.close()
            listening.close()

    assert asyncio.run(scene()) == b"answer"
