"""Heartbeats of many nodes in batches: leases are renewed in time, and what is missing is made again."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.agent.publication import stored_objects
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from corelane.embedded.apiserver.write import pipeline
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.embedded.pods import registration
from corelane.embedded.pods.node_status import NodeIdentity
from corelane.embedded.pods.registration import Heartbeat, SharedHeartbeats
from corelane.kube.client import APIError
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from corelane.runtime.base import Capabilities

LEASES, NODES = "leases.coordination.k8s.io", "nodes"
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"


class Reporter(PublicationReporter):
    def __init__(self):
        self.failed = []

    def api_failed(self, what, error):
        self.failed.append(what)

    def malfunction(self, what, error):
        raise error


class World:
    """A store, the shared heartbeats, and a client for what a node needs alone."""

    def __init__(self):
        self.store = Store(None, describe)
        self.backend = Backend(self.store, "s")
        pipeline.make_default_objects(self.backend)
        self.objects = NodeObjects(self.backend)
        self.reporter, self.registered, self.checked = Reporter(), [], []
        self.time = 1_800_000_000.0
        self.shared = SharedHeartbeats(self.objects, lambda: self.time)
        self.ledger = new(parse_spec("socket:1 core:2 smt:1"), NodeConfig())

    def heartbeat(self, name, **more):
        identity = NodeIdentity(name, Capabilities(on_this_machine=False), "simulated", "simulated", **more)
        return Heartbeat(
            self,
            identity,
            self.reporter,
            lambda: self.time,
            lambda: self.ledger,
            lambda *_: self.registered.append(name),
            lambda: self.checked.append(name),
            self.objects,
        )

    async def get(self, kind, name):
        record = self.objects.get(kind.api, name)
        if record is None:
            raise APIError(404, "NotFound", name)
        conditions = [SimpleNamespace(**one) for one in record.object()["status"]["conditions"]]
        return SimpleNamespace(status=SimpleNamespace(conditions=conditions))

    async def patch(self, kind, name, body, **options):
        obj = self.objects.get(kind.api, name).object()
        obj["status"] |= body["status"]
        self.store.put(NODES, name, obj)
        return obj

    def renew_times(self):
        return {record.key: record.object()["spec"]["renewTime"] for record in self.store.find(LEASES)}

    async def turn(self):
        """Let one period pass."""
        self.time += 10
        for part in self.shared._parts:
            if part:
                await self.shared._renew(part)


def run(story):
    async def limited():
        async with asyncio.timeout(120):
            await story()

    asyncio.run(limited())


async def started(count):
    world = World()
    beats = [world.heartbeat(f"sim-{number}") for number in range(count)]
    for beat in beats:
        await beat.register()
        world.objects.ensure(topology(beat.name))
        world.shared.add(beat)
    return world, beats


def topology(name):
    version = NodeResourceTopology.api.api_version
    return {"apiVersion": version, "kind": "NodeResourceTopology", "metadata": {"name": name}, "zones": []}


async def test_every_lease_is_renewed_in_every_period_with_one_commit_for_each_part():
    world, _ = await started(45)
    before, commits = world.renew_times(), []
    with world.store.woken(LEASES, lambda: commits.append(1)):
        await world.turn()
    after = world.renew_times()
    assert len(after) == 45
    assert all(after[key] > before[key] for key in before)
    assert len(commits) == 20
    assert world.registered == [f"sim-{number}" for number in range(45)]


async def test_a_node_and_a_lease_that_were_deleted_are_made_again():
    world, _ = await started(3)
    world.store.delete(NODES, "sim-0")
    world.store.delete(LEASES, "kube-node-lease/sim-1")
    await world.turn()
    assert {record.key for record in world.store.find(NODES)} == {"sim-0", "sim-1", "sim-2"}
    assert len(world.renew_times()) == 3
    assert world.registered == ["sim-0", "sim-1", "sim-2", "sim-0"]


async def test_a_node_that_was_marked_as_not_ready_is_registered_again():
    world, _ = await started(2)
    node = world.objects.get(Node.api, "sim-1").object()
    for condition in node["status"]["conditions"]:
        condition["status"] = "Unknown"
    world.store.put(NODES, "sim-1", node)
    world.update = []

    async def update(metadata):
        world.update.append(metadata["name"])
        return SimpleNamespace(metadata=SimpleNamespace(annotations={}))

    for part in world.shared._parts:
        for beat in part:
            beat._update = update
    await world.turn()
    assert world.update == ["sim-1"]
    conditions = world.objects.get(Node.api, "sim-1").object()["status"]["conditions"]
    assert [one["status"] for one in conditions if one["type"] == "Ready"] == ["True"]


async def test_a_heartbeat_that_was_discarded_lets_its_lease_expire():
    world, beats = await started(2)
    before = world.renew_times()
    world.shared.discard(beats[0])
    await world.turn()
    after = world.renew_times()
    assert [after[key] == before[key] for key in sorted(before)] == [True, False]


async def test_statuses_are_written_again_after_their_time_and_where_they_differ():
    world, beats = await started(4)
    node = world.objects.get(Node.api, "sim-2").object()
    node["status"]["capacity"]["cpu"] = "1"
    world.store.put(NODES, "sim-2", node)
    for part in world.shared._parts:
        for beat in part:
            part[beat] = 0.0
    await world.turn()
    assert sorted(world.checked) == [beat.name for beat in beats]
    for beat in beats:
        status = world.objects.get(Node.api, beat.name).object()["status"]
        assert status["capacity"]["cpu"] == "2"
        assert {one["lastHeartbeatTime"] for one in status["conditions"]} == {"2027-01-15T08:00:10Z"}
    await world.turn()
    assert len(world.checked) == 4


async def test_a_topology_that_was_deleted_is_repaired_in_the_next_period():
    world, beats = await started(3)
    await world.turn()
    assert not world.checked
    world.store.delete(TOPOLOGIES, "sim-1")
    await world.turn()
    assert world.checked == ["sim-1"]
    await beats[0].beat()  # as a node's does that is renewed alone
    assert world.checked == ["sim-1", "sim-0"]


async def test_a_store_that_cannot_be_written_is_reported_and_tried_again():
    world, _ = await started(1)

    def full(*_):
        raise APIError(500, "InternalError", "disk full")

    working, world.objects.renew_leases = world.objects.renew_leases, full
    await world.turn()
    assert world.reporter.failed == ["renewing the leases of 1 nodes"]
    world.objects.renew_leases = working
    before = world.renew_times()
    await world.turn()
    assert world.renew_times() != before


class SlowLoop:
    """Time that passes while one sleeps, each time by `lag` seconds more than was asked for."""

    def __init__(self, lag, naps):
        self.lag, self.naps, self.now = lag, naps, 1_000.0

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.naps -= 1
        if self.naps < 0:
            raise asyncio.CancelledError
        self.now += seconds + self.lag


async def renewals(lag, naps, beats=20):
    """Times at which each lease was renewed, by a loop that wakes up late."""
    world, loop = World(), SlowLoop(lag, naps)
    shared = SharedHeartbeats(world.objects, lambda: world.time, monotonic=loop.monotonic, sleep=loop.sleep)
    for number in range(beats):
        beat = world.heartbeat(f"sim-{number}")
        await beat.register()
        shared.add(beat)
    times = {f"sim-{number}": [] for number in range(beats)}
    renew_leases = world.objects.renew_leases

    def noted(names, at):
        for name in names:
            times[name].append(loop.now)
        return renew_leases(names, at)

    world.objects.renew_leases = noted
    with pytest.raises(asyncio.CancelledError):
        await shared.run()
    return times, loop


async def test_renewals_are_spread_over_the_period():
    times, _ = await renewals(0.0, 41)
    assert all(len(at) >= 2 for at in times.values())
    assert len({at[0] for at in times.values()}) == 20


@pytest.mark.parametrize("lag", [0.3, 7.5, 60.0])
async def test_a_loop_that_wakes_up_late_renews_every_lease_within_a_period_and_the_lag(lag):
    times, loop = await renewals(lag, 100)
    for at in times.values():
        waits = [b - a for a, b in zip([1_000.0, *at], [*at, loop.now], strict=True)]
        assert max(waits) <= registration.RENEW_SECONDS + lag + 0.5 + 1e-6


@given(done=st.integers(0, 1_000), elapsed=st.floats(0, 10_000))
def test_parts_that_are_late_are_renewed_together_and_each_once(done, elapsed):
    numbers = registration.due_parts(done, elapsed)
    assert len({number % 20 for number in numbers}) == len(numbers) <= 20
    assert numbers.start >= done
    if numbers:
        assert numbers.stop == int(elapsed * 2)


async def test_an_existing_node_that_is_as_it_should_be_is_only_refreshed():
    world, _ = await started(1)
    revision = world.store.revision
    world.time += 60
    again = world.heartbeat("sim-0")
    await again.register()
    assert again.uid == world.objects.get(Node.api, "sim-0").object()["metadata"]["uid"]
    assert world.store.revision == revision + 2  # heartbeats, lease
    other = world.heartbeat("sim-0", labels={"a": "b"})
    with pytest.raises(AttributeError, match="spec"):
        await other._register()  # by requests, which this client does not answer


def test_the_periods_are_those_of_kubelets():
    assert (registration.RENEW_SECONDS, registration.LEASE_SECONDS, registration.STATUS_SECONDS) == (
        10,
        40,
        300,
    )


PLAIN = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["a", "b", "lastHeartbeatTime"]), inner, max_size=2),
    ),
    max_leaves=6,
)


@given(PLAIN)
def test_a_value_agrees_with_itself_and_with_more(value):
    assert stored_objects.agrees(value, value)
    if isinstance(value, dict):
        assert stored_objects.agrees({**value, "more": 1}, value)
        assert not stored_objects.agrees(value, {**value, "more": 1})


@pytest.mark.parametrize(
    ("stored", "wanted", "agrees"),
    [
        ({"a": 1}, {"a": None}, False),
        ({}, {"a": None}, True),
        ({}, {"a": {}}, True),
        ({"capacity": {"cpu": "32", "memory": "128Gi"}}, {"capacity": {"memory": "134217728Ki"}}, True),
        ({"capacity": {"cpu": "32"}}, {"capacity": {"cpu": "31"}}, False),
        ({"capacity": {"cpu": "32", "gpu": "1"}}, {"capacity": {"cpu": "32", "gpu": None}}, False),
        (
            {"conditions": [{"type": "X"}, {"type": "R", "status": "True"}]},
            {"conditions": [{"type": "R"}]},
            True,
        ),
        (
            {"conditions": [{"type": "R", "status": "False"}]},
            {"conditions": [{"type": "R", "status": "True"}]},
            False,
        ),
        ({}, {"conditions": [{"type": "R"}]}, False),
        ({"taints": [{"key": "x", "timeAdded": "t"}, {"key": "y"}]}, {"taints": [{"key": "x"}]}, True),
        ({"taints": [{"key": "y"}]}, {"taints": [{"key": "x"}]}, False),
        ({"zones": [{"name": "a"}, {"name": "b"}]}, {"zones": [{"name": "a"}]}, False),
    ],
)
def test_agreement(stored, wanted, agrees):
    assert stored_objects.agrees(stored, wanted) is agrees
