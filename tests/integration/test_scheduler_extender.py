"""The real kube-scheduler with corelane as its extender, on a real kube-apiserver.

$KUBE_SCHEDULER names kube-scheduler's binary, $KUBEBUILDER_ASSETS a directory with kube-apiserver and etcd.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import NodeResourceTopology
from support import objects, scheduler_lab
from support.pods import guaranteed
from support.programs import Program, free_port
from support.scheduled_cluster import ScheduledCluster, assert_no_cpu_twice

pytestmark = pytest.mark.integration

CONFIG = Path(__file__).parents[2] / "deploy/scheduler/extender/kube-scheduler.yaml"
PATIENCE = 180


@pytest.fixture(scope="module")
def server():
    if not os.access(os.environ.get("KUBE_SCHEDULER", ""), os.X_OK):
        pytest.skip("no kube-scheduler: set KUBE_SCHEDULER to its binary")
    home = Path(tempfile.mkdtemp(prefix="corelane-ext-"))
    try:
        with scheduler_lab.real(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def kube_scheduler(home: Path, kubeconfig: Path, port: int) -> Program:
    """kube-scheduler with the shipped configuration, its kubeconfig and the extender's port replaced."""
    config = yaml.safe_load(CONFIG.read_text())
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    config["leaderElection"] = {"leaderElect": False}
    config["podInitialBackoffSeconds"] = 1
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    path = home / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    options = (f"--config={path}", "--secure-port=0", "--v=2")
    return Program(home / "kube-scheduler.log", os.environ["KUBE_SCHEDULER"], *options)


async def fragmented(cluster: ScheduledCluster, name: str, free: str) -> None:
    """A node of 8 CPUs on 2 NUMA nodes, where other pods have all CPUs but these."""
    await cluster.node(name, "numa:2 core:4", 8, policy="pools")
    state = cluster.states[name]
    left = CPUSet.parse(free)
    taken = [cpu for cpu in range(1, 8) if cpu not in left]
    for cpu in taken:
        one = guaranteed(f"old-{name}-{cpu}", "1", memory="1Mi")
        request = translate.request(one)
        state, decision = nodes.admit(state, objects.proposing(request, {"main": CPUSet([cpu])}))
        assert decision.admitted, decision.message
    cluster.states[name] = state
    whole = translate.topology(state.machine, name, state)
    body = {"metadata": {"annotations": whole["metadata"]["annotations"]}, "zones": whole["zones"]}
    await cluster.client.patch(NodeResourceTopology, name, body)


def test_kube_scheduler_binds_pods_with_cpus_through_the_extender(server, tmp_path):
    """n1 has a free CPU on each NUMA node, n2 two on one: by totals they are alike, by CPUs they are not."""

    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin.kubeconfig"))
        cluster = ScheduledCluster(client)
        try:
            async with asyncio.timeout(PATIENCE):
                await fragmented(cluster, "n1", "3,7")
                await fragmented(cluster, "n2", "2,3")
                await fragmented(cluster, "n3", "1-7")
                strict = {keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
                for number in range(4):
                    await pod(cluster, f"p{number}", annotations=strict)
                bound = await cluster.all_bound(4)
                assert assert_no_cpu_twice(bound) == 8
                assert {one.spec.node_name for one in bound} <= {"n2", "n3"}
                assert all(one.metadata.annotations[keys.SCHEDULED_BY] for one in bound)
                await pod(cluster, "p4", annotations=strict)
                waiting = await cluster.until("p4", lambda one: bool(scheduled(one)))
                assert "NUMA" in scheduled(waiting).message, scheduled(waiting).message
                assert not waiting.spec.node_name
        finally:
            await client.close()

    port = free_port()
    with scheduler_lab.replicas(tmp_path, server) as replicas:
        replicas.start("--no-leader-elect", "--extender", f"--listen=127.0.0.1:{port}")
        program = kube_scheduler(tmp_path, server.kubeconfig(tmp_path / "kube-scheduler.kubeconfig"), port)
        try:
            asyncio.run(main())
        except BaseException:
            print(program.tail(), replicas.all[0].program.tail())
            raise
        finally:
            program.stop()


def scheduled(one):
    return condition(one.status.conditions, "PodScheduled")


async def pod(cluster: ScheduledCluster, name: str, annotations: dict[str, str]) -> None:
    resources = {"cpu": "2", "memory": "64Mi"}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"requests": resources, "limits": resources},
                    }
                ]
            },
        }
    )
