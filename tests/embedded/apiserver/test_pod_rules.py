"""Pods: refused by the field and the kind of each fault, or accepted though unusual."""

import pytest

from support.pod_faults import (
    PREFERRED,
    REQUIRED,
    agree,
    apart,
    container,
    faults,
    merged,
    on_nodes,
    spec,
    spread,
    volume,
)

METADATA = [
    ({"metadata": {"generateName": "A-", "name": ""}}, "name: Required"),
    ({"metadata": {"namespace": ""}}, "namespace: Required"),
    (
        {"metadata": {"ownerReferences": [{}]}},
        "ownerReferences.apiVersion: Invalid",
        "ownerReferences.kind: Invalid",
        "ownerReferences.name: Invalid",
        "ownerReferences.uid: Invalid",
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
        "ownerReferences: Invalid",
    ),
    ({"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}}, "finalizers: Invalid"),
]

SPEC = [
    (spec(serviceAccountName="A"), "serviceAccountName: Invalid"),
    (spec(hostname="A"), "hostname: Invalid"),
    (spec(subdomain="A"), "subdomain: Invalid"),
    (spec(hostname="a.b"), "hostname: Invalid"),
    (spec(hostnameOverride="a" * 65), "hostnameOverride: Too long"),
    (spec(priorityClassName="A"), "priorityClassName: Invalid"),
    (spec(runtimeClassName="A"), "runtimeClassName: Invalid"),
    (spec(preemptionPolicy=""), "preemptionPolicy: Unsupported"),
    (spec(preemptionPolicy="X"), "preemptionPolicy: Unsupported"),
    (spec(overhead={"foo": "1"}), "overhead.limits[foo]: Invalid"),
    (spec(readinessGates=[{"conditionType": "a b"}]), "readinessGates[0].conditionType: Invalid"),
    (spec(os={"name": "bsd"}), "os.name: Unsupported"),
    (spec(os={"name": ""}), "os.name: Required"),
    (
        spec(securityContext={"fsGroup": -1, "runAsUser": -1, "supplementalGroups": [-1]}),
        "securityContext.fsGroup: Invalid",
        "securityContext.runAsUser: Invalid",
        "securityContext.supplementalGroups[0]: Invalid",
    ),
    (spec(securityContext={"fsGroupChangePolicy": "X"}), "securityContext.fsGroupChangePolicy: Unsupported"),
    (
        spec(securityContext={"supplementalGroupsPolicy": "X"}),
        "securityContext.supplementalGroupsPolicy: Unsupported",
    ),
    (spec(securityContext={"seLinuxChangePolicy": "X"}), "securityContext.seLinuxChangePolicy: Unsupported"),
    (volume(configMap={"name": "c", "defaultMode": 512}), "volumes[0].configMap.defaultMode: Invalid"),
    (volume(projected={"sources": [], "defaultMode": 512}), "volumes[0].projected.defaultMode: Invalid"),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a b", "operator": "In", "values": ["c d"]}]}),
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].key: Invalid",
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].values[0]: Invalid",
    ),
    (container(envFrom=[{"secretRef": {"name": "A"}}]), "containers[0].envFrom[0].secretRef.name: Invalid"),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A", "key": "k"}}}]),
        "containers[0].env[0].valueFrom.secretKeyRef.name: Invalid",
    ),
    (
        container(readinessProbe={"tcpSocket": {"port": 0}, "successThreshold": -1}),
        "containers[0].readinessProbe.tcpSocket.port: Invalid",
        "containers[0].readinessProbe.successThreshold: Invalid",
    ),
    (spec(securityContext={"runAsGroup": -1}), "securityContext.runAsGroup: Invalid"),
    (spec(hostnameOverride="A"), "hostnameOverride: Invalid"),
    (spread(minDomains=-1), "topologySpreadConstraints[0].minDomains: Invalid"),
]

SCHEDULING = [
    (
        spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms: Required",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a b", "operator": "In"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required",
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].key: Invalid",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1", "2"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Near"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["x"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Forbidden",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "In", "values": ["x y"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid",
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.uid", "operator": "Exists"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].operator: Invalid",
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].key: Invalid",
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["A"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values[0]: Invalid",
    ),
    (
        spec(affinity={"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}),
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid",
    ),
    (apart(topologyKey=""), "affinity.podAntiAffinity.REQUIRED[0].topologyKey: Required"),
    (apart(topologyKey="a b"), "affinity.podAntiAffinity.REQUIRED[0].topologyKey: Invalid"),
    (apart(namespaces=["A"]), "affinity.podAntiAffinity.REQUIRED[0].namespaces[0]: Invalid"),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].operator: Invalid",
    ),
    (
        apart(labelSelector={"matchLabels": {"a b": "c d"}}),
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchLabels: Invalid",
    ),
    (
        spec(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "matchLabelKeys": ["app"]}]}}),
        "affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys: Forbidden",
    ),
    (apart(matchLabelKeys=["a b"]), "affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys[0]: Invalid"),
    (
        spec(
            affinity={"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}}
        ),
        "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid",
    ),
    (spread(maxSkew=0), "topologySpreadConstraints[0].maxSkew: Invalid"),
    (spread(topologyKey=""), "topologySpreadConstraints[0].topologyKey: Required"),
    (spread(whenUnsatisfiable="Maybe"), "topologySpreadConstraints[0].whenUnsatisfiable: Unsupported"),
    (spread(minDomains=0), "topologySpreadConstraints[0].minDomains: Invalid"),
    (
        spread(nodeAffinityPolicy="X", nodeTaintsPolicy="Y"),
        "topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported",
        "topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported",
    ),
    (
        spread(matchLabelKeys=["a"], labelSelector=None),
        "topologySpreadConstraints[0].matchLabelKeys: Forbidden",
    ),
    (spec(tolerations=[{"key": "a b"}]), "tolerations[0].key: Invalid"),
    (spec(tolerations=[{"operator": "Equal", "value": "x"}]), "tolerations[0].operator: Invalid"),
    (spec(tolerations=[{"key": "a", "operator": "Near"}]), "tolerations[0].operator: Unsupported"),
    (spec(tolerations=[{"key": "a", "effect": "Kill"}]), "tolerations[0].effect: Unsupported"),
    (spec(tolerations=[{"key": "a", "tolerationSeconds": 5}]), "tolerations[0].effect: Invalid"),
    (
        spec(tolerations=[{"key": "a", "operator": "Lt", "value": "x"}]),
        "tolerations[0].operator: Unsupported",
    ),
    (spec(tolerations=[{"key": "a", "value": "x y"}]), "tolerations[0].value: Invalid"),
    (
        spec(schedulingGates=[{"name": "a"}, {"name": "a"}, {"name": ""}]),
        "schedulingGates[1].name: Duplicate",
        "schedulingGates[2]: Invalid",
    ),
    (spec(schedulingGates=[{"name": "a"}], nodeName="n"), "nodeName: Forbidden"),
    (spec(nodeSelector={"a b": "c d"}), "nodeSelector: Invalid"),
    (spec(nodeName="A"), "nodeName: Invalid"),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": []}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values: Required",
    ),
]

CONTAINERS = [
    (container(restartPolicy="Sometimes"), "restartPolicy: Unsupported"),
    (
        container(restartPolicy="Never", restartPolicyRules=[{"action": "Nap"}]),
        "restartPolicyRules[0].action: Unsupported",
        "restartPolicyRules[0].exitCodes: Required",
    ),
    (
        spec(
            initContainers=[
                {"name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {}}},
                {"name": "j", "image": "i", "restartPolicy": "Maybe"},
            ]
        ),
        "/spec.initContainers[0].startupProbe.exec.command: Required",
        "/spec.initContainers[1].restartPolicy: Unsupported",
    ),
]

PROBES = [
    (container(livenessProbe={"exec": {}}), "livenessProbe.exec.command: Required"),
    (container(livenessProbe={"httpGet": {"port": 0}}), "livenessProbe.httpGet.port: Invalid"),
    (container(livenessProbe={"httpGet": {"port": "a_b"}}), "livenessProbe.httpGet.port: Invalid"),
    (
        container(livenessProbe={"httpGet": {"port": 1, "scheme": "ftp"}}),
        "livenessProbe.httpGet.scheme: Unsupported",
    ),
    (container(livenessProbe={"grpc": {"port": 0}}), "livenessProbe.grpc.port: Invalid"),
    (
        container(livenessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0}),
        "livenessProbe.terminationGracePeriodSeconds: Invalid",
    ),
]

ENVIRONMENT = [
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}}]),
        "env[0].valueFrom.secretKeyRef.key: Invalid",
    ),
    (container(envFrom=[{"configMapRef": {"name": "A"}}]), "envFrom[0].configMapRef.name: Invalid"),
    (container(envFrom=[{"prefix": "a=", "configMapRef": {"name": "a"}}]), "envFrom[0].prefix: Invalid"),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ""}}}]),
        "env[0].valueFrom.fieldRef.fieldPath: Required",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": ""}}}]),
        "env[0].valueFrom.resourceFieldRef.resource: Required",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": ".."}}}]),
        "env[0].valueFrom.configMapKeyRef.key: Invalid",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "..a"}}}]),
        "env[0].valueFrom.configMapKeyRef.key: Invalid",
    ),
]

RESOURCES = [
    (
        container(resources={"limits": {"cpu": "-1"}}),
        "resources.limits[cpu]: Invalid",
        "resources.requests[cpu]: Invalid",
    ),
    (
        container(resources={"limits": {"foo": "1"}}),
        "resources.limits[foo]: Invalid",
        "resources.requests[foo]: Invalid",
    ),
    (
        container(resources={"limits": {"a.b/c": "1500m"}}),
        "resources.limits[a.b/c]: Invalid",
        "resources.requests[a.b/c]: Invalid",
    ),
    (
        container(resources={"limits": {"requests.x.y/z": "1"}}),
        "resources.limits[requests.x.y/z]: Invalid",
        "resources.requests[requests.x.y/z]: Invalid",
    ),
    (
        merged(
            spec(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
            container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        ),
        "/spec.resources.requests[cpu]: Invalid",
        "/spec.resources.containers[0][cpu].limits: Invalid",
    ),
    (
        container(resizePolicy=[{"resourceName": "", "restartPolicy": ""}]),
        "resizePolicy[0].resourceName: Required",
        "resizePolicy[0].restartPolicy: Required",
    ),
    (
        container(resources={"limits": {"hugepages-lots": "2Mi", "cpu": "1"}}),
        "resources.limits[hugepages-lots]: Invalid",
        "resources.requests[hugepages-lots]: Invalid",
    ),
    (spec(resources={"limits": {"storage": "1"}}), "/spec.resources.limits[storage]: Unsupported"),
    (
        merged(
            spec(resources={"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}),
            container(resources={"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
        ),
        "/spec.resources.requests[hugepages-2Mi]: Invalid",
        "/spec.resources.limits[hugepages-2Mi]: Invalid",
        "/spec.resources.containers[0][hugepages-2Mi].limits: Invalid",
    ),
]

SECURITY = [
    (
        container(securityContext={"runAsUser": -1, "runAsGroup": 4294967296}),
        "securityContext.runAsUser: Invalid",
        "securityContext.runAsGroup: Invalid",
    ),
    (container(securityContext={"procMount": "X"}), "securityContext.procMount: Unsupported"),
    (
        container(securityContext={"seccompProfile": {"type": ""}}),
        "securityContext.seccompProfile.type: Required",
    ),
    (
        container(securityContext={"appArmorProfile": {"type": "X"}}),
        "securityContext.appArmorProfile.type: Unsupported",
    ),
]

RULES = {
    "metadata.": METADATA,
    "spec.": [*SPEC, *SCHEDULING],
    "spec.containers[0].": [*CONTAINERS, *PROBES, *ENVIRONMENT, *RESOURCES, *SECURITY],
}

SIDECAR = {
    "name": "i",
    "image": "i",
    "restartPolicy": "Always",
    "livenessProbe": {"exec": {"command": ["a"]}},
}
SOUND = [
    {},
    {"metadata": {"name": "a.b"}},
    {"metadata": {"labels": {"a.b/C_d": "", "x": "A-1"}, "annotations": {"A.b/C": "any thing"}}},
    {"metadata": {"finalizers": ["kubernetes", "a.b/c"]}},
    spec(initContainers=[SIDECAR]),
    spec(terminationGracePeriodSeconds=-5),
    spec(readinessGates=[{"conditionType": "a"}, {"conditionType": "a"}]),
    spec(imagePullSecrets=[{}]),
    spec(hostUsers=False),
    spec(dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"], "searches": [".", "a_b.c."]}),
    spec(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
    spec(os={"name": "windows"}),
    spec(overhead={"cpu": "250m"}, runtimeClassName="kata"),
    spec(hostnameOverride="a.b.c"),
    on_nodes(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1"]}]),
    spread(minDomains=2, nodeAffinityPolicy="Honor"),
    container(ports=[{"containerPort": 1, "hostIP": "x"}, {"containerPort": 1, "protocol": "UDP"}]),
    container(
        ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5, "hostIP": "::1"}]
    ),
    container(env=[{"name": "any.thing but -"}]),
    container(resources={"limits": {"example.com/gpu": "1", "hugepages-2Mi": "4Mi", "cpu": "1"}}),
    container(securityContext={"windowsOptions": {"runAsUserName": "bad domain!\\user"}}),
    container(image="not an image at all"),
    volume(),
    volume(projected={"sources": [{}]}),
    volume(hostPath={"path": "/a..b/c", "type": "Directory"}),
    volume(iscsi={"targetPortal": "p", "iqn": "naa." + "0" * 32, "lun": 0}),
]


@pytest.mark.parametrize(
    ("within", "change", "expected"),
    [(within, change, expected) for within, table in RULES.items() for change, *expected in table],
)
def test_a_pod_is_refused_by_field_and_kind(within, change, expected):
    assert agree(faults(change), expected, within)


@pytest.mark.parametrize("change", SOUND)
def test_an_unusual_pod_is_accepted(change):
    assert faults(change) == []
