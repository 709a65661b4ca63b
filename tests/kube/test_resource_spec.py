"""The policy that a pod was bound by: written back as upstream does, and never taken for a wish."""

import json

import pytest

from corelane.kube import keys
from corelane.kube.translate.placement_annotations import PREFERRED, REQUIRED, placement_spec
from corelane.kube.translate.placement_record import resolved_spec
from corelane.workload import BindPolicy
from support.pods import container, pod

FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
REQUIRED, PREFERRED = REQUIRED, PREFERRED


def asking(spec):
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return pod("a", container("x", "cpu=2"), annotations={} if spec is None else {keys.RESOURCE_SPEC: text})


def bound(asked, bind, *, required=False):
    """A copy of the pod as the scheduler has bound it, as somebody may apply it again."""
    record = resolved_spec(asked, bind and BindPolicy(bind), required=required)
    return pod("a", container("x", "cpu=2"), annotations={**asked.metadata.annotations, **record})


def spec_of(one):
    return json.loads(one.metadata.annotations[keys.RESOURCE_SPEC])


def written(spec, bind, *, required=False):
    record = resolved_spec(asking(spec), bind and BindPolicy(bind), required=required)
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
def test_a_policy_written_back_is_not_read_as_a_request(spec, required):
    asked = asking(spec)
    copy = bound(asked, SPREAD, required=required)
    assert copy.metadata.annotations != asked.metadata.annotations
    assert placement_spec(copy) == placement_spec(asked)
    assert resolved_spec(copy, BindPolicy.SPREAD_BY_PCPUS, required=required) == {}


@pytest.mark.parametrize("spec", [None, {}, {PREFERRED: "Default"}, {REQUIRED: "Default"}])
@pytest.mark.parametrize("required", [True, False])
def test_a_copy_of_a_bound_pod_means_the_same_and_is_bound_anew_as_if_it_were_none(spec, required):
    asked = asking(spec)
    copy = bound(asked, FULL, required=not required)
    assert placement_spec(copy) == placement_spec(asked)
    again = bound(copy, SPREAD, required=required)
    assert placement_spec(again) == placement_spec(asked)
    assert spec_of(again) == spec_of(bound(asked, SPREAD, required=required))


def test_what_was_filled_in_goes_where_a_copy_is_bound_by_no_policy():
    copy = bound(asking({"preferredCPUExclusivePolicy": "PCPULevel"}), FULL, required=True)
    assert spec_of(bound(copy, None)) == {"preferredCPUExclusivePolicy": "PCPULevel"}


@pytest.mark.parametrize("name", [REQUIRED, PREFERRED])
def test_a_changed_policy_is_a_request_again(name):
    copy = bound(asking({}), FULL, required=name == REQUIRED)
    changed = asking({**spec_of(copy), name: SPREAD})
    assert placement_spec(changed) == placement_spec(asking({name: SPREAD}))


@pytest.mark.parametrize("own", [{REQUIRED: SPREAD, "to": FULL}, {REQUIRED: ""}, {"to": FULL}, {}, None])
def test_the_member_resolved_alone_is_not_a_request(own):
    for spec in ({}, {REQUIRED: FULL}):
        told = asking({**spec, "corelane.io/resolved": own})
        assert placement_spec(told) == placement_spec(asking(spec))
