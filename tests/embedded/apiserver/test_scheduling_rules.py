"""Wishes to the scheduler that are refused, and why."""

import pytest

from support.pod_faults import PREFERRED, REQUIRED, agree, apart, faults, merged, on_nodes, spec, spread

SCHEDULING = [
    (
        spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms: Required value: must have at least one "
            "node selector term"
        ),
    ),
    (
        on_nodes(matchExpressions=[{"key": "a b", "operator": "In"}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required "
            "value: must be specified when `operator` is 'In' or 'NotIn'"
        ),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].key: Invalid "
            'value: "a b": name part must consist of…'
        ),
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1", "2"]}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: Required "
            "value: must be specified single value when `operator` is 'Lt' or 'Gt'"
        ),
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Near"}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid "
            'value: "Near": not a valid selector operator'
        ),
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["x"]}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values: "
            "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        ),
    ),
    (
        on_nodes(matchExpressions=[{"key": "a", "operator": "In", "values": ["x y"]}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchExpressions[0].values[0]: "
            'Invalid value: "x y": a valid label must be…'
        ),
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.uid", "operator": "Exists"}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].operator: Invalid "
            'value: "Exists": not a valid selector operator'
        ),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].key: Invalid value: "
            '"metadata.uid": not a valid field selector key'
        ),
    ),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["A"]}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values[0]: Invalid "
            'value: "A": a lowercase RFC 1123 subdomain…'
        ),
    ),
    (
        spec(affinity={"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}),
        (
            "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid "
            "value: 0: must be in the range 1-100"
        ),
    ),
    (
        apart(topologyKey=""),
        "affinity.podAntiAffinity.REQUIRED[0].topologyKey: Required value: can not be empty",
        'affinity.podAntiAffinity.REQUIRED[0].topologyKey: Invalid value: "": name part must be non-empty',
        'affinity.podAntiAffinity.REQUIRED[0].topologyKey: Invalid value: "": name part must consist of…',
    ),
    (
        apart(topologyKey="a b"),
        (
            'affinity.podAntiAffinity.REQUIRED[0].topologyKey: Invalid value: "a b": name part must '
            "consist of…"
        ),
    ),
    (
        apart(namespaces=["A"]),
        'affinity.podAntiAffinity.REQUIRED[0].namespace: Invalid value: "A": a lowercase RFC 1123 label…',
    ),
    (
        apart(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        (
            "affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchExpressions[0].operator: Invalid "
            'value: "Gt": not a valid selector operator'
        ),
    ),
    (
        apart(labelSelector={"matchLabels": {"a b": "c d"}}),
        (
            'affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchLabels: Invalid value: "a b": '
            "name part must consist of…"
        ),
        (
            'affinity.podAntiAffinity.REQUIRED[0].labelSelector.matchLabels: Invalid value: "c d": a '
            "valid label must be…"
        ),
    ),
    (
        apart(matchLabelKeys=["app"], mismatchLabelKeys=["app"]),
        (
            'affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys[0]: Invalid value: "app": exists in '
            "both matchLabelKeys and mismatchLabelKeys"
        ),
    ),
    (
        spec(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "matchLabelKeys": ["app"]}]}}),
        (
            "affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys: Forbidden: must not be specified "
            "when labelSelector is not set"
        ),
    ),
    (
        apart(matchLabelKeys=["a b"]),
        (
            'affinity.podAntiAffinity.REQUIRED[0].matchLabelKeys[0]: Invalid value: "a b": name part '
            "must consist of…"
        ),
    ),
    (
        merged(
            {"metadata": {"labels": {"app": "x"}}},
            apart(matchLabelKeys=["app"], labelSelector={"matchLabels": {"app": "x"}}),
        ),
        (
            'affinity.podAntiAffinity.REQUIRED[0][0]: Invalid value: "app": exists in both '
            "matchLabelKeys and labelSelector"
        ),
    ),
    (
        spec(
            affinity={"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}}
        ),
        (
            "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid "
            "value: 101: must be in the range 1-100"
        ),
    ),
    (spread(maxSkew=0), "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"),
    (spread(topologyKey=""), "topologySpreadConstraints[0].topologyKey: Required value: can not be empty"),
    (
        spread(whenUnsatisfiable="Maybe"),
        (
            'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported '
            'values: "DoNotSchedule", "ScheduleAnyway"'
        ),
    ),
    (
        spread(minDomains=0),
        "topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
    ),
    (
        spread(whenUnsatisfiable="ScheduleAnyway", minDomains=2),
        (
            "topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if "
            "whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
        ),
    ),
    (
        spread(nodeAffinityPolicy="X", nodeTaintsPolicy="Y"),
        (
            'topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "X": supported '
            'values: "Honor", "Ignore"'
        ),
        (
            'topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "Y": supported values: '
            '"Honor", "Ignore"'
        ),
    ),
    (
        spec(
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]
            * 3
        ),
        (
            'topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, '
            'DoNotSchedule}"'
        ),
        (
            'topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, '
            'DoNotSchedule}"'
        ),
    ),
    (
        spread(matchLabelKeys=["a"], labelSelector=None),
        (
            "topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when "
            "labelSelector is not set"
        ),
    ),
    (
        spec(tolerations=[{"key": "a b"}]),
        'tolerations[0].key: Invalid value: "a b": name part must consist of…',
    ),
    (
        spec(tolerations=[{"operator": "Equal", "value": "x"}]),
        (
            'tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is '
            'empty, which means "match all values and all keys"'
        ),
    ),
    (
        spec(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
        "tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
    ),
    (
        spec(tolerations=[{"key": "a", "operator": "Near"}]),
        'tolerations[0].operator: Unsupported value: "Near": supported values: "Equal", "Exists"',
    ),
    (
        spec(tolerations=[{"key": "a", "effect": "Kill"}]),
        (
            'tolerations[0].effect: Unsupported value: "Kill": supported values: "NoSchedule", '
            '"PreferNoSchedule", "NoExecute"'
        ),
    ),
    (
        spec(tolerations=[{"key": "a", "tolerationSeconds": 5}]),
        (
            "tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when "
            "`tolerationSeconds` is set"
        ),
    ),
    (
        spec(tolerations=[{"key": "a", "operator": "Lt", "value": "x"}]),
        ('tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt"'),
    ),
    (
        spec(tolerations=[{"key": "a", "value": "x y"}]),
        'tolerations[0].operator: Invalid value: "x y": a valid label must be…',
    ),
    (
        spec(schedulingGates=[{"name": "a"}, {"name": "a"}, {"name": ""}]),
        'schedulingGates[1]: Duplicate value: "a"',
        'schedulingGates[2]: Invalid value: "": name part must be non-empty',
        'schedulingGates[2]: Invalid value: "": name part must consist of…',
    ),
    (
        spec(schedulingGates=[{"name": "a"}], nodeName="n"),
        "nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    (
        spec(nodeSelector={"a b": "c d"}),
        'nodeSelector: Invalid value: "a b": name part must consist of…',
        'nodeSelector: Invalid value: "c d": a valid label must be…',
    ),
    (spec(nodeName="A"), 'nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain…'),
    (
        on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": []}]),
        (
            "affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[0].matchFields[0].values: Required "
            "value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        ),
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in SCHEDULING])
def test_a_wish_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.")
