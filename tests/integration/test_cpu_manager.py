"""What a kubelet's CPU manager does to real containers, as corelane's modes and takeover assume."""

import asyncio
import json
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.runtime.podresources import PodResourcesClient
from support.cluster_pods import best_effort, guaranteed, pod

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
RESERVED = CPUSet([min(ONLINE)])
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(RESERVED)}
NONE = {"cpuManagerPolicy": None, "reservedSystemCPUs": None}


@pytest.fixture
def node(cluster):
    """A kubelet with policy none and no pods."""
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    yield cluster.node
    cluster.forget_pods()
    cluster.node.restart(drop_cpu_state=True, **NONE)


def saved(node) -> checkpoint.Checkpoint:
    return checkpoint.decode(node.cpu_state.read_bytes())


def podresources(node):
    async def main():
        client = PodResourcesClient(node.podresources)
        try:
            return await client.list(), await client.allocatable()
        finally:
            await client.close()

    return asyncio.run(main())


def test_policy_none_leaves_cpusets_alone(cluster, node):
    cluster.run(pod("pinned", guaranteed("app", 1), node=node.name))
    container, own = cluster.container("pinned"), ONLINE - RESERVED
    cluster.runtime.update(container, cpus=str(own))
    node.restart()
    _resize(cluster, "pinned", "1200m")
    cluster.wait_quota("pinned", 120_000)
    # A resize sets request and limit, an exclusive container's lifted quota included; the cpuset stays.
    assert cluster.cpus("pinned") == own
    assert cluster.runtime.recorded_cpu(container)["cpus"] == str(own)
    assert saved(node).policy == "none"


def test_static_is_the_same_in_state_file_podresources_and_kernel(cluster, node):
    node.restart(drop_cpu_state=True, **STATIC)
    pods = cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    state = saved(node)
    own = state.entries[pods["own"]["metadata"]["uid"]]["app"]
    assert (state.policy, len(own), state.default) == ("static", 1, ONLINE - own)
    cluster.expect_cpus({"own": own, "shares": ONLINE - own})

    listed, allocatable = podresources(node)
    assert allocatable == ONLINE - RESERVED
    assert {one.name: one.containers for one in listed} == {"own": {"app": own}, "shares": {}}


def test_a_pod_without_room_is_rejected_by_a_static_kubelet(cluster, node):
    node.restart(drop_cpu_state=True, **STATIC)
    cluster.apply(pod("large", guaranteed("app", len(ONLINE)), node=node.name))
    cluster.wait_phase("large", "Failed")
    # Which of its admission handlers comes first is up to the kubelet.
    assert cluster.pods()["large"]["status"]["reason"] in ("OutOfcpu", "UnexpectedAdmissionError")


def test_a_kubelet_with_another_policy_than_its_state_file_does_not_start(cluster, node):
    node.stop()
    node.configure(**STATIC)
    node.expect_refusal()
    assert saved(node).policy == "none"


def test_containers_keep_the_cpusets_of_static_under_none(cluster, node):
    node.restart(drop_cpu_state=True, **STATIC)
    cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    own = cluster.cpus("own")
    cluster.expect_cpus({"shares": ONLINE - own})
    node.restart(drop_cpu_state=True, **NONE)
    cluster.run(pod("later", best_effort("app"), node=node.name))
    assert cluster.cpus("own") == own
    assert cluster.cpus("shares") == ONLINE - own
    assert cluster.cpus("later") == ONLINE


def test_static_allocates_for_pods_that_ran_under_none(cluster, node):
    cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    container = cluster.container("own")
    node.restart(drop_cpu_state=True, **STATIC)
    own = ONLINE - RESERVED if len(ONLINE) == 2 else None
    if own is None:
        pytest.skip("which CPU the kubelet chooses is certain on two CPUs only")
    cluster.expect_cpus({"own": own, "shares": RESERVED})
    assert cluster.container("own") == container


def test_static_repairs_no_cpuset_that_another_writer_changed(cluster, node):
    node.restart(drop_cpu_state=True, **STATIC)
    cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    own = cluster.cpus("own")
    cluster.expect_cpus({"shares": ONLINE - own})
    cluster.outlast_reconciles()  # the first one after a container's start writes its CPUs in any case
    cluster.runtime.update(cluster.container("shares"), cpus=str(ONLINE))
    cluster.outlast_reconciles()
    assert cluster.cpus("shares") == ONLINE
    node.restart()
    cluster.expect_cpus({"shares": ONLINE - own})


def _resize(cluster, name: str, cpus: str) -> None:
    resources = {"requests": {"cpu": cpus}, "limits": {"cpu": cpus}}
    patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    cluster.kubectl("patch", "pod", name, "--subresource=resize", "-p", json.dumps(patch))
