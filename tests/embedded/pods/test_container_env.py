"""Variables and command lines, as Kubernetes defines them."""

import msgspec
import pytest

from corelane.embedded.pods import execution
from corelane.embedded.pods.execution import NodeFields, expand
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.runtime.base import RuntimeFailure

REF = {"resource": "limits.cpu"}
HOST = NodeFields("n1", ("10.0.0.7", "fd00::7"), cpu=4000, memory=1 << 30)


def pod(**container):
    tree = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u-1",
            "labels": {"app": "a"},
            "annotations": {"k/x": "y"},
        },
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", **container}]},
    }
    return msgspec.json.decode(msgspec.json.encode(tree), type=RunPod)


def variables(known=None, **container):
    made = pod(**container)
    return execution.variables(made, made.container("c"), HOST, known or {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NONE)", "$(NONE)"),
        ("$A $( $(A", "$A $( $(A"),
        ("100$", "100$"),
        ("$(A)$(A)", "11"),
    ],
)
def test_references_are_expanded(text, expected):
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_a_variable_may_refer_only_to_those_before_it():
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "b"}, {"name": "C", "value": "<$(B)>"}]
    assert variables(env=env) == {"A": "$(B)", "B": "b", "C": "<b>"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "a"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['k/x']", "y"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.hostIPs", "10.0.0.7,fd00::7"),
    ],
)
def test_field_references_of_the_pod(path, expected):
    assert variables(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]) == {"X": expected}


def test_an_unknown_field_is_named():
    with pytest.raises(RuntimeFailure, match=r"status\.phase"):
        variables(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}])


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("requests.cpu", None, "2"),
        ("requests.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "64"),
        ("limits.cpu", None, "4"),
        ("requests.memory", None, "0"),
    ],
)
def test_resources_are_rounded_up_and_unset_limits_are_the_nodes(resource, divisor, expected):
    ref = {"resource": resource} | ({"divisor": divisor} if divisor else {})
    found = variables(
        resources={"requests": {"cpu": "1500m"}, "limits": {"memory": "64Mi"}},
        env=[{"name": "X", "valueFrom": {"resourceFieldRef": ref}}],
    )
    assert found == {"X": expected}


def test_config_maps_by_key_and_as_a_whole_with_env_winning():
    found = variables(
        {"m": {"a": "1", "b": "2"}},
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "m"}}],
        env=[
            {"name": "P_a", "value": "mine"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "b"}}},
            {"name": "N", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "z", "optional": True}}},
        ],
    )
    assert found == {"P_a": "mine", "P_b": "2", "B": "2"}


@pytest.mark.parametrize(
    ("known", "container", "message"),
    [
        ({"m": None}, {"envFrom": [{"configMapRef": {"name": "m"}}]}, 'configmap "m" not found'),
        (
            {"m": {}},
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]},
            "couldn't find key k in ConfigMap m",
        ),
        (
            {},
            {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": REF | {"containerName": "other"}}}]},
            "resourceFieldRef: the pod has no container 'other'",
        ),
        (
            {},
            {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": REF | {"divisor": "-1"}}}]},
            "resourceFieldRef: divisor -1 is negative",
        ),
    ],
)
def test_a_missing_source_is_a_configuration_error(known, container, message):
    with pytest.raises(RuntimeFailure, match=message) as caught:
        variables(known, **container)
    assert caught.value.reason == "CreateContainerConfigError"


def test_an_optional_config_map_may_be_missing():
    assert variables({"m": None}, envFrom=[{"configMapRef": {"name": "m", "optional": True}}]) == {}


def test_command_and_arguments_are_expanded():
    made = pod(command=["run", "$(A)"], args=["--x=$(A)", "$$(A)"])
    line = execution.command_line(made.container("c"), {"A": "1"})
    assert line == ("run", "1", "--x=1", "$(A)")


def test_referenced_config_maps():
    made = pod(
        envFrom=[{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
        env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}}],
    )
    assert execution.config_maps(made.container("c")) == {"m", "n"}
