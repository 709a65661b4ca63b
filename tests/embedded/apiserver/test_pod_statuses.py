"""Statuses that agents in the server's process write are what PATCHes of them would leave."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe, rfc3339
from corelane.embedded.apiserver.write import patching, pipeline
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.embedded.up.agent_links import InProcessNodes
from corelane.kube.client import APIError

START = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Server:
    def __init__(self):
        self.now = START
        self.backend = Backend(Store(None, describe), "s", now=lambda: self.now)
        pipeline.make_default_objects(self.backend)
        self.nodes = NodeObjects(self.backend)

    def target(self, verb, name="", subresource=""):
        named = verb != "create"
        return Target("", verb, "", "v1", "pods", subresource, "default", name, kind=PODS, named=named)

    def create(self, name, policy):
        container = {"name": "main", "image": "bench", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        spec = {"containers": [container], "restartPolicy": policy, "nodeName": f"node-of-{name}"}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        shaped, _ = request_bodies.shaped(PODS, "v1", body)
        obj = pipeline.create(
            self.backend, self.target("create"), shaped, WriteOptions(manager="kubectl")
        ).obj
        return obj["metadata"]["uid"]

    def request(self, name, body, manager="corelane", subresource="status"):
        """Patch as a request does; return the error's text."""
        try:
            pipeline.patch_object(
                self.backend,
                self.target("patch", name, subresource),
                patching.STRATEGIC_PATCH,
                json.dumps(body).encode(),
                WriteOptions(manager=manager),
                [],
            )
        except StatusError as error:
            return str(error)
        return None

    def write(self, name, uid, status):
        try:
            asyncio.run(self.nodes.patch_status("default", name, uid, status))
        except StatusError as error:
            return str(error)
        return None

    def stored(self):
        found = {record.key: record.object() for record in self.backend.store.find(PODS.stored)}
        for obj in found.values():
            obj["metadata"].pop("uid")
        return found


def at(seconds):
    return rfc3339(START + timedelta(seconds=seconds))


def condition(kind, status, since, reason=None):
    message = reason and f"{reason} of main"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(since),
    }


def container(state, number, **more):
    ids = {"containerID": f"simulated://{number:032x}"} if number else {}
    return {
        "name": "main", "image": "bench", "imageID": "", "ready": "running" in state, "started": False,
        "restartCount": 0, "state": state, "lastState": {},
    } | ids | more  # fmt: skip


def pending(since):
    conditions = [
        condition("Ready", "False", since, "ContainersNotReady"),
        condition("Initialized", "True", since),
    ]
    waiting = container({"waiting": {"reason": "ContainerCreating"}}, 0)
    return {
        "phase": "Pending",
        "startTime": at(since),
        "conditions": conditions,
        "containerStatuses": [waiting],
    }


def running(since, number, started):
    conditions = [condition("Ready", "True", started), condition("Initialized", "True", since)]
    states = [container({"running": {"startedAt": at(started)}}, number)]
    return {"phase": "Running", "startTime": at(since), "conditions": conditions, "containerStatuses": states}


def ended(since, number, started):
    last = {
        "terminated": {
            "exitCode": 1,
            "reason": "Error",
            "startedAt": at(started),
            "finishedAt": at(started + 1),
            "containerID": f"simulated://{number:032x}",
        }
    }
    states = [container(last, number, lastState=last)]
    return {"phase": "Failed", "startTime": at(since), "conditions": [], "containerStatuses": states}


SECONDS, IDS = st.integers(0, 3), st.integers(1, 3)
STATUS = st.one_of(
    st.builds(pending, SECONDS),
    st.builds(running, SECONDS, IDS, SECONDS),
    st.builds(ended, SECONDS, IDS, SECONDS),
    st.just({"phase": "Failed", "reason": "Rejected", "message": "\0005", "startTime": at(1)}),
    st.just({"phase": "Running", "qosClass": "Burstable"}),
    st.just({"unknown": 1, "conditions": [{"type": "Ready", "$patch": "delete"}]}),
)
OTHERS = st.sampled_from(
    [
        ({"metadata": {"labels": {"x": "y"}}}, ""),
        ({"metadata": {"annotations": {"x": at(1)}}}, ""),
        ({"metadata": {"managedFields": [{}]}}, ""),
        ({"status": {"conditions": [condition("Mine", "True", 2)]}}, "status"),
        ({"status": {"phase": "Running"}}, "status"),
    ]
)
NAMES = ("a", "b", "c")
STEP = st.tuples(
    st.sampled_from(NAMES),
    STATUS | OTHERS,
    st.sampled_from([0, 0, 1]),
    st.sampled_from(["own", "own", "own", "other"]),
)


def life(name, number, pause=0):
    return [(name, pending(0), 0, "own"), (name, running(0, number, 1), pause, "own")]


@example(life("a", 1) + life("b", 2) + life("c", 3), "Always")
@example(life("a", 1, 1) + life("b", 2, 1) + [("b", running(0, 2, 1), 1, "own")] + life("c", 3), "Never")
@example(
    [*life("a", 1), ("a", ended(0, 1, 1), 0, "own"), *life("b", 1), ("b", ended(0, 1, 1), 1, "own")], "Never"
)
@given(st.lists(STEP, max_size=9), st.sampled_from(["Always", "Never"]))
@settings(max_examples=40, deadline=None)
def test_statuses_are_written_and_refused_as_by_patches(steps, policy):
    one, other, uids = Server(), Server(), {}
    for name in NAMES:
        uids[name] = one.create(name, policy), other.create(name, policy)
    for name, what, seconds, uid in steps:
        for server in (one, other):
            server.now += timedelta(seconds=seconds)
        if isinstance(what, tuple):
            body, subresource = what
            for server in (one, other):
                server.request(name, body, "kubectl-edit", subresource)
        else:
            mine, theirs = uids[name] if uid == "own" else ("u", "u")
            answer = one.write(name, mine, what)
            expected = other.request(name, {"metadata": {"uid": theirs}, "status": what})
            assert (answer or "").replace(mine, "") == (expected or "").replace(theirs, "")
        made, wanted = one.stored(), other.stored()
        assert made == wanted


def test_pods_that_resemble_each_other_are_computed_once():
    server = Server()
    for number in range(1, 11):
        uid = server.create(f"pod-{number}", "Always")
        server.now += timedelta(seconds=1)
        for status in (pending(number), running(number, number, number + 1)):
            assert server.write(f"pod-{number}", uid, status) is None
    assert server.nodes.templates.reused >= 16
    last = server.backend.store.get(PODS.stored, "default/pod-10").object()["status"]
    assert last["containerStatuses"][0]["containerID"] == f"simulated://{10:032x}"
    assert last["startTime"] == at(10)


def test_a_pod_that_is_gone_or_terminating_is_left_to_the_pipeline():
    server = Server()
    assert "not found" in server.write("gone", "u", pending(0))
    for name in ("a", "b"):
        uid = server.create(name, "Always")
        obj = server.backend.store.get(PODS.stored, f"default/{name}").object()
        obj["metadata"] |= {"deletionTimestamp": at(1), "deletionGracePeriodSeconds": 30}
        server.backend.store.put(PODS.stored, f"default/{name}", obj)
        assert server.write(name, uid, running(0, 1, 1)) is None
    assert server.nodes.templates.reused == 0


def test_a_refusal_is_that_of_a_request():
    server = Server()
    nodes = InProcessNodes(NodeObjects(server.backend))
    with pytest.raises(APIError) as raised:
        asyncio.run(nodes.patch_status("default", "gone", "u", pending(0)))
    assert (raised.value.code, raised.value.is_status) == (404, True)
