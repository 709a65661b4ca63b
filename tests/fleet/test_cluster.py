"""Objects of a whole cluster: read from an API server, saved to a file and loaded again."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.fleet import cluster as fleet
from corelane.fleet.cluster import OTHERS, ClusterFileError, ClusterObjects, Unread
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.meta import Object
from corelane.kube.objects import Lease, Node, NodeResourceTopology, NodeResourceTopologyV1Alpha1
from corelane.kube.pod import Pod
from corelane.scheduler.daemon.object_watches import KINDS
from support import objects
from support.drawn_nodes import ledgers
from support.fake_api import Fake, answer, serving
from support.pods import container, guaranteed, pod

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "ä"}}}
        ]
    }
}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
PODS = st.builds(
    lambda name, cpus, node, labels: pod(
        name, container("x", f"cpu={cpus} memory=1Gi"), node=node, labels=labels
    ),
    st.sampled_from("abc"),
    st.sampled_from(("1", "1500m", "2")),
    st.sampled_from(("", "n1")),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=ledgers(), pods=st.lists(PODS, max_size=3), errors=st.lists(st.text(max_size=5), max_size=2))
def test_a_saved_cluster_is_loaded_as_it_was(
    tmp_path: Path, state: Any, pods: list[Pod], errors: Any
) -> None:
    cluster = ClusterObjects(
        NOW,
        (objects.node("n1", 4, labels={"zone": "a"}),),
        (objects.topology("n1", state, leased=True),),
        tuple(pods),
        unread=tuple(Unread("services", error) for error in errors),
    )
    fleet.save(cluster, tmp_path / "cluster.json")
    assert fleet.load(tmp_path / "cluster.json") == cluster


def raw(kind: type[Object], name: str = "x", **more: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": "1"}, **more}


def test_every_kind_is_saved_with_what_is_read_as_raw_json(tmp_path: Path) -> None:
    spec = {"nodeName": "n1", "affinity": AFFINITY, "topologySpreadConstraints": SPREAD}
    cluster = ClusterObjects(
        NOW,
        topologies=(
            msgspec.convert(raw(NodeResourceTopology), NodeResourceTopology),
            msgspec.convert(raw(NodeResourceTopologyV1Alpha1, "y"), NodeResourceTopologyV1Alpha1),
        ),
        pods=(msgspec.json.decode(json.dumps(raw(Pod, spec=spec)), type=Pod),),
        leases=(msgspec.convert(raw(Lease, spec={"holderIdentity": "a"}), Lease),),
        others=tuple(msgspec.convert(raw(kind), kind) for kind in OTHERS),
    )
    fleet.save(cluster, path := tmp_path / "cluster.json")
    loaded = fleet.load(path)
    assert [type(one) for one in loaded.others] == list(OTHERS)
    assert [type(one) for one in loaded.topologies] == [type(one) for one in cluster.topologies]
    (before,), (after,) = cluster.pods, loaded.pods
    assert before.spec.affinity and after.spec.affinity
    assert json.loads(bytes(after.spec.affinity.pod_anti_affinity)) == AFFINITY["podAntiAffinity"]
    assert json.loads(bytes(after.spec.topology_spread_constraints)) == SPREAD
    assert (loaded.leases, loaded.others) == (cluster.leases, cluster.others)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "Input data was truncated"),
        (b'{"kind": "List", "apiVersion": "v1"}', "readAt"),
        (
            b'{"readAt": "2026-11-28T12:00:00Z", "items": [{"kind": "Pod", "apiVersion": "v1", "spec": 3}]}',
            "Pod .* malformed",
        ),
    ],
)
def test_a_file_that_is_not_a_saved_cluster_is_refused_by_name(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ClusterFileError, match=f"f: not a file of a cluster's objects: .*{fault}"):
        fleet.load(tmp_path / "f")


def test_kinds_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    fleet.save(ClusterObjects(NOW, (objects.node("n1", 4),)), path := tmp_path / "cluster.json")
    tree = json.loads(path.read_bytes())
    tree["items"].append({"apiVersion": "v9", "kind": "Later"})
    path.write_text(json.dumps(tree | {"later": 1}))
    assert fleet.load(path).nodes == (objects.node("n1", 4),)


def serve(fake: Fake, kind: type[Object], *items: object) -> None:
    fake.script[kind.api.path()] = [answer({"metadata": {}, "items": list(items)})]


def run(story: Callable[[Fake, KubeClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            await story(fake, client)

    asyncio.run(main())


def test_a_cluster_is_read_with_the_kinds_that_could_not_be_read() -> None:
    absent = next(kind for kind in OTHERS if kind.api.optional)
    missing = next(kind for kind in OTHERS if not kind.api.optional)

    async def story(fake: Fake, client: KubeClient) -> None:
        for kind in {Node, NodeResourceTopology, Pod, *OTHERS} - {absent, missing}:
            serve(fake, kind, raw(kind))
        forbidden = {"kind": "Status", "code": 403, "message": "leases is forbidden"}
        fake.script[Lease.api.path("corelane-system")] = [answer(forbidden, 403)]
        cluster = await fleet.read(client)
        found = (*cluster.nodes, *cluster.topologies, *cluster.pods)
        assert [one.metadata.name for one in found] == ["x"] * 3
        assert {type(one) for one in cluster.others} == {*OTHERS} - {absent, missing}
        assert {one.plural for one in cluster.unread} == {"leases", missing.api.plural}

    run(story)


@pytest.mark.parametrize(
    "kinds",
    [(NodeResourceTopology,), (NodeResourceTopologyV1Alpha1,), ()],
    ids=["v1alpha2", "v1alpha1", "none"],
)
def test_topologies_are_read_in_the_version_that_is_served(kinds: tuple[type[Object], ...]) -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        for kind in (Node, Pod, *kinds):
            serve(fake, kind, raw(kind))
        cluster = await fleet.read(client, others=())
        assert [type(one) for one in cluster.topologies] == [*kinds]

    run(story)


def test_a_cluster_whose_nodes_cannot_be_read_is_not_read() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        for kind in (NodeResourceTopology, Pod):
            serve(fake, kind)
        with pytest.raises(APIError, match="no script"):
            await fleet.read(client, others=())

    run(story)


def test_every_object_that_a_scheduler_watches_is_read() -> None:
    assert {*OTHERS, Lease} == {*KINDS}


def test_pods_that_have_ended_are_not_alive() -> None:
    ended = msgspec.structs.replace(
        guaranteed("a", "1"), status=msgspec.structs.replace(Pod().status, phase="Failed")
    )
    running = guaranteed("b", "1")
    assert ClusterObjects(NOW, pods=(ended, running)).alive == (running,)
