"""Multiplexer and ttrpc: bytes in, frames and calls out, however the bytes are cut."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime.nri import ttrpc
from corelane.runtime.nri.ttrpc import Demultiplexer, Frame, ProtocolError
from support import nri_wire
from support.protobuf import decode, encode

PAYLOADS = st.lists(st.tuples(st.integers(1, 3), st.binary(max_size=60)), max_size=8)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(at)]


@given(PAYLOADS, CUTS)
def test_any_split_of_the_bytes_gives_the_same_frames(
    payloads: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(nri_wire.frame(connection, payload) for connection, payload in payloads)
    reader = Demultiplexer()
    frames = [frame for piece in pieces(data, cuts) for frame in reader.receive(piece)]
    assert frames == [Frame(connection, payload) for connection, payload in payloads]


@given(st.integers(1, 2), st.binary(max_size=3).map(lambda piece: piece * 5000))
def test_encoded_bytes_come_back_in_frames_that_containerd_can_read(connection: int, data: bytes) -> None:
    frames = Demultiplexer().receive(ttrpc.encode(connection, data))
    assert b"".join(frame.payload for frame in frames) == data
    assert all(frame.connection == connection and 0 < len(frame.payload) <= 4096 for frame in frames)


def test_a_frame_above_the_limit_is_a_protocol_error_before_its_payload_arrives() -> None:
    with pytest.raises(ProtocolError, match="frame of"):
        Demultiplexer().receive(struct.pack(">II", 1, (16 << 20) + 1))


CALLS = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), st.binary(max_size=40)), max_size=6)


@given(CALLS, CUTS, st.integers(0, 1 << 40))
def test_calls_and_answers_go_round_in_any_order_and_any_split(
    calls: list[tuple[str, str, bytes]], cuts: list[int], timeout: int
) -> None:
    client, server = ttrpc.Client(), ttrpc.Server()
    sent = [client.call(*call, timeout) for call in calls]
    stream = b"".join(data for _, data in sent)
    requests = [request for piece in pieces(stream, cuts) for request in server.receive(piece)]
    assert [(r.service, r.method, r.payload, r.timeout_ns) for r in requests] == [
        (*c, timeout) for c in calls
    ]
    assert [r.stream for r in requests] == [number for number, _ in sent] == list(range(1, 2 * len(calls), 2))
    answers = [ttrpc.Response(r.stream, r.payload[::-1]) for r in reversed(requests)]
    back = b"".join(map(server.respond, answers))
    assert [answer for piece in pieces(back, cuts) for answer in client.receive(piece)] == answers


def test_a_request_is_read_as_the_go_client_writes_it() -> None:
    body = encode({1: "service", 2: "Method", 3: b"\x01\xff", 4: 2_000_000_000, 5: [{1: "key", 2: "value"}]})
    [request] = ttrpc.Server().receive(nri_wire.ttrpc(7, 1, body))
    assert request == ttrpc.Request(7, "service", "Method", b"\x01\xff", 2_000_000_000)


def test_an_answer_is_written_as_the_go_client_reads_it() -> None:
    server = ttrpc.Server()
    server.receive(nri_wire.ttrpc(1, 1, b"") + nri_wire.ttrpc(3, 1, b""))
    good = server.respond(ttrpc.Response(1, b"body"))
    assert good[:10] == struct.pack(">IIBB", len(good) - 10, 1, 2, 0)
    assert decode(good[10:]) == {2: [b"body"]}
    bad = server.respond(ttrpc.Response(3, code=12, message="no"))
    assert decode(decode(bad[10:])[1][0]) == {1: [12], 2: [b"no"]}


def test_a_stream_is_answered_once() -> None:
    server = ttrpc.Server()
    server.receive(nri_wire.ttrpc(1, 1, b""))
    assert server.respond(ttrpc.Response(1))
    assert server.respond(ttrpc.Response(1)) == server.respond(ttrpc.Response(9)) == b""


def test_an_answer_that_is_too_large_becomes_an_error_status() -> None:
    client, server = ttrpc.Client(), ttrpc.Server()
    _, data = client.call("s", "m", b"")
    server.receive(data)
    [answer] = client.receive(server.respond(ttrpc.Response(1, bytes(5 << 20))))
    assert answer.code == 8
    assert answer.message == "response of 5242885 bytes; the limit is 4194304"


def test_a_call_that_is_too_large_is_refused_where_it_is_made() -> None:
    with pytest.raises(ProtocolError, match="the limit is 4194304"):
        ttrpc.Client().call("s", "m", bytes(5 << 20))


def test_responses_to_calls_that_were_never_made_are_ignored() -> None:
    client = ttrpc.Client()
    assert client.receive(nri_wire.ttrpc(99, 2, b"")) == []


def test_messages_of_an_unknown_type_are_skipped() -> None:
    server = ttrpc.Server()
    assert [r.stream for r in server.receive(nri_wire.ttrpc(1, 9, b"x") + nri_wire.ttrpc(1, 1, b""))] == [1]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (struct.pack(">IIBB", (4 << 20) + 1, 1, 1, 0), "message of 4194305 bytes"),
        (nri_wire.ttrpc(2, 1, b""), "stream 2"),
        (nri_wire.ttrpc(0, 1, b""), "stream 0"),
        (nri_wire.ttrpc(3, 1, b"") + nri_wire.ttrpc(3, 1, b""), "stream 3 after stream 3"),
        (nri_wire.ttrpc(1, 1, b"", 2), "streaming flags 0x2"),
        (nri_wire.ttrpc(1, 1, b"\xff\xff"), "not a ttrpc.Request"),
    ],
)
def test_a_request_that_violates_the_protocol_is_an_error(data: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        ttrpc.Server().receive(data)


@given(st.binary(max_size=200), CUTS)
def test_garbage_never_raises_anything_but_a_protocol_error(data: bytes, cuts: list[int]) -> None:
    client = ttrpc.Client()
    client.call("s", "m", b"")
    for end in (Demultiplexer(), ttrpc.Server(), client):
        try:
            for piece in pieces(data, cuts):
                end.receive(piece)
        except ProtocolError as error:
            assert str(error)
