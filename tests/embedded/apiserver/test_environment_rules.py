"""Environments and mounts of containers that are refused, and why."""

import pytest

from support.pod_faults import agree, container, faults

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
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ""}}}]),
        "env[0].valueFrom.fieldRef.fieldPath: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName['a']"}}}]),
        (
            "env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nodeName['a']\": error "
            "converting fieldPath: field label does not support subscript: spec.nodeName['a']"
        ),
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": ""}}}]),
        "env[0].valueFrom.resourceFieldRef.resource: Required value",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": ".."}}}]),
        "env[0].valueFrom.configMapKeyRef.key: Invalid value: \"..\": must not be '..'",
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "..a"}}}]),
        "env[0].valueFrom.configMapKeyRef.key: Invalid value: \"..a\": must not start with '..'",
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in ENVIRONMENT])
def test_an_environment_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.containers[0].")
