"""CPU quotas beside a real kubelet: lifted with exclusive CPUs, the pod's too, and put back without them."""

from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from support import containerd, real_agent
from support.cluster_pods import guaranteed, pod
from support.cri_pods import process_cgroup
from support.programs import wait_for

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
SECONDS = 60
LIMIT = 100_000
"""Microseconds of the period of 100 ms that a limit of one CPU comes to."""


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def release(request):
    return request.param


@pytest.fixture
def own(cluster, tmp_path):
    """An agent, and the id of a container with one exclusive CPU."""
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    with real_agent.agent(cluster, tmp_path) as agent:
        agent.wait_mode("owner")
        cluster.run(pod("own", guaranteed("app", 1), node=cluster.node.name))
        wait_for("an exclusive CPU", lambda: len(cluster.cpus("own") or ()) == 1, SECONDS)
        yield agent, cluster.container("own")
    cluster.forget_pods()


def quotas(cluster, container: str) -> list[int]:
    """CFS quotas of a container and its pod in microseconds; -1 is no limit."""
    group = process_cgroup(cluster.runtime.pid(container), "cpu")
    if (group / "cpu.max").exists():
        texts = [(path / "cpu.max").read_text().split()[0] for path in (group, group.parent)]
        return [-1 if text == "max" else int(text) for text in texts]
    return [int((path / "cpu.cfs_quota_us").read_text()) for path in (group, group.parent)]


def expect(cluster, container: str, expected: list[int]) -> None:
    last = []

    def agree() -> bool:
        last[:] = quotas(cluster, container)
        return last == expected

    wait_for(f"quotas of container and pod are {expected}", agree, SECONDS)


def test_quotas_are_lifted_with_exclusive_cpus_and_stay_so(cluster, own):
    agent, container = own
    expect(cluster, container, [-1, -1])
    for restart in (cluster.node.restart, cluster.runtime.restart, agent.restart):
        restart()
        cluster.outlast_reconciles()
        assert quotas(cluster, container) == [-1, -1]
    assert cluster.container("own") == container


def test_the_quota_comes_back_with_the_shared_pool(cluster, own):
    agent, container = own
    expect(cluster, container, [-1, -1])
    agent.stop()
    cluster.kubectl("label", "pod", "own", "koordinator.sh/qosClass=LS")
    (agent.state_dir / "ledger.json").unlink()
    agent.start()  # what was lifted is seen, not remembered
    expect(cluster, container, [LIMIT, -1])  # the pod's, the sum of its containers', is not needed
    assert cluster.runtime.recorded_cpu(container)["quota"] == LIMIT
    cluster.expect_cpus({"own": ONLINE}, SECONDS)
    assert cluster.container("own") == container
