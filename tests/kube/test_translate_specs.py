"""The policy that a pod was bound by: written back as upstream does, and never taken for a wish."""

import json

import pytest

from corelane.kube import keys
from corelane.kube.translate import specs, wishes
from corelane.workload import BindPolicy
from support.pods import container, pod

FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
REQUIRED, PREFERRED = specs.REQUIRED, specs.PREFERRED


def asking(spec):
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return pod("a", container("x", "cpu=2"), annotations={} if spec is None else {keys.RESOURCE_SPEC: text})


def written(spec, bind, *, required=False):
    record = specs.resolved(asking(spec), bind and BindPolicy(bind), required=required)
    told = json.loads(record[keys.RESOURCE_SPEC]) if record else {}
    told.pop("corelane.io/resolved", None)
    return told


@pytest.mark.parametrize(
    ("spec", "bind", "required", "expected"),
    [
        (None, FULL, False, {PREFERRED: FULL}),
        ({}, FULL, False, {PREFERRED: FULL}),
        ({}, SPREAD, True, {REQUIRED: SPREAD}),
        ({PREFERRED: "Default"}, SPREAD, False, {PREFERRED: SPREAD}),
        ({PREFERRED: "Default"}, FULL, True, {REQUIRED: FULL, PREFERRED: FULL}),
        ({PREFERRED: SPREAD}, SPREAD, False, {}),
        ({PREFERRED: FULL}, SPREAD, True, {PREFERRED: FULL, REQUIRED: SPREAD}),
        ({REQUIRED: "Default"}, FULL, True, {REQUIRED: FULL}),
        ({REQUIRED: FULL}, FULL, True, {}),
        ({REQUIRED: FULL, PREFERRED: "Default"}, FULL, True, {REQUIRED: FULL, PREFERRED: FULL}),
        (
            {"preferredCPUExclusivePolicy": "PCPULevel", "more": 1},
            FULL,
            False,
            {"preferredCPUExclusivePolicy": "PCPULevel", "more": 1, PREFERRED: FULL},
        ),
        ({}, None, False, {}),
        ("{", FULL, False, {}),
    ],
)
def test_what_the_pod_left_open_is_filled_in_and_nothing_else(spec, bind, required, expected):
    assert written(spec, bind, required=required) == expected


@pytest.mark.parametrize(
    ("spec", "required"),
    [
        (None, False),
        ({}, True),
        ({PREFERRED: "Default"}, False),
        ({PREFERRED: "Default"}, True),
        ({REQUIRED: "Default"}, True),
        ({"preferredCPUExclusivePolicy": "None"}, True),
    ],
)
def test_what_was_filled_in_is_not_read_as_a_wish(spec, required):
    asked = asking(spec)
    record = specs.resolved(asked, BindPolicy.SPREAD_BY_PCPUS, required=required)
    bound = pod("a", container("x", "cpu=2"), annotations=record, node="n")
    assert record
    assert wishes.read(bound) == wishes.read(asked)
    assert specs.resolved(bound, BindPolicy.SPREAD_BY_PCPUS, required=required) == record
