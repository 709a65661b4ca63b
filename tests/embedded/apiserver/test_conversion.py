"""One stored object in several groups and versions: nothing is lost on the way, each has its own rules."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies, wire
from corelane.embedded.apiserver.served_kinds import EVENTS, NEW_EVENTS, TOPOLOGIES
from support.drawn import objects

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
TOPOLOGY = {"kind": "NodeResourceTopology", "metadata": {"name": "n"}}
AMOUNTS = {"capacity": "4", "allocatable": 4, "available": "1500m"}
ZONE = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", **AMOUNTS}]}


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


def topology(version, **content):
    body = {**TOPOLOGY, "apiVersion": f"topology.node.k8s.io/{version}", **content}
    return request_bodies.decode(TOPOLOGIES, version, json.dumps(body).encode())


def test_an_amount_in_a_topology_is_a_number_or_looks_like_a_quantity():
    for text, count in (("1500m", 0), ("1Gi", 0), ("1e3", 0), ("many", 1), ("", 1), ("1 Gi", 1)):
        zone = {**ZONE, "resources": [{"name": "cpu", **AMOUNTS, "available": text}]}
        obj, _ = topology("v1alpha2", zones=[zone])
        found = faults(TOPOLOGIES, obj, "v1alpha2")
        assert len(found) == count
        assert all("must match" in fault for fault in found)
