"""The agent beside a kubelet on real containerd and a real kernel: started, drifted, restarted, killed."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from corelane.agent.kubelet.kubelet_sources import KubeletConnections
from corelane.agent.node_agent import AgentConnections, AgentSettings, NodeAgent
from corelane.app.agent.command import host_machine
from corelane.kernel import container_cgroup, container_paths, proc
from corelane.kube.kubelet import KubeletAccess, KubeletClient
from corelane.kube.pod import Pod
from corelane.node.config import NodeConfig
from corelane.runtime.cri.runtime import CRIRuntime
from support import containerd, kubelet_server
from support.certificates import Authority
from support.cluster_lab import cluster
from support.kubelet_server import FakeKubelet
from support.node_lab import pod

pytestmark = pytest.mark.system

SECONDS = 60


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def lab(request, tmp_path_factory):
    with containerd.running(tmp_path_factory.mktemp("cd"), request.param) as found:
        yield found


class Node:
    """What an agent works beside; its agents share a state directory."""

    def __init__(self, lab, path, client, kubelet, access):
        self.lab, self.path, self.client, self.kubelet, self.access = lab, path, client, kubelet, access
        self.view = container_paths.view()

    @asynccontextmanager
    async def working(self):
        settings = AgentSettings(
            node_name="here",
            state_dir=self.path / "state",
            config=NodeConfig(policy="pools"),
            reconcile_seconds=1.0,
            nri=self.lab.nri_socket if self.lab.release in containerd.HAVE_NRI else None,
        )
        connections = AgentConnections(
            client=self.client,
            runtime=CRIRuntime(self.view, self.lab.endpoint, list_seconds=1.0),
            machine=host_machine(self.view),
            kubelet=KubeletConnections(KubeletClient(self.access, Pod)),
        )
        agent = NodeAgent(settings, connections, validate=True)
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent.close()

    async def start(self, name, number, cpu=""):
        uid = f"{number:08}-3333-4333-8444-{int(time.time()) % 10**12:012}"
        manifest = pod(name, cpu, uid=uid)
        if not cpu:  # Burstable: in the shared pool, which leaves exclusive CPUs
            manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
        self.kubelet.pods = [*self.kubelet.pods, manifest]
        made = await asyncio.to_thread(self.lab.run_pod, name, uid, "" if cpu else "burstable")
        return await asyncio.to_thread(self.lab.run_container, made, "app", shares=1024 if cpu else 100)

    def group(self, container):
        return str(self.lab.cgroup(container).relative_to(self.view.cpuset))

    def cpus(self, container):
        return container_cgroup.effective(self.view, self.group(container))

    async def until(self, condition):
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.02)


def test_containers_are_pinned_repaired_and_kept_over_restarts(lab, tmp_path):
    async def scene():
        authority = Authority.make()
        pair = authority.issue(tmp_path / "kubelet.pem", "here", "127.0.0.1")
        fake = FakeKubelet(tokens={"token"})
        (tmp_path / "state").mkdir()
        async with cluster(tmp_path) as client, kubelet_server.serving(fake, pair) as kubelet:
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
            access = KubeletAccess(kubelet.url, ca_file=authority.write(tmp_path / "ca.pem"), token="token")
            await play(Node(lab, tmp_path, client, kubelet, access))

    asyncio.run(scene())


async def play(node):
    everything = container_cgroup.effective(node.view, "")
    if len(everything) < 2:
        pytest.skip("needs two CPUs")
    async with node.working() as agent:
        await node.until(lambda: agent.mode and agent.mode.name == "owner")
        noise = await node.start("noise", 1)
        server = await node.start("server", 2, "1")
        await node.until(lambda: len(node.cpus(server)) == 1 and not node.cpus(noise) & node.cpus(server))
        own = node.cpus(server)
        container_cgroup.write_cpuset(node.view, node.group(server), cpus=everything)
        await node.until(lambda: node.cpus(server) == own)
        await moved_out_and_back(node, server, own)
        await asyncio.to_thread(node.lab.restart)
        container_cgroup.write_cpuset(node.view, node.group(noise), cpus=everything)
        await node.until(lambda: not node.cpus(noise) & own)
    container_cgroup.write_cpuset(node.view, node.group(noise), cpus=everything)
    async with node.working():
        await node.until(lambda: not node.cpus(noise) & own)
        assert node.cpus(server) == own


async def moved_out_and_back(node, server, own):
    """Version 1: a process that left its cpuset, but not its group for CPU time, is brought back."""
    if node.view.version == 2:
        return
    pid = node.lab.pid(server)
    (node.view.cpuset / "cgroup.procs").write_text(str(pid))
    assert proc.allowed(pid) != own
    await node.until(lambda: proc.allowed(pid) == own)
