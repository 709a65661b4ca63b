"""Pods that kubectl makes, as containerd lists them and as they lie in the kernel's cgroups."""

import asyncio
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.runtime.cri import client as cri
from support import cluster_pods, containerd
from support.cri_pods import process_cgroup

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def release(request):
    return request.param


@pytest.fixture(scope="module")
def pods(cluster):
    """A running pod of each QoS class: its object by name."""
    made = {
        "guaranteed": cluster_pods.guaranteed("app", 1),
        "burstable": cluster_pods.burstable("app"),
        "besteffort": cluster_pods.best_effort("app"),
    }
    return cluster.run(*(cluster_pods.pod(name, one, node=cluster.node.name) for name, one in made.items()))


def listed(cluster):
    async def main():
        async with cri.connect(cluster.runtime.endpoint) as client:
            return await client.sandboxes(), await client.containers()

    return asyncio.run(main())


def test_the_runtime_lists_them_under_the_names_and_uids_of_the_api(cluster, pods):
    sandboxes, containers = listed(cluster)
    by_uid = {sandbox.uid: sandbox for sandbox in sandboxes if sandbox.ready}
    for name, pod in pods.items():
        sandbox = by_uid[pod["metadata"]["uid"]]
        assert (sandbox.namespace, sandbox.name) == ("default", name)
        (container,) = (one for one in containers if one.sandbox == sandbox.id)
        (status,) = pod["status"]["containerStatuses"]
        assert status["containerID"] == f"containerd://{container.id}"
        assert (container.name, container.state, container.attempt) == ("app", "running", 0)


@pytest.mark.parametrize(
    ("name", "parent"),
    [("guaranteed", ""), ("burstable", "/burstable"), ("besteffort", "/besteffort")],
)
def test_their_cgroups_lie_below_the_parent_of_their_qos_class(cluster, pods, name, parent):
    container = _container_id(pods[name])
    uid = pods[name]["metadata"]["uid"]
    expected = f"/{cluster.node.cgroup}/kubepods{parent}/pod{uid}/{container}"
    info = cluster.runtime.info(container)
    assert info["runtimeSpec"]["linux"]["cgroupsPath"] == expected
    assert str(process_cgroup(info["pid"])).endswith(expected)


def test_under_policy_none_no_cpuset_is_set_and_requests_become_shares(cluster, pods):
    online = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
    for name, shares, quota in (("guaranteed", 1024, 100_000), ("burstable", 102, 0), ("besteffort", 2, 0)):
        container = _container_id(pods[name])
        cpu = cluster.runtime.recorded_cpu(container)
        assert (cpu.get("cpus", ""), cpu["shares"], cpu.get("quota", 0)) == ("", shares, quota), (name, cpu)
        assert cluster.cpus(name) == online


def test_a_quota_is_set_on_the_pods_cgroup_as_well(cluster, pods):
    """Lifting the container's alone changes nothing while the pod's holds."""
    container = _container_id(pods["guaranteed"])
    pod = process_cgroup(cluster.runtime.pid(container), "cpu").parent
    v2 = pod / "cpu.max"
    quota = v2.read_text().split()[0] if v2.exists() else (pod / "cpu.cfs_quota_us").read_text().strip()
    assert quota == "100000"


def _container_id(pod: dict) -> str:
    return pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
