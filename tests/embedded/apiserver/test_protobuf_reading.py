"""Protobuf bodies are read as the JSON they stand for; a small writer here inverts the tables."""

import base64
import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.codec.json_and_yaml import ReadError
from corelane.embedded.apiserver.schema.notation import DELETE_OPTIONS, ListType, MapType, ObjectType
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, KINDS

VECTORS = Path(__file__).parents[2] / "data" / "kube_api.jsonl.gz"
BUILT_IN = [kind for kind in (*KINDS, BINDINGS, EVICTIONS) if not kind.custom]
RECORDS = {(kind.api_version(), kind.kind): kind.schema["v1"] for kind in BUILT_IN}


def varint(number):
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def put(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(record, value):
    tree = {}
    for name, member in value.items():
        *above, last = map(int, record.fields[name].number.split("."))
        branch = tree
        for number in above:
            branch = branch.setdefault(number, {})
        branch[last] = b"".join(put(last, part) for part in written(record.fields[name].shape, member))
    return join(tree)


def join(tree):
    return b"".join(put(n, join(part)) if isinstance(part, dict) else part for n, part in tree.items())


def written(shape, value):
    if isinstance(shape, ListType):
        return [leaf(shape.item, item) for item in value]
    if isinstance(shape, MapType):
        return [put(1, k.encode()) + put(2, leaf(shape.value, v)) for k, v in value.items()]
    return [leaf(shape, value)]


def leaf(shape, value):
    if isinstance(shape, ObjectType):
        return message(shape, value)
    match shape.name:
        case "bool" | "int32" | "int64":
            return int(value)
        case "bytes":
            return base64.b64decode(value)
        case "quantity" | "amount":
            return put(1, value.encode())
        case "int-or-string":
            return put(1, 0) + put(2, value) if isinstance(value, int) else put(1, 1) + put(3, value.encode())
        case "raw":
            return put(1, json.dumps(value).encode())
        case "string":
            return value.encode()
    raise AssertionError(shape.name)


def body(api_version, kind, raw):
    names = put(1, api_version.encode()) + put(2, kind.encode())
    return request_bodies.MAGIC + put(1, names) + put(2, raw) + put(3, b"") + put(4, b"")


def recorded():
    """Bodies that the vectors create objects with, where upstream took them."""
    with gzip.open(VECTORS, "rt") as lines:
        steps = [step for line in lines for step in json.loads(line)["steps"]]
    for step in steps:
        found = step.get("body")
        created = step.get("method") == "POST" and step["expect"]["status"] == 201
        if created and isinstance(found, dict) and (found.get("apiVersion"), found.get("kind")) in RECORDS:
            yield found


def filled(value):
    """`value` without empty lists and maps, which protobuf cannot tell from absent ones."""
    if isinstance(value, dict):
        return {k: filled(v) for k, v in value.items() if v not in ({}, [])}
    return [filled(v) for v in value] if isinstance(value, list) else value


def test_a_volume_source_without_a_table_is_refused_and_not_dropped():
    nfs = put(7, b"")
    volume = put(1, b"v") + put(2, nfs)
    with pytest.raises(ReadError, match="send the pod as application/json"):
        request_bodies.read_protobuf(body("v1", "Pod", put(2, put(1, volume))))


def test_what_upstream_took_as_json_reads_the_same_from_protobuf():
    count = 0
    for wanted in recorded():
        rest = {k: v for k, v in wanted.items() if k not in {"apiVersion", "kind"}}
        try:
            raw = message(RECORDS[wanted["apiVersion"], wanted["kind"]], rest)
        except (KeyError, AttributeError, AssertionError):
            continue  # unknown fields, numbers for quantities, times: JSON only
        found = request_bodies.read_protobuf(body(wanted["apiVersion"], wanted["kind"], raw))
        assert filled(found) == filled(wanted)
        count += 1
    assert count > 100


def records(record, found):
    if record.model in found:
        return
    found[record.model] = record
    for row in record:
        shape = row.shape
        while isinstance(shape, ListType | MapType):
            shape = shape.item if isinstance(shape, ListType) else shape.value
        if isinstance(shape, ObjectType):
            records(shape, found)


def test_every_field_of_every_built_in_kind_has_a_number_of_its_own():
    found = {}
    for record in (*RECORDS.values(), DELETE_OPTIONS):
        records(record, found)
    for model, record in found.items():
        numbers = [row.number for row in record if row.name not in {"apiVersion", "kind"} or row.number]
        assert all(numbers), model
        assert len(set(numbers)) == len(numbers), model


def test_times_keep_their_precision_and_the_zero_time_is_null():
    moment = put(1, 1_700_000_000) + put(2, 123_456_789)
    lease = put(1, put(8, moment) + put(9, b"")) + put(2, put(3, moment))
    found = request_bodies.read_protobuf(body("coordination.k8s.io/v1", "Lease", lease))
    assert found["metadata"] == {"creationTimestamp": "2023-11-14T22:13:20Z", "deletionTimestamp": None}
    assert found["spec"] == {"acquireTime": "2023-11-14T22:13:20.123456Z"}


def test_negative_and_packed_numbers_are_read():
    context = put(4, b"".join(map(varint, (1, 300, 70_000)))) + put(2, -1)
    found = request_bodies.read_protobuf(body("v1", "Pod", put(2, put(14, context))))
    assert found["spec"]["securityContext"] == {"supplementalGroups": [1, 300, 70_000], "runAsUser": -1}


def test_fields_of_a_newer_version_are_passed_over():
    raw = (
        put(1, put(1, b"n"))
        + put(99, b"new")
        + varint(98 << 3 | 5)
        + b"1234"
        + varint(97 << 3 | 1)
        + b"12345678"
    )
    assert request_bodies.read_protobuf(body("v1", "Namespace", raw))["metadata"] == {"name": "n"}


def test_delete_options_come_under_the_version_of_any_group():
    found = request_bodies.read_protobuf(body("policy/v1", "DeleteOptions", put(1, 0) + put(2, put(1, b"u"))))
    assert found == {
        "kind": "DeleteOptions",
        "apiVersion": "policy/v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "not Kubernetes' protobuf"),
        (b"{}", "not Kubernetes' protobuf"),
        (request_bodies.MAGIC, 'no kind "" is registered'),
        (body("apps/v1", "Deployment", b""), 'no kind "Deployment" is registered for version "apps/v1"'),
        (body("v1", "Pod", b"")[:-3] + b"\x7f", "unexpected EOF"),
        (body("v1", "Pod", b"\x0a"), "unexpected EOF"),
        (body("v1", "Pod", put(1, 7)), "wrong wire type 0"),
        (body("v1", "Pod", put(2, put(4, b"x"))), "wrong wire type 2 for a number"),
        (body("v1", "Pod", b"\x0b"), "wrong wire type 3"),
        (body("v1", "Pod", put(1, put(1, b"\xff"))), "not UTF-8"),
        (body("v1", "Pod", put(1, put(8, put(1, 1 << 60)))), "out of range"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(raw, fault):
    with pytest.raises(ReadError, match=fault):
        request_bodies.read_protobuf(raw)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_a_read_error(raw):
    for kind in ("Pod", "Node", "ConfigMap"):
        with contextlib.suppress(ReadError):
            request_bodies.read_protobuf(body("v1", kind, raw))
