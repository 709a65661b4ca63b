"""Pods that are refused: by the field and the kind of each fault."""

import pytest

from support.pod_faults import agree, apart, container, faults, merged, spec, spread, volume

PODS = [
    (
        spec(restartPolicy="Sometimes"),
        'spec.restartPolicy: Unsupported value: "Sometimes"…',
    ),
    (
        spec(dnsPolicy="X"),
        'spec.dnsPolicy: Unsupported value: "X"…',
    ),
    (
        spec(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds: Invalid value: 0…",
    ),
    (
        spec(serviceAccountName="A"),
        'spec.serviceAccountName: Invalid value: "A"…',
    ),
    (spec(hostname="A"), 'spec.hostname: Invalid value: "A"…'),
    (spec(subdomain="A"), 'spec.subdomain: Invalid value: "A"…'),
    (spec(hostname="a.b"), 'spec.hostname: Invalid value: "a.b"…'),
    (spec(hostnameOverride="a" * 65), "spec.hostnameOverride: Too long…"),
    (
        spec(priorityClassName="A"),
        'spec.priorityClassName: Invalid value: "A"…',
    ),
    (
        spec(runtimeClassName="A"),
        'spec.runtimeClassName: Invalid value: "A"…',
    ),
    (spec(preemptionPolicy=""), "spec.preemptionPolicy: Unsupported value"),
    (
        spec(preemptionPolicy="X"),
        'spec.preemptionPolicy: Unsupported value: "X"…',
    ),
    (
        spec(overhead={"cpu": "-1"}),
        'spec.overhead.limits[cpu]: Invalid value: "-1"…',
    ),
    (
        spec(overhead={"foo": "1"}),
        'spec.overhead.limits[foo]: Invalid value: "foo"…',
        'spec.overhead.limits[foo]: Invalid value: "foo"…',
    ),
    (
        spec(readinessGates=[{"conditionType": "a b"}]),
        'spec.readinessGates[0].conditionType: Invalid value: "a b"…',
    ),
    (
        merged(spec(hostNetwork=True), container(ports=[{"containerPort": 1, "hostPort": 2}])),
        "spec.containers[0].ports[0].hostPort: Invalid value: 2…",
    ),
    (spec(os={"name": "bsd"}), 'spec.os.name: Unsupported value: "bsd"…'),
    (spec(os={"name": ""}), "spec.os.name: Required value"),
    (
        spec(securityContext={"fsGroup": -1, "runAsUser": -1, "supplementalGroups": [-1]}),
        "spec.securityContext.fsGroup: Invalid value: -1…",
        "spec.securityContext.runAsUser: Invalid value: -1…",
        "spec.securityContext.supplementalGroups[0]: Invalid value: -1…",
    ),
    (
        spec(securityContext={"fsGroupChangePolicy": "X"}),
        'spec.securityContext.fsGroupChangePolicy: Unsupported value: "X"…',
    ),
    (
        spec(securityContext={"supplementalGroupsPolicy": "X"}),
        'spec.securityContext.supplementalGroupsPolicy: Unsupported value: "X"…',
    ),
    (
        spec(securityContext={"seLinuxChangePolicy": "X"}),
        'spec.securityContext.seLinuxChangePolicy: Unsupported value: "X"…',
    ),
]

VALUES = [
    (
        volume(configMap={"name": "c", "defaultMode": 512}),
        "volumes[0].configMap.defaultMode: Invalid value: 512…",
    ),
    (
        volume(projected={"sources": [], "defaultMode": 512}),
        "volumes[0].projected.defaultMode: Invalid value: 512…",
    ),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a b", "operator": "In", "values": ["c d"]}]}),
        'affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].key: Invalid value: "a b"…',
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].values[0]: Invalid…",
    ),
    (
        container(envFrom=[{"secretRef": {"name": "A"}}]),
        'containers[0].envFrom[0].secretRef.name: Invalid value: "A"…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A", "key": "k"}}}]),
        'containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: "A"…',
    ),
    (
        container(readinessProbe={"tcpSocket": {"port": 0}, "successThreshold": -1}),
        "containers[0].readinessProbe.tcpSocket.port: Invalid value: 0…",
        "containers[0].readinessProbe.successThreshold: Invalid value: -1…",
    ),
    (
        spec(securityContext={"runAsGroup": -1}),
        "securityContext.runAsGroup: Invalid value: -1…",
    ),
    (spec(hostnameOverride="A"), 'hostnameOverride: Invalid value: "A"…'),
    (
        spread(minDomains=-1),
        "topologySpreadConstraints[0].minDomains: Invalid value: -1…",
    ),
]

CONTAINERS = [
    ({"spec": {"containers": []}}, "/spec.containers: Required value"),
    (container(name=""), "name: Required value"),
    (container(name="A"), 'name: Invalid value: "A"…'),
    (container(image=""), "image: Required value"),
    (container(image=" i"), 'image: Invalid value: " i"…'),
    (
        container(imagePullPolicy="Sometimes"),
        'imagePullPolicy: Unsupported value: "Sometimes"…',
    ),
    (
        container(terminationMessagePolicy="x"),
        'terminationMessagePolicy: Unsupported value: "x"…',
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
        "/spec.initContainers[0].livenessProbe: Forbidden…",
    ),
    (
        container(restartPolicy="Sometimes"),
        'restartPolicy: Unsupported value: "Sometimes"…',
    ),
    (
        container(restartPolicy="Never", restartPolicyRules=[{"action": "Nap"}]),
        'restartPolicyRules[0].action: Unsupported value: "Nap"…',
        "restartPolicyRules[0].exitCodes: Required value…",
    ),
    (container(ports=[{"containerPort": 0}]), "ports[0].containerPort: Required value"),
    (
        container(ports=[{"containerPort": 70000}]),
        "ports[0].containerPort: Invalid value: 70000…",
    ),
    (
        container(ports=[{"containerPort": 1, "hostPort": -1}]),
        "ports[0].hostPort: Invalid value: -1…",
    ),
    (
        container(ports=[{"containerPort": 1, "protocol": "udp"}]),
        'ports[0].protocol: Unsupported value: "udp"…',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        'ports[1].name: Duplicate value: "a"',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "12"}]),
        'ports[0].name: Invalid value: "12"…',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "a--b"}]),
        'ports[0].name: Invalid value: "a--b"…',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "abcdefghijklmnopq"}]),
        'ports[0].name: Invalid value: "abcdefghijklmnopq"…',
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
        '/spec.initContainers[1].restartPolicy: Unsupported value: "Maybe"…',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "-a"}]),
        'ports[0].name: Invalid value: "-a"…',
    ),
    (
        container(ports=[{"containerPort": 1, "name": "A"}]),
        'ports[0].name: Invalid value: "A"…',
        'ports[0].name: Invalid value: "A"…',
    ),
]

PROBES = [
    (container(livenessProbe={"exec": {}}), "livenessProbe.exec.command: Required value"),
    (
        container(livenessProbe={"httpGet": {"port": 0}}),
        "livenessProbe.httpGet.port: Invalid value: 0…",
    ),
    (
        container(livenessProbe={"httpGet": {"port": "a_b"}}),
        'livenessProbe.httpGet.port: Invalid value: "a_b"…',
    ),
    (
        container(livenessProbe={"httpGet": {"port": 1, "scheme": "ftp"}}),
        'livenessProbe.httpGet.scheme: Unsupported value: "ftp"…',
    ),
    (
        container(livenessProbe={"grpc": {"port": 0}}),
        "livenessProbe.grpc.port: Invalid value: 0…",
    ),
    (
        container(livenessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0}),
        "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0…",
    ),
]

ENVIRONMENT = [
    (container(env=[{"name": ""}]), "env[0].name: Required value"),
    (
        container(env=[{"name": "a=b"}]),
        'env[0].name: Invalid value: "a=b"…',
    ),
    (
        container(
            env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        ),
        'env[0].valueFrom: Invalid value: ""…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {}}]),
        'env[0].valueFrom: Invalid value: ""…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}}]),
        'env[0].valueFrom.configMapKeyRef.name: Invalid value: ""…',
        "env[0].valueFrom.configMapKeyRef.key: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}}]),
        'env[0].valueFrom.secretKeyRef.key: Invalid value: "a/b"…',
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
        'env[0].valueFrom: Invalid value: ""…',
    ),
    (
        container(envFrom=[{}]),
        'envFrom: Invalid value: ""…',
    ),
    (
        container(envFrom=[{"configMapRef": {"name": "A"}}]),
        'envFrom[0].configMapRef.name: Invalid value: "A"…',
    ),
    (
        container(envFrom=[{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]),
        'envFrom: Invalid value: ""…',
    ),
    (
        container(envFrom=[{"prefix": "a=", "configMapRef": {"name": "a"}}]),
        'envFrom[0].prefix: Invalid value: "a="…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ""}}}]),
        "env[0].valueFrom.fieldRef.fieldPath: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": ""}}}]),
        "env[0].valueFrom.resourceFieldRef.resource: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": ".."}}}]),
        'env[0].valueFrom.configMapKeyRef.key: Invalid value: ".."…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "..a"}}}]),
        'env[0].valueFrom.configMapKeyRef.key: Invalid value: "..a"…',
    ),
]

OF_A_CONTAINER = [*CONTAINERS, *PROBES, *ENVIRONMENT]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in PODS])
def test_a_pod_is_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected)


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in VALUES])
def test_a_value_is_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected, "spec.")


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in OF_A_CONTAINER])
def test_a_container_is_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")
