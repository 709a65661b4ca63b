"""`CRIRuntime` on containers that a kubelet made: listed, held to CPUs, and observed in the kernel."""

import asyncio
import json

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, container_paths
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.cri.runtime import CRIRuntime
from support import containerd
from support.cluster_pods import burstable, guaranteed, pod

pytestmark = pytest.mark.integration

PATIENCE = 60


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def release(request):
    return request.param


@pytest.fixture(scope="module")
def view():
    return container_paths.view()


@pytest.fixture(scope="module")
def cpus(view):
    """All CPUs, and the highest."""
    online = container_cgroup.effective(view, "")
    if len(online) < 2:
        pytest.skip("needs two CPUs")
    return online, CPUSet([max(online)])


@pytest.fixture(scope="module")
def pods(cluster):
    own, shares = guaranteed("app", 1), burstable("app")
    return cluster.run(pod("own", own, node=cluster.node.name), pod("shares", shares, node=cluster.node.name))


def play(cluster, view, scene):
    async def main():
        runtime = CRIRuntime(view, cluster.runtime.endpoint)
        try:
            async with asyncio.timeout(PATIENCE):
                return await scene(runtime)
        finally:
            await runtime.close()

    return asyncio.run(main())


async def by_pod(runtime) -> dict:
    return {status.pod: status for status in await runtime.containers() if status.state == "running"}


def test_containers_are_named_as_in_the_api_with_their_cgroups(cluster, view, pods):
    found = play(cluster, view, by_pod)
    for name, made in pods.items():
        status = found[name]
        assert (status.namespace, status.name, status.attempt) == ("default", "app", 0)
        assert status.pod_uid == made["metadata"]["uid"]
        assert status.id == cluster.container(name)
        assert status.started_at > 0
    parent = f"{cluster.node.cgroup}/kubepods"
    assert found["own"].cgroup.strip("/") == f"{parent}/pod{found['own'].pod_uid}/{found['own'].id}"
    below = f"{parent}/burstable/pod{found['shares'].pod_uid}/{found['shares'].id}"
    assert found["shares"].cgroup.strip("/") == below


def test_an_update_is_in_the_kernel_and_in_the_record_and_outlives_the_kubelet(cluster, view, pods, cpus):
    online, own = cpus

    async def pin(runtime):
        status = (await by_pod(runtime))["own"]
        await runtime.update(status.id, ResourceUpdate(cpus=own, quota_us=None))
        return await runtime.observe(status.id)

    observed = play(cluster, view, pin)
    assert (observed.cpus, observed.cpus_requested, observed.quota_us) == (own, own, None)
    pod = view.cpu / observed.cgroup.rpartition("/")[0]
    assert container_cgroup.read_bandwidth(view, str(pod.relative_to(view.cpu))).quota_us is None
    assert cluster.runtime.recorded_cpu(cluster.container("own"))["cpus"] == str(own)
    cluster.node.restart()
    assert cluster.cpus("own") == own
    assert cluster.cpus("shares") == online


def test_a_resize_brings_the_quota_back_but_not_the_cpus(cluster, view, pods, cpus):
    """The kubelet sets the quota of a container whose quota was lifted: a drift of the quota alone."""
    own = cpus[1]

    async def lift(runtime):
        status = (await by_pod(runtime))["own"]
        await runtime.update(status.id, ResourceUpdate(cpus=own, quota_us=None))

    async def resized(runtime):
        status = (await by_pod(runtime))["own"]
        while (observed := await runtime.observe(status.id)).quota_us is None:
            await asyncio.sleep(0.2)
        return observed

    play(cluster, view, lift)
    resources = {"requests": {"cpu": "1200m"}, "limits": {"cpu": "1200m"}}
    patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    cluster.kubectl("patch", "pod", "own", "--subresource=resize", "-p", json.dumps(patch))
    observed = play(cluster, view, resized)
    assert (observed.quota_us, observed.cpus) == (120_000, own)
