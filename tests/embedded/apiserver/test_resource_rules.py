"""Resources and privileges that are refused, and why."""

import pytest

from support.pod_faults import agree, container, faults, merged, spec

RESOURCES = [
    (
        container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
        'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        container(resources={"limits": {"cpu": "-1"}}),
        'resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        'resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        container(resources={"limits": {"foo": "1"}}),
        'resources.limits[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
        'resources.limits[foo]: Invalid value: "foo": must be a standard resource for containers',
        (
            'resources.requests[foo]: Invalid value: "foo": must be a standard resource type or fully '
            "qualified"
        ),
        'resources.requests[foo]: Invalid value: "foo": must be a standard resource for containers',
    ),
    (
        container(resources={"requests": {"a.b/c": "1"}}),
        "resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    (
        container(resources={"limits": {"a.b/c": "1500m"}}),
        'resources.limits[a.b/c]: Invalid value: "1500m": must be an integer',
        'resources.requests[a.b/c]: Invalid value: "1500m": must be an integer',
    ),
    (
        container(resources={"limits": {"requests.x.y/z": "1"}}),
        (
            'resources.limits[requests.x.y/z]: Invalid value: "requests.x.y/z": doesn\'t follow '
            "extended resource name standard"
        ),
        (
            'resources.requests[requests.x.y/z]: Invalid value: "requests.x.y/z": doesn\'t follow '
            "extended resource name standard"
        ),
    ),
    (
        container(resources={"limits": {"hugepages-2Mi": "2Mi"}}),
        "resources: Forbidden: HugePages require cpu or memory",
    ),
    (
        container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
        (
            'resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer '
            "multiple of hugepages-2Mi"
        ),
        (
            'resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer '
            "multiple of hugepages-2Mi"
        ),
    ),
    (
        container(
            resources={
                "limits": {"hugepages-2Mi": "4Mi", "cpu": "1"},
                "requests": {"hugepages-2Mi": "2Mi", "cpu": "1"},
            }
        ),
        'resources.requests: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 4Mi',
    ),
    (
        container(resources={"claims": [{"name": ""}, {"name": "x"}]}),
        "resources.claims[0]: Required value",
        (
            'resources.claims[1]: Not found: "x": must be one of the names in pod.spec.resourceClaims '
            "which is empty"
        ),
    ),
    (
        merged(
            spec(resourceClaims=[{"name": "x", "resourceClaimName": "a"}]),
            container(resources={"claims": [{"name": "x"}, {"name": "x"}, {"name": "x", "request": "A"}]}),
        ),
        'resources.claims[1]: Duplicate value: "x"',
        'resources.claims[2].request: Invalid value: "A": a lowercase RFC 1123 label…',
        'resources.claims[2]: Duplicate value: "x"',
    ),
    (
        merged(
            spec(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
            container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        ),
        (
            '/spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to '
            "aggregate container requests of 2"
        ),
        (
            '/spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal '
            "to pod limits of 1"
        ),
    ),
    (
        spec(resources={"limits": {"gpu": "1"}}),
        (
            '/spec.resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or '
            "fully qualified"
        ),
    ),
    (
        spec(resources={"limits": {"cpu": "1"}, "claims": [{"name": "x"}]}),
        "/spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
        (
            '/spec.resources.claims[0]: Not found: "x": must be one of the names in '
            "pod.spec.resourceClaims which is empty"
        ),
    ),
    (
        container(
            resizePolicy=[
                {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                {"resourceName": "cpu", "restartPolicy": "X"},
            ]
        ),
        'resizePolicy[1]: Duplicate value: "cpu"',
        'resizePolicy: Unsupported value: "X": supported values: "NotRequired", "RestartContainer"',
    ),
    (
        merged(
            spec(restartPolicy="Never"),
            container(resizePolicy=[{"resourceName": "memory", "restartPolicy": "RestartContainer"}]),
        ),
        (
            "resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod "
            "`restartPolicy` is 'Never'"
        ),
    ),
    (
        container(resizePolicy=[{"resourceName": "", "restartPolicy": ""}]),
        "resizePolicy: Required value",
        "resizePolicy: Required value",
    ),
    (
        spec(os={"name": "windows"}, resources={"limits": {"cpu": "1"}}),
        "/spec.resources: Forbidden: may not be set for a windows pod",
    ),
    (
        container(resources={"limits": {"hugepages-lots": "2Mi", "cpu": "1"}}),
        (
            'resources.limits[hugepages-lots]: Invalid value: "2Mi": 2Mi is not positive integer '
            "multiple of hugepages-lots"
        ),
        (
            'resources.requests[hugepages-lots]: Invalid value: "2Mi": 2Mi is not positive integer '
            "multiple of hugepages-lots"
        ),
    ),
    (
        spec(resources={"limits": {"storage": "1"}}),
        (
            '/spec.resources.limits[storage]: Unsupported value: "storage": supported values: "cpu", '
            '"hugepages-", "memory"'
        ),
    ),
    (
        merged(
            spec(resourceClaims=[{"name": "x", "resourceClaimName": "a"}]),
            container(resources={"claims": [{"name": "x", "request": "a"}, {"name": "x"}]}),
        ),
        'resources.claims[1]: Duplicate value: "x"',
    ),
    (
        merged(
            spec(resources={"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}),
            container(resources={"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
        ),
        (
            '/spec.resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or '
            "equal to aggregate container requests of 4Mi"
        ),
        (
            '/spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or '
            "equal to aggregate container limits of 4Mi"
        ),
        (
            '/spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: "4Mi": must be less '
            "than or equal to pod limits of 2Mi"
        ),
    ),
]

SECURITY = [
    (
        container(securityContext={"privileged": True, "allowPrivilegeEscalation": False}),
        (
            "securityContext: Invalid value: {…}: cannot set `allowPrivilegeEscalation` to false and "
            "`privileged` to true"
        ),
    ),
    (
        container(securityContext={"runAsUser": -1, "runAsGroup": 4294967296}),
        "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        (
            "securityContext.runAsGroup: Invalid value: 4294967296: must be between 0 and 2147483647, "
            "inclusive"
        ),
    ),
    (
        container(securityContext={"procMount": "Unmasked"}),
        ('securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'),
    ),
    (
        container(securityContext={"procMount": "X"}),
        'securityContext.procMount: Unsupported value: "X": supported values: "Default", "Unmasked"',
    ),
    (
        container(securityContext={"seccompProfile": {"type": ""}}),
        "securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
    ),
    (
        container(securityContext={"seccompProfile": {"type": "Localhost"}}),
        (
            "securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp "
            "type is Localhost"
        ),
    ),
    (
        container(securityContext={"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}),
        "securityContext.seccompProfile.localhostProfile: Invalid value: …",
    ),
    (
        container(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}}),
        'securityContext.seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path',
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "Localhost"}}),
        (
            "securityContext.appArmorProfile.localhostProfile: Required value: must be set when "
            "AppArmor type is Localhost"
        ),
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}),
        (
            'securityContext.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded '
            "with whitespace"
        ),
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "X"}}),
        (
            'securityContext.appArmorProfile.type: Unsupported value: "X": supported values: '
            '"Localhost", "RuntimeDefault", "Unconfined"'
        ),
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}}),
        (
            'securityContext.appArmorProfile.localhostProfile: Invalid value: "a": can only be set '
            "when AppArmor type is Localhost"
        ),
    ),
    (
        container(
            securityContext={"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": False}
        ),
        (
            "securityContext: Invalid value: {…}: cannot set `allowPrivilegeEscalation` to false and "
            "`capabilities.Add` CAP_SYS_ADMIN"
        ),
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": "a" * 4096}}),
        "securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes",
    ),
]


@pytest.mark.parametrize(
    ("change", "expected"), [(change, expected) for change, *expected in [*RESOURCES, *SECURITY]]
)
def test_resources_and_privileges_are_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")
