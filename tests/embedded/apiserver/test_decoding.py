"""Values to objects by the tables: Go's words for what does not fit, and what decoding leaves as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.codec.decoding import MAX_STRICT_ERRORS
from corelane.embedded.apiserver.served_kinds import KINDS, LEASES, PODS, TOPOLOGIES
from corelane.embedded.apiserver.status_errors import StatusError
from support.drawn import objects

POD = '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"%s}]}}'
PROBE = "Probe.spec.containers.livenessProbe.ProbeHandler"
PERIOD = "Probe.spec.containers.livenessProbe.periodSeconds"
SOCKET = "TCPSocketAction.spec.containers.livenessProbe.ProbeHandler.tcpSocket"
PORT = "ContainerPort.spec.containers.ports.containerPort"
ALL = [(kind, version) for kind in KINDS for version in kind.versions]


def read(text, kind=PODS, **more):
    return envelope.decode(kind, kind.version, text.encode(), **more)


def refusal(text, kind=PODS, **more):
    with pytest.raises(StatusError) as refused:
        read(text, kind, **more)
    assert refused.value.code == 400
    return refused.value.message.removeprefix('Pod in version "v1" cannot be handled as a Pod: ')


@pytest.mark.parametrize(
    ("text", "found", "field", "wanted"),
    [
        ('{"spec":1}', "number", "Pod.spec", "v1.PodSpec"),
        ('{"spec":{"containers":{}}}', "object", "PodSpec.spec.containers", "[]v1.Container"),
        (POD % ',"image":1', "number", "Container.spec.containers.image", "string"),
        (POD % ',"tty":"yes"', "string", "Container.spec.containers.tty", "bool"),
        (POD % ',"command":["a",1]', "number", "Container.spec.containers.command", "string"),
        (POD % ',"ports":[{"containerPort":"80"}]', "string", PORT, "int32"),
        (POD % ',"ports":[{"containerPort":4294967296}]', "number 4294967296", PORT, "int32"),
        (POD % ',"ports":[{"containerPort":1.5}]', "number 1.5", PORT, "int32"),
        (POD % ',"livenessProbe":{"httpGet":1}', "number", f"{PROBE}.httpGet", "v1.HTTPGetAction"),
        (POD % ',"livenessProbe":{"periodSeconds":1.5}', "number 1.5", PERIOD, "int32"),
        (POD % ',"livenessProbe":{"tcpSocket":{"port":1.5}}', "number 1.5", f"{SOCKET}.port", "int32"),
        (
            POD % ',"imagePullPolicy":1',
            "number",
            "Container.spec.containers.imagePullPolicy",
            "v1.PullPolicy",
        ),
        ('{"metadata":{"uid":1}}', "number", "ObjectMeta.metadata.uid", "types.UID"),
        ('{"metadata":{"labels":{"a":1}}}', "number", "ObjectMeta.metadata.labels", "string"),
        ('{"metadata":{"labels":[]}}', "array", "ObjectMeta.metadata.labels", "map[string]string"),
        ('{"metadata":{"creationTimestamp":1}}', "number", "ObjectMeta.metadata.creationTimestamp", "string"),
    ],
)
def test_a_value_of_another_type_is_refused_in_gos_words(text, found, field, wanted):
    assert refusal(text) == f"json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"


def test_quantities_and_times_are_refused_in_their_own_words():
    bad = POD % ',"resources":{"limits":{"cpu":"lots"}}'
    assert refusal(bad).startswith("quantities must match the regular expression")
    assert refusal('{"metadata":{"creationTimestamp":"now"}}') == (
        'parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"'
    )
    assert "2006-01-02T15:04:05.000000Z07:00" in str(
        refusal('{"spec":{"renewTime":"2026-01-02T03:04:05Z"}}', LEASES)
    )


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "", "{", '{"kind":1}', '{"apiVersion":[]}'])
def test_a_body_that_is_no_object_is_not_recognized(text):
    assert refusal(text).startswith("the object provided is unrecognized (must be of type Pod)")


def test_the_group_version_and_kind_are_those_of_the_path():
    assert read('{"apiVersion":"v1","kind":"Pod"}')[0]["kind"] == "Pod"
    assert 'no kind "Pot" is registered' in refusal('{"kind":"Pot"}')
    assert "unknown conversion" in refusal('{"kind":"Node","apiVersion":"v1"}')
    assert refusal('{"apiVersion":"coordination.k8s.io/v1beta1","kind":"Lease"}', LEASES) == (
        "the API version in the data (coordination.k8s.io/v1beta1) does not match the expected API version "
        "(coordination.k8s.io/v1)"
    )
    assert "Object 'Kind' is missing" in refusal('{"apiVersion":"topology.node.k8s.io/v1alpha2"}', TOPOLOGIES)


def test_unknown_and_repeated_fields_are_warned_of_refused_or_ignored():
    text = '{"metadata":{"name":"p","x":1},"spec":{"containers":[{"name":"c","name":"d","y":2}]}}'
    said = [
        'unknown field "metadata.x"',
        'duplicate field "spec.containers[0].name"',
        'unknown field "spec.containers[0].y"',
    ]
    obj, warnings = read(text)
    assert warnings == said
    assert obj["spec"]["containers"] == [{"name": "d", "resources": {}}]
    assert read(text, field_validation="Ignore") == (obj, [])
    assert refusal(text, field_validation="Strict") == f"strict decoding error: {', '.join(said)}"


def test_names_of_fields_have_one_case():
    assert read('{"Spec":{},"metadata":{"Name":"p"}}')[1] == [
        'unknown field "Spec"',
        'unknown field "metadata.Name"',
    ]


def test_no_more_is_said_of_unknown_fields_than_upstream_would():
    many = ",".join(f'"x{number}":1' for number in range(200))
    assert len(read(f"{{{many}}}")[1]) == MAX_STRICT_ERRORS


def test_null_is_as_if_nothing_was_said():
    text = (
        '{"metadata":{"name":"p","labels":null},"spec":{"containers":null,"hostUsers":null,"nodeName":null}}'
    )
    assert read(text)[0]["spec"] == {"containers": None}
    assert read(text)[0]["metadata"] == {"name": "p"}


def test_zero_values_go_where_go_leaves_them_out():
    obj, _ = read('{"spec":{"nodeName":"","hostNetwork":false,"hostUsers":false,"priority":0,"volumes":[]}}')
    assert obj["spec"] == {"containers": None, "hostUsers": False, "priority": 0}


def test_a_repeated_object_adds_to_the_one_before():
    obj, _ = read('{"metadata":{"name":"a"},"metadata":{"namespace":"n"}}')
    assert {"name": "a", "namespace": "n"}.items() <= obj["metadata"].items()


def test_features_that_are_off_are_read_and_dropped():
    source = '{"clusterTrustBundle":{"path":"a","name":"b"}}'
    obj, warnings = read(f'{{"spec":{{"volumes":[{{"name":"v","projected":{{"sources":[{source}]}}}}]}}}}')
    assert (obj["spec"]["volumes"][0]["projected"]["sources"], warnings) == ([{}], [])


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
    ["2026-13-01T00:00:00Z", "2023-02-29T00:00:00Z", "0000-00-00", "9999-12-31T23:59:59-01:00", "", "٢٠٢٦"],
)
def test_times_that_are_no_times_are_refused(written):
    assert "parsing time" in refusal(f'{{"metadata":{{"creationTimestamp":"{written}"}}}}')


def test_bytes_are_base64():
    assert envelope.decode(served_kinds.CONFIG_MAPS, "v1", b'{"binaryData":{"a":"aGk="}}')[0][
        "binaryData"
    ] == {"a": "aGk="}
    text = '{"binaryData":{"a":"a*"}}'
    assert refusal(text, served_kinds.CONFIG_MAPS).endswith("illegal base64 data at input byte 1")


@given(st.data())
def test_what_was_decoded_once_stays_as_it_is(data):
    kind, version = data.draw(st.sampled_from(ALL))
    drawn = data.draw(objects(kind.schema[version]))
    drawn |= {"apiVersion": kind.api_version(version), "kind": kind.kind}
    once, _ = envelope.decode(kind, version, json.dumps(drawn).encode())
    twice, warnings = envelope.decode(kind, version, json.dumps(once).encode(), field_validation="Strict")
    assert (twice, warnings) == (once, [])
