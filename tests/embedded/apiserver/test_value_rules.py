"""Values that are refused wherever they stand: modes, names, keys, numbers."""

import pytest

from support.pod_faults import agree, apart, container, faults, spec, spread, volume

VALUES = [
    (
        volume(
            downwardAPI={
                "defaultMode": -1,
                "items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 512}],
            }
        ),
        (
            "volumes[0].downwardAPI.defaultMode: Invalid value: -1: must be a number between 0 and "
            "0777 (octal), both inclusive"
        ),
        (
            "volumes[0].downwardAPI.items[0].mode: Invalid value: 512: must be a number between 0 and 0777 "
            "(octal), both inclusive"
        ),
    ),
    (
        volume(configMap={"name": "c", "defaultMode": 512}),
        (
            "volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 "
            "(octal), both inclusive"
        ),
    ),
    (
        volume(projected={"sources": [], "defaultMode": 512}),
        (
            "volumes[0].projected.defaultMode: Invalid value: 512: must be a number between 0 and 0777 "
            "(octal), both inclusive"
        ),
    ),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a b", "operator": "In", "values": ["c d"]}]}),
        (
            "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].key: Invalid "
            'value: "a b": name part must consist of…'
        ),
        (
            "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].values[0]: Invalid "
            'value: "c d": a valid label must be…'
        ),
    ),
    (
        container(envFrom=[{"secretRef": {"name": "A"}}]),
        'containers[0].envFrom[0].secretRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A", "key": "k"}}}]),
        (
            'containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: "A": a lowercase RFC '
            "1123 subdomain…"
        ),
    ),
    (
        container(
            env=[{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "", "path": "/..", "key": "a=b"}}}]
        ),
        (
            'containers[0].env[0].valueFrom.fileKeyRef.key: Invalid value: "a=b": a valid environment '
            "variable name must consist only of printable ASCII characters other than '='"
        ),
        "containers[0].env[0].valueFrom.fileKeyRef.volumeName: Required value",
        "containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: \"/..\": must not contain '..'",
        'containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: ""',
    ),
    (
        container(readinessProbe={"tcpSocket": {"port": 0}, "successThreshold": -1}),
        (
            "containers[0].readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and "
            "65535, inclusive"
        ),
        (
            "containers[0].readinessProbe.successThreshold: Invalid value: -1: must be greater than or "
            "equal to 0"
        ),
    ),
    (
        container(securityContext={"windowsOptions": {"gmsaCredentialSpecName": "A"}}),
        (
            'containers[0].securityContext.windowsOptions.gmsaCredentialSpecName: Invalid value: "A": '
            "a lowercase RFC 1123 subdomain…"
        ),
    ),
    (
        spec(securityContext={"runAsGroup": -1}),
        "securityContext.runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ),
    (spec(hostnameOverride="A"), 'hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain…'),
    (
        spread(minDomains=-1),
        "topologySpreadConstraints[0].minDomains: Invalid value: -1: must be greater than zero",
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in VALUES])
def test_a_value_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.")
