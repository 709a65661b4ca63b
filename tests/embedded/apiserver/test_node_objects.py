"""What agents in the server's process write is what the same requests would leave."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import LEASES, NODES, TOPOLOGIES
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from corelane.embedded.apiserver.stored_objects import StoreError
from corelane.embedded.apiserver.write import patching, pipeline
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.embedded.containers.simulated import SimulatedRuntime
from corelane.embedded.pods.node_status import LedgerDisk, NodeIdentity, node_status
from corelane.kube import keys, translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.translate.topology_zones import FIELD_MANAGER
from corelane.machine.spec import parse_spec
from corelane.node import admit, ledger
from corelane.node.config import NodeConfig
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
OPTIONS = WriteOptions(manager="corelane")
CONDITIONS = ("DiskPressure", "MemoryPressure", "PIDPressure", "Ready")
MACHINE = parse_spec("socket:2 numa:2 core:4 smt:2")
LEDGER = ledger.new(MACHINE, NodeConfig())


class Server:
    """A store with a clock of its own."""

    def __init__(self):
        self.now = START
        self.backend = Backend(Store(None, describe), "s", now=lambda: self.now)
        pipeline.make_default_objects(self.backend)
        self.nodes = NodeObjects(self.backend)

    def pass_time(self, seconds=7):
        self.now += timedelta(seconds=seconds)

    def create(self, kind, body, options=OPTIONS):
        meta = body["metadata"]
        target = Target(
            "", "create", kind.group, kind.version, kind.plural, "", meta.get("namespace", ""), kind=kind
        )
        return pipeline.create(
            self.backend, target, request_bodies.shaped(kind, kind.version, body)[0], options
        ).obj

    def create_ready(self, name):
        """Create a ready Node by requests; the controller removes a taint from it."""
        created = self.create(NODES, node(name))
        kept = [one for one in created["spec"]["taints"] if one["key"] != "node.kubernetes.io/not-ready"]
        self.patch(NODES, name, {"spec": {"taints": kept}})
        return created

    def patch(self, kind, name, body, subresource="", media=patching.MERGE_PATCH, manager="corelane"):
        namespace = "kube-node-lease" if kind is LEASES else ""
        target = Target(
            "",
            "patch",
            kind.group,
            kind.version,
            kind.plural,
            subresource,
            namespace,
            name,
            kind=kind,
            named=True,
        )
        options = WriteOptions(manager=manager)
        pipeline.patch_object(self.backend, target, media, json.dumps(body).encode(), options, [])

    def objects(self, kind):
        return {record.key: record.object() for record in self.backend.store.find(kind.stored)}


def node(name):
    at = START.timestamp()
    identity = NodeIdentity(name, SimulatedRuntime.capabilities, "simulated", "simulated", labels={"a": "b"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": identity.all_labels(), "annotations": identity.annotations()},
        "spec": {"taints": identity.taints()},
        "status": node_status(identity, LEDGER, at, at, LedgerDisk()),
    }


def lease(name, uid):
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": "2026-06-01T12:00:00.000000Z",
        },
    }


def topology(name, uid):
    return translate.topology(MACHINE, name, LEDGER, owner_uid=uid)


def without_uids(obj):
    """The object as text with its UIDs numbered, and without its revision: those of two servers differ."""
    meta = obj["metadata"]
    owners = [owner["uid"] for owner in meta.get("ownerReferences", ())]
    meta.pop("resourceVersion")
    text = json.dumps(obj)
    for number, uid in enumerate([meta["uid"], *owners]):
        text = text.replace(uid, f"uid-{number}")
    return text


NAMES = st.lists(
    st.sampled_from(
        ["sim-1", "sim-2", "sim-10", "v1", "corelane", "simulated", "linux", "core-1", "node-0", "a.b"]
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(NAMES, st.lists(st.sampled_from([0, 0, 0, 1]), min_size=6, max_size=6))
@settings(max_examples=25, deadline=None)
def test_objects_that_resemble_each_other_are_created_as_by_requests(names, pauses):
    one, other = Server(), Server()
    for name, pause in zip(names, pauses, strict=False):
        created, new = one.nodes.ensure(node(name))
        assert new
        uid = created.object()["metadata"]["uid"]
        one.nodes.ensure(lease(name, uid))
        one.nodes.ensure(topology(name, uid), manager="corelane-agent")
        uid = other.create_ready(name)["metadata"]["uid"]
        other.create(LEASES, lease(name, uid))
        other.create(TOPOLOGIES, topology(name, uid), WriteOptions(manager="corelane-agent"))
        one.pass_time(pause)
        other.pass_time(pause)
    for kind in (NODES, LEASES, TOPOLOGIES):
        made, expected = one.objects(kind), other.objects(kind)
        assert made.keys() == expected.keys() and len(made) == len(names)
        for key, obj in made.items():
            assert json.loads(without_uids(obj)) == json.loads(without_uids(expected[key]))
    uids = {
        obj["metadata"]["uid"] for kind in (NODES, LEASES, TOPOLOGIES) for obj in one.objects(kind).values()
    }
    assert len(uids) == 3 * len(names)


def test_of_many_equal_nodes_the_first_alone_is_checked():
    server = Server()
    for number in range(20):
        record, _ = server.nodes.ensure(node(f"sim-{number}"))
        uid = record.object()["metadata"]["uid"]
        server.nodes.ensure(topology(f"sim-{number}", uid))
    assert server.nodes.templates.reused == 38
    assert (
        server.nodes.get(Node.api, "sim-7").object()["metadata"]["labels"]["kubernetes.io/hostname"]
        == "sim-7"
    )
    assert server.nodes.get(NodeResourceTopology.api, "sim-20") is None


def test_an_object_that_is_there_stays_as_it_is():
    server = Server()
    server.create(NODES, {"metadata": {"name": "sim-1", "labels": {"mine": "x"}}})
    record, new = server.nodes.ensure(node("sim-1"))
    assert not new
    assert record.object()["metadata"]["labels"] == {"mine": "x"}
    assert server.nodes.ensure(node("sim-1"))[0] is record


def test_an_invalid_name_is_refused_after_a_valid_one():
    server = Server()
    server.nodes.ensure(node("sim-1"))
    with pytest.raises(StatusError, match=r"metadata\.name"):
        server.nodes.ensure(node("Sim 2"))


OTHER_WRITES = (
    lambda server: None,
    lambda server: server.patch(LEASES, "a", {"spec": {"renewTime": "2026-06-01T12:00:01.000000Z"}}),
    lambda server: server.patch(
        LEASES, "a", {"spec": {"renewTime": "2026-06-01T12:00:01.000000Z"}}, manager="kubectl-edit"
    ),
    lambda server: server.patch(LEASES, "a", {"spec": {"leaseDurationSeconds": 50}}, manager="kubectl-edit"),
    lambda server: server.patch(LEASES, "a", {"metadata": {"managedFields": [{}]}}),
    lambda server: server.patch(NODES, "a", {"metadata": {"managedFields": [{}]}}),
    lambda server: server.patch(NODES, "a", {"metadata": {"labels": {"x": "y"}}}, manager="kubectl-label"),
    lambda server: server.patch(
        NODES,
        "a",
        {"status": {"conditions": [{"type": "Mine", "status": "True", "lastHeartbeatTime": None}]}},
        "status",
        patching.STRATEGIC_PATCH,
        "detector",
    ),
    lambda server: server.patch(
        NODES,
        "a",
        {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-06-01T12:00:03Z"}]}},
        "status",
        patching.STRATEGIC_PATCH,
        "detector",
    ),
)


@given(st.lists(st.sampled_from([*OTHER_WRITES, "renew", "renew", "refresh", "refresh"]), max_size=8))
@settings(max_examples=30, deadline=None)
def test_renewals_in_one_commit_leave_what_patches_leave(steps):
    one, other = Server(), Server()
    for server in (one, other):
        for name in ("a", "b"):
            uid = server.create(NODES, node(name))["metadata"]["uid"]
            server.create(LEASES, lease(name, uid))
    for step in steps:
        for server in (one, other):
            server.pass_time()
        at = one.now.timestamp() + 0.25
        if step == "renew":
            assert one.nodes.renew_leases(["a", "b"], at) == []
            text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for name in ("a", "b"):
                other.patch(LEASES, name, {"spec": {"renewTime": text}})
        elif step == "refresh":
            assert one.nodes.refresh_heartbeats(["a", "b"], CONDITIONS, at) == []
            stamp = other.backend.timestamp()
            body = {
                "status": {"conditions": [{"type": one, "lastHeartbeatTime": stamp} for one in CONDITIONS]}
            }
            for name in ("a", "b"):
                other.patch(NODES, name, body, "status", patching.STRATEGIC_PATCH)
        else:
            step(one)
            step(other)
        for kind in (LEASES, NODES):
            made, expected = one.objects(kind), other.objects(kind)
            for key, obj in made.items():
                assert json.loads(without_uids(obj)) == json.loads(without_uids(expected[key]))


def test_a_renewal_is_one_commit_and_names_what_is_missing():
    server = Server()
    for name in ("a", "b"):
        server.create(LEASES, lease(name, "u"))
    woken = []
    with server.backend.store.woken(LEASES.stored, lambda: woken.append(server.backend.store.revision)):
        assert server.nodes.renew_leases(["a", "gone", "b"], START.timestamp() + 1) == ["gone"]
    assert len(woken) == 1
    assert {obj["spec"]["renewTime"] for obj in server.objects(LEASES).values()} == {
        "2026-06-01T12:00:01.000000Z"
    }
    assert server.nodes.refresh_heartbeats(["gone"], CONDITIONS, 0.0) == ["gone"]


def test_a_node_that_is_not_ready_keeps_its_taint():
    server = Server()
    silent = node("a")
    silent["status"]["conditions"] = []
    keys = [taint["key"] for taint in server.nodes.ensure(silent)[0].object()["spec"]["taints"]]
    assert "node.kubernetes.io/not-ready" in keys


def request(uid, milli):
    qos = QOSClass.GUARANTEED if milli else QOSClass.BEST_EFFORT
    container = ContainerRequest("main", ContainerKind.APP, milli, milli, 1, 1)
    return PodRequest(uid, "default", uid, qos, (container,))


PODS = {f"pod-{number}": milli for number, milli in enumerate((2000, 1000, 500, 0))}
OTHERS_ON_TOPOLOGIES = (
    {"metadata": {"labels": {"x": "y"}}},
    {"metadata": {"annotations": {"mine": "x"}}},
    {"metadata": {"annotations": {"mine": None}}},
    {"metadata": {"annotations": {keys.CPU_ALLOCATIONS: "damaged"}}},
    {"metadata": {"managedFields": [{}]}},
    {"zones": []},
)
CHANGE = st.sampled_from(sorted(PODS)) | st.none()
STEP = st.tuples(CHANGE, st.none() | st.sampled_from(OTHERS_ON_TOPOLOGIES), st.sampled_from([0, 1]))


@example([("pod-0", None, 1), ("pod-1", None, 0), ("pod-0", None, 1), (None, None, 1), ("pod-3", None, 1)])
@example([("pod-0", {"zones": []}, 1), ("pod-1", None, 1)])
@given(st.lists(STEP, min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_merged_topologies_are_as_patched_by_requests(steps):
    one, other, state, version = Server(), Server(), LEDGER, ""
    before = topology("a", "u")
    for server in (one, other):
        server.create(TOPOLOGIES, before, WriteOptions(manager=FIELD_MANAGER))
        version = str(server.nodes.get(NodeResourceTopology.api, "a").revision)
    merges = 0
    for pod, others, seconds in steps:
        for server in (one, other):
            server.pass_time(seconds)
            if others:
                server.patch(TOPOLOGIES, "a", others, manager="kubectl-edit")
        if pod is not None:
            known = pod in state.pods
            state = ledger.release(state, pod) if known else admit(state, request(pod, PODS[pod]))[0]
        whole = translate.topology(MACHINE, "a", state, owner_uid="u")
        patch, before = translate.as_patch(whole, before), whole
        record = one.nodes.merge(NodeResourceTopology.api, "a", patch, FIELD_MANAGER, version)
        if record is None:
            one.patch(TOPOLOGIES, "a", patch, manager=FIELD_MANAGER)
            record = one.nodes.get(NodeResourceTopology.api, "a")
        else:
            merges += 1
        version = str(record.revision)
        other.patch(TOPOLOGIES, "a", patch, manager=FIELD_MANAGER)
        made, expected = one.objects(TOPOLOGIES)["a"], other.objects(TOPOLOGIES)["a"]
        assert made["metadata"]["resourceVersion"] == expected["metadata"]["resourceVersion"]
        assert json.loads(without_uids(made)) == json.loads(without_uids(expected))
    if not any(others for _, others, _ in steps):
        assert merges == len(steps)


def test_a_merge_into_another_version_than_given_is_left_to_requests():
    server = Server()
    server.create(TOPOLOGIES, topology("a", "u"), WriteOptions(manager=FIELD_MANAGER))
    version = str(server.nodes.get(NodeResourceTopology.api, "a").revision)
    patch = {"metadata": {"annotations": {keys.CPU_ALLOCATIONS: "2"}}}
    assert server.nodes.merge(NodeResourceTopology.api, "a", patch, FIELD_MANAGER, "1") is None
    assert server.nodes.merge(NodeResourceTopology.api, "b", patch, FIELD_MANAGER, version) is None
    assert str(server.nodes.get(NodeResourceTopology.api, "a").revision) == version


async def test_a_merge_that_cannot_be_committed_is_undone():
    server = Server()
    server.create(TOPOLOGIES, topology("a", "u"), WriteOptions(manager=FIELD_MANAGER))
    store, before = server.backend.store, server.objects(TOPOLOGIES)
    store.group_commits(asyncio.get_running_loop().call_soon)
    version, patch = str(store.revision), {"metadata": {"annotations": {keys.MACHINE: "changed"}}}
    insert = store._insert

    def fail(events):
        raise StoreError("disk is full")

    for action, at_end in ((fail, before), (insert, None)):
        store._insert = action
        merged = server.nodes.merge(NodeResourceTopology.api, "a", patch, FIELD_MANAGER, version)
        assert (merged.revision, store.revision) == (int(version) + 1, int(version))
        if at_end is None:
            await server.nodes.committed()
            assert store.revision == merged.revision
        else:
            with pytest.raises(StoreError, match="disk is full"):
                await server.nodes.committed()
            assert server.objects(TOPOLOGIES) == at_end


async def test_nodes_created_in_one_pass_share_a_commit():
    server, sizes = Server(), []
    store = server.backend.store
    insert = store._insert
    store._insert = lambda events: (sizes.append(len(events)), insert(events))
    store.group_commits(asyncio.get_running_loop().call_soon)

    async def start(name):
        server.nodes.ensure(node(name))
        await server.nodes.committed()
        assert server.nodes.renew_leases([name], START.timestamp()) == [name]
        server.nodes.ensure(lease(name, "u"))
        await server.nodes.committed()

    await asyncio.gather(*(start(f"n-{number}") for number in range(30)))
    assert len(sizes) == 2
    assert sum(sizes) > 60
