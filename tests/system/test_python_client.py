"""The official Python client does with the embedded API server what it does with any cluster."""

import itertools
import threading

import pytest

from support.embedded import TOKEN, Logs, running_server

pytestmark = pytest.mark.system

kubernetes = pytest.importorskip("kubernetes")
client, watch = kubernetes.client, kubernetes.watch

CONTAINER = {"name": "main", "image": "ignored", "command": ["sleep", "60"]}


NAMES = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("server"), log_source=Logs()) as served:
        settings = client.Configuration(host=served.url, api_key={"authorization": f"Bearer {TOKEN}"})
        settings.ssl_ca_cert = str(served.authority)
        with client.ApiClient(settings) as found:
            yield found


@pytest.fixture
def core(api):
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(core):
    name = next(NAMES)
    core.create_namespace({"metadata": {"name": name}})
    return name


def make(core, namespace, name="web", **more):
    body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [CONTAINER], **more}}
    return core.create_namespaced_pod(namespace, body)


def test_a_pod_goes_through_its_life(core, namespace):
    created = make(core, namespace)
    assert created.status.phase == "Pending"
    assert created.spec.containers[0].termination_message_path == "/dev/termination-log"
    read = core.read_namespaced_pod("web", namespace)
    assert read.metadata.uid == created.metadata.uid
    patched = core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"tier": "front"}}})
    assert patched.metadata.labels == {"app": "web", "tier": "front"}
    target = client.V1ObjectReference(kind="Node", name="n1")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="web"), target=target)
    core.create_namespaced_pod_binding("web", namespace, binding, _preload_content=False)
    assert core.read_namespaced_pod("web", namespace).spec.node_name == "n1"
    core.patch_namespaced_pod_status("web", namespace, {"status": {"phase": "Running"}})
    assert core.read_namespaced_pod_status("web", namespace).status.phase == "Running"
    assert core.read_namespaced_pod_log("web", namespace) == "line 1 of web/main\nline 2 of web/main\n"
    core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    with pytest.raises(client.ApiException) as gone:
        core.read_namespaced_pod("web", namespace)
    assert gone.value.status == 404


def test_lists_are_paged_and_selected(core, namespace):
    for number in range(5):
        make(core, namespace, f"p{number}")
    first = core.list_namespaced_pod(namespace, limit=2)
    assert [p.metadata.name for p in first.items] == ["p0", "p1"]
    assert first.metadata.remaining_item_count == 3
    rest = core.list_namespaced_pod(namespace, limit=9, _continue=first.metadata._continue)
    assert [p.metadata.name for p in rest.items] == ["p2", "p3", "p4"]
    chosen = core.list_pod_for_all_namespaces(
        label_selector="app in (p1,p3)", field_selector="spec.nodeName="
    )
    assert [p.metadata.name for p in chosen.items] == ["p1", "p3"]


def test_a_watch_sees_what_others_do(core, namespace):
    version = core.list_namespaced_pod(namespace).metadata.resource_version
    seen = []

    def follow():
        stream = watch.Watch().stream(
            core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=10
        )
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    make(core, namespace)
    core.patch_namespaced_pod("web", namespace, {"metadata": {"annotations": {"a": "b"}}})
    core.delete_namespaced_pod("web", namespace)
    thread.join(15)
    assert not thread.is_alive()
    assert seen[0] == ("ADDED", "web")
    assert ("MODIFIED", "web") in seen
    assert seen[-1] == ("DELETED", "web")


def test_a_stale_update_is_a_conflict(core, namespace):
    body = {"metadata": {"name": "c"}, "data": {"k": "1"}}
    stale = core.create_namespaced_config_map(namespace, body)
    fresh = core.read_namespaced_config_map("c", namespace)
    fresh.data["k"] = "2"
    core.replace_namespaced_config_map("c", namespace, fresh)
    with pytest.raises(client.ApiException) as conflict:
        core.replace_namespaced_config_map("c", namespace, stale)
    assert conflict.value.status == 409


def test_faults_come_back_as_a_status_that_names_the_field(core, namespace):
    with pytest.raises(client.ApiException) as invalid:
        make(core, namespace, restartPolicy="Sometimes")
    assert invalid.value.status == 422
    assert "spec.restartPolicy" in invalid.value.body


def test_leases_priority_classes_and_events_work_through_their_own_apis(api, core, namespace):
    leases = client.CoordinationV1Api(api)
    lease = client.V1Lease(
        metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="me")
    )
    assert leases.create_namespaced_lease(namespace, lease).spec.holder_identity == "me"
    classes = client.SchedulingV1Api(api)
    names = [item.metadata.name for item in classes.list_priority_class().items]
    assert names == ["system-cluster-critical", "system-node-critical"]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": namespace},
        "reason": "Why",
        "message": "because",
        "type": "Normal",
        "action": "Testing",
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingComponent": "tests",
        "reportingInstance": "tests-1",
    }
    core.create_namespaced_event(namespace, event)
    newer = client.EventsV1Api(api).list_namespaced_event(namespace).items
    assert [(e.reason, e.note) for e in newer] == [("Why", "because")]


def test_custom_objects_are_served_in_both_versions(api):
    custom = client.CustomObjectsApi(api)
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": [{"name": "node-0", "type": "Node", "resources": []}],
    }
    where = ("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies")
    custom.create_cluster_custom_object(*where, body)
    custom.patch_cluster_custom_object(*where, "n1", {"metadata": {"labels": {"a": "b"}}})
    older = custom.get_cluster_custom_object("topology.node.k8s.io", "v1alpha1", where[2], "n1")
    assert older["metadata"]["labels"] == {"a": "b"}
    custom.delete_cluster_custom_object(*where, "n1")


def test_the_dynamic_client_finds_kinds_by_discovery(api, namespace):
    dynamic = kubernetes.dynamic.DynamicClient(api)
    pods = dynamic.resources.get(api_version="v1", kind="Pod")
    made = pods.create(
        body={"metadata": {"generateName": "d-"}, "spec": {"containers": [CONTAINER]}}, namespace=namespace
    )
    assert made.metadata.name.startswith("d-")
    assert [p.metadata.name for p in pods.get(namespace=namespace).items] == [made.metadata.name]


def test_without_a_token_nothing_is_told(api):
    settings = client.Configuration(host=api.configuration.host)
    settings.ssl_ca_cert = api.configuration.ssl_ca_cert
    for token, code in ((None, 403), ("Bearer wrong", 401)):
        settings.api_key = {"authorization": token} if token else {}
        with client.ApiClient(settings) as other, pytest.raises(client.ApiException) as refused:
            client.CoreV1Api(other).list_node()
        assert refused.value.status == code


def test_budgets_and_evictions(api, core, namespace):
    policy = client.PolicyV1Api(api)
    make(core, namespace, nodeName="n1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    core.patch_namespaced_pod_status("web", namespace, {"status": ready})
    selector = client.V1LabelSelector(match_labels={"app": "web"})
    spec = client.V1PodDisruptionBudgetSpec(min_available=1, selector=selector)
    made = client.V1PodDisruptionBudget(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    created = policy.create_namespaced_pod_disruption_budget(namespace, made)
    assert (created.spec.min_available, created.status.disruptions_allowed) == (1, 0)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="web", namespace=namespace))
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_pod_eviction("web", namespace, eviction)
    assert refused.value.status == 429
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
    policy.patch_namespaced_pod_disruption_budget_status("web", namespace, {"status": status})
    core.create_namespaced_pod_eviction("web", namespace, eviction, _preload_content=False)
    counted = policy.read_namespaced_pod_disruption_budget("web", namespace).status
    assert (counted.disruptions_allowed, list(counted.disrupted_pods)) == (0, ["web"])
