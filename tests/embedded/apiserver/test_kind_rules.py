"""Nodes, namespaces, config maps, leases, priority classes, events and bindings that are refused, and why."""

import json

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
)
from corelane.embedded.apiserver.write import strategy
from support.pod_faults import agree, merged, spec

M = {"metadata": {"name": "n"}}
D = {"metadata": {"name": "n", "namespace": "d"}}
REFUSED = [
    (
        NODES,
        merged(
            M,
            spec(
                taints=[
                    {"key": "a", "effect": "NoExecute", "value": "a b"},
                    {"key": "a", "effect": "NoExecute"},
                ]
            ),
        ),
        "metadata.taints[0].value: Invalid",
        "metadata.taints[1]: Duplicate",
    ),
    (
        NODES,
        merged(M, {"status": {"capacity": {"cpu": "-1", "odd": "1", "a.b/c": "1500m"}}}),
        "status.capacity.a.b/c: Invalid",
        "status.capacity.cpu: Invalid",
        "status.allocatable.a.b/c: Invalid",
        "status.allocatable.cpu: Invalid",
    ),
    (NAMESPACES, merged(M, {"metadata": {"namespace": "x"}}), "metadata.namespace: Forbidden"),
    (NAMESPACES, merged(M, spec(finalizers=["a b", "c"])), "spec.finalizers: Invalid"),
    (
        CONFIG_MAPS,
        merged(D, {"data": {"a b": "", "..": "", "c": ""}, "binaryData": {"c": ""}}),
        "data[a b]: Invalid",
        "data[..]: Invalid",
        "data[c]: Invalid",
    ),
    (PRIORITY_CLASSES, merged(M, {"value": 1000000001}), "value: Forbidden"),
    (PRIORITY_CLASSES, {"metadata": {"name": "system-a"}, "value": 1}, "metadata.name: Forbidden"),
    (
        PRIORITY_CLASSES,
        {"metadata": {"name": "system-node-critical"}, "value": 1},
        "metadata.name: Forbidden",
    ),
    (
        PRIORITY_CLASSES,
        {"metadata": {"name": "system-node-critical"}, "value": 2000001000, "globalDefault": True},
        "metadata.name: Forbidden",
    ),
    (
        EVENTS,
        merged(D, {"eventTime": "2026-01-02T03:04:05.000006Z"}),
        "involvedObject.namespace: Invalid",
        "reportingComponent: Required",
        "reportingComponent: Invalid",
        "reportingInstance: Required",
        "action: Required",
        "reason: Required",
    ),
    (
        EVENTS,
        merged(
            D,
            {
                "eventTime": "2026-01-02T03:04:05.000006Z",
                "involvedObject": {"namespace": "d"},
                "reportingComponent": "a b",
                "reportingInstance": "x" * 129,
                "action": "a",
                "reason": "r",
                "message": "m" * 1025,
            },
        ),
        "reportingComponent: Invalid",
        "reportingInstance: Invalid",
        "message: Invalid",
    ),
]
ACCEPTED = [
    (NODES, merged(M, spec(unschedulable=True))),
    (LEASES, merged(D, spec(holderIdentity=""))),
    (PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 2000001000}),
]


def faults(kind, body):
    obj, _ = request_bodies.decode(kind, kind.version, json.dumps(body).encode())
    strategy.prepare_create(kind, obj)
    return [f"{cause.field}: {cause.message}" for cause in validation.create(kind, obj)]


@pytest.mark.parametrize(("kind", "body", "expected"), [(kind, body, more) for kind, body, *more in REFUSED])
def test_an_object_is_refused_by_field_and_kind(kind, body, expected):
    assert agree(faults(kind, body), expected)


@pytest.mark.parametrize(("kind", "body"), ACCEPTED)
def test_a_sound_object_is_accepted(kind, body):
    assert faults(kind, body) == []
