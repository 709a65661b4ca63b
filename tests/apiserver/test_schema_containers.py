"""Containers that are refused, and why: names, ports, probes, environment, mounts."""

import pytest

from support.pod_faults import agree, container, faults, merged, spec, volume

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

ENVIRONMENT = [
    (container(env=[{"name": ""}]), "env[0].name: Required value"),
    (
        container(env=[{"name": "a=b"}]),
        (
            'env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of '
            "printable ASCII characters other than '='"
        ),
    ),
    (
        container(
            env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        ),
        'env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {}}]),
        (
            'env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
            "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]),
        (
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: '
            "field label not supported: spec.x"
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]),
        (
            'env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported '
            'values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", '
            '"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", '
            '"status.podIPs"'
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]),
        'env[0].valueFrom.fieldRef: Invalid value: "a b": name part must consist of…',
    ),
    (
        container(
            env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v2"}}}]
        ),
        (
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting '
            "fieldPath: unsupported pod version: v2"
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}]),
        (
            'env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported '
            'values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", '
            '"requests.ephemeral-storage", "requests.memory"'
        ),
    ),
    (
        container(
            env=[
                {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "3m"}}}
            ]
        ),
        (
            'env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s '
            "values 1m and 1 are supported with the cpu resource"
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}}]),
        'env[0].valueFrom.configMapKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain…',
        "env[0].valueFrom.configMapKeyRef.key: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}}]),
        'env[0].valueFrom.secretKeyRef.key: Invalid value: "a/b": a valid config key…',
    ),
    (
        container(
            env=[
                {
                    "name": "A",
                    "valueFrom": {
                        "secretKeyRef": {"name": "s", "key": "a"},
                        "fieldRef": {"fieldPath": "metadata.name"},
                    },
                }
            ]
        ),
        'env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time',
    ),
    (
        container(envFrom=[{}]),
        'envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
    ),
    (
        container(envFrom=[{"configMapRef": {"name": "A"}}]),
        'envFrom[0].configMapRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (
        container(envFrom=[{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]),
        'envFrom: Invalid value: "": may not have more than one field specified at a time',
    ),
    (
        container(envFrom=[{"prefix": "a=", "configMapRef": {"name": "a"}}]),
        (
            'envFrom[0].prefix: Invalid value: "a=": a valid environment variable name must consist '
            "only of printable ASCII characters other than '='"
        ),
    ),
]

MOUNTS = [
    (container(volumeMounts=[{"name": "x", "mountPath": "/a"}]), 'volumeMounts[0].name: Not found: "x"'),
    (
        container(volumeMounts=[{"name": "", "mountPath": ""}]),
        "volumeMounts[0].name: Required value",
        'volumeMounts[0].name: Not found: ""',
        "volumeMounts[0].mountPath: Required value",
    ),
    (
        merged(
            volume(emptyDir={}),
            container(volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]),
        ),
        'volumeMounts[1].mountPath: Invalid value: "/a": must be unique',
    ),
    (
        merged(
            volume(emptyDir={}), container(volumeMounts=[{"name": "v", "mountPath": "/a", "subPath": "../b"}])
        ),
        "volumeMounts.subPath: Invalid value: \"../b\": must not contain '..'",
    ),
    (
        merged(
            volume(emptyDir={}),
            container(volumeMounts=[{"name": "v", "mountPath": "/a", "subPath": "b", "subPathExpr": "c"}]),
        ),
        'volumeMounts[0].subPathExpr: Invalid value: "c": subPathExpr and subPath are mutually exclusive',
    ),
    (
        merged(
            volume(emptyDir={}),
            container(volumeMounts=[{"name": "v", "mountPath": "/a", "mountPropagation": "Up"}]),
        ),
        (
            'volumeMounts.mountPropagation: Unsupported value: "Up": supported values: "Bidirectional",'
            ' "HostToContainer", "None"'
        ),
    ),
    (
        merged(
            volume(emptyDir={}),
            container(volumeMounts=[{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
        ),
        (
            "volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available "
            "only to privileged containers"
        ),
    ),
    (
        merged(
            volume(emptyDir={}),
            container(volumeMounts=[{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]),
        ),
        "volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
    ),
    (
        merged(volume(emptyDir={}), container(volumeDevices=[{"name": "v", "devicePath": "/dev/a"}])),
        (
            'volumeDevices[0].name: Invalid value: "v": can only use volume source type of '
            "PersistentVolumeClaim or Ephemeral for block mode"
        ),
    ),
    (
        merged(
            volume(persistentVolumeClaim={"claimName": "a"}),
            container(
                volumeDevices=[{"name": "v", "devicePath": "../a"}, {"name": "v", "devicePath": "/b"}],
                volumeMounts=[{"name": "v", "mountPath": "/b"}],
            ),
        ),
        'volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices',
        ('volumeMounts[0].mountPath: Invalid value: "/b": must not already exist as a path in volumeDevices'),
        "volumeDevices[0].devicePath: Invalid value: \"../a\": can not contain backsteps ('..')",
        'volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts',
        'volumeDevices[1].name: Invalid value: "v": must be unique',
        'volumeDevices[1].name: Invalid value: "v": must not already exist in volumeMounts',
        (
            'volumeDevices[1].devicePath: Invalid value: "/b": must not already exist as a path in '
            "volumeMounts"
        ),
    ),
]


@pytest.mark.parametrize(
    ("change", "expected"),
    [(change, expected) for change, *expected in [*CONTAINERS, *PROBES, *ENVIRONMENT, *MOUNTS]],
)
def test_a_container_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")
