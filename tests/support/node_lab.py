"""An agent beside a kubelet, all of its surroundings faked but the protocols: TLS, gRPC, HTTP and files."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from corelane.agent.event_loop import Clocks
from corelane.agent.kubelet import kubelet_sources
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.kubelet.kubelet_sources import KubeletConnections
from corelane.agent.node_agent import AgentConnections, AgentSettings, NodeAgent
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.kernel.files import Directory
from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.kubelet import KubeletAccess, KubeletClient
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.machine.watch import MachineWatch
from corelane.node.config import NodeConfig
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.podresources import PodResourcesClient
from support import kubelet_server
from support.certificates import Authority
from support.cluster_lab import TOKEN, write_kubeconfig
from support.fake_node import FakeNode
from support.kubelet_server import FakeKubelet

SECONDS = 120
CALL_SECONDS = 10.0
MACHINE = parse_spec("core:8 smt:1")


class Reporter(AgentReporter):
    """What happened, in lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def source_failed(self, name: str, error: BaseException) -> None:
        self.lines.append(f"{name}: {error}")

    def source_recovered(self, name: str, retries: int) -> None:
        self.lines.append(f"{name} works again")

    def malfunction(self, what: str, error: BaseException) -> None:
        self.lines.append(f"malfunction {what}: {error!r}")

    def checkpoint_failed(self, path: str, why: str) -> None:
        self.lines.append(f"{path}: {why}")


def pod(name: str, cpu: str = "", *, uid: str = "", **metadata: Any) -> dict[str, Any]:
    """A pod with container `app`; with `cpu` it is Guaranteed."""
    amounts = {"cpu": cpu, "memory": "16Mi"}
    resources = {"requests": amounts, "limits": amounts} if cpu else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"} | metadata,
        "spec": {"nodeName": "here", "containers": [{"name": "app", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }


class NodeLab:
    """`node` is the runtime and the kernel, `kubelet` the kubelet, `client` that of the API server."""

    def __init__(
        self,
        path: Path,
        server: APIServer,
        client: KubeClient,
        kubelet: FakeKubelet,
        access: KubeletAccess,
        **node: Any,
    ) -> None:
        self.path, self.server, self.client = path, server, client
        self.kubelet, self.access = kubelet, access
        (path / "node").mkdir()
        self.node = FakeNode(path / "node", **node)
        self.reporter = Reporter()
        self.state_file = path / "cpu_manager_state"
        self.pod_resources = path / "podresources.sock"
        self.resources_required = False
        self.machine = MACHINE
        self.sys = path / "sys"
        (self.sys / "devices/system/cpu").mkdir(parents=True)
        self.set_online("0-7")

    def run(self, name: str, cpu: str = "", **metadata: Any) -> str:
        """A pod that the kubelet has and whose container runs; returns the container's id."""
        manifest = pod(name, cpu, **metadata)
        self.kubelet.pods = [*self.kubelet.pods, manifest]
        return self.start(manifest["metadata"]["uid"], f"{name}-{len(self.node.containers)}")

    def start(self, uid: str, ident: str) -> str:
        """Start a container of a pod unasked, as a kubelet does: on all CPUs."""
        self.node.add(ident, pod=uid)
        self.node.announce(ident, 1)
        return ident

    def end(self, ident: str) -> None:
        """End a container: its cgroup is empty, then gone."""
        self.node.set_state(ident, 2)
        self.node.announce(ident, 2)

    def cpus(self, ident: str) -> CPUSet:
        """The effective CPUs of a container's cgroup."""
        group = self.node.groups.root / self.node.group(ident)
        return CPUSet.parse(self.node.groups.read(group / "cpuset.cpus.effective"))

    def drift(self, ident: str, cpus: str) -> None:
        """Change a container's cgroup behind the agent's back."""
        group = self.node.groups.root / self.node.group(ident)
        self.node.groups.write(group / "cpuset.cpus", cpus)

    def set_online(self, cpus: str) -> None:
        """Take CPUs off-line, or bring them back; cgroups lose them at once and do not get them back."""
        online = CPUSet.parse(cpus)
        self.machine = MACHINE.restricted(online.mask)
        self.node.groups.cpus = online
        (self.sys / "devices/system/cpu/online").write_text(f"{cpus}\n")

    async def known(self, name: str, cpu: str = "") -> dict[str, Any]:
        """A pod that the API server has, and the kubelet not yet."""
        manifest = pod(name, cpu)
        del manifest["metadata"]["uid"]
        return await self.client.create(manifest)

    def run_known(self, made: dict[str, Any], cpu: str = "") -> str:
        """A pod of the API server that runs now."""
        return self.run(made["metadata"]["name"], cpu, uid=made["metadata"]["uid"])

    async def stop_api(self) -> None:
        """The API server is gone, and its port closed."""
        await self.server.stop()

    async def start_api(self) -> None:
        """The API server is back with all that it had."""
        self.server = api_server(self.path, int(self.server.url.rpartition(":")[2]))
        await self.server.start()

    async def annotations(self, name: str) -> dict[str, str]:
        """The annotations of a pod of the API server."""
        return (await self.client.get(Pod, name, "default")).metadata.annotations

    async def until_condition(self, name: str, status: str) -> None:
        """Wait for the value of a pod's condition `corelane.io/Pinned`."""
        async with asyncio.timeout(SECONDS):
            while True:
                made = await self.client.get(Pod, name, "default")
                pinned = condition(made.status.conditions, keys.PINNED)
                if pinned and pinned.status == status:
                    return
                await asyncio.sleep(0.05)

    def agent(self, *, clocks: Clocks | None = None, **settings: Any) -> NodeAgent:
        """An agent; several may be made one after another, on the same state directory."""
        state_dir = settings.get("state_dir", self.path / "state")
        state_dir.mkdir(exist_ok=True)
        values = {
            "node_name": "here",
            "state_dir": state_dir,
            "config": NodeConfig(policy="pools"),
            "reconcile_seconds": 0.2,
            "nri": None,
        }
        connections = AgentConnections(
            client=self.client,
            runtime=CRIRuntime(
                self.node.view, f"unix://{self.node.socket}", call_seconds=CALL_SECONDS, list_seconds=0.2
            ),
            machine=self.machine,
            kubelet=KubeletConnections(
                KubeletClient(self.access, Pod, seconds=1.0),
                self.access.url,
                state_file=KubeletStateFile(self.state_file) if self.state_file.exists() else None,
                resources=PodResourcesClient(self.pod_resources, seconds=1.0),
                resources_required=self.resources_required,
            ),
            machine_watch=MachineWatch(
                self.machine,
                load=lambda: self.machine,
                sys=Directory(str(self.sys)),
                allowed=lambda: self.machine.usable,
            ),
        )
        return NodeAgent(
            AgentSettings(**(values | settings)),
            connections,
            reporter=self.reporter,
            clocks=clocks,
            validate=True,
        )

    @asynccontextmanager
    async def working(self, **settings: Any) -> AsyncIterator[NodeAgent]:
        """An agent that runs, and ends afterwards with its containers left running."""
        agent = self.agent(**settings)
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            failure = task.exception() if task.done() else None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent.close()
            if failure:
                raise failure
            malfunctions = [line for line in self.reporter.lines if line.startswith("malfunction")]
            assert not malfunctions, malfunctions

    async def until(self, condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
        """Wait until a condition holds, and return its value."""
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                await asyncio.sleep(0.02)
        return value

    async def until_cpus(self, ident: str, cpus: str) -> None:
        """Wait until a container is on these CPUs."""
        expected = CPUSet.parse(cpus)
        try:
            await self.until(lambda: self.cpus(ident) == expected)
        except TimeoutError:
            raise AssertionError(f"{ident} is on CPUs {self.cpus(ident)}, not {cpus}") from None


def source(agent: NodeAgent, name: str) -> dict[str, Any]:
    """The state of a source, as status has it."""
    return next(one for one in agent.status()["sources"] if one["name"] == name)


@asynccontextmanager
async def node_lab(path: Path, **node: Any) -> AsyncIterator[NodeLab]:
    """Everything around an agent; `node` as for `FakeNode`."""
    authority = Authority.make()
    pair = authority.issue(path / "kubelet.pem", "here", "127.0.0.1")
    fake = FakeKubelet(tokens={"token"})
    server = api_server(path)
    await server.start()
    client = KubeClient.connect(write_kubeconfig(path / "kubeconfig", server.url))
    async with kubelet_server.serving(fake, pair) as kubelet:
        access = KubeletAccess(kubelet.url, ca_file=authority.write(path / "ca.pem"), token="token")
        lab = NodeLab(path, server, client, kubelet, access, **node)
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
        await client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": keys.AGENT_NAMESPACE}}
        )
        try:
            with lab.node.serving():
                yield lab
        finally:
            await client.close()
            await lab.server.stop()


def api_server(path: Path, port: int = 0) -> APIServer:
    """An API server that keeps what it has over a restart."""
    (path / "api").mkdir(exist_ok=True)
    return APIServer(tokens={TOKEN: User("admin", ("system:masters",))}, data_dir=path / "api", port=port)


def with_lab(
    path: Path,
    scene: Callable[[NodeLab], Any],
    *,
    seconds: float | None = 300,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    look_seconds: float = 0.2,
    **node: Any,
) -> None:
    """Run a scene, five minutes at most; `node` as for `FakeNode`, `loop` makes the event loop.

    The agent looks at the kubelet's configuration and state file every `look_seconds`.
    """

    async def whole() -> None:
        async with asyncio.timeout(seconds), node_lab(path, **node) as lab:
            await scene(lab)

    looks = patch.object(kubelet_sources, "CONFIGURATION_SECONDS", look_seconds)
    with looks, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(whole())


def in_lab(**how: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a scene, whose first parameter is the lab and the others fixtures; see `with_lab`."""

    def made(scene: Callable[..., Any]) -> Callable[..., None]:
        fixtures = [name for name in inspect.signature(scene).parameters if name != "lab"]

        @wraps(scene)
        def test(tmp_path: Path, **values: Any) -> None:
            given = values | {"tmp_path": tmp_path}
            with_lab(tmp_path, partial(scene, **{name: given[name] for name in fixtures}), **how)

        names = dict.fromkeys(("tmp_path", *fixtures))
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return test

    return made
