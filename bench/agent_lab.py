"""A real containerd, a kubelet and an API server of the tests' own, and agents as processes beside them."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

PATIENCE: Final = 240.0
SLEEP: Final = ("/bin/busybox", "sleep", "86400")
IN_A_POD: Final = 10
EXCLUSIVE: Final = {"koordinator.sh/qosClass": "LSE"}


@dataclass
class Agent:
    """A running `corelane agent run`. Its CPU time and memory are the kernel's figures."""

    process: subprocess.Popen[bytes]
    state_dir: Path
    began: float

    def status(self) -> dict[str, Any] | None:
        """Return the agent's status; None before it answers."""
        from corelane.agent.state_directory import read_status

        try:
            return read_status(self.state_dir)
        except OSError:
            return None

    async def until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the status fulfils a condition, and return it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                status = await asyncio.to_thread(self.status)
                if status and condition(status):
                    return status
                assert self.process.poll() is None, "the agent ended"
                await asyncio.sleep(0.02)

    async def until_confirmed(self, containers: int) -> dict[str, Any]:
        return await self.until(lambda status: status["containers"] == {"confirmed": containers})

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads, in seconds; the scheduler counts nanoseconds."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory_mb(self) -> float:
        """Return the resident memory in MB (10^6 bytes)."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass
class AgentLab:
    """Pods on this containerd; `containers` is the number of their containers."""

    lab: Any
    kubelet: Any
    path: Path
    containers: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def hold_a_cpu(self) -> None:
        """Start a pod with an exclusive CPU: each container of the BE pool has to leave it from then on."""
        amounts = {"cpu": "1", "memory": "16Mi"}
        self._start("own", 1, "", EXCLUSIVE, {"requests": amounts, "limits": amounts})

    def stop_pod(self) -> None:
        """Remove the oldest pod, as the kubelet does: from the runtime, then from its list."""
        pod = self.lab.pods[0]
        self.lab.remove_pod(pod)
        listed = [one for one in self.kubelet.pods if one["metadata"]["uid"] != pod.uid]
        gone = len(self.kubelet.pods) - len(listed)
        assert gone == 1, pod.uid
        self.kubelet.pods = listed

    def start_pods(self, containers: int, command: tuple[str, ...] = SLEEP) -> list[str]:
        """Start BestEffort pods with so many containers; return their ids."""
        made: list[str] = []
        while len(made) < containers:
            size = min(IN_A_POD, containers - len(made))
            made += self._start("be", size, "besteffort", {}, {}, command)
        return made

    def _start(
        self,
        name: str,
        size: int,
        qos: str,
        labels: dict[str, str],
        resources: dict[str, Any],
        command: tuple[str, ...] = SLEEP,
    ) -> list[str]:
        number = next(self._numbers)
        name, uid = f"{name}-{number}", f"{number:08}-2222-4333-8444-{int(time.time()) % 10**12:012}"
        containers = [{"name": f"c{n}", "image": "i", "resources": resources} for n in range(size)]
        metadata = {"name": name, "namespace": "default", "uid": uid, "labels": labels}
        self.kubelet.pods = [*self.kubelet.pods, {"metadata": metadata, "spec": {"containers": containers}}]
        pod = self.lab.run_pod(name, uid, qos)
        shares = 1024 if resources else 2
        self.containers += size
        return [
            self.lab.run_container(pod, container["name"], shares=shares, command=command)
            for container in containers
        ]

    @contextmanager
    def agent(
        self, *, fresh: bool = False, events: bool = True, period: float = 10.0, nri: bool = False
    ) -> Iterator[Agent]:
        """An agent on this node. `fresh`: without the ledger of the last one; `period` in seconds.

        Without `events` it finds a runtime that has none, and so lists containers once a period.
        """
        state = self.path / "state"
        if fresh:
            shutil.rmtree(state, ignore_errors=True)
        program = ["-m", "corelane"] if events else [str(Path(__file__).with_name("without_events.py"))]
        command = [
            *(sys.executable, *program, "agent", "run", "--node-name", "here"),
            *("--node-config", str(self.path / "node.yaml"), "--kubeconfig", str(self.path / "kubeconfig")),
            *("--state-dir", str(state), "--reconcile-seconds", str(period)),
            *("--nri", str(self.lab.nri_socket) if nri else "off"),
        ]
        began = time.monotonic()
        with (self.path / "agent.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Agent(process, state, began)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@asynccontextmanager
async def lab(release: str) -> AsyncIterator[AgentLab]:
    """All of it, removed afterwards. Raises pytest's Skipped, saying why, where containerd cannot be run."""
    from support import containerd, kubelet_server
    from support.certificates import Authority
    from support.cluster_lab import cluster
    from support.kubelet_server import FakeKubelet

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        (path / "cd").mkdir()
        authority = Authority.make()
        pair = authority.issue(path / "kubelet.pem", "here", "127.0.0.1")
        authority.write(path / "ca.pem")
        (path / "token").write_text("token")
        fake = FakeKubelet(tokens={"token"})
        with containerd.running(path / "cd", release) as real:
            async with cluster(path) as client, kubelet_server.serving(fake, pair) as kubelet:
                await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
                (path / "node.yaml").write_text(
                    f"runtime: {{endpoint: {real.socket}}}\n"
                    f"kubelet: {{address: '{kubelet.url}', caFile: {path}/ca.pem, tokenFile: {path}/token}}\n"
                )
                yield AgentLab(real, fake, path)
