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
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    TOPOLOGIES,
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


def changed(kind, old, change, subresource=""):
    obj, _ = request_bodies.decode(kind, kind.version, json.dumps(merged(old, change)).encode())
    strategy.prepare_update(kind, obj, old, subresource)
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


def test_requests_follow_limits_and_keep_what_was_said():
    limits = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    read = prepared(container(resources=limits))["spec"]["containers"][0]["resources"]
    assert read["requests"] == {"cpu": "1", "memory": "1Gi"}


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


def test_a_gated_pod_says_so():
    pod = prepared(spec(schedulingGates=[{"name": "a"}]))
    assert [condition["reason"] for condition in pod["status"]["conditions"]] == ["SchedulingGated"]


def test_the_status_that_a_client_sends_with_a_pod_is_dropped():
    assert prepared({"status": {"phase": "Running", "podIP": "1.2.3.4"}})["status"]["phase"] == "Pending"


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


def test_what_identifies_an_object_is_not_the_clients_to_change():
    old = made(LEASES, {"metadata": {"name": "l", "namespace": "d", "uid": "u"}})
    old["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    meta = {"uid": "", "creationTimestamp": "2027-01-01T00:00:00Z", "selfLink": "/x", "generation": 9}
    kept = changed(LEASES, old, {"metadata": meta})["metadata"]
    assert kept == old["metadata"]


def test_a_custom_object_counts_generations_of_all_but_its_metadata():
    body = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": []}
    old = made(TOPOLOGIES, body | {"metadata": {"name": "n"}})
    assert old["metadata"]["generation"] == 1
    assert changed(TOPOLOGIES, old, {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    zone = {"name": "z", "type": "Node"}
    assert changed(TOPOLOGIES, old, {"zones": [zone]})["metadata"]["generation"] == 2


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
