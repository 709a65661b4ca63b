"""Nodes, namespaces, config maps, leases, priority classes, events and bindings that are refused, and why."""

import json

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import envelope
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
        {"metadata": {"name": "N"}},
        'metadata.name: Invalid value: "N": a lowercase RFC 1123 subdomain…',
    ),
    (
        NODES,
        merged(M, spec(taints=[{"key": "", "effect": ""}])),
        'metadata.taints[0].key: Invalid value: "": name part must be non-empty',
        'metadata.taints[0].key: Invalid value: "": name part must consist of…',
        "metadata.taints[0].effect: Required value",
    ),
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
        'metadata.taints[0].value: Invalid value: "a b": a valid label must be…',
        "metadata.taints[1]: Duplicate value: …",
    ),
    (
        NODES,
        merged(M, spec(taints=[{"key": "a", "effect": "Kill"}])),
        (
            'metadata.taints[0].effect: Unsupported value: "Kill": supported values: "NoSchedule", '
            '"PreferNoSchedule", "NoExecute"'
        ),
    ),
    (
        NODES,
        merged(M, {"status": {"capacity": {"cpu": "-1", "odd": "1", "a.b/c": "1500m"}}}),
        'status.capacity.a.b/c: Invalid value: "1500m": must be an integer',
        'status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0',
        'status.allocatable.a.b/c: Invalid value: "1500m": must be an integer',
        'status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        NODES,
        merged(M, spec(podCIDRs=["x", "10.0.0.0/24"])),
        (
            'spec.podCIDRs[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or '
            "2001:db8::/64)"
        ),
        (
            'spec.podCIDRs: Invalid value: ["x","10.0.0.0/24"]: may specify no more than one CIDR for '
            "each IP family"
        ),
    ),
    (
        NODES,
        merged(M, spec(podCIDRs=["10.1.0.0/24", "10.0.0.0/24"])),
        (
            'spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.0.0.0/24"]: may specify no more than one '
            "CIDR for each IP family"
        ),
    ),
    (
        NODES,
        merged(M, {"status": {"declaredFeatures": ["b", "B", "B", "A"]}}),
        'status.declaredFeatures[0]: Invalid value: "b": invalid feature name…',
        'status.declaredFeatures[1]: Invalid value: "B": list must be sorted alphabetically',
        'status.declaredFeatures[2]: Duplicate value: "B"',
        'status.declaredFeatures[3]: Invalid value: "A": list must be sorted alphabetically',
    ),
    (
        NODES,
        merged(M, {"status": {"nodeInfo": {"swap": {"capacity": 0}}}}),
        "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be a positive value",
    ),
    (NAMESPACES, {"metadata": {"name": "a.b"}}, 'metadata.name: Invalid value: "a.b": must not contain dots'),
    (
        NAMESPACES,
        merged(M, {"metadata": {"namespace": "x"}}),
        "metadata.namespace: Forbidden: not allowed on this type",
    ),
    (
        NAMESPACES,
        merged(M, spec(finalizers=["a b", "c"])),
        'spec.finalizers: Invalid value: "a b": name part must consist of…',
        (
            'spec.finalizers: Invalid value: "a b": name is neither a standard finalizer name nor is '
            "it fully qualified"
        ),
        (
            'spec.finalizers: Invalid value: "c": name is neither a standard finalizer name nor is it '
            "fully qualified"
        ),
    ),
    (
        CONFIG_MAPS,
        merged(D, {"data": {"a b": "", "..": "", "c": ""}, "binaryData": {"c": ""}}),
        'data[a b]: Invalid value: "a b": a valid config key…',
        "data[..]: Invalid value: \"..\": must not be '..'",
        'data[c]: Invalid value: "c": duplicate of key present in binaryData',
    ),
    (
        CONFIG_MAPS,
        merged(D, {"data": {"a": "x" * 1048577}}),
        "[]: Too long: may not be more than 1048576 bytes",
    ),
    (
        LEASES,
        merged(D, spec(leaseDurationSeconds=0, leaseTransitions=-1)),
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        PRIORITY_CLASSES,
        merged(M, {"value": 1000000001}),
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
    (
        PRIORITY_CLASSES,
        {"metadata": {"name": "system-a"}, "value": 1},
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
            "system use only. error: system-a is not a known system priority class"
        ),
    ),
    (
        PRIORITY_CLASSES,
        {"metadata": {"name": "system-node-critical"}, "value": 1},
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
            "system use only. error: value of system-node-critical PriorityClass must be 2000001000"
        ),
    ),
    (
        PRIORITY_CLASSES,
        {"metadata": {"name": "system-node-critical"}, "value": 2000001000, "globalDefault": True},
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
            "system use only. error: globalDefault of system-node-critical PriorityClass must be false"
        ),
    ),
    (
        PRIORITY_CLASSES,
        merged(M, {"preemptionPolicy": "X"}),
        'preemptionPolicy: Unsupported value: "X": supported values: "PreemptLowerPriority", "Never"',
    ),
    (PRIORITY_CLASSES, merged(M, {"preemptionPolicy": ""}), "preemptionPolicy: Required value"),
    (EVENTS, D, 'involvedObject.namespace: Invalid value: "": does not match event.namespace'),
    (
        EVENTS,
        merged(D, {"involvedObject": {"namespace": "x"}}),
        'involvedObject.namespace: Invalid value: "x": does not match event.namespace',
    ),
    (
        EVENTS,
        merged(D, {"eventTime": "2026-01-02T03:04:05.000006Z"}),
        'involvedObject.namespace: Invalid value: "": does not match event.namespace',
        "reportingComponent: Required value",
        'reportingComponent: Invalid value: "": name part must be non-empty',
        'reportingComponent: Invalid value: "": name part must consist of…',
        "reportingInstance: Required value",
        "action: Required value",
        "reason: Required value",
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
        'reportingComponent: Invalid value: "a b": name part must consist of…',
        'reportingInstance: Invalid value: "": can have at most 128 characters',
        'message: Invalid value: "": can have at most 1024 characters',
    ),
]
ACCEPTED = [
    (NODES, merged(M, spec(unschedulable=True))),
    (LEASES, merged(D, spec(holderIdentity=""))),
    (PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 2000001000}),
]


def faults(kind, body):
    obj, _ = envelope.decode(kind, kind.version, json.dumps(body).encode())
    strategy.prepare_create(kind, obj)
    return [f"{cause.field}: {cause.message}" for cause in validation.create(kind, obj)]


@pytest.mark.parametrize(("kind", "body", "expected"), [(kind, body, more) for kind, body, *more in REFUSED])
def test_an_object_is_refused_in_upstreams_words(kind, body, expected):
    assert agree(faults(kind, body), expected)


@pytest.mark.parametrize(("kind", "body"), ACCEPTED)
def test_a_sound_object_is_accepted(kind, body):
    assert faults(kind, body) == []
