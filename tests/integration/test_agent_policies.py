"""The agent beside a real kubelet: pods by kubectl, held to CPUs through restarts and policy changes."""

from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from support import containerd, real_agent
from support.cluster_pods import best_effort, guaranteed, pod
from support.programs import wait_for

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
SECONDS = 45
RESERVED = CPUSet([min(ONLINE)])
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(RESERVED)}
NONE = {"cpuManagerPolicy": None, "reservedSystemCPUs": None}


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def release(request):
    return request.param


@pytest.fixture
def node(cluster):
    """A kubelet with policy none and no pods."""
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    yield cluster.node
    cluster.forget_pods()
    cluster.node.restart(drop_cpu_state=True, **NONE)


@pytest.fixture
def agent(cluster, node, tmp_path):
    with real_agent.agent(cluster, tmp_path) as started:
        yield started


def own_and_shares(cluster):
    """Two pods, one with an exclusive CPU, which is returned; the kubelet reserves the other CPU."""
    name = cluster.node.name
    cluster.run(pod("own", guaranteed("app", 1), node=name), pod("shares", best_effort("app"), node=name))
    return held(cluster)


def held(cluster, own="own", shares="shares"):
    def separate():
        exclusive, shared = cluster.cpus(own), cluster.cpus(shares)
        return exclusive if exclusive and len(exclusive) == 1 and shared == ONLINE - exclusive else None

    return wait_for("one exclusive CPU, and the other container kept off it", separate, SECONDS)


def test_under_static_the_kubelet_allocates_and_the_agent_reports(cluster, node, agent):
    node.restart(drop_cpu_state=True, **STATIC)
    agent.wait_mode("kubelet", SECONDS)
    own = own_and_shares(cluster)

    def reported():
        return cluster.pods()["own"]["metadata"]["annotations"].get("corelane.io/kubelet-cpusets")

    assert str(own) in wait_for("the kubelet's CPUs as an annotation", reported, SECONDS)
    cluster.outlast_reconciles()  # the kubelet has written both cpusets, and writes each once
    # Drift under static is not the agent's to repair.
    cluster.runtime.update(cluster.container("shares"), cpus=str(ONLINE))
    cluster.outlast_reconciles()
    assert cluster.cpus("shares") == ONLINE


def test_takeover_from_static_keeps_the_kubelets_cpus_until_its_pods_end(cluster, node, agent):
    node.restart(drop_cpu_state=True, **STATIC)
    agent.wait_mode("kubelet", SECONDS)
    own = own_and_shares(cluster)
    container = cluster.container("own")
    node.restart(drop_cpu_state=True, **NONE)
    wait_for("takeover", lambda: agent.mode() in ("takeover", "owner"), SECONDS)
    cluster.run(pod("later", best_effort("app"), node=node.name))
    cluster.expect_cpus({"own": own, "shares": ONLINE - own, "later": ONLINE - own}, SECONDS)
    assert cluster.container("own") == container
    cluster.delete("own")
    agent.wait_mode("owner", SECONDS)
    cluster.expect_cpus({"shares": ONLINE, "later": ONLINE}, SECONDS)


def test_takeover_back_to_static_leaves_the_cpus_to_the_kubelet(cluster, node, agent):
    cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    wait_for("an exclusive CPU", lambda: len(cluster.cpus("own") or ()) == 1, SECONDS)
    container = cluster.container("own")
    node.restart(drop_cpu_state=True, **STATIC)
    agent.wait_mode("kubelet", SECONDS)
    # On two CPUs, of which the kubelet reserves one.
    kubelet_choice = ONLINE - RESERVED
    if len(kubelet_choice) == 1:
        cluster.expect_cpus({"own": kubelet_choice, "shares": RESERVED}, SECONDS)
    assert cluster.container("own") == container


def test_read_only_writes_no_cpuset(cluster, node, tmp_path):
    with real_agent.agent(cluster, tmp_path, "--read-only") as agent:
        agent.wait_mode("read-only")
        cluster.run(pod("own", guaranteed("app", 1), node=node.name))
        cluster.outlast_reconciles()
        assert cluster.cpus("own") == ONLINE
