"""What users of kr8s do, with the real library against `corelane up` in another process."""

import asyncio
import base64
import itertools

import pytest
import yaml

from support.up import up

pytestmark = [
    pytest.mark.system,
    # the library leaves its watches to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

kr8s = pytest.importorskip("kr8s", reason="pip install --no-deps -r tests/system/requirements.txt")

from kr8s import NotFoundError, ServerError  # noqa: E402
from kr8s import objects as blocking  # noqa: E402
from kr8s.asyncio import api as connect  # noqa: E402
from kr8s.asyncio import objects  # noqa: E402

NAMES = (f"kr{number}" for number in itertools.count())
SLEEP = ["/bin/sh", "-c", "trap 'exit 0' TERM; echo started; while :; do sleep 0.1; done"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with up(tmp_path_factory.mktemp("kr8s") / "data") as running:
        yield running


@pytest.fixture
def api(cluster):
    found = kr8s.api(kubeconfig=cluster.kubeconfig)
    name = next(NAMES)
    blocking.Namespace({"metadata": {"name": name}}, api=found).create()
    found.namespace = name
    return found


def asynchronous(test):
    """Run with a client of the test's own event loop, and a namespace of its own."""

    def run(cluster):
        async def within():
            async with asyncio.timeout(90):
                api = await connect(kubeconfig=str(cluster.kubeconfig))
                name = next(NAMES)
                await (await objects.Namespace({"metadata": {"name": name}}, api=api)).create()
                api.namespace = name
                await test(api)

        asyncio.run(within())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def spec(name, command=SLEEP, labels=None, **more):
    return {
        "metadata": {"name": name, "labels": {"app": name} | (labels or {})},
        "spec": {
            "containers": [{"name": "main", "image": "ignored", "command": command}],
            "terminationGracePeriodSeconds": 1,
        }
        | more,
    }


def elsewhere(name, **more):
    """A pod that no scheduler here looks at."""
    return spec(name, schedulerName="none", **more)


def config_map(api, name, labels=None, **data):
    made = blocking.ConfigMap({"metadata": {"name": name, "labels": labels or {}}, "data": data}, api=api)
    made.create()
    return made


def status_of(error):
    return error.value.response.json()


# --- the cluster


def test_the_cluster_says_what_it_is_and_what_it_serves(api):
    assert api.version()["gitVersion"].startswith("v1.")
    assert {"v1", "events.k8s.io/v1", "topology.node.k8s.io/v1alpha2"} <= set(api.api_versions())
    listed = {(one["version"], one["name"]): one for one in api.api_resources()}
    assert listed["v1", "pods"]["shortNames"] == ["po"]
    assert listed["topology.node.k8s.io/v1alpha1", "noderesourcetopologies"]["namespaced"] is False
    assert api.lookup_kind("po") == ("pod/v1", "pods", True)


def test_callers_learn_who_they_are(api):
    assert api.whoami() == "admin"


def test_every_form_of_kubeconfig_works(cluster, tmp_path):
    plain = yaml.safe_load(cluster.kubeconfig.read_text())
    file = tmp_path / "config"
    with_files = yaml.safe_load(cluster.kubeconfig.read_text())
    encoded = with_files["clusters"][0]["cluster"].pop("certificate-authority-data")
    authority = tmp_path / "ca.crt"
    authority.write_bytes(base64.b64decode(encoded))
    with_files["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    file.write_text(yaml.safe_dump(with_files))
    for config in (str(cluster.kubeconfig), plain, str(file)):
        api = kr8s.api(kubeconfig=config)
        assert api.namespace == "default"
        assert "default" in [one.name for one in api.get("namespaces")]


def test_a_wrong_token_is_unauthorized(cluster):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    with pytest.raises(ServerError) as error:
        list(kr8s.api(kubeconfig=config).get("namespaces"))
    assert status_of(error)["code"] == 401


# --- objects


def test_an_object_goes_through_its_life(api):
    made = config_map(api, "c", key="1")
    assert made.exists()
    assert made.namespace == api.namespace
    found = blocking.ConfigMap.get("c", api=api)
    assert (found.data.key, found.metadata.uid) == ("1", made.metadata.uid)
    found.patch({"data": {"key": "2", "more": "3"}})
    made.refresh()
    assert made.data.to_dict() == {"key": "2", "more": "3"}
    made.patch([{"op": "remove", "path": "/data/more"}], type="json")
    assert made.data.to_dict() == {"key": "2"}
    made.delete()
    assert not made.exists()
    with pytest.raises(NotFoundError):
        made.refresh()
    with pytest.raises(NotFoundError):
        made.delete()
    with pytest.raises(NotFoundError):
        blocking.ConfigMap.get("c", api=api, timeout=1)


def test_what_exists_and_what_is_invalid_is_refused(api):
    config_map(api, "c")
    with pytest.raises(ServerError) as error:
        config_map(api, "c")
    assert status_of(error)["reason"] == "AlreadyExists"
    with pytest.raises(ServerError, match="Unsupported value") as error:
        blocking.Pod(spec("p", restartPolicy="Sometimes"), api=api).create()
    assert status_of(error)["code"] == 422
    assert [cause["field"] for cause in status_of(error)["details"]["causes"]] == ["spec.restartPolicy"]
    made = blocking.ConfigMap.get("c", api=api)
    with pytest.raises(ServerError) as error:
        made.patch({"metadata": {"resourceVersion": "1"}})
    assert status_of(error)["reason"] == "Conflict"
    with pytest.raises(ServerError) as error:
        made.patch([{"op": "test", "path": "/data/x", "value": "y"}], type="json")
    assert status_of(error)["code"] == 422


def test_labels_annotations_and_owners(api):
    owner, child = config_map(api, "owner"), config_map(api, "child")
    child.label(tier="a", **{"example.com/b": "1"})
    child.annotate({"example.com/note": "x"})
    child.label({"tier": "b"})
    assert child.labels.to_dict() == {"tier": "b", "example.com/b": "1"}
    child.remove_label("example.com/b")
    child.label("tier-")
    assert child.labels.to_dict() == {}
    assert child.annotations.to_dict() == {"example.com/note": "x"}
    owner.adopt(child)
    child.refresh()
    (reference,) = child.metadata.ownerReferences
    assert (reference.kind, reference.name, reference.uid) == ("ConfigMap", "owner", owner.metadata.uid)


def test_a_generated_name_comes_back(api):
    made = blocking.ConfigMap({"metadata": {"generateName": "c-"}}, api=api)
    made.create()
    assert made.name.startswith("c-")
    assert made.exists()


def test_secrets_keep_their_data(api):
    body = {"metadata": {"name": "s"}, "type": "Opaque", "stringData": {"password": "x"}}
    blocking.Secret(body, api=api).create()
    assert blocking.Secret.get("s", api=api).data.password == "eA=="


# --- lists


def test_labels_and_fields_select(api):
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        blocking.Pod(elsewhere(name, labels={"tier": tier}), api=api).create()

    def chosen(**more):
        return [one.name for one in api.get("pods", **more)]

    assert chosen() == ["a", "b", "c"]
    assert chosen(label_selector={"tier": "x"}) == ["a", "c"]
    assert chosen(label_selector="tier in (x,y),tier notin (y)") == ["a", "c"]
    assert chosen(label_selector="!tier") == []
    assert chosen(field_selector={"metadata.name": "b"}) == ["b"]
    assert chosen(field_selector="status.phase=Pending,metadata.name!=b") == ["a", "c"]
    assert [one.name for one in api.get("pods", "a", "c")] == ["a", "c"]
    everywhere = api.get("pods", namespace=kr8s.ALL, field_selector=f"metadata.namespace={api.namespace}")
    assert [one.name for one in everywhere] == ["a", "b", "c"]
    with pytest.raises(ServerError, match="field selector"):
        chosen(field_selector="spec.image=x")


def test_long_lists_come_in_pages(api):
    """The library asks for 100 at a time."""
    for number in range(230):
        config_map(api, f"c{number:03}")
    assert [one.name for one in api.get("configmaps")] == [f"c{number:03}" for number in range(230)]


def test_tables_are_what_kubectl_would_print(api):
    blocking.Pod(elsewhere("p"), api=api).create()
    (table,) = api.get("pods", as_object=blocking.Table)
    assert [column["name"] for column in table.column_definitions][:4] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
    ]
    assert [row["cells"][:3] for row in table.rows] == [["p", "0/1", "Pending"]]
    (raw,) = api.get("pods", "p", raw=True)
    assert raw["metadata"]["name"] == "p"


def test_a_kind_that_is_not_served_is_named(api):
    with pytest.raises(ValueError, match="Kind deployments not found"):
        list(api.get("deployments", allow_unknown_type=False))


# --- nodes and pods


def test_nodes_are_cordoned_and_tainted(api):
    (node,) = api.get("nodes")
    node.cordon()
    node.refresh()
    assert node.unschedulable
    node.uncordon()
    node.taint("example.com/k", "v", effect="PreferNoSchedule")
    node.refresh()
    assert "example.com/k" in [taint.key for taint in node.taints]
    node.taint("example.com/k", "v", effect="PreferNoSchedule-")
    node.refresh()
    assert not node.unschedulable
    assert "example.com/k" not in [taint.key for taint in node.taints]
    node.wait("condition=Ready", timeout=20)


def test_a_pod_runs_logs_and_ends(api):
    pod = blocking.Pod(spec("web"), api=api)
    pod.create()
    pod.wait("condition=Ready", timeout=30)
    assert pod.ready()
    assert pod.status.phase == "Running"
    assert next(pod.logs(follow=True, timeout=20)) == "started"
    assert list(pod.logs(tail_lines=1, container="main")) == ["started"]
    with pytest.raises(ServerError):
        list(pod.logs(container="other"))
    events = api.get("events", field_selector={"involvedObject.name": "web", "reason": "Scheduled"})
    assert [event.raw.type for event in events] == ["Normal"]
    pod.tolerate("example.com/k", operator="Exists", effect="NoSchedule")
    assert "example.com/k" in [one.key for one in pod.tolerations]
    pod.delete(grace_period=1)
    pod.wait("delete", timeout=20)
    assert not pod.exists()


def test_the_status_is_patched_by_itself(api):
    pod = blocking.Pod(elsewhere("p"), api=api)
    pod.create()
    pod.patch({"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}, subresource="status")
    pod.wait("jsonpath='{.status.phase}'=Running", timeout=10)
    condition = {"type": "example.com/Checked", "status": "True"}
    pod.patch({"status": {"conditions": [condition]}}, subresource="status")
    pod.wait(["condition=example.com/Checked", "condition=Ready"], mode="any", timeout=10)
    assert not pod.ready()
    pod.delete(force=True)
    assert not pod.exists()


# --- custom resources


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_topologies_are_objects_of_a_class_made_for_them(api, version):
    topologies = blocking.new_class(
        kind="NodeResourceTopology",
        version=f"topology.node.k8s.io/{version}",
        plural="noderesourcetopologies",
        namespaced=False,
    )
    name = f"{api.namespace}-{version}"
    zones = [{"name": "node-0", "type": "Node"}]
    body = {"metadata": {"name": name}, "topologyPolicies": ["None"], "zones": zones}
    made = topologies(body, api=api)
    made.create()
    found = topologies.get(name, api=api)
    assert found.raw.zones[0].name == "node-0"
    found.patch({"topologyPolicies": ["Restricted"]})
    (listed,) = api.get(f"noderesourcetopologies.{version}.topology.node.k8s.io", name)
    assert listed.raw.topologyPolicies == ["Restricted"]
    with pytest.raises(ServerError, match="Required value"):
        found.patch({"zones": [{"name": "node-0"}]})
    found.delete()
    assert not made.exists()


# --- asynchronous


@asynchronous
async def test_asynchronous_watches_begin_with_what_there_is_and_go_on(api):
    async def make(name):
        made = await objects.ConfigMap({"metadata": {"name": name, "labels": {"w": "1"}}}, api=api)
        await made.create()
        return made

    await make("a")
    seen = []

    async def follow():
        async for kind, one in api.watch("configmaps", label_selector="w=1"):
            seen.append((kind, one.name))
            if kind == "DELETED":
                return

    follower = asyncio.create_task(follow())
    while not seen:
        await asyncio.sleep(0.01)
    made = await make("b")
    await made.annotate(x="y")
    await made.delete()
    await follower
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


@asynchronous
async def test_a_watch_since_a_version_misses_nothing(api):
    first = await objects.ConfigMap({"metadata": {"name": "a"}}, api=api)
    await first.create()
    for name in ("b", "c"):
        await (await objects.ConfigMap({"metadata": {"name": name}}, api=api)).create()
    names = []
    async for _, one in api.watch("configmaps", since=first.metadata.resourceVersion):
        names.append(one.name)
        if one.name == "c":
            break
    assert names == ["b", "c"]


@asynchronous
async def test_many_pods_are_created_waited_for_and_deleted_at_once(api):
    pods = [await objects.Pod(spec(f"p{number}", labels={"many": "1"}), api=api) for number in range(5)]
    await api.create(pods)
    await asyncio.gather(*(pod.wait("condition=Ready", timeout=60) for pod in pods))
    assert {pod.name async for pod in api.get("pods", label_selector="many=1")} == {p.name for p in pods}
    assert await asyncio.gather(*(pod.ready() for pod in pods)) == [True] * 5
    lines = [[line async for line in pod.logs()] for pod in pods]
    assert lines == [["started"]] * 5
    await asyncio.gather(*(pod.delete() for pod in pods))
    await asyncio.gather(*(pod.wait("delete", timeout=30) for pod in pods))
    assert [pod async for pod in api.get("pods")] == []


@asynchronous
async def test_a_pods_changes_are_watched_from_the_pod(api):
    script = ["/bin/sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done"]
    pod = await objects.Pod(spec("p", command=script, restartPolicy="Never"), api=api)
    await pod.create()
    async for _, seen in pod.watch():
        if seen.status.phase != "Pending":
            break
    assert [line async for line in pod.logs(follow=True, timeout=20)] == ["1", "2", "3"]
    await pod.wait("jsonpath='{.status.phase}'=Succeeded", timeout=20)


@asynchronous
async def test_objects_of_several_namespaces_are_listed(api):
    other = f"{api.namespace}-b"
    await (await objects.Namespace({"metadata": {"name": other}}, api=api)).create()
    for space in (api.namespace, other):
        body = {"metadata": {"name": "c", "namespace": space, "labels": {"t": api.namespace}}}
        await (await objects.ConfigMap(body, api=api)).create()
    selector = {"t": api.namespace}
    found = [one async for one in api.get("configmaps", namespace=kr8s.ALL, label_selector=selector)]
    assert sorted(one.namespace for one in found) == [api.namespace, other]
    assert (await api.version())["major"] == "1"
    assert await api.whoami() == "admin"
