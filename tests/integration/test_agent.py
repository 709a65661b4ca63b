"""The agent beside a real kubelet: pods by kubectl, held to CPUs through drift, restarts and crashes."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from support import containerd, real_agent
from support.cluster_pods import burstable, guaranteed, pod
from support.programs import Program, free_port, wait_for

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
SECONDS = 60


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


@pytest.fixture
def agent(cluster, node, tmp_path):
    with real_agent.agent(cluster, tmp_path) as started:
        yield started


def own_and_shares(cluster):
    """A pod with one exclusive CPU and one without; returns the exclusive CPUs once both are held."""
    name = cluster.node.name
    cluster.run(pod("own", guaranteed("app", 1), node=name), pod("shares", burstable("app"), node=name))
    return held(cluster)


def held(cluster, own="own", shares="shares"):
    def separate():
        exclusive, shared = cluster.cpus(own), cluster.cpus(shares)
        return exclusive if exclusive and len(exclusive) == 1 and shared == ONLINE - exclusive else None

    return wait_for("one exclusive CPU, and the other container kept off it", separate, SECONDS)


def test_a_pod_of_kubectl_gets_an_exclusive_cpu_and_releases_it(cluster, agent):
    own = own_and_shares(cluster)
    agent.wait_mode("owner")
    annotations = wait_for(
        "the CPUs as an annotation",
        lambda: {
            key: value
            for key, value in cluster.pods()["own"]["metadata"]["annotations"].items()
            if "kubectl" not in key
        },
        SECONDS,
    )
    assert any(str(own) in value for value in annotations.values()), annotations
    cluster.delete("own")
    cluster.expect_cpus({"shares": ONLINE}, SECONDS)


def test_a_static_pod_is_held_as_well(cluster, node, agent):
    manifest = pod("by-file", guaranteed("app", 1), node="")
    del manifest["spec"]["nodeName"]
    file = node.static_pods / "by-file.json"
    file.write_text(json.dumps(manifest))
    try:
        cluster.run(pod("shares", burstable("app"), node=node.name))
        held(cluster, own=f"by-file-{node.name}")
    finally:
        file.unlink()


def test_drift_is_repaired(cluster, agent):
    own = own_and_shares(cluster)
    cluster.runtime.update(cluster.container("shares"), cpus=str(ONLINE))
    cluster.expect_cpus({"own": own, "shares": ONLINE - own}, SECONDS)


def test_restarts_of_kubelet_runtime_and_agent_move_nothing(cluster, node, agent):
    own = own_and_shares(cluster)
    containers = {name: cluster.container(name) for name in ("own", "shares")}
    for restart in (node.restart, cluster.runtime.restart, agent.restart, lambda: agent.restart(9)):
        restart()
        cluster.expect_cpus({"own": own, "shares": ONLINE - own}, SECONDS)
    assert {name: cluster.container(name) for name in containers} == containers


def test_repairs_need_no_api_server(cluster, agent):
    own = own_and_shares(cluster)
    container = cluster.container("shares")
    cluster.plane.stop_server()
    try:
        agent.restart()
        cluster.runtime.update(container, cpus=str(ONLINE))

        def repaired():
            return cluster.effective(container) == ONLINE - own

        wait_for("the drift is repaired without an API server", repaired, SECONDS)
    finally:
        cluster.plane.start_server()


def test_a_container_resized_in_the_shared_pool_stays_there_without_the_ledger(cluster, agent):
    cluster.run(pod("grows", guaranteed("app", "500m"), node=cluster.node.name))
    cluster.expect_cpus({"grows": ONLINE}, SECONDS)
    amounts = {"cpu": "1", "memory": guaranteed("app", 1)["resources"]["limits"]["memory"]}
    resources = {"requests": amounts, "limits": amounts}
    patch = json.dumps({"spec": {"containers": [{"name": "app", "resources": resources}]}})
    cluster.kubectl("patch", "pod", "grows", "--subresource=resize", "--patch", patch)

    def recorded():
        return keys.RESIZED_IN_POOL in cluster.pods()["grows"]["metadata"].get("annotations", {})

    wait_for("the resize is recorded", recorded, SECONDS)
    agent.stop()
    (agent.state_dir / "ledger.json").unlink()
    agent.start()
    cluster.run(pod("own", guaranteed("app", 1), node=cluster.node.name))
    held(cluster, shares="grows")


def test_no_pod_with_exclusive_cpus_is_bound_to_a_node_whose_agent_ended(cluster, agent, tmp_path):
    agent.wait_mode("owner")
    wait_for("the Lease is announced", lambda: _is_leased(cluster), SECONDS)
    agent.stop()
    own = pod("own", guaranteed("app", 1), node="")
    # No controller takes the taint of a new node away.
    scheduled = {"schedulerName": "corelane-scheduler", "tolerations": [{"operator": "Exists"}]}
    own["spec"] |= {"nodeName": None} | scheduled
    with _scheduler(cluster, tmp_path):
        cluster.apply(own)
        refused = wait_for("why the pod is pending", lambda: _pending(cluster), SECONDS)
        assert "node(s) had no running corelane agent" in refused
        assert f"Lease {real_agent.NAMESPACE}/{cluster.node.name} was given up" in refused
        agent.start()
        wait_for("one exclusive CPU", lambda: len(cluster.cpus("own") or ONLINE) == 1, SECONDS)


@pytest.mark.parametrize("others", ["delete", "annotate", "label", "zones"])
def test_a_topology_that_kubectl_deleted_or_changed_is_written_again(cluster, agent, others):
    name = cluster.node.name
    wait_for("the Lease is announced", lambda: _is_leased(cluster), SECONDS)
    _following(agent)
    before = _published(cluster)
    zones = [zone | {"resources": []} for zone in before[2]]
    kubectl = {
        "delete": ("delete", "noderesourcetopology", name),
        "annotate": ("annotate", "--overwrite", "noderesourcetopology", name, f"{keys.CPU_ALLOCATIONS}={{}}"),
        "label": ("label", "--overwrite", "noderesourcetopology", name, f"{keys.MANAGED_BY}=nobody"),
        "zones": (
            *("patch", "noderesourcetopology", name, "--type=merge"),
            *("-p", json.dumps({"zones": zones})),
        ),
    }[others]
    cluster.kubectl(*kubectl)
    wait_for("all that the agent publishes", lambda: _published(cluster) == before, SECONDS)


def _following(agent):
    """Wait until the agent watches what it published, and has nothing left to write."""

    def at_rest():
        status = agent.status()
        watched = next(one for one in status["sources"] if one["name"] == "NodeResourceTopology")
        waiting = sum(one["retries"] for one in status["writes"])
        return watched["detail"] not in ("", "not written yet") and not waiting

    wait_for("the topology is watched", at_rest, SECONDS)


def _published(cluster):
    """What the agent says of its node; None where the object is gone."""
    found = cluster.kubectl("get", "noderesourcetopology", cluster.node.name, "-o", "json", code=None)
    if found.returncode:
        return None
    topology = json.loads(found.stdout)
    metadata = topology["metadata"]
    return metadata["annotations"], metadata["labels"], topology["zones"], topology["attributes"]


def _is_leased(cluster):
    topologies = cluster.kubectl.json("get", "noderesourcetopologies")["items"]
    return any(translate.is_leased(msgspec.convert(one, NodeResourceTopology)) for one in topologies)


def _pending(cluster):
    conditions = cluster.pods()["own"]["status"].get("conditions", [])
    return next((one.get("message") for one in conditions if one["type"] == "PodScheduled"), None)


@contextmanager
def _scheduler(cluster, home):
    config = cluster.plane.kubeconfig(home / "admin.kubeconfig", cluster.plane.token)
    command = (sys.executable, "-m", "corelane", "scheduler", f"--kubeconfig={config}")
    program = Program(home / "scheduler.log", *command, "--no-leader-elect", f"--port={free_port()}")
    try:
        yield
    finally:
        program.stop()
