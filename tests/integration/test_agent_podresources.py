"""The agent beside a real static kubelet whose state file is out of reach: its podresources socket counts."""

from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from support import containerd, real_agent
from support.cluster_pods import best_effort, guaranteed, pod
from support.programs import wait_for

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
SECONDS = 45
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(min(ONLINE))}
NONE = {"cpuManagerPolicy": None, "reservedSystemCPUs": None}


@pytest.fixture(scope="module", params=list(containerd.DIRECTORIES)[:1])
def release(request):
    return request.param


@pytest.fixture
def node(cluster):
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    yield cluster.node
    cluster.forget_pods()
    cluster.node.restart(drop_cpu_state=True, **NONE)


def test_cpus_of_a_static_kubelet_are_known_and_kept_in_a_takeover_without_its_file(cluster, node, tmp_path):
    connection = {
        "address": node.url,
        "caFile": str(cluster.plane.ca_file),
        "tokenFile": str(tmp_path / "token"),
        "podResources": str(node.podresources),
    }
    with real_agent.agent(cluster, tmp_path, kubeletState=None, kubelet=connection) as agent:
        node.restart(drop_cpu_state=True, **STATIC)
        agent.wait_mode("kubelet", SECONDS)
        cluster.run(
            pod("own", guaranteed("app", 1), node=node.name),
            pod("shares", best_effort("app"), node=node.name),
        )

        def reported():
            annotations = cluster.pods()["own"]["metadata"].get("annotations", {})
            return annotations.get("corelane.io/kubelet-cpusets")

        own = wait_for("the kubelet's CPUs as an annotation", reported, SECONDS)
        assert own == f'{{"app":"{cluster.cpus("own")}"}}'
        assert agent.status()["kubelet"]["allocationsFrom"] == "podresources"

        cpus, container = cluster.cpus("own"), cluster.container("own")
        node.restart(drop_cpu_state=True, **NONE)
        agent.wait_mode("takeover", SECONDS)
        cluster.run(pod("later", best_effort("app"), node=node.name))
        cluster.expect_cpus({"own": cpus, "shares": ONLINE - cpus, "later": ONLINE - cpus}, SECONDS)
        assert cluster.container("own") == container
        cluster.delete("own")
        agent.wait_mode("owner", SECONDS)
        cluster.expect_cpus({"shares": ONLINE, "later": ONLINE}, SECONDS)
