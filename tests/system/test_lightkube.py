"""What users of lightkube do, with the real library against `corelane up` in another process."""

import asyncio
import contextlib
import itertools
import threading

import msgspec
import pytest
import yaml

from support.up import up

pytestmark = pytest.mark.system

lightkube = pytest.importorskip("lightkube", reason="pip install --no-deps -r tests/system/requirements.txt")
codecs = pytest.importorskip("lightkube.codecs")
generic = pytest.importorskip("lightkube.generic_resource")
op = pytest.importorskip("lightkube.operators")

from lightkube import ApiError, AsyncClient, Client, KubeConfig  # noqa: E402
from lightkube.core.exceptions import ConditionError, ObjectDeleted  # noqa: E402
from lightkube.models.core_v1 import Container, ObjectReference, PodSpec  # noqa: E402
from lightkube.models.core_v1 import PodStatus as PodStatusModel  # noqa: E402
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta  # noqa: E402
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec  # noqa: E402
from lightkube.resources.coordination_v1 import Lease  # noqa: E402
from lightkube.resources.core_v1 import (  # noqa: E402
    ConfigMap,
    Event,
    Namespace,
    Node,
    Pod,
    PodBinding,
    PodEviction,
    PodStatus,
    Secret,
)
from lightkube.resources.policy_v1 import PodDisruptionBudget  # noqa: E402
from lightkube.types import CascadeType, OnErrorAction, OnErrorResult, PatchType  # noqa: E402

NAMES = (f"lk{number}" for number in itertools.count())
SLEEP = ["/bin/sh", "-c", "trap 'exit 0' TERM; echo started; while :; do sleep 0.1; done"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with up(tmp_path_factory.mktemp("lightkube") / "data") as running:
        yield running


@pytest.fixture
def namespace(cluster):
    name = next(NAMES)
    with Client(KubeConfig.from_file(cluster.kubeconfig)) as admin:
        admin.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


@pytest.fixture
def client(cluster, namespace):
    config = KubeConfig.from_file(cluster.kubeconfig)
    with Client(config, namespace=namespace, field_manager="tests") as found:
        yield found


def pod(name, command=SLEEP, labels=None, **spec):
    container = Container(name="main", image="ignored", command=command)
    grace = {"terminationGracePeriodSeconds": 1} | spec
    return Pod(
        metadata=ObjectMeta(name=name, labels={"app": name} | (labels or {})),
        spec=PodSpec(containers=[container], **grace),
    )


def elsewhere(name, **more):
    """A pod that no scheduler here looks at."""
    return pod(name, schedulerName="none", **more)


def config_map(name, labels=None, **data):
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels), data=data)


def names(objects):
    return [one.metadata.name for one in objects]


def bind(client, name, node):
    """Bind a pod; the library then reads the Status that any API server answers as a Binding, and fails."""
    target = ObjectReference(kind="Node", name=node)
    with contextlib.suppress(msgspec.ValidationError):
        client.create(PodBinding(target=target, metadata=ObjectMeta(name=name)), name=name)


def refused(code, reason, call, *args, **more):
    with pytest.raises(ApiError) as error:
        call(*args, **more)
    status = error.value.status
    assert (status.code, status.reason, status.status) == (code, reason, "Failure")
    return status


# --- kubeconfigs


def test_every_form_of_credentials_that_is_served_works(cluster, tmp_path):
    plain = yaml.safe_load(cluster.kubeconfig.read_text())
    token = plain["users"][0]["user"]["token"]
    token_file = tmp_path / "token"
    token_file.write_text(f"{token}\n")
    authority = tmp_path / "ca.crt"
    authority.write_bytes((cluster.data_dir / "ca.crt").read_bytes())
    by_files = yaml.safe_load(cluster.kubeconfig.read_text())
    by_files["users"][0]["user"] = {"tokenFile": str(token_file)}
    by_files["clusters"][0]["cluster"].pop("certificate-authority-data")
    by_files["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    for config in (KubeConfig.from_dict(plain), KubeConfig.from_dict(by_files)):
        with Client(config) as client:
            assert client.namespace == "default"
            assert "default" in names(client.list(Namespace))


def test_a_wrong_token_is_unauthorized(cluster):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    with Client(KubeConfig.from_dict(config)) as client:
        refused(401, "Unauthorized", client.get, Namespace, "default")


# --- objects


def test_an_object_goes_through_its_life(client, namespace):
    made = client.create(config_map("c", key="1"))
    assert (made.metadata.namespace, made.data) == (namespace, {"key": "1"})
    assert client.get(ConfigMap, "c").metadata.uid == made.metadata.uid
    made.data["key"] = "2"
    assert client.replace(made).data == {"key": "2"}
    conflict = refused(409, "Conflict", client.replace, made)
    assert "the object has been modified" in conflict.message
    client.delete(ConfigMap, "c")
    assert refused(404, "NotFound", client.get, ConfigMap, "c").details.name == "c"
    refused(404, "NotFound", client.delete, ConfigMap, "c")


def test_what_exists_and_what_is_invalid_is_refused_with_its_causes(client):
    client.create(config_map("c"))
    assert refused(409, "AlreadyExists", client.create, config_map("c")).details.kind == "configmaps"
    bad = pod("Bad_Name", restartPolicy="Sometimes")
    status = refused(422, "Invalid", client.create, bad)
    assert {"metadata.name", "spec.restartPolicy"} <= {cause.field for cause in status.details.causes}


@pytest.mark.parametrize(
    ("how", "patch", "ports"),
    [
        (PatchType.STRATEGIC, {"ports": [{"containerPort": 81, "name": "b"}]}, {80: "a", 81: "b"}),
        (PatchType.MERGE, {"ports": [{"containerPort": 81, "name": "b"}]}, {81: "b"}),
    ],
)
def test_lists_are_merged_or_replaced_by_the_type_of_the_patch(client, how, patch, ports):
    """Ports of a pod cannot change: so in a dry run of nothing but the answer."""
    gates = [{"name": f"example.com/{name}"} for name in "ab"]
    first = elsewhere("p")
    first.spec.schedulingGates = gates
    client.create(first)
    body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/a"}]}}
    if how is PatchType.MERGE:
        body = {"spec": {"schedulingGates": gates[1:]}}
    patched = client.patch(Pod, "p", body, patch_type=how)
    assert [gate.name for gate in patched.spec.schedulingGates] == ["example.com/b"]
    toleration = {"key": "k", "operator": "Exists"}
    if how is PatchType.STRATEGIC:
        added = client.patch(Pod, "p", {"metadata": {"labels": {"new": "1"}}}, patch_type=how)
        assert added.metadata.labels == {"app": "p", "new": "1"}
    else:
        kept = [one.to_dict() for one in patched.spec.tolerations]
        added = client.patch(Pod, "p", {"spec": {"tolerations": [*kept, toleration]}}, patch_type=how)
        assert len(added.spec.tolerations) == len(kept) + 1


def test_a_json_patch_tests_and_changes(client):
    client.create(config_map("c", labels={"a": "1"}, key="1"))
    operations = [
        {"op": "test", "path": "/data/key", "value": "1"},
        {"op": "add", "path": "/data/more", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/a"},
    ]
    patched = client.patch(ConfigMap, "c", operations, patch_type=PatchType.JSON)
    assert (patched.data, patched.metadata.labels) == ({"key": "1", "more": "2"}, None)
    stale = [{"op": "test", "path": "/data/key", "value": "0"}]
    refused(422, "Invalid", client.patch, ConfigMap, "c", stale, patch_type=PatchType.JSON)


def test_labels_and_annotations_are_set_and_removed(client):
    client.create(config_map("c", labels={"old": "1"}))
    changed = client.set(ConfigMap, "c", labels={"old": None, "new": "2"}, annotations={"a": "b"})
    assert (changed.metadata.labels, changed.metadata.annotations) == ({"new": "2"}, {"a": "b"})


def test_a_dry_run_changes_nothing(client):
    assert client.create(config_map("c", key="1"), dry_run=True).data == {"key": "1"}
    refused(404, "NotFound", client.get, ConfigMap, "c")
    client.create(config_map("c", key="1"))
    assert client.patch(ConfigMap, "c", {"data": {"key": "2"}}, dry_run=True).data == {"key": "2"}
    client.delete(ConfigMap, "c", dry_run=True)
    assert client.get(ConfigMap, "c").data == {"key": "1"}


def test_secrets_keep_their_data(client):
    secret = Secret(metadata=ObjectMeta(name="s"), stringData={"password": "x"}, type="Opaque")
    assert client.create(secret).data == {"password": "eA=="}


# --- server-side apply


def test_apply_creates_changes_and_drops_what_is_no_longer_applied(client):
    first = client.apply(config_map("c", a="1", b="2"))
    assert first.data == {"a": "1", "b": "2"}
    (entry,) = first.metadata.managedFields
    assert (entry.manager, entry.operation) == ("tests", "Apply")
    assert client.apply(config_map("c", b="3")).data == {"b": "3"}


def test_an_apply_over_anothers_field_is_a_conflict_unless_forced(client):
    client.apply(config_map("c", a="1"))
    other = config_map("c", a="2", b="2")
    status = refused(409, "Conflict", client.apply, other, field_manager="other")
    assert [cause.field for cause in status.details.causes] == [".data.a"]
    assert '"tests"' in status.message
    forced = client.apply(other, field_manager="other", force=True)
    assert forced.data == {"a": "2", "b": "2"}
    assert client.apply(config_map("c")).data == {"a": "2", "b": "2"}


def test_several_documents_of_a_file_are_applied(client, namespace):
    text = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}-more}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: c, namespace: {namespace}-more}}
data: {{a: "1"}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: l, namespace: {namespace}-more}}
spec: {{holderIdentity: me, renewTime: "2026-01-02T03:04:05.123456Z"}}
"""
    for _ in range(2):
        for obj in codecs.load_all_yaml(text):
            client.apply(obj)
    lease = client.get(Lease, "l", namespace=f"{namespace}-more")
    assert lease.spec.holderIdentity == "me"
    assert lease.spec.renewTime.isoformat() == "2026-01-02T03:04:05.123456+00:00"


# --- lists


def test_lists_come_in_chunks_and_say_at_which_version(client):
    for number in range(7):
        client.create(config_map(f"c{number}"))
    listed = client.list(ConfigMap, chunk_size=2)
    assert names(listed) == [f"c{number}" for number in range(7)]
    assert int(listed.resourceVersion) >= int(client.get(ConfigMap, "c6").metadata.resourceVersion)


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        ({"tier": "a"}, ["c0"]),
        ({"tier": ["a", "b"]}, ["c0", "c1"]),
        ({"tier": op.in_(["b"])}, ["c1"]),
        ({"tier": op.not_in(["a"])}, ["c1", "c2"]),
        ({"tier": op.exists()}, ["c0", "c1"]),
        ({"tier": op.not_exists()}, ["c2"]),
        ({"tier": op.not_equal("b"), "odd": "no"}, ["c0", "c2"]),
        ({"tier": None, "odd": op.equal("yes")}, ["c1"]),
    ],
)
def test_labels_select(client, labels, chosen):
    for number, tier in enumerate(("a", "b", None)):
        odd = {"odd": "yes" if number % 2 else "no"}
        client.create(config_map(f"c{number}", labels=odd | ({"tier": tier} if tier else {})))
    assert names(client.list(ConfigMap, labels=labels)) == chosen


def test_fields_select_too(client, namespace):
    for name in ("a", "b", "c"):
        client.create(elsewhere(name))
    bind(client, "b", "n1")
    assert names(client.list(Pod, fields={"metadata.name": op.not_in(["a"])})) == ["b", "c"]
    assert names(client.list(Pod, fields={"spec.nodeName": "n1"})) == ["b"]
    assert names(client.list(Pod, fields={"spec.nodeName": op.not_equal("n1")}, labels={"app": "a"})) == ["a"]
    found = client.list(Pod, namespace="*", fields={"metadata.namespace": namespace})
    assert names(found) == ["a", "b", "c"]
    status = refused(400, "BadRequest", lambda: list(client.list(Pod, fields={"spec.image": "x"})))
    assert "spec.image is unknown" in status.message


def test_objects_of_several_namespaces_are_listed_and_deleted_by_namespace(client, namespace):
    client.create(Namespace(metadata=ObjectMeta(name=f"{namespace}-b")))
    for space in (namespace, f"{namespace}-b"):
        for name in ("a", "b"):
            client.create(config_map(name, labels={"n": name, "t": namespace}), namespace=space)
    everywhere = client.list(ConfigMap, namespace="*", labels={"t": namespace})
    assert sorted((one.metadata.namespace, one.metadata.name) for one in everywhere) == [
        (space, name) for space in (namespace, f"{namespace}-b") for name in ("a", "b")
    ]
    client.deletecollection(ConfigMap)
    assert names(client.list(ConfigMap)) == []
    assert names(client.list(ConfigMap, namespace=f"{namespace}-b")) == ["a", "b"]


# --- watches


def test_a_watch_from_a_list_misses_nothing_and_ends_with_its_time(client):
    client.create(config_map("before", labels={"w": "1"}))
    listed = client.list(ConfigMap, labels={"w": "1"})
    assert names(listed) == ["before"]
    client.create(config_map("other"))
    client.create(config_map("c", labels={"w": "1"}, a="1"))
    client.patch(ConfigMap, "c", {"data": {"a": "2"}})
    client.set(ConfigMap, "c", labels={"w": None})
    seen = []
    events = client.watch(
        ConfigMap, labels={"w": "1"}, resource_version=listed.resourceVersion, server_timeout=2
    )
    for kind, obj in itertools.islice(events, 3):
        seen.append((kind, obj.metadata.name, (obj.data or {}).get("a")))
    assert seen == [("ADDED", "c", "1"), ("MODIFIED", "c", "2"), ("DELETED", "c", "2")]


def test_a_watch_without_a_version_begins_with_what_there_is(client):
    client.create(config_map("a"))
    client.create(config_map("b"))
    found = {(kind, obj.metadata.name) for kind, obj in itertools.islice(client.watch(ConfigMap), 2)}
    assert found == {("ADDED", "a"), ("ADDED", "b")}


def test_a_watch_that_is_told_to_begin_too_late_says_so_and_may_begin_anew(client):
    client.create(config_map("c"))
    ahead = str(int(client.get(ConfigMap, "c").metadata.resourceVersion) + 10**9)
    codes = []

    def anew(error, count):
        codes.append(error.response.status_code)
        return OnErrorResult(OnErrorAction.STOP)

    assert list(client.watch(ConfigMap, resource_version="nonsense", on_error=anew)) == []
    assert codes == [500]  # as upstream
    error = None
    try:
        next(iter(client.watch(ConfigMap, resource_version=ahead, server_timeout=1)))
    except (ApiError, StopIteration) as found:
        error = found
    assert getattr(getattr(error, "status", None), "code", 504) in {410, 504}


# --- pods


def test_a_pod_runs_logs_and_ends(client):
    client.create(pod("web"))
    ready = client.wait(Pod, "web", for_conditions=["Ready"], raise_for_conditions=["PodHasFailed"])
    assert ready.status.phase == "Running"
    assert next(iter(client.log("web", follow=True))) == "started\n"
    assert list(client.log("web", tail_lines=1, newlines=False)) == ["started"]
    (stamped,) = client.log("web", timestamps=True)
    assert stamped.endswith("Z started\n")
    node = client.get(Node, ready.spec.nodeName)
    assert node.metadata.labels["kubernetes.io/os"] == node.status.nodeInfo.operatingSystem
    events = client.list(Event, fields={"involvedObject.name": "web", "reason": "Scheduled"})
    assert [event.type for event in events] == ["Normal"]
    client.delete(Pod, "web", grace_period=1, cascade=CascadeType.BACKGROUND)
    for kind, _ in client.watch(Pod, fields={"metadata.name": "web"}, server_timeout=20):
        if kind == "DELETED":
            break
    refused(404, "NotFound", client.get, Pod, "web")


def test_a_wait_ends_when_the_object_is_deleted_or_a_condition_fails(client):
    client.create(elsewhere("p"))
    later = threading.Timer(0.5, client.delete, (Pod, "p"))
    later.start()
    with pytest.raises(ObjectDeleted):
        client.wait(Pod, "p", for_conditions=["Ready"])
    later.join()
    client.create(elsewhere("q"))
    condition = {"type": "example.com/Broken", "status": "True", "message": "out of order"}
    client.patch(PodStatus, "q", {"status": {"conditions": [condition]}})
    with pytest.raises(ConditionError, match="out of order"):
        client.wait(Pod, "q", for_conditions=["Ready"], raise_for_conditions=["example.com/Broken"])


def test_the_parts_of_a_pod_are_written_by_themselves(client):
    client.create(elsewhere("p"))
    current = client.get(PodStatus, "p")
    current.status = PodStatusModel(phase="Running", message="by hand")
    current.metadata.labels = {"app": "p", "through": "status"}
    replaced = client.replace(current, name="p")
    assert (replaced.status.phase, replaced.status.message) == ("Running", "by hand")
    client.patch(PodStatus, "p", {"status": {"reason": "Because"}})
    assert client.get(Pod, "p").status.reason == "Because"
    bind(client, "p", "n9")
    bound = client.get(Pod, "p")
    assert (bound.spec.nodeName, bound.status.phase) == ("n9", "Running")
    refused(409, "Conflict", bind, client, "p", "n8")


def test_an_eviction_is_held_to_the_budget(client):
    client.create(pod("p", labels={"guarded": "yes"}))
    client.wait(Pod, "p", for_conditions=["Ready"])
    selector = LabelSelector(matchLabels={"guarded": "yes"})
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b"), spec=PodDisruptionBudgetSpec(minAvailable=1, selector=selector)
    )
    client.create(budget)
    for _, seen in client.watch(PodDisruptionBudget, fields={"metadata.name": "b"}, server_timeout=20):
        if seen.status and seen.status.currentHealthy == 1:
            break
    eviction = PodEviction(metadata=ObjectMeta(name="p"))
    refused(429, "TooManyRequests", client.create, eviction, name="p")
    client.delete(PodDisruptionBudget, "b")
    client.create(PodEviction(metadata=ObjectMeta(name="p")), name="p")
    assert client.get(Pod, "p").metadata.deletionTimestamp is not None


# --- generic resources


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_topologies_are_generic_resources_in_both_versions(client, namespace, version):
    topologies = generic.create_global_resource(
        "topology.node.k8s.io", version, "NodeResourceTopology", "noderesourcetopologies"
    )
    name = f"{namespace}-{version}"
    zones = [{"name": "node-0", "type": "Node", "resources": []}]
    made = client.create(
        topologies(metadata={"name": name, "labels": {"t": name}}, topologyPolicies=["None"], zones=zones)
    )
    assert made["zones"][0]["name"] == "node-0"
    assert names(client.list(topologies, labels={"t": name})) == [name]
    applied = client.apply(
        topologies(metadata=ObjectMeta(name=name), topologyPolicies=["Restricted"], zones=zones), force=True
    )
    assert applied["topologyPolicies"] == ["Restricted"]
    patched = client.patch(
        topologies, name, {"zones": [{**zones[0], "type": "Socket"}]}, patch_type=PatchType.MERGE
    )
    assert patched["zones"][0]["type"] == "Socket"
    bad = {"zones": [{"name": "node-0"}]}
    refused(422, "Invalid", client.patch, topologies, name, bad, patch_type=PatchType.MERGE)
    patched["topologyPolicies"] = ["BestEffort"]
    assert client.replace(patched)["topologyPolicies"] == ["BestEffort"]
    client.delete(topologies, name)
    refused(404, "NotFound", client.get, topologies, name)


def test_a_kind_that_is_not_served_is_not_found(client):
    others = generic.create_namespaced_resource("example.com", "v1", "Other", "others")
    with pytest.raises(ApiError) as raised:
        client.get(others, "x")
    assert raised.value.status.code == 404


# --- asynchronous


def asynchronous(test):
    def run(cluster, namespace):
        async def within():
            client = AsyncClient(KubeConfig.from_file(cluster.kubeconfig), namespace=namespace)
            try:
                async with asyncio.timeout(60):
                    await test(client)
            finally:
                await client.close()

        asyncio.run(within())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@asynchronous
async def test_the_asynchronous_client_does_the_same(client):
    for number in range(5):
        await client.create(config_map(f"c{number}", labels={"odd": str(number % 2)}))
    chunks = client.list(ConfigMap, chunk_size=2, labels={"odd": "0"})
    assert [one.metadata.name async for one in chunks] == ["c0", "c2", "c4"]
    stale = await client.get(ConfigMap, "c0")
    await client.patch(ConfigMap, "c0", {"data": {"a": "1"}})
    stale.data = {"a": "2"}
    with pytest.raises(ApiError) as conflict:
        await client.replace(stale)
    assert conflict.value.status.code == 409
    await client.deletecollection(ConfigMap)
    assert [one async for one in client.list(ConfigMap)] == []


@asynchronous
async def test_asynchronous_watches_follow_many_at_once(client):
    async def follow(name):
        async for kind, obj in client.watch(ConfigMap, fields={"metadata.name": name}):
            if kind == "DELETED":
                return obj.data
        return None

    watched = [asyncio.create_task(follow(f"c{number}")) for number in range(10)]
    for number in range(10):
        await client.create(config_map(f"c{number}", a="1"))
        await client.patch(ConfigMap, f"c{number}", {"data": {"a": str(number)}})
    for number in range(10):
        await client.delete(ConfigMap, f"c{number}")
    assert await asyncio.gather(*watched) == [{"a": str(number)} for number in range(10)]


@asynchronous
async def test_a_pod_is_waited_for_and_its_log_followed(client):
    script = ["/bin/sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done"]
    await client.create(pod("p", command=script, restartPolicy="Never"))
    await client.wait(Pod, "p", for_conditions=["PodScheduled"])
    async for _, seen in client.watch(Pod, fields={"metadata.name": "p"}):
        if seen.status.phase != "Pending":
            break
    assert [line async for line in client.log("p", follow=True)] == ["1\n", "2\n", "3\n"]
    async for _, seen in client.watch(Pod, fields={"metadata.name": "p"}):
        if seen.status.phase == "Succeeded":
            break
    node = (await client.get(Pod, "p")).spec.nodeName
    await client.wait(Node, node, for_conditions=["Ready"])
