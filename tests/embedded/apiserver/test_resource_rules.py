"""Resources and privileges that are refused, and why."""

import pytest

from support.pod_faults import agree, container, faults, merged, spec

RESOURCES = [
    (
        container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
        'resources.requests: Invalid value: "2"…',
    ),
    (
        container(resources={"limits": {"cpu": "-1"}}),
        'resources.limits[cpu]: Invalid value: "-1"…',
        'resources.requests[cpu]: Invalid value: "-1"…',
    ),
    (
        container(resources={"limits": {"foo": "1"}}),
        'resources.limits[foo]: Invalid value: "foo"…',
        'resources.limits[foo]: Invalid value: "foo"…',
        'resources.requests[foo]: Invalid value: "foo"…',
        'resources.requests[foo]: Invalid value: "foo"…',
    ),
    (
        container(resources={"requests": {"a.b/c": "1"}}),
        "resources.limits: Required value…",
    ),
    (
        container(resources={"limits": {"a.b/c": "1500m"}}),
        'resources.limits[a.b/c]: Invalid value: "1500m"…',
        'resources.requests[a.b/c]: Invalid value: "1500m"…',
    ),
    (
        container(resources={"limits": {"requests.x.y/z": "1"}}),
        'resources.limits[requests.x.y/z]: Invalid value: "requests.x.y/z"…',
        'resources.requests[requests.x.y/z]: Invalid value: "requests.x.y/z"…',
    ),
    (
        container(resources={"limits": {"hugepages-2Mi": "2Mi"}}),
        "resources: Forbidden…",
    ),
    (
        container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
        'resources.limits[hugepages-2Mi]: Invalid value: "3Mi"…',
        'resources.requests[hugepages-2Mi]: Invalid value: "3Mi"…',
    ),
    (
        container(
            resources={
                "limits": {"hugepages-2Mi": "4Mi", "cpu": "1"},
                "requests": {"hugepages-2Mi": "2Mi", "cpu": "1"},
            }
        ),
        'resources.requests: Invalid value: "2Mi"…',
    ),
    (
        merged(
            spec(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
            container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        ),
        '/spec.resources.requests[cpu]: Invalid value: "1"…',
        '/spec.resources.containers[0][cpu].limits: Invalid value: "2"…',
    ),
    (
        container(resizePolicy=[{"resourceName": "", "restartPolicy": ""}]),
        "resizePolicy[0].resourceName: Required value",
        "resizePolicy[0].restartPolicy: Required value",
    ),
    (
        container(resources={"limits": {"hugepages-lots": "2Mi", "cpu": "1"}}),
        'resources.limits[hugepages-lots]: Invalid value: "2Mi"…',
        'resources.requests[hugepages-lots]: Invalid value: "2Mi"…',
    ),
    (
        spec(resources={"limits": {"storage": "1"}}),
        '/spec.resources.limits[storage]: Unsupported value: "storage"…',
    ),
    (
        merged(
            spec(resources={"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}),
            container(resources={"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
        ),
        '/spec.resources.requests[hugepages-2Mi]: Invalid value: "2Mi"…',
        '/spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi"…',
        '/spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: "4Mi"…',
    ),
]

SECURITY = [
    (
        container(securityContext={"runAsUser": -1, "runAsGroup": 4294967296}),
        "securityContext.runAsUser: Invalid value: -1…",
        "securityContext.runAsGroup: Invalid value: 4294967296…",
    ),
    (
        container(securityContext={"procMount": "X"}),
        'securityContext.procMount: Unsupported value: "X"…',
    ),
    (
        container(securityContext={"seccompProfile": {"type": ""}}),
        "securityContext.seccompProfile.type: Required value…",
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "X"}}),
        'securityContext.appArmorProfile.type: Unsupported value: "X"…',
    ),
]


@pytest.mark.parametrize(
    ("change", "expected"), [(change, expected) for change, *expected in [*RESOURCES, *SECURITY]]
)
def test_resources_and_privileges_are_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")
