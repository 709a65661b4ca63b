"""One stored object in several groups and versions: nothing is lost on the way, each has its own rules."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies, wire
from corelane.embedded.apiserver.served_kinds import EVENTS, NEW_EVENTS, TOPOLOGIES
from support.drawn import objects

NO_INTEGER = '<nil>: Invalid value: "": zones[0].costs[0].value'
MOMENT = "2026-01-02T03:04:05.000006Z"
CORE = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "e", "namespace": "d"},
    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "d"},
    "reason": "Started",
    "message": "it started",
    "source": {"component": "kubelet"},
    "firstTimestamp": "2026-01-02T03:04:05Z",
    "lastTimestamp": None,
    "count": 2,
    "type": "Normal",
    "eventTime": None,
    "reportingComponent": "kubelet",
    "reportingInstance": "",
}
NEW = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "e", "namespace": "d"},
    "regarding": {"kind": "Pod", "name": "p", "namespace": "d"},
    "reason": "Started",
    "note": "it started",
    "deprecatedSource": {"component": "kubelet"},
    "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
    "deprecatedLastTimestamp": None,
    "deprecatedCount": 2,
    "type": "Normal",
    "eventTime": None,
    "reportingController": "kubelet",
}
TOPOLOGY = {"kind": "NodeResourceTopology", "metadata": {"name": "n"}}
V1, V2 = "topology.node.k8s.io/v1alpha1", "topology.node.k8s.io/v1alpha2"
AMOUNTS = {"capacity": "4", "allocatable": 4, "available": "1500m"}
ZONE = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", **AMOUNTS}]}


def test_an_event_has_other_names_in_the_other_group():
    assert wire.convert(NEW_EVENTS, CORE, "v1") == NEW
    assert wire.convert(EVENTS, NEW, "v1") == CORE
    assert wire.convert(EVENTS, CORE, "v1") == CORE


@settings(max_examples=50)
@given(st.data())
def test_an_event_that_goes_to_the_other_group_and_back_is_the_same(data):
    kind, other = data.draw(st.sampled_from([(EVENTS, NEW_EVENTS), (NEW_EVENTS, EVENTS)]))
    drawn = data.draw(objects(kind.schema["v1"])) | {"kind": "Event", "apiVersion": kind.api_version("v1")}
    event, _ = request_bodies.decode(kind, "v1", json.dumps(drawn).encode())
    there = wire.convert(other, event, "v1")
    assert there["apiVersion"] == other.api_version("v1")
    assert (
        request_bodies.decode(other, "v1", json.dumps(there).encode(), field_validation="Strict")[0] == there
    )
    assert wire.convert(kind, there, "v1") == event


def test_the_fields_of_an_event_that_can_be_selected_have_each_groups_names():
    core = wire.selectable_fields(EVENTS, CORE)
    assert core["involvedObject.kind"] == "Pod"
    assert core["source"] == "kubelet"
    new = wire.selectable_fields(NEW_EVENTS, NEW)
    assert new["regarding.name"] == "p"
    assert "source" not in new


def faults(kind, obj, version="v1"):
    obj = wire.convert(kind, obj, kind.version)
    return [f"{cause.field}: {cause.message}" for cause in validation.create(kind, obj, version=version)]


def test_a_series_of_events_has_a_count_and_a_time():
    event = {**CORE, "eventTime": MOMENT, "action": "a", "reportingInstance": "i"}
    for name in ("firstTimestamp", "count", "source"):
        event.pop(name)
    assert validation.create(NEW_EVENTS, event) == []
    event["series"] = {"count": 1, "lastObservedTime": None}
    found = validation.create(NEW_EVENTS, event)
    assert [cause.field for cause in found] == ["series.count", "series.lastObservedTime"]


def wrong(path, wanted, found):
    return f'{path}: Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'


def topology(version, **content):
    body = {**TOPOLOGY, "apiVersion": f"topology.node.k8s.io/{version}", **content}
    return request_bodies.decode(TOPOLOGIES, version, json.dumps(body).encode())


def test_a_topology_keeps_what_both_versions_know():
    obj, warnings = topology("v1alpha2", zones=[ZONE], attributes=[{"name": "a", "value": "b"}])
    assert warnings == []
    assert wire.convert(TOPOLOGIES, obj, "v1alpha1") == {**TOPOLOGY, "apiVersion": V1, "zones": [ZONE]}
    assert wire.convert(TOPOLOGIES, obj, "v1alpha2") == obj


def test_a_topology_is_kept_as_it_was_sent_but_for_what_no_version_knows():
    obj, warnings = topology("v1alpha2", zones=[{**ZONE, "x": 1, "parent": None}], y={"a": 1})
    assert obj["zones"] == [ZONE]
    assert warnings == ['unknown field "y"', 'unknown field "zones[0].x"']


@pytest.mark.parametrize(
    ("version", "content", "expected"),
    [
        ("v1alpha2", {"zones": [ZONE]}, []),
        ("v1alpha1", {"zones": [ZONE], "topologyPolicies": []}, []),
        ("v1alpha1", {"zones": [ZONE]}, ["topologyPolicies: Required value"]),
        ("v1alpha2", {}, ["zones: Required value"]),
        ("v1alpha2", {"zones": [{"name": "a"}]}, ["zones[0].type: Required value"]),
        ("v1alpha2", {"zones": "a"}, [wrong("zones", "array", "string")]),
        ("v1alpha2", {"zones": [{"name": 1, "type": "a"}]}, [wrong("zones[0].name", "string", "integer")]),
        (
            "v1alpha2",
            {"zones": [{**ZONE, "costs": [{"name": "a", "value": 1.5}]}]},
            [
                wrong("zones[0].costs[0].value", "integer", "number"),
                f"{NO_INTEGER}: got a number, expected an integer of 64 bits",
            ],
        ),
        (
            "v1alpha2",
            {"zones": [{**ZONE, "costs": [{"name": "a", "value": True}]}]},
            [wrong("zones[0].costs[0].value", "integer", "boolean")],
        ),
    ],
)
def test_the_faults_of_a_topology_are_those_of_its_schema(version, content, expected):
    obj, _ = topology(version, **content)
    assert faults(TOPOLOGIES, obj, version) == expected


def test_an_amount_in_a_topology_is_a_number_or_looks_like_a_quantity():
    for text, count in (("1500m", 0), ("1Gi", 0), ("1e3", 0), ("many", 1), ("", 1), ("1 Gi", 1)):
        zone = {**ZONE, "resources": [{"name": "cpu", **AMOUNTS, "available": text}]}
        obj, _ = topology("v1alpha2", zones=[zone])
        found = faults(TOPOLOGIES, obj, "v1alpha2")
        assert len(found) == count
        assert all("must match" in fault for fault in found)
