"""What a patch leaves that is no object of the kind: upstream's faults, in its order, words and quotes."""

import json

import pytest

from corelane.embedded.apiserver.codec import envelope, go_rendering
from corelane.embedded.apiserver.codec.json_reading import read_json
from corelane.embedded.apiserver.served_kinds import EVENTS, LEASES, PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import patching
from corelane.embedded.apiserver.write.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

LEASE = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40}}
EVENT = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Started"}
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "activeDeadlineSeconds": 5},
}


def patched(kind, current, media, patch, **more):
    obj, _ = envelope.decode(kind, kind.version, json.dumps(current).encode())
    return patching.apply(kind, media, obj, json.dumps(patch).encode(), **more)


def refusal(kind, current, media, patch, **more):
    with pytest.raises(StatusError) as refused:
        patched(kind, current, media, patch, **more)
    assert refused.value.code == 422
    (cause,) = refused.value.details["causes"]
    assert cause["field"] == "patch"
    quoted, why = cause["message"].removeprefix('Invalid value: "').split('": ', 1)
    return quoted.replace('\\"', '"'), why


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"holderIdentity": 1}, "cannot convert int64 to string"),
        ({"holderIdentity": True}, "unrecognized type: string"),
        ({"holderIdentity": ["me"]}, "unrecognized type: string"),
        ({"leaseDurationSeconds": 1.5}, "cannot convert float64 to int32"),
        ({"leaseDurationSeconds": "40"}, "unrecognized type: int32"),
        ({"strategy": 1}, "cannot convert int64 to v1.CoordinatedLeaseStrategy"),
        ({"renewTime": {}}, "json: cannot unmarshal object into Go value of type string"),
        (["a"], "cannot restore struct from: slice"),
        (2**63, "cannot restore struct from: float64"),
    ],
)
def test_a_strategic_patch_is_read_field_by_field(spec, why):
    quoted, said = refusal(LEASES, LEASE, STRATEGIC_PATCH, {"spec": spec})
    assert said == why
    assert quoted == f"map[spec:{go_rendering.printed(spec)}]"


def test_numbers_of_a_strategic_patch_are_converted_as_go_converts_them():
    for number, left in ((1.0, 1), (1e3, 1000), (2**31, -(2**31)), (2**32 + 7, 7)):
        obj, _ = patched(LEASES, LEASE, STRATEGIC_PATCH, {"spec": {"leaseDurationSeconds": number}})
        assert obj["spec"]["leaseDurationSeconds"] == left


def test_the_first_fault_of_a_strategic_patch_is_the_first_of_the_types_fields():
    _, why = refusal(EVENTS, EVENT, STRATEGIC_PATCH, {"type": 1, "count": "x", "message": []})
    assert why == "unrecognized type: string"
    _, why = refusal(EVENTS, EVENT, STRATEGIC_PATCH, {"type": 1, "count": "x"})
    assert why == "unrecognized type: int32"


def test_a_strategic_patch_does_not_change_what_an_object_is():
    obj, warnings = patched(LEASES, LEASE, STRATEGIC_PATCH, {"kind": "Pod", "apiVersion": "v9"})
    assert (obj["kind"], obj["apiVersion"], warnings) == ("Lease", "coordination.k8s.io/v1", [])


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
def test_unknown_fields_are_named_in_alphabetical_order(media):
    _, warnings = patched(LEASES, LEASE, media, {"zones": 1, "areas": 2, "metadata": {"size": 3}})
    assert warnings == [f'unknown field "{name}"' for name in ("areas", "metadata.size", "zones")]


def test_a_fault_that_ends_reading_goes_before_one_that_does_not():
    both = {"spec": {"holderIdentity": 1, "renewTime": "now"}}
    _, why = refusal(LEASES, LEASE, MERGE_PATCH, both)
    assert why.startswith('parsing time "now" as')
    _, why = refusal(LEASES, LEASE, MERGE_PATCH, {"spec": {"holderIdentity": 1, "leaseTransitions": "x"}})
    assert "LeaseSpec.spec.holderIdentity" in why


def test_a_merged_document_is_quoted_in_alphabetical_order_and_what_was_not_touched_in_its_own():
    quoted, why = refusal(PODS, POD, MERGE_PATCH, {"spec": {"activeDeadlineSeconds": "x<"}})
    assert quoted == (
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},'
        '"spec":{"activeDeadlineSeconds":"x\\\\u003c",'
        '"containers":[{"name":"c","image":"i","resources":{}}]},"status":{}}'
    )
    assert why == (
        "json: cannot unmarshal string into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64"
    )


def test_a_json_patch_sorts_what_it_goes_into_and_keeps_numbers_as_they_stood():
    operations = '[{"op": "add", "path": "/spec/leaseTransitions", "value": 1.50}]'
    obj, _ = envelope.decode(LEASES, "v1", json.dumps(LEASE).encode())
    with pytest.raises(StatusError) as refused:
        patching.apply(LEASES, JSON_PATCH, obj, operations.encode())
    text = refused.value.message.replace('\\"', '"')
    assert '"spec":{"holderIdentity":"me","leaseDurationSeconds":40,"leaseTransitions":1.50}' in text
    assert "json: cannot unmarshal number 1.50 into Go struct field LeaseSpec.spec.leaseTransitions" in text


def test_a_strict_patch_names_every_field_and_quotes_the_patch():
    quoted, why = refusal(LEASES, LEASE, STRATEGIC_PATCH, {"b": 1, "a": None}, field_validation="Strict")
    assert quoted == "map[a:<nil> b:1]"
    assert why == 'strict decoding error: unknown field "b"'


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("null", "<nil>"),
        ("true", "true"),
        ('"a b"', "a b"),
        ('{"b":[1,"x",[]],"a":{}}', "map[a:map[] b:[1 x []]]"),
        ("1.0", "1"),
        ("0.5", "0.5"),
        ("123456.5", "123456.5"),
        ("1e6", "1e+06"),
        ("-2.5e-7", "-2.5e-07"),
        ("0.0001", "0.0001"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9.223372036854776e+18"),
        ("1e300", "1e+300"),
    ],
)
def test_values_are_printed_as_by_go(text, printed):
    assert go_rendering.printed(read_json(text.encode())) == printed


def test_what_a_patch_did_not_touch_is_quoted_in_the_order_of_gos_fields_and_keys():
    spec = {
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"b": "1", "a": "2"},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "x",
    }
    current = {"metadata": {"name": "p"}, "spec": spec}
    quoted, why = refusal(PODS, current, JSON_PATCH, [{"op": "add", "path": "/status", "value": 1}])
    places = [
        quoted.index(f'"{name}":') for name in ("volumes", "containers", "nodeSelector", "schedulerName")
    ]
    assert places == sorted(places)
    assert '"nodeSelector":{"a":"2","b":"1"}' in quoted
    assert why == "json: cannot unmarshal number into Go struct field Pod.status of type v1.PodStatus"


@pytest.mark.parametrize(
    ("containers", "code", "message"),
    [
        (["x"], 500, "list element types are not identical: [[map[image:i name:c resources:map[]]] [x]]"),
        ([["x"]], 500, "list element types are not identical: [[map[image:i name:c resources:map[]]] [[x]]]"),
        (
            [{"env": [{"name": "A"}]}],
            500,
            "map: map[env:[map[name:A]]] does not contain declared merge key: name",
        ),
    ],
)
def test_lists_that_cannot_be_merged_are_shown_as_go_prints_them(containers, code, message):
    with pytest.raises(StatusError) as refused:
        patched(PODS, POD, STRATEGIC_PATCH, {"spec": {"containers": containers}})
    assert (refused.value.code, refused.value.message) == (code, message)
