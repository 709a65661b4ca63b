"""Disruption budgets and eviction, against the embedded API server and the controller."""

import msgspec
import pytest

from corelane.kube.client import APIError
from corelane.kube.objects import Event, PodDisruptionBudget
from corelane.kube.pod import Pod
from support.cluster_lab import until
from support.controlled_cluster import PATIENCE, controlled


@pytest.fixture
def client(tmp_path):
    return controlled(tmp_path)


async def run_pod(client, name, *, ready=True, owner=None, **labels):
    meta = {"name": name, "namespace": "default", "labels": {"app": "web", **labels}}
    if owner:
        meta["ownerReferences"] = [{**owner, "controller": True, "name": "o", "uid": "u"}]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 5}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await set_ready(client, name, ready)


async def set_ready(client, name, ready):
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"status": {"phase": "Running", "conditions": [condition]}}
    await client.patch(Pod, name, status, namespace="default", subresource="status")


async def add_budget(client, name="b", **spec):
    body = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    meta = {"name": name, "namespace": "default"}
    await client.create(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": body}
    )


async def evict(client, name, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    path = Pod.api.path("default", name, "eviction")
    await client.raw("POST", path, body=msgspec.json.encode({**body, "deleteOptions": options}))


async def refused(client, name):
    with pytest.raises(APIError) as caught:
        await evict(client, name)
    return caught.value


async def status_of(client, name="b"):
    return (await client.get(PodDisruptionBudget, name, "default")).status


async def until_counts(client, healthy, allowed, name="b"):
    async def counted():
        budget = await client.get(PodDisruptionBudget, name, "default")
        status = budget.status
        return (
            status.observed_generation == budget.metadata.generation
            and (status.current_healthy, status.disruptions_allowed) == (healthy, allowed)
            and not status.disrupted_pods
        )

    await until(counted, PATIENCE)


async def test_evictions_go_as_far_as_the_budget_allows(client):
    for name in ("a", "b", "c"):
        await run_pod(client, name)
    await add_budget(client, minAvailable=2)
    await until_counts(client, 3, 1)
    await evict(client, "a", dryRun=["All"])
    assert (await status_of(client)).disruptions_allowed == 1
    await evict(client, "a")
    error = await refused(client, "b")
    assert error.code == 429
    assert "Cannot evict pod as it would violate the pod's disruption budget." in str(error)
    await client.delete(Pod, "a", namespace="default", grace_seconds=0)
    await until_counts(client, 2, 0)
    assert (await refused(client, "b")).code == 429
    await run_pod(client, "d")
    await until_counts(client, 3, 1)
    await evict(client, "b")
    evicted = await client.get(Pod, "b", "default")
    assert evicted.metadata.deletion_timestamp
    assert [one.reason for one in evicted.status.conditions if one.type == "DisruptionTarget"] == [
        "EvictionByEvictionAPI"
    ]


async def test_the_count_follows_pods_labels_and_the_budget(client):
    await add_budget(client, minAvailable=1)
    await until_counts(client, 0, 0)
    await run_pod(client, "a")
    await run_pod(client, "b")
    await until_counts(client, 2, 1)
    await set_ready(client, "b", False)
    await until_counts(client, 1, 0)
    await set_ready(client, "b", True)
    await client.patch(Pod, "b", {"metadata": {"labels": {"app": "db"}}}, namespace="default")
    await until_counts(client, 1, 0)
    change = {"spec": {"selector": {"matchLabels": {"app": "db"}}, "minAvailable": 0}}
    await client.patch(PodDisruptionBudget, "b", change, namespace="default")
    await until_counts(client, 1, 1)
    status = await status_of(client)
    assert (status.expected_pods, status.desired_healthy) == (1, 0)
    assert [(one.type, one.status, one.reason) for one in status.conditions] == [
        ("DisruptionAllowed", "True", "SufficientPods")
    ]


async def test_several_budgets_for_one_pod_are_an_error(client):
    await run_pod(client, "a")
    await add_budget(client, minAvailable=0)
    await add_budget(client, "all", minAvailable=0, selector={})
    await until_counts(client, 1, 1)
    await until_counts(client, 1, 1, "all")
    error = await refused(client, "a")
    assert error.code == 500
    assert "more than one PodDisruptionBudget" in str(error)
    await client.delete(PodDisruptionBudget, "all", namespace="default")
    await evict(client, "a")


async def test_an_unhealthy_pod_goes_when_the_budget_says_so(client):
    await run_pod(client, "sick", ready=False)
    await add_budget(client, minAvailable=1)
    await until_counts(client, 0, 0)
    assert (await refused(client, "sick")).code == 429
    change = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    await client.patch(PodDisruptionBudget, "b", change, namespace="default")
    await until_counts(client, 0, 0)
    await evict(client, "sick", gracePeriodSeconds=0)


async def test_a_controller_that_is_not_known_is_reported(client):
    await run_pod(client, "a", owner={"apiVersion": "apps/v1", "kind": "ReplicaSet"})
    await add_budget(client, maxUnavailable=1)
    why = 'found no controllers for pod "a"'

    async def failed():
        status = await status_of(client)
        return [(one.reason, one.message) for one in status.conditions] == [("SyncFailed", why)]

    await until(failed, PATIENCE)

    async def reported():
        events = (await client.list(Event, namespace="default")).items
        return [one for one in events if one.reason == "CalculateExpectedPodCountFailed"]

    (event,) = await until(reported, PATIENCE)
    assert event.message == f"Failed to calculate the number of expected pods: {why}"
    assert (event.involved_object.kind, event.involved_object.name) == ("PodDisruptionBudget", "b")


async def test_the_mark_of_a_pod_that_was_not_deleted_is_taken_back(client):
    await run_pod(client, "a")
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"status": {"conditions": [mark]}}
    await client.patch(Pod, "a", body, namespace="default", kind_of_patch="strategic", subresource="status")

    async def taken_back():
        pod = await client.get(Pod, "a", "default")
        marks = {one.type: one.status for one in pod.status.conditions}
        return marks == {"Ready": "True", "DisruptionTarget": "False"}

    await until(taken_back, PATIENCE)
