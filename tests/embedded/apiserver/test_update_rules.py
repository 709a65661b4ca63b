"""Updates that are refused, and why: what may not change."""

import copy
import json

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.served_kinds import CONFIG_MAPS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from corelane.embedded.apiserver.write import strategy
from support.pod_faults import REQUIRED, agree, container, merged, on_nodes, prepared, spec

M = {"metadata": {"name": "n"}}
D = {"metadata": {"name": "n", "namespace": "d"}}
REFUSED = [
    (
        PODS,
        prepared(),
        {"spec": {"nodeSelector": {"a": "b"}}},
        "",
        "spec: Forbidden: pod updates may not change fields other than…",
    ),
    (
        PODS,
        prepared(),
        {"spec": {"containers": []}},
        "",
        "spec.containers: Required value",
        "spec.containers: Forbidden: pod updates may not add or remove containers",
    ),
    (
        PODS,
        prepared(),
        container(image=""),
        "",
        "spec.containers[0].image: Required value",
        "spec.containers[0].image: Required value",
        "spec: Forbidden: pod updates may not change fields other than…",
    ),
    (
        PODS,
        prepared(spec(activeDeadlineSeconds=10)),
        spec(activeDeadlineSeconds=15),
        "",
        "spec.activeDeadlineSeconds: Invalid value: 15: must be less than or equal to previous value",
    ),
    (
        PODS,
        prepared(spec(activeDeadlineSeconds=10)),
        spec(activeDeadlineSeconds=None),
        "",
        (
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer "
            "to nil value"
        ),
    ),
    (
        PODS,
        prepared(),
        spec(activeDeadlineSeconds=-5),
        "",
        "spec.activeDeadlineSeconds: Invalid value: -5: must be between 1 and 2147483647, inclusive",
        "spec.activeDeadlineSeconds: Invalid value: -5: must be between 0 and 2147483647, inclusive",
    ),
    (
        PODS,
        prepared(),
        spec(schedulingGates=[{"name": "a"}]),
        "",
        (
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new "
            "scheduling gate 'a'"
        ),
    ),
    (
        PODS,
        prepared(spec(schedulingGates=[{"name": "a"}], nodeSelector={"a": "b"})),
        spec(nodeSelector={"a": "c"}),
        "",
        (
            'spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are '
            "allowed (no mutations or deletions)"
        ),
    ),
    (
        PODS,
        prepared(),
        spec(terminationGracePeriodSeconds=5),
        "",
        "spec: Forbidden: pod updates may not change fields other than…",
    ),
    (
        PODS,
        prepared(),
        {"metadata": {"name": "q", "uid": "z", "namespace": "e"}},
        "",
        'metadata.name: Invalid value: "q": field is immutable',
        'metadata.namespace: Invalid value: "e": field is immutable',
        'metadata.uid: Invalid value: "z": field is immutable',
        'metadata.name: Invalid value: "q": field is immutable',
        'metadata.namespace: Invalid value: "e": field is immutable',
        'metadata.uid: Invalid value: "z": field is immutable',
    ),
    (
        PODS,
        prepared(),
        {"metadata": {"resourceVersion": ""}},
        "",
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
    ),
    (
        PODS,
        prepared(),
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        "",
        (
            'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set '
            "spec.nodeName if mirror pod annotation is set"
        ),
        "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation",
    ),
    (
        PODS,
        prepared({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "x"}}}),
        {"metadata": {"annotations": None}},
        "",
        (
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may "
            "not remove or update AppArmor annotations"
        ),
    ),
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
        'status.conditions[0].Type: Invalid value: "a b": name part must consist of…',
        'status.nominatedNodeName: Invalid value: "A": a lowercase RFC 1123 subdomain…',
        'status.qosClass: Invalid value: "Guaranteed": field is immutable',
    ),
    (
        PODS,
        prepared(),
        {"status": {"observedGeneration": -1, "podIPs": [{"ip": "x"}], "hostIPs": [{"ip": "1.2.3.4"}]}},
        "status",
        "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
        (
            'status.podIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or '
            "2001:db8::ffff)"
        ),
        'status.hostIPs[0].ip: Invalid value: "1.2.3.4": must be equal to `hostIP`',
    ),
    (
        PODS,
        prepared(),
        {
            "status": {
                "podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}],
                "resourceClaimStatuses": [{"name": "x"}],
            }
        },
        "status",
        (
            'status.resourceClaimStatuses[0].name: Invalid value: "x": must match the name of an entry '
            "in `spec.resourceClaims`"
        ),
        (
            'status.podIPs: Invalid value: [{"IP":"1.2.3.4"},{"IP":"1.2.3.5"}]: may specify no more '
            "than one IP for each IP family"
        ),
    ),
    (NODES, M, spec(externalID="x"), "", "spec.externalID: Forbidden: may not be updated"),
    (
        NODES,
        merged(M, spec(podCIDRs=["10.0.0.0/24"], providerID="a")),
        spec(podCIDRs=["10.0.1.0/24"], providerID="b", podCIDR=""),
        "",
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ),
    (
        NODES,
        M,
        {"status": {"addresses": [{"type": "a", "address": "b"}] * 2}},
        "status",
        "status.addresses[1]: Duplicate value: …",
    ),
    (
        NAMESPACES,
        M,
        {"status": {"phase": "Terminating"}},
        "status",
        (
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` "
            "is empty"
        ),
    ),
    (
        NAMESPACES,
        M,
        spec(finalizers=["x"]),
        "finalize",
        (
            'spec.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is '
            "it fully qualified"
        ),
    ),
    (
        CONFIG_MAPS,
        merged(D, {"immutable": True, "data": {"a": "b"}}),
        {"immutable": False, "data": {"a": "c"}, "binaryData": {"x": ""}},
        "",
        "immutable: Forbidden: field is immutable when `immutable` is set",
        "data: Forbidden: field is immutable when `immutable` is set",
        "binaryData: Forbidden: field is immutable when `immutable` is set",
    ),
    (
        PRIORITY_CLASSES,
        merged(M, {"value": 1}),
        {"value": 2, "preemptionPolicy": "Never"},
        "",
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
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
    old, _ = envelope.decode(kind, kind.version, json.dumps(body).encode())
    strategy.prepare_create(kind, old)
    old["metadata"]["resourceVersion"] = "1"
    obj, _ = envelope.decode(kind, kind.version, json.dumps(merged(old, change)).encode())
    strategy.prepare_update(kind, obj, old, subresource)
    return [f"{cause.field}: {cause.message}" for cause in validation.update(kind, obj, old, subresource)]


@pytest.mark.parametrize(
    ("kind", "body", "change", "subresource", "expected"), [(*case[:4], case[4:]) for case in REFUSED]
)
def test_a_change_is_refused_in_upstreams_words(kind, body, change, subresource, expected):
    assert agree(faults(kind, body, change, subresource), expected)


@pytest.mark.parametrize(("kind", "body", "change", "subresource"), ACCEPTED)
def test_a_sound_change_is_accepted(kind, body, change, subresource):
    assert faults(kind, body, change, subresource) == []


def test_a_gated_pods_wishes_for_nodes_may_only_become_narrower():
    gated = spec(schedulingGates=[{"name": "g"}])
    one = {"key": "a", "operator": "Exists"}
    old = prepared(gated, on_nodes(matchExpressions=[one]))
    assert faults(PODS, old, on_nodes(matchExpressions=[one, {"key": "b", "operator": "Exists"}])) == []
    [fault] = faults(PODS, old, on_nodes(matchExpressions=[{"key": "b", "operator": "Exists"}]))
    assert fault.endswith("only additions are allowed (no mutations or deletions)")
    required = {"nodeSelectorTerms": [{"matchExpressions": [one]}] * 2}
    more = spec(affinity={"nodeAffinity": {REQUIRED: required}})
    assert "no additions/deletions to non-empty NodeSelectorTerms" in faults(PODS, old, more)[0]
    assert faults(PODS, prepared(gated), on_nodes(matchExpressions=[one])) == []
    assert faults(PODS, prepared(), on_nodes(matchExpressions=[one])) != []


def test_finalizers_are_not_added_to_what_is_ending():
    old = {**prepared(), "kind": "Pod", "apiVersion": "v1"}
    old["metadata"] |= {"resourceVersion": "1", "deletionTimestamp": "2026-01-02T03:04:05Z"}
    old["metadata"]["finalizers"] = ["a.b/c"]
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = ["a.b/c", "a.b/d"]
    found = validation.update(PODS, new, old)
    assert found[0].message.endswith('found new finalizers []string{"a.b/d"}')
    new["metadata"]["finalizers"] = []
    assert validation.update(PODS, new, old) == []


def test_faults_do_not_repeat_a_huge_text_without_end():
    huge = "A" * 3_000_000
    pod = prepared({"metadata": {"name": huge, "labels": {huge: huge}}}, container(name=huge))
    found = validation.create(PODS, pod)
    assert 0 < sum(len(cause.message) for cause in found) < 8_000_000
