"""Metadata that is refused, and why."""

import pytest

from support.pod_faults import agree, faults

METADATA = [
    ({"metadata": {"name": "A"}}, 'name: Invalid value: "A": a lowercase RFC 1123 subdomain…'),
    (
        {"metadata": {"generateName": "A-", "name": ""}},
        "name: Required value: name or generateName is required",
    ),
    ({"metadata": {"namespace": ""}}, "namespace: Required value"),
    (
        {"metadata": {"labels": {"": "x"}}},
        'labels: Invalid value: "": name part must be non-empty',
        'labels: Invalid value: "": name part must consist of…',
    ),
    ({"metadata": {"labels": {"a/b/c": "x"}}}, 'labels: Invalid value: "a/b/c": a valid label key…'),
    ({"metadata": {"labels": {"/b": "x"}}}, 'labels: Invalid value: "/b": prefix part must be non-empty'),
    (
        {"metadata": {"labels": {"a/": "x"}}},
        'labels: Invalid value: "a/": name part must be non-empty',
        'labels: Invalid value: "a/": name part must consist of…',
    ),
    ({"metadata": {"labels": {"a": "-"}}}, 'labels: Invalid value: "-": a valid label must be…'),
    (
        {"metadata": {"annotations": {"A b": ""}}},
        'annotations: Invalid value: "A b": name part must consist of…',
    ),
    (
        {"metadata": {"annotations": {"a": "x" * 300000}}},
        "annotations: Too long: may not be more than 262144 bytes",
    ),
    (
        {"metadata": {"ownerReferences": [{}]}},
        'ownerReferences.apiVersion: Invalid value: "": version must not be empty',
        'ownerReferences.kind: Invalid value: "": must not be empty',
        'ownerReferences.name: Invalid value: "": must not be empty',
        'ownerReferences.uid: Invalid value: "": must not be empty',
    ),
    (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}},
        (
            'ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: '
            "/v1, Kind=Event is disallowed from being an owner"
        ),
    ),
    (
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "e", "uid": "u", "controller": True},
                    {"apiVersion": "v1", "kind": "B", "name": "f", "uid": "w", "controller": True},
                ]
            }
        },
        (
            'ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"e","uid":"u",'
            '"controller":true},{"apiVersion":"v1","kind":"B","name":"f","uid":"w",'
            '"controller":true}]: Only one reference can have Controller set to true. Found "true" in '
            "references for A/e and B/f"
        ),
    ),
    (
        {"metadata": {"finalizers": ["a"]}},
        (
            'finalizers[0]: Invalid value: "a": name is neither a standard finalizer name nor is it '
            "fully qualified"
        ),
    ),
    (
        {"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}},
        (
            'finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
            "foregroundDeletion cannot be both set"
        ),
    ),
    (
        {"metadata": {"managedFields": [{"operation": "X", "fieldsType": "Y"}]}},
        'managedFields[0].operation: Invalid value: "X": must be `Apply` or `Update`',
        'managedFields[0].fieldsType: Invalid value: "Y": must be `FieldsV1`',
    ),
    (
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        (
            'annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if '
            "mirror pod annotation is set"
        ),
    ),
    (
        {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "01"}}},
        (
            'annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "01": must be a '
            "32bit integer"
        ),
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in METADATA])
def test_metadata_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "metadata.")
