"""Metadata that is refused, and why."""

import pytest

from support.pod_faults import agree, faults

METADATA = [
    ({"metadata": {"name": "A"}}, 'name: Invalid value: "A"…'),
    (
        {"metadata": {"generateName": "A-", "name": ""}},
        "name: Required value…",
    ),
    ({"metadata": {"namespace": ""}}, "namespace: Required value"),
    (
        {"metadata": {"labels": {"": "x"}}},
        'labels: Invalid value: ""…',
        'labels: Invalid value: ""…',
    ),
    ({"metadata": {"labels": {"a/b/c": "x"}}}, 'labels: Invalid value: "a/b/c"…'),
    ({"metadata": {"labels": {"/b": "x"}}}, 'labels: Invalid value: "/b"…'),
    (
        {"metadata": {"labels": {"a/": "x"}}},
        'labels: Invalid value: "a/"…',
        'labels: Invalid value: "a/"…',
    ),
    ({"metadata": {"labels": {"a": "-"}}}, 'labels: Invalid value: "-"…'),
    (
        {"metadata": {"annotations": {"A b": ""}}},
        'annotations: Invalid value: "A b"…',
    ),
    (
        {"metadata": {"annotations": {"a": "x" * 300000}}},
        "annotations: Too long…",
    ),
    (
        {"metadata": {"ownerReferences": [{}]}},
        'ownerReferences.apiVersion: Invalid value: ""…',
        'ownerReferences.kind: Invalid value: ""…',
        'ownerReferences.name: Invalid value: ""…',
        'ownerReferences.uid: Invalid value: ""…',
    ),
    (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}},
        'ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}…',
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
        "ownerReferences: Invalid…",
    ),
    (
        {"metadata": {"finalizers": ["a"]}},
        'finalizers[0]: Invalid value: "a"…',
    ),
    (
        {"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}},
        'finalizers: Invalid value: ["orphan","foregroundDeletion"]…',
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in METADATA])
def test_metadata_is_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected, "metadata.")
