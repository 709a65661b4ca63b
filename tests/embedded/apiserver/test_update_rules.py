"""Updates that are refused, and why: what may not change."""

import copy
import json

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import CONFIG_MAPS, NAMESPACES, PODS
from corelane.embedded.apiserver.write import strategy
from support.pod_faults import agree, container, merged, on_nodes, prepared, spec

M = {"metadata": {"name": "n"}}
D = {"metadata": {"name": "n", "namespace": "d"}}
REFUSED = [
    (
        PODS,
        prepared(spec(activeDeadlineSeconds=10)),
        spec(activeDeadlineSeconds=15),
        "",
        "spec.activeDeadlineSeconds: Invalid",
    ),
    (
        PODS,
        prepared(spec(activeDeadlineSeconds=10)),
        spec(activeDeadlineSeconds=None),
        "",
        "spec.activeDeadlineSeconds: Invalid",
    ),
    (PODS, prepared(), spec(activeDeadlineSeconds=-5), "", "spec.activeDeadlineSeconds: Invalid"),
    (
        PODS,
        prepared(),
        {"metadata": {"name": "q", "uid": "z", "namespace": "e"}},
        "",
        "metadata.name: Invalid",
        "metadata.namespace: Invalid",
        "metadata.uid: Invalid",
    ),
    (PODS, prepared(), {"metadata": {"resourceVersion": ""}}, "", "metadata.resourceVersion: Invalid"),
    (
        PODS,
        prepared(),
        {
            "status": {
                "conditions": [{"type": "a b", "status": "True"}],
                "nominatedNodeName": "A",
                "qosClass": "Guaranteed",
            }
        },
        "status",
        "status.conditions[0].Type: Invalid",
        "status.nominatedNodeName: Invalid",
        "status.qosClass: Invalid",
    ),
    (NAMESPACES, M, spec(finalizers=["x"]), "finalize", "spec.finalizers[0]: Invalid"),
    (
        CONFIG_MAPS,
        merged(D, {"immutable": True, "data": {"a": "b"}}),
        {"immutable": False, "data": {"a": "c"}, "binaryData": {"x": ""}},
        "",
        "immutable: Forbidden",
        "data: Forbidden",
        "binaryData: Forbidden",
    ),
]
ACCEPTED = [
    (PODS, prepared(), container(image="j"), ""),
    (PODS, prepared(spec(activeDeadlineSeconds=10)), spec(activeDeadlineSeconds=5), ""),
    (PODS, prepared(), spec(tolerations=[]), ""),
    (PODS, prepared(spec(schedulingGates=[{"name": "a"}])), spec(schedulingGates=[]), ""),
    (
        PODS,
        prepared(spec(schedulingGates=[{"name": "a"}], nodeSelector={"a": "b"})),
        spec(nodeSelector={"a": "b", "c": "d"}),
        "",
    ),
]


def faults(kind, body, change, subresource=""):
    """What is wrong with a change of a stored object."""
    old, _ = request_bodies.decode(kind, kind.version, json.dumps(body).encode())
    strategy.prepare_create(kind, old)
    old["metadata"]["resourceVersion"] = "1"
    obj, _ = request_bodies.decode(kind, kind.version, json.dumps(merged(old, change)).encode())
    strategy.prepare_update(kind, obj, old, subresource)
    return [f"{cause.field}: {cause.message}" for cause in validation.update(kind, obj, old, subresource)]


@pytest.mark.parametrize(
    ("kind", "body", "change", "subresource", "expected"), [(*case[:4], case[4:]) for case in REFUSED]
)
def test_a_change_is_refused_by_field_and_kind(kind, body, change, subresource, expected):
    assert agree(faults(kind, body, change, subresource), expected)


@pytest.mark.parametrize(("kind", "body", "change", "subresource"), ACCEPTED)
def test_a_sound_change_is_accepted(kind, body, change, subresource):
    assert faults(kind, body, change, subresource) == []


def test_the_refusal_of_a_change_names_the_fields_that_differ():
    [text] = faults(PODS, prepared(), spec(nodeSelector={"a": "b"}, hostname="h"))
    assert text.startswith("spec: Forbidden: changed: hostname, nodeSelector; only images")


def test_only_a_gated_pod_may_change_its_node_selection():
    gated = spec(schedulingGates=[{"name": "g"}])
    rule = {"key": "a", "operator": "Exists"}
    assert faults(PODS, prepared(gated), on_nodes(matchExpressions=[rule])) == []
    assert faults(PODS, prepared(gated, on_nodes(matchExpressions=[rule])), spec(affinity=None)) == []
    assert faults(PODS, prepared(gated), spec(affinity={"podAffinity": {}})) != []
    assert faults(PODS, prepared(), on_nodes(matchExpressions=[rule])) != []


def test_finalizers_are_not_added_to_what_is_ending():
    old = {**prepared(), "kind": "Pod", "apiVersion": "v1"}
    old["metadata"] |= {"resourceVersion": "1", "deletionTimestamp": "2026-01-02T03:04:05Z"}
    old["metadata"]["finalizers"] = ["a.b/c"]
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = ["a.b/c", "a.b/d"]
    found = validation.update(PODS, new, old)
    assert found[0].message.endswith("under deletion: a.b/d")
    new["metadata"]["finalizers"] = []
    assert validation.update(PODS, new, old) == []


def test_faults_do_not_repeat_a_huge_text_without_end():
    huge = "A" * 3_000_000
    pod = prepared({"metadata": {"name": huge, "labels": {huge: huge}}}, container(name=huge))
    assert 0 < sum(len(cause.message) for cause in validation.create(PODS, pod)) < 5_000


def test_the_number_of_faults_has_an_end():
    pod = prepared(spec(tolerations=[{"key": "a b"}] * 5000))
    assert len(validation.create(PODS, pod)) == 1000
