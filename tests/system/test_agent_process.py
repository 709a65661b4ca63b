"""`corelane agent run` on real containerd while the API server is away, its port closed."""

import asyncio
import json
import subprocess
import sys

import pytest
import yaml

from corelane.kernel import container_cgroup, container_paths
from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from support import containerd, kubelet_server
from support.certificates import Authority
from support.cluster_lab import until, write_kubeconfig
from support.kubelet_server import FakeKubelet
from support.node_lab import api_server, pod
from support.programs import Program

pytestmark = pytest.mark.system

COMMAND = (sys.executable, "-m", "corelane", "agent")
SECONDS = 90


@pytest.fixture(scope="module", params=["1.6", "1.7"])
def lab(request, tmp_path_factory):
    with containerd.running(tmp_path_factory.mktemp("cd"), request.param) as found:
        yield found


class Cluster:
    """What the process works with: an API server that comes and goes, a kubelet, a containerd."""

    def __init__(self, lab, path, server, client, kubelet):
        self.lab, self.path, self.server, self.client, self.kubelet = lab, path, server, client, kubelet
        self.view = container_paths.view()

    async def known(self, name, cpu=""):
        manifest = pod(name, cpu)
        del manifest["metadata"]["uid"]
        if not cpu:  # Burstable: leaves exclusive CPUs
            manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
        return await self.client.create(manifest)

    async def run(self, made):
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        exclusive = "limits" in made["spec"]["containers"][0]["resources"]
        self.kubelet.pods = [*self.kubelet.pods, made]
        sandbox = await asyncio.to_thread(self.lab.run_pod, name, uid, "" if exclusive else "burstable")
        shares = 1024 if exclusive else 100
        return await asyncio.to_thread(self.lab.run_container, sandbox, "app", shares=shares)

    def cpus(self, container):
        return container_cgroup.effective(self.view, self.group(container))

    def group(self, container):
        return str(self.lab.cgroup(container).relative_to(self.view.cpuset))

    async def confirmed(self, name):
        async def there():
            made = await self.client.get(Pod, name, "default")
            found = condition(made.status.conditions, keys.PINNED)
            return found and found.status == "True"

        await until(there, SECONDS)

    async def status(self):
        """The document of `corelane agent status`; empty where there is none yet."""
        command = [*COMMAND, "status", "--state-dir", self.path / "state", "-o", "json"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    async def containers(self, expected):
        async def there():
            return (await self.status()).get("containers") == expected

        await until(there, SECONDS)

    async def failing(self, name):
        """The error of a source, once it fails."""

        async def there():
            parts = (await self.status()).get("sources", [])
            return next((p["error"] for p in parts if p["name"] == name and p["state"] == "failing"), "")

        return await until(there, SECONDS)

    def start_agent(self):
        file = self.path / "node.yaml"
        nri = str(self.lab.nri_socket) if self.lab.release in containerd.HAVE_NRI else "off"
        settings = {
            "reconcileSeconds": 1,
            "runtime": {"endpoint": self.lab.endpoint, "nri": nri},
            "kubelet": {
                "address": self.kubelet.url,
                "caFile": str(self.path / "ca.pem"),
                "tokenFile": str(self.path / "token"),
            },
        }
        file.write_text(yaml.safe_dump(settings))
        config = write_kubeconfig(self.path / "kubeconfig", self.server.url)
        flags = ("--node-config", file, "--kubeconfig", config, "--node-name", "here")
        return Program(self.path / "log", *COMMAND, "run", *flags, "--state-dir", self.path / "state")


def test_pins_repairs_and_writes_outlast_the_api_server(lab, tmp_path):
    async def scene():
        authority = Authority.make()
        pair = authority.issue(tmp_path / "kubelet.pem", "here", "127.0.0.1")
        authority.write(tmp_path / "ca.pem")
        (tmp_path / "token").write_text("token")
        server = api_server(tmp_path)
        await server.start()
        client = KubeClient.connect(write_kubeconfig(tmp_path / "config", server.url))
        async with kubelet_server.serving(FakeKubelet(tokens={"token"}), pair) as kubelet:
            cluster = Cluster(lab, tmp_path, server, client, kubelet)
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
            agent = cluster.start_agent()
            try:
                await play(cluster, agent)
            finally:
                agent.stop()
                await client.close()
                await cluster.server.stop()

    asyncio.run(scene())


async def play(cluster, agent):
    everything = container_cgroup.effective(cluster.view, "")
    if len(everything) < 2:
        pytest.skip("needs two CPUs")
    noise, server = await cluster.known("noise"), await cluster.known("server", "1")
    noisy = await cluster.run(noise)
    await cluster.containers({"confirmed": 1})
    await cluster.server.stop()
    assert f"API server {cluster.server.url}" in await cluster.failing("Node")
    exclusive = await cluster.run(server)

    async def apart():
        own = cluster.cpus(exclusive)
        return len(own) == 1 and not own & cluster.cpus(noisy) and own

    own = await until(apart, SECONDS)
    container_cgroup.write_cpuset(cluster.view, cluster.group(exclusive), cpus=everything)
    assert await until(apart, SECONDS) == own
    cluster.server = api_server(cluster.path, int(cluster.server.url.rpartition(":")[2]))
    await cluster.server.start()
    await cluster.confirmed("server")
    agent.stop()
    assert agent.process.returncode == 0, agent.tail()
    assert "Traceback" not in agent.tail()
    assert cluster.cpus(exclusive) == own
