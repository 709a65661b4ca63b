"""What the server fills in and keeps: defaults, status, generation, priority, the labels of fields."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies, wire
from corelane.embedded.apiserver.schema import defaults_and_formats
from corelane.embedded.apiserver.served_kinds import (
    CONFIG_MAPS,
    KINDS,
    NAMESPACES,
    NODES,
    PODS,
)
from corelane.embedded.apiserver.write import strategy
from support.drawn import objects
from support.pod_faults import container, merged, prepared, spec

TOLERATED = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
ALL = [(kind, version) for kind in KINDS for version in kind.versions]


def made(kind, body):
    obj, _ = request_bodies.decode(kind, kind.version, json.dumps(body).encode())
    strategy.prepare_create(kind, obj)
    return obj


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("localhost:5000/a/b", "Always"),
        ("localhost:5000/a/b:2", "IfNotPresent"),
        (f"nginx@sha256:{'a' * 64}", "IfNotPresent"),
        (f"nginx:latest@sha256:{'a' * 64}", "Always"),
        ("No Image", "IfNotPresent"),
    ],
)
def test_images_without_a_version_are_pulled_always(image, policy):
    assert prepared(container(image=image))["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_what_a_pods_containers_need_together_counts_sidecars_and_the_largest_start():
    def holder(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    pod = {
        "spec": {
            "containers": [holder("1"), holder("500m")],
            "initContainers": [holder("1"), holder("250m", restartPolicy="Always"), holder("2")],
        }
    }
    assert defaults_and_formats.aggregated(pod, "requests") == {"cpu": "2250m"}
    pod["spec"]["initContainers"][2] = holder("1")
    assert defaults_and_formats.aggregated(pod, "requests") == {"cpu": "1750m"}


def test_a_pods_own_resources_are_filled_in_from_its_containers():
    pod = prepared(
        container(resources={"requests": {"cpu": "1"}}),
        spec(resources={"limits": {"cpu": "2", "memory": "1Gi"}}),
    )
    assert pod["spec"]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_on_the_hosts_network_a_port_is_the_hosts():
    pod = prepared(merged(container(ports=[{"containerPort": 80}]), spec(hostNetwork=True)))
    assert pod["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


def test_a_toleration_of_all_spares_the_ones_that_are_added():
    assert prepared(spec(tolerations=[{"operator": "Exists"}]))["spec"]["tolerations"] == [
        {"operator": "Exists"}
    ]
    one = {"key": TOLERATED[0], "operator": "Exists", "effect": "NoExecute"}
    kept = prepared(spec(tolerations=[one]))["spec"]["tolerations"]
    assert [toleration["key"] for toleration in kept] == TOLERATED
    other = one | {"effect": "NoSchedule"}
    assert len(prepared(spec(tolerations=[other]))["spec"]["tolerations"]) == 3


def test_the_schedulers_name_is_the_servers_to_choose_and_stays():
    pod, _ = request_bodies.decode(
        PODS, "v1", b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}'
    )
    strategy.prepare_create(PODS, pod, default_scheduler="corelane")
    assert pod["spec"]["schedulerName"] == "corelane"
    again = copy.deepcopy(pod)
    del again["spec"]["schedulerName"]
    strategy.prepare_update(PODS, again, pod)
    assert again["spec"]["schedulerName"] == "corelane"


def test_label_keys_become_expressions_with_the_pods_own_values():
    constraint = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
    constraint |= {"labelSelector": {}, "matchLabelKeys": ["app", "none"]}
    pod = prepared({"metadata": {"labels": {"app": "x"}}}, spec(topologySpreadConstraints=[constraint]))
    assert pod["spec"]["topologySpreadConstraints"][0]["labelSelector"] == {
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]
    }


def test_the_fields_that_can_be_selected():
    pod = prepared(spec(nodeName="n", hostNetwork=True))
    assert wire.selectable_fields(PODS, pod) == {
        "metadata.name": "p",
        "metadata.namespace": "d",
        "spec.nodeName": "n",
        "spec.restartPolicy": "Always",
        "spec.schedulerName": "default-scheduler",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "true",
        "status.phase": "Pending",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    }
    node = made(NODES, {"metadata": {"name": "n"}})
    assert wire.selectable_fields(NODES, node) == {"metadata.name": "n", "spec.unschedulable": "false"}
    space = made(NAMESPACES, {"metadata": {"name": "n"}})
    named = {"metadata.name": "n", "name": "n", "status.phase": "Active"}
    assert wire.selectable_fields(NAMESPACES, space) == named
    config = {"metadata": {"name": "c", "namespace": "d"}}
    assert wire.selectable_fields(CONFIG_MAPS, config) == {"metadata.name": "c", "metadata.namespace": "d"}


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_decoded_is_filled_in_once_and_can_be_judged(data):
    kind, version = data.draw(st.sampled_from(ALL))
    likely = ("metadata", "spec", "containers", "name")
    drawn = data.draw(objects(kind.schema[version], likely=likely))
    drawn |= {"apiVersion": kind.api_version(version), "kind": kind.kind}
    obj, _ = request_bodies.decode(kind, version, json.dumps(drawn).encode())
    strategy.prepare_create(kind, obj)
    obj["metadata"].pop("selfLink", None)
    again = copy.deepcopy(obj)
    strategy.prepare_update(kind, again, obj)
    assert again == obj
    stored = wire.convert(kind, obj, kind.version)
    for cause in validation.create(kind, stored, version=version):
        assert cause.field
        assert cause.message
        assert cause.reason.startswith("FieldValue")
    for subresource in ("", "status"):
        validation.update(kind, stored, copy.deepcopy(stored), subresource)
