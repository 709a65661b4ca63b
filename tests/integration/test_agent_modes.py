"""What the agent leaves alone beside a real kubelet: everything where it may not write, or does not know."""

import json
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from support import file_writes, real_agent
from support.cluster_pods import best_effort, guaranteed, pod
from support.containerd import GROUPS
from support.programs import wait_for

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
SECONDS = 60
ROLE = "corelane-agent"
MEMORY = {
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}


@pytest.fixture
def node(cluster):
    """A kubelet with policy none and no pods."""
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    yield cluster.node
    cluster.forget_pods()


def own_and_shares(cluster):
    name = cluster.node.name
    cluster.run(pod("own", guaranteed("app", 1), node=name), pod("shares", best_effort("app"), node=name))


def cpuset_writes(cluster, *names):
    top = GROUPS / "cpuset" if (GROUPS / "cpuset").exists() else GROUPS
    return file_writes.watching(top / cluster.node.cgroup, *names)


@pytest.mark.parametrize(("flag", "mode"), [("--read-only", "read-only"), ("--ignore", "ignored")])
def test_these_flags_let_nothing_be_written(cluster, node, tmp_path, flag, mode):
    own_and_shares(cluster)
    cluster.runtime.update(cluster.container("own"), cpus=str(min(ONLINE)))
    with cpuset_writes(cluster, "cpuset.cpus", "cpuset.mems", "cpu.cfs_quota_us") as writes:
        with real_agent.agent(cluster, tmp_path, flag) as agent:
            agent.wait_mode(mode)
            cluster.outlast_reconciles()
            assert agent.status()["containers"]
        assert writes.seen() == []
    annotations = cluster.pods()["own"]["metadata"].get("annotations", {})
    assert not [key for key in annotations if "corelane" in key or "koordinator" in key]


def test_a_changed_kubelet_configuration_is_published(cluster, node, tmp_path):
    def policies():
        done = cluster.kubectl("get", "noderesourcetopology", node.name, "-o", "json", code=None)
        attributes = json.loads(done.stdout).get("attributes", []) if done.returncode == 0 else []
        return [one["value"] for one in attributes if one["name"] == "topologyManagerPolicy"]

    with real_agent.agent(cluster, tmp_path):
        wait_for("the policy in the topology", lambda: policies() == ["none"], SECONDS)
        node.restart(topologyManagerPolicy="best-effort")
        try:
            wait_for("the changed policy", lambda: policies() == ["best-effort"], SECONDS)
        finally:
            node.restart(topologyManagerPolicy=None)


def test_an_unknown_policy_means_read_only_and_is_reported(cluster, node, tmp_path):
    real_agent.install(cluster, tmp_path)
    rules = json.loads(cluster.kubectl("get", "clusterrole", ROLE, "-o", "json").stdout)["rules"]
    without = [
        rule | {"resources": kept}
        for rule in rules
        if (kept := [one for one in rule["resources"] if one != "nodes/configz"])
    ]
    own_and_shares(cluster)
    with real_agent.agent(cluster, tmp_path, kubeletState=None) as agent:
        set_rules(cluster, without)
        try:
            agent.restart()
            agent.wait_mode("read-only")
            reasons = agent.status()["mode"]["reasons"]
            assert "403" in reasons[0], reasons
            events = cluster.kubectl("get", "events", "-o", "json").stdout
            assert "mode read-only" in events
        finally:
            set_rules(cluster, rules)
        agent.wait_mode("owner")
        wait_for("an exclusive CPU", lambda: len(cluster.cpus("own") or ()) == 1, SECONDS)


def set_rules(cluster, rules):
    patch = [{"op": "replace", "path": "/rules", "value": rules}]
    cluster.kubectl("patch", "clusterrole", ROLE, "--type=json", "-p", json.dumps(patch))


def recorded_mems(cluster):
    return {
        name: cluster.runtime.recorded_cpu(cluster.container(name)).get("mems", "")
        for name in ("own", "shares")
    }


def test_beside_a_memory_manager_no_memory_nodes_are_written(cluster, node, tmp_path):
    state = node.root / "memory_manager_state"
    node.stop()
    state.unlink(missing_ok=True)
    node.configure(**MEMORY)
    node.start()
    try:
        own_and_shares(cluster)
        before = recorded_mems(cluster)
        with cpuset_writes(cluster, "cpuset.mems") as writes:
            with real_agent.agent(cluster, tmp_path) as agent:
                agent.wait_mode("owner")
                wait_for("an exclusive CPU", lambda: len(cluster.cpus("own") or ()) == 1, SECONDS)
                wait_for(
                    "the memory manager is known",
                    lambda: agent.status()["kubelet"]["memoryManagerPolicy"] == "Static",
                    SECONDS,
                )
                cluster.outlast_reconciles()
                assert agent.status()["mode"]["writesMems"] is False
            # runc writes the kubelet's own memory nodes again with every change of CPUs.
            assert not [path for path in writes.seen() if cluster.container("shares") in str(path)]
        assert recorded_mems(cluster) == before
    finally:
        cluster.forget_pods()
        node.stop()
        state.unlink(missing_ok=True)
        node.configure(**dict.fromkeys(MEMORY))
        node.start()
