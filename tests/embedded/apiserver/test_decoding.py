"""Values to objects by the tables: faults with field, value and type, and what decoding leaves as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.codec.decoding import MAX_STRICT_ERRORS
from corelane.embedded.apiserver.served_kinds import KINDS, LEASES, PODS, TOPOLOGIES
from corelane.embedded.apiserver.status_errors import StatusError
from support.drawn import objects

POD = '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"%s}]}}'
ALL = [(kind, version) for kind in KINDS for version in kind.versions]


def read(text, kind=PODS, **more):
    return request_bodies.decode(kind, kind.version, text.encode(), **more)


def refusal(text, kind=PODS, **more):
    with pytest.raises(StatusError) as refused:
        read(text, kind, **more)
    assert refused.value.code == 400
    return refused.value.message


INT32 = "an integer from -2147483648 to 2147483647"
PORTS, FIRST_PORT = ',"ports":[{{"containerPort":{}}}]', "spec.containers[0].ports[0]"
PERIOD, PORT = ',"livenessProbe":{"periodSeconds":1.5}', ',"livenessProbe":{"tcpSocket":{"port":1.5}}'
LIMIT = ',"resources":{"limits":{"cpu":"lots"}}'


@pytest.mark.parametrize(
    ("text", "field", "found", "expected"),
    [
        ('{"spec":1}', "spec", "number 1", "an object"),
        ('{"spec":{"containers":{}}}', "spec.containers", "object", "a list"),
        ('{"metadata":{"labels":{"a":1}}}', "metadata.labels.a", "number 1", "a string"),
        ('{"metadata":{"labels":[]}}', "metadata.labels", "list", "an object"),
        (
            '{"metadata":{"creationTimestamp":1}}',
            "metadata.creationTimestamp",
            "number 1",
            "a time in RFC 3339",
        ),
        (POD % ',"image":1', "spec.containers[0].image", "number 1", "a string"),
        (POD % ',"tty":"yes"', "spec.containers[0].tty", 'string "yes"', "true or false"),
        (POD % ',"command":["a",1]', "spec.containers[0].command[1]", "number 1", "a string"),
        (POD % PORTS.format('"80"'), f"{FIRST_PORT}.containerPort", 'string "80"', INT32),
        (POD % PORTS.format(2**32), f"{FIRST_PORT}.containerPort", "number 4294967296", INT32),
        (POD % PERIOD, "spec.containers[0].livenessProbe.periodSeconds", "number 1.5", INT32),
        (
            POD % PORT,
            "spec.containers[0].livenessProbe.tcpSocket.port",
            "number 1.5",
            "an integer or a string",
        ),
        (POD % LIMIT, "spec.containers[0].resources.limits.cpu", 'string "lots"', "a quantity such as 500m"),
    ],
)
def test_a_value_of_another_type_is_refused_with_field_value_and_type(text, field, found, expected):
    assert refusal(text).startswith(f"Pod: {field}: got {found}, expected {expected}")


def test_the_group_version_and_kind_are_those_of_the_path():
    assert read('{"apiVersion":"v1","kind":"Pod"}')[0]["kind"] == "Pod"
    assert refusal('{"kind":"Pot"}').endswith("got v1 Pot, expected v1 Pod")
    assert refusal('{"apiVersion":"coordination.k8s.io/v1beta1","kind":"Lease"}', LEASES).endswith(
        "got coordination.k8s.io/v1beta1 Lease, expected coordination.k8s.io/v1 Lease"
    )
    assert "kind is missing" in refusal('{"apiVersion":"topology.node.k8s.io/v1alpha2"}', TOPOLOGIES)


def test_no_more_is_said_of_unknown_fields_than_upstream_would():
    many = ",".join(f'"x{number}":1' for number in range(200))
    assert len(read(f"{{{many}}}")[1]) == MAX_STRICT_ERRORS


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z"),
        ("2024-02-29T23:59:59-01:00", "2024-03-01T00:59:59Z"),
    ],
)
def test_times_are_kept_in_utc_to_the_second(written, canonical):
    obj, _ = read(f'{{"metadata":{{"creationTimestamp":"{written}"}}}}')
    assert obj["metadata"]["creationTimestamp"] == canonical


@pytest.mark.parametrize(
    "written",
    [
        "2026-13-01T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "0000-00-00",
        "9999-12-31T23:59:59-01:00",
        "",
        "٢٠٢٦",
        "2026-01-02T24:00:00Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T3:04:05Z",
        "2026-01-02T03:04:05,5Z",
    ],
)
def test_times_that_are_no_times_are_refused(written):
    assert "expected a time in RFC 3339" in refusal(f'{{"metadata":{{"creationTimestamp":"{written}"}}}}')


def test_bytes_are_base64():
    assert request_bodies.decode(served_kinds.CONFIG_MAPS, "v1", b'{"binaryData":{"a":"aGk="}}')[0][
        "binaryData"
    ] == {"a": "aGk="}
    text = '{"binaryData":{"a":"a*"}}'
    assert refusal(text, served_kinds.CONFIG_MAPS) == (
        "ConfigMap: binaryData.a: got string that is not base64, expected base64"
    )


@given(st.data())
def test_what_was_decoded_once_stays_as_it_is(data):
    kind, version = data.draw(st.sampled_from(ALL))
    drawn = data.draw(objects(kind.schema[version]))
    drawn |= {"apiVersion": kind.api_version(version), "kind": kind.kind}
    once, _ = request_bodies.decode(kind, version, json.dumps(drawn).encode())
    twice, warnings = request_bodies.decode(
        kind, version, json.dumps(once).encode(), field_validation="Strict"
    )
    assert (twice, warnings) == (once, [])
