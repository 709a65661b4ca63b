"""Containers that are refused, and why: names, ports, probes, restarts."""

import pytest

from support.pod_faults import agree, container, faults, spec

CONTAINERS = [
    ({"spec": {"containers": []}}, "/spec.containers: Required value"),
    (container(name=""), "name: Required value"),
    (container(name="A"), 'name: Invalid value: "A": a lowercase RFC 1123 label…'),
    (container(image=""), "image: Required value"),
    (container(image=" i"), 'image: Invalid value: " i": must not have leading or trailing whitespace'),
    (
        container(imagePullPolicy="Sometimes"),
        (
            'imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"IfNotPresent", "Never"'
        ),
    ),
    (
        container(terminationMessagePolicy="x"),
        (
            'terminationMessagePolicy: Unsupported value: "x": supported values: "File", '
            '"FallbackToLogsOnError"'
        ),
    ),
    (
        {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}},
        '/spec.containers[1].name: Duplicate value: "c"',
    ),
    (
        spec(initContainers=[{"name": "c", "image": "i"}]),
        '/spec.initContainers[0].name: Duplicate value: "c"',
    ),
    (
        spec(initContainers=[{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]),
        (
            "/spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers "
            "without restartPolicy=Always"
        ),
    ),
    (
        spec(
            ephemeralContainers=[
                {"name": "e", "image": "i", "targetContainerName": "x", "ports": [{"containerPort": 1}]}
            ]
        ),
        '/spec.ephemeralContainers[0].targetContainerName: Not found: "x"',
        "/spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        "/spec.ephemeralContainers: Forbidden: cannot be set on create",
    ),
    (
        container(restartPolicy="Sometimes"),
        'restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"',
    ),
    (
        container(restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]),
        "restartPolicy: Required value: must specify restartPolicy when restart rules are used",
    ),
    (
        container(restartPolicy="Never", restartPolicyRules=[{"action": "Nap"}]),
        (
            'restartPolicyRules[0].action: Unsupported value: "Nap": supported values: "Restart", '
            '"RestartAllContainers"'
        ),
        "restartPolicyRules[0].exitCodes: Required value: must be specified",
    ),
    (container(ports=[{"containerPort": 0}]), "ports[0].containerPort: Required value"),
    (
        container(ports=[{"containerPort": 70000}]),
        "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        container(ports=[{"containerPort": 1, "hostPort": -1}]),
        "ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
    ),
    (
        container(ports=[{"containerPort": 1, "protocol": "udp"}]),
        'ports[0].protocol: Unsupported value: "udp": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        'ports[1].name: Duplicate value: "a"',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "12"}]),
        'ports[0].name: Invalid value: "12": must contain at least one letter (a-z)',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "a--b"}]),
        'ports[0].name: Invalid value: "a--b": must not contain consecutive hyphens',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "abcdefghijklmnopq"}]),
        'ports[0].name: Invalid value: "abcdefghijklmnopq": must be no more than 15 characters',
    ),
    (
        container(ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
        'ports[1].hostPort: Duplicate value: "TCP//5"',
    ),
    (
        spec(
            initContainers=[
                {"name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {}}},
                {"name": "j", "image": "i", "restartPolicy": "Maybe"},
            ]
        ),
        "/spec.initContainers[0].startupProbe.exec.command: Required value",
        (
            '/spec.initContainers[1].restartPolicy: Unsupported value: "Maybe": supported values: '
            '"Always", "Never", "OnFailure"'
        ),
    ),
    (
        spec(
            initContainers=[
                {
                    "name": "i",
                    "image": "i",
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                }
            ]
        ),
        (
            '/spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": '
            "must not be set to 'RestartContainer' for non-sidecar initContainers"
        ),
    ),
    (
        spec(
            ephemeralContainers=[
                {
                    "name": "c",
                    "image": " i",
                    "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b"}],
                }
            ],
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        (
            '/spec.ephemeralContainers[0].image: Invalid value: " i": must not have leading or '
            "trailing whitespace"
        ),
        '/spec.ephemeralContainers[0].name: Duplicate value: "c"',
        (
            "/spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an "
            "Ephemeral Container"
        ),
        "/spec.ephemeralContainers: Forbidden: cannot be set on create",
    ),
    (
        container(
            restartPolicy="Never",
            restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}] * 21,
        ),
        "restartPolicyRules: Too many: 21: must have at most 20 items",
    ),
    (
        container(
            restartPolicy="Never",
            restartPolicyRules=[
                {"action": "Restart", "exitCodes": {"operator": "Near", "values": list(range(256))}}
            ],
        ),
        (
            'restartPolicyRules[0].exitCodes.operator: Unsupported value: "Near": supported values: '
            '"In", "NotIn"'
        ),
        "restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
    ),
    (
        container(ports=[{"containerPort": 1, "name": "-a"}]),
        'ports[0].name: Invalid value: "-a": must not begin or end with a hyphen',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "A"}]),
        (
            'ports[0].name: Invalid value: "A": must contain only alpha-numeric characters (a-z, 0-9), '
            "and hyphens (-)"
        ),
        'ports[0].name: Invalid value: "A": must contain at least one letter (a-z)',
    ),
]

PROBES = [
    (container(livenessProbe={}), "livenessProbe: Required value: must specify a handler type"),
    (
        container(livenessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}),
        "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
    ),
    (container(livenessProbe={"exec": {}}), "livenessProbe.exec.command: Required value"),
    (
        container(livenessProbe={"httpGet": {"port": 0}}),
        "livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (
        container(livenessProbe={"httpGet": {"port": "a_b"}}),
        (
            'livenessProbe.httpGet.port: Invalid value: "a_b": must contain only alpha-numeric '
            "characters (a-z, 0-9), and hyphens (-)"
        ),
    ),
    (
        container(livenessProbe={"httpGet": {"port": 1, "scheme": "ftp"}}),
        'livenessProbe.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"',
    ),
    (
        container(livenessProbe={"httpGet": {"port": 1, "httpHeaders": [{"name": "a b", "value": ""}]}}),
        (
            'livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist '
            "of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
            "'[-A-Za-z0-9]+')"
        ),
    ),
    (
        container(livenessProbe={"grpc": {"port": 0}}),
        "livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (
        container(
            livenessProbe={
                "tcpSocket": {"port": 1},
                "periodSeconds": -1,
                "timeoutSeconds": -1,
                "initialDelaySeconds": -1,
                "successThreshold": 2,
                "failureThreshold": -1,
            }
        ),
        "livenessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
        "livenessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
        "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        "livenessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
        "livenessProbe.successThreshold: Invalid value: 2: must be 1",
    ),
    (
        container(livenessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0}),
        "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
    ),
    (
        container(readinessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5}),
        (
            "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for "
            "readinessProbes"
        ),
    ),
    (
        container(lifecycle={"postStart": {}}),
        "lifecycle.postStart: Required value: must specify a handler type",
    ),
    (
        container(lifecycle={"preStop": {"sleep": {"seconds": 31}}}),
        (
            "lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than "
            "terminationGracePeriodSeconds (30)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("change", "expected"), [(change, expected) for change, *expected in [*CONTAINERS, *PROBES]]
)
def test_a_container_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")


def test_without_a_restart_policy_the_rules_of_a_container_are_checked_but_not_of_an_init_container():
    why = "restartPolicy: Required value: must specify restartPolicy when restart rules are used"
    one = {"name": "d", "image": "i", "restartPolicyRules": [{"action": "Restart"}]}
    missing = "restartPolicyRules[0].exitCodes: Required value: must be specified"
    assert faults(spec(containers=[one])) == [f"spec.containers[0].{text}" for text in (why, missing)]
    assert faults(spec(initContainers=[one])) == [f"spec.initContainers[0].{why}"]
    chosen = one | {"restartPolicy": "Never"}
    assert faults(spec(initContainers=[chosen])) == [f"spec.initContainers[0].{missing}"]
