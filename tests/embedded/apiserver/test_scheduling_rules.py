"""Wishes to the scheduler that are refused, and why."""

import pytest

from support.pod_faults import PREFERRED, REQUIRED, agree, apart, faults, on_nodes, spec, spread

SCHEDULING = [
    (
        spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms: Required value…",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a b", "operator": "In"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required value…",
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].key: Invalid…",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1", "2"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required value…",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Near"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid…",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["x"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Forbidden…",
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "In", "values": ["x y"]}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid…",
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.uid", "operator": "Exists"}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].operator: Invalid…",
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].key: Invalid…",
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["A"]}]),
        'affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values[0]: Invalid value: "A"…',
    ),
    (
        spec(affinity={"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}),
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid…",
    ),
    (
        apart(topologyKey=""),
        "affinity.podAntiAffinity.REQUIRED[0].topologyKey: Required value…",
    ),
    (
        apart(topologyKey="a b"),
        'affinity.podAntiAffinity.REQUIRED[0].topologyKey: Invalid value: "a b"…',
    ),
    (
        apart(namespaces=["A"]),
        'affinity.podAntiAffinity.REQUIRED[0].namespaces[0]: Invalid value: "A"…',
    ),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].operator: Invalid…",
    ),
    (
        apart(labelSelector={"matchLabels": {"a b": "c d"}}),
        'affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchLabels: Invalid value: "a b"…',
        'affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchLabels: Invalid value: "c d"…',
    ),
    (
        spec(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "matchLabelKeys": ["app"]}]}}),
        "affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys: Forbidden…",
    ),
    (
        apart(matchLabelKeys=["a b"]),
        'affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys[0]: Invalid value: "a b"…',
    ),
    (
        spec(
            affinity={"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}}
        ),
        "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid…",
    ),
    (spread(maxSkew=0), "topologySpreadConstraints[0].maxSkew: Invalid value: 0…"),
    (spread(topologyKey=""), "topologySpreadConstraints[0].topologyKey: Required value…"),
    (
        spread(whenUnsatisfiable="Maybe"),
        'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe"…',
    ),
    (
        spread(minDomains=0),
        "topologySpreadConstraints[0].minDomains: Invalid value: 0…",
    ),
    (
        spread(nodeAffinityPolicy="X", nodeTaintsPolicy="Y"),
        'topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "X"…',
        'topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "Y"…',
    ),
    (
        spread(matchLabelKeys=["a"], labelSelector=None),
        "topologySpreadConstraints[0].matchLabelKeys: Forbidden…",
    ),
    (
        spec(tolerations=[{"key": "a b"}]),
        'tolerations[0].key: Invalid value: "a b"…',
    ),
    (
        spec(tolerations=[{"operator": "Equal", "value": "x"}]),
        'tolerations[0].operator: Invalid value: "Equal"…',
    ),
    (
        spec(tolerations=[{"key": "a", "operator": "Near"}]),
        'tolerations[0].operator: Unsupported value: "Near"…',
    ),
    (
        spec(tolerations=[{"key": "a", "effect": "Kill"}]),
        'tolerations[0].effect: Unsupported value: "Kill"…',
    ),
    (
        spec(tolerations=[{"key": "a", "tolerationSeconds": 5}]),
        'tolerations[0].effect: Invalid value: ""…',
    ),
    (
        spec(tolerations=[{"key": "a", "operator": "Lt", "value": "x"}]),
        'tolerations[0].operator: Unsupported value: "Lt"…',
    ),
    (
        spec(tolerations=[{"key": "a", "value": "x y"}]),
        'tolerations[0].value: Invalid value: "x y"…',
    ),
    (
        spec(schedulingGates=[{"name": "a"}, {"name": "a"}, {"name": ""}]),
        'schedulingGates[1].name: Duplicate value: "a"',
        'schedulingGates[2]: Invalid value: ""…',
        'schedulingGates[2]: Invalid value: ""…',
    ),
    (
        spec(schedulingGates=[{"name": "a"}], nodeName="n"),
        "nodeName: Forbidden…",
    ),
    (
        spec(nodeSelector={"a b": "c d"}),
        'nodeSelector: Invalid value: "a b"…',
        'nodeSelector: Invalid value: "c d"…',
    ),
    (spec(nodeName="A"), 'nodeName: Invalid value: "A"…'),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": []}]),
        "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values: Required value…",
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in SCHEDULING])
def test_a_scheduling_field_is_refused_by_field_and_kind(change, expected):
    assert agree(faults(change), expected, "spec.")
