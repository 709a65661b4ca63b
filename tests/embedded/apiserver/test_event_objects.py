"""Events of programs in the server's process are what POSTs of them would leave."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import EVENTS, NAMESPACES
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from corelane.embedded.apiserver.stored_objects import StoreError
from corelane.embedded.apiserver.write import pipeline
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.embedded.up.agent_links import InProcessNodes
from corelane.kube.client import APIError

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
AT = "2026-06-01T11:59:58Z"


class Server:
    def __init__(self):
        self.now = START
        self.backend = Backend(Store(None, describe), "s", now=lambda: self.now)
        pipeline.make_default_objects(self.backend)
        ending = {"metadata": {"name": "ending"}, "status": {"phase": "Terminating"}}
        self.backend.store.put(NAMESPACES.stored, "ending", ending)
        self.nodes = NodeObjects(self.backend)

    def post(self, body):
        """Create an event as a POST does; return the error's text."""
        meta = body["metadata"]
        target = Target("", "create", "", "v1", "events", "", meta["namespace"], meta["name"], kind=EVENTS)
        try:
            shaped, _ = request_bodies.shaped(EVENTS, "v1", body)
            pipeline.create(self.backend, target, shaped, WriteOptions(manager="corelane"))
        except StatusError as error:
            return str(error)
        return None

    def stored(self):
        found = {record.key: record.object() for record in self.backend.store.find(EVENTS.stored)}
        uids = {obj["metadata"].pop("uid") for obj in found.values()}
        assert len(uids) == len(found)
        for obj in found.values():
            obj["metadata"].pop("resourceVersion")
        return found


def event(name, namespace="default", **members):
    about = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1a", "namespace": namespace},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Started",
        "message": f"started {name}",
        "source": {"component": "corelane-agent", "host": "n"},
        "reportingComponent": "corelane-agent",
        "reportingInstance": "n",
        "firstTimestamp": AT,
        "lastTimestamp": AT,
        "count": 1,
    } | members


NAMES = st.sampled_from(["a", "b", "c", "d-1", "Bad Name", "x" * 260])
SPACES = st.sampled_from(["default", "default", "kube-system", "ending", "missing"])
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Warning", "", "Odd"]),
        "message": st.text(max_size=12) | st.just("ü" * 1100),
        "reason": st.sampled_from(["", "Other"]),
        "count": st.sampled_from([0, 1, 2, -1]),
        "action": st.sampled_from(["", "Preempting"]),
        "lastTimestamp": st.sampled_from(
            [AT, "2026-06-01T12:00:03.5Z", "2026-06-01T14:00:00+02:00", "soon", None]
        ),
        "eventTime": st.sampled_from([None, "2026-06-01T12:00:03.500000Z"]),
        "related": st.sampled_from([{"kind": "Pod", "name": "other"}, {}]),
        "source": st.sampled_from([{"component": "scheduler"}, {}, None]),
        "unknown": st.just(1),
        "involvedObject": st.sampled_from([{}, {"kind": "Node", "name": "n", "uid": "n"}]),
    },
)
BATCHES = st.lists(
    st.lists(
        st.builds(lambda name, space, more: event(name, space, **more), NAMES, SPACES, MEMBERS), max_size=5
    ),
    max_size=4,
)


@example([[event("a"), event("b")], [event("c"), event("c"), event("a"), event("d-1", "kube-system")]])
@example([[event("a"), event("b", "ending"), event("Bad Name"), event("c", count=0)]])
@given(BATCHES)
@settings(max_examples=40, deadline=None)
def test_events_are_created_and_refused_as_by_posts(batches):
    one, other = Server(), Server()
    for batch in batches:
        answers = one.nodes.record_events(batch)
        expected = [other.post(body) for body in batch]
        assert [answer and str(answer) for answer in answers] == expected
        for server in (one, other):
            server.now += timedelta(seconds=1)
    assert one.stored() == other.stored()


def test_recorded_events_are_committed_before_the_answer():
    server = Server()
    nodes, later, committed = NodeObjects(server.backend), [], []
    server.backend.store.group_commits(later.append)
    with server.backend.store.woken(EVENTS.stored, lambda: committed.append(len(server.stored()))):
        for names in (("a",), ("b", "c")):
            assert nodes.record_events([event(name) for name in names]) == [None] * len(names)
    assert committed == [1, 3]


def test_who_records_an_event_gets_its_own_answer():
    async def scenario():
        nodes = InProcessNodes(NodeObjects(server.backend))
        names = ("a", "b", "a", "c")
        return await asyncio.gather(
            *(nodes.record_event(event(name)) for name in names), return_exceptions=True
        )

    server = Server()
    first, second, third, fourth = asyncio.run(scenario())
    assert (first, second, fourth) == (None, None, None)
    assert isinstance(third, APIError)
    assert (third.code, third.is_status) == (409, True)
    assert json.dumps(sorted(server.stored())) == '["default/a.1a", "default/b.1a", "default/c.1a"]'


def test_a_store_that_cannot_be_written_fails_all_that_wait(monkeypatch):
    async def scenario():
        nodes = InProcessNodes(NodeObjects(server.backend))
        return await asyncio.gather(
            *(nodes.record_event(event(name)) for name in ("a", "b")), return_exceptions=True
        )

    def full(*_):
        raise StoreError("disk full")

    server = Server()
    monkeypatch.setattr(server.backend.store, "put", full)
    errors = asyncio.run(scenario())
    assert [error.code for error in errors] == [500, 500]
    assert all("disk full" in str(error) for error in errors)
