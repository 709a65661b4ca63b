"""What a patch leaves that is no object of the kind is refused with field, value and type."""

import json

import pytest

from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import LEASES, PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import patching
from corelane.embedded.apiserver.write.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

LEASE = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40}}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def patched(kind, current, media, patch, **more):
    obj, _ = request_bodies.decode(kind, kind.version, json.dumps(current).encode())
    return patching.apply(kind, media, obj, json.dumps(patch).encode(), **more)


def refusal(kind, current, media, patch, **more):
    with pytest.raises(StatusError) as refused:
        patched(kind, current, media, patch, **more)
    assert refused.value.code == 422
    (cause,) = refused.value.details["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")
    return cause["message"]


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"holderIdentity": 1}, "spec.holderIdentity: got number 1, expected a string"),
        ({"holderIdentity": ["me"]}, "spec.holderIdentity: got list, expected a string"),
        ({"leaseDurationSeconds": 1.5}, "spec.leaseDurationSeconds: got number 1.5, expected an integer"),
        ({"leaseDurationSeconds": 2**31}, "spec.leaseDurationSeconds: got number 2147483648, expected"),
        ({"leaseDurationSeconds": "40"}, 'spec.leaseDurationSeconds: got string "40", expected an integer'),
        ({"renewTime": {}}, "spec.renewTime: got object, expected a time"),
        (["a"], "spec: got list, expected an object"),
    ],
)
def test_a_patch_to_a_value_of_another_type_is_refused(media, spec, why):
    assert why in refusal(LEASES, LEASE, media, {"spec": spec})


def test_whole_numbers_of_a_strategic_patch_have_no_fraction():
    for number, left in ((1.0, 1), (1e3, 1000)):
        obj, _ = patched(LEASES, LEASE, STRATEGIC_PATCH, {"spec": {"leaseDurationSeconds": number}})
        assert repr(obj["spec"]["leaseDurationSeconds"]) == repr(left)


def test_a_strategic_patch_does_not_change_what_an_object_is():
    obj, warnings = patched(LEASES, LEASE, STRATEGIC_PATCH, {"kind": "Pod", "apiVersion": "v9"})
    assert (obj["kind"], obj["apiVersion"], warnings) == ("Lease", "coordination.k8s.io/v1", [])


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
def test_unknown_fields_are_named_in_alphabetical_order(media):
    _, warnings = patched(LEASES, LEASE, media, {"zones": 1, "areas": 2, "metadata": {"size": 3}})
    assert warnings == [f'unknown field "{name}"' for name in ("areas", "metadata.size", "zones")]


def test_a_json_patch_to_a_value_of_another_type_is_refused():
    why = refusal(PODS, POD, JSON_PATCH, [{"op": "add", "path": "/status", "value": 1}])
    assert "status: got number 1, expected an object" in why
