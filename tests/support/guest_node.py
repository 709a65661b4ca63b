"""A node in a guest: containerd, the agent as a process, a kubelet's endpoints and an API server in threads.

Pods are made as a kubelet makes them: listed, their cgroup with a quota, then the sandbox and the container.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from corelane.agent.state_directory import read_status
from corelane.cpuset import CPUSet
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event, Node, NodeResourceTopology
from corelane.kube.pod import Pod as APIPod
from support import kubelet_server
from support.certificates import Authority
from support.cluster_lab import cluster
from support.containerd import GROUPS, Containerd
from support.cri_pods import Pod
from support.kubelet_server import FakeKubelet

NAME = "guest"
NURSERY = Path(__file__).with_name("agent_nursery.py")
SECONDS = 60.0
"""For whatever a test waits for."""
PERIOD = 1.0
"""Seconds between two reconciles, the shortest that a node's file may have."""
REPORT = "cat /proc/self/status >/seen; exec sleep 600"
"""The first thing that a container does is to write down what it may use."""

ALIGNED = {"scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "SingleNUMANode"}'}


class Surroundings:
    """An API server and a kubelet, served by a thread; `client` and `kubelet` belong to its loop."""

    client: KubeClient
    kubelet: FakeKubelet

    def __init__(self, home: Path) -> None:
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the thread's loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _start(self) -> None:
        authority = Authority.make()
        authority.write(self._home / "ca.pem")
        (self._home / "token").write_text("token")
        pair = authority.issue(self._home / "kubelet.pem", NAME, "127.0.0.1")
        served = kubelet_server.serving(FakeKubelet(tokens={"token"}), pair)
        self.client = await self._stack.enter_async_context(cluster(self._home))
        self.kubelet = await self._stack.enter_async_context(served)
        await self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})


@dataclass(frozen=True)
class Running:
    """A running container; what it may use is read from the kernel's files."""

    id: str
    pid: int
    group: Path
    pod: Pod
    exclusive: bool

    def read(self, name: str) -> str:
        return (self.group / name).read_text().strip()

    @property
    def cpus(self) -> CPUSet:
        """CPUs in effect."""
        return CPUSet.parse(self.read("cpuset.cpus.effective"))

    @property
    def mems(self) -> CPUSet:
        return CPUSet.parse(self.read("cpuset.mems.effective"))

    @property
    def quotas(self) -> tuple[str, str]:
        """Quota of the container and of its pod; "max" is none."""
        files = (self.group / "cpu.max", self.group.parent / "cpu.max")
        return tuple(file.read_text().split()[0] for file in files)

    @property
    def allowed(self) -> CPUSet:
        """CPUs of the process by its status."""
        return CPUSet.parse(field(Path(f"/proc/{self.pid}/status").read_text(), "Cpus_allowed_list"))

    def first(self) -> str:
        """What its first instruction wrote."""
        file = Path(f"/proc/{self.pid}/root/seen")
        return wait(f"{self.pod.name} reports", lambda: file.exists() and file.read_text())


def field(status: str, name: str) -> str:
    """A field of /proc/PID/status."""
    return next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))


def wait(
    what: str, probe: Callable[[], Any], seconds: float = SECONDS, *, last: Callable[[], Any] | None = None
) -> Any:
    """The first true value of `probe`; fails where there is none in time, naming `what` and `last()`."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s; now {last() if last else value}")
        time.sleep(0.05)
    return value


class GuestNode:
    """`pid` is the agent's process, 0 while there is none."""

    def __init__(self, home: Path, lab: Containerd, around: Surroundings, settings: dict[str, Any]) -> None:
        self.home, self.lab, self.around = home, lab, around
        self.pid = 0
        self.running: list[Running] = []
        with self.log.open("ab") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, str(NURSERY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        (home / "node.yaml").write_text(json.dumps(self._connections() | settings))  # JSON is YAML

    def _connections(self) -> dict[str, Any]:
        kubelet = {
            "address": self.around.kubelet.url,
            "caFile": str(self.home / "ca.pem"),
            "tokenFile": str(self.home / "token"),
        }
        runtime = {"endpoint": self.lab.endpoint, "nri": str(self.lab.nri_socket)}
        return {"reconcileSeconds": PERIOD, "runtime": runtime, "kubelet": kubelet}

    @property
    def log(self) -> Path:
        return self.home / "agent.log"

    @property
    def state_dir(self) -> Path:
        return self.home / "state"

    # -- the agent

    def start(self) -> None:
        """Start the agent, without waiting for anything that it does."""
        options = {
            "node-config": self.home / "node.yaml",
            "node-name": NAME,
            "kubeconfig": self.home / "kubeconfig",
            "state-dir": self.state_dir,
        }
        arguments = ["agent", "run", *(f"--{name}={value}" for name, value in options.items())]
        self._nursery.stdin.write(f"{json.dumps(arguments)}\n")
        self._nursery.stdin.flush()
        self.pid = int(self._nursery.stdout.readline())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the agent, and wait until it is gone."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            wait("the agent ends", lambda: not Path(f"/proc/{self.pid}").exists())
            self.pid = 0

    def close(self) -> None:
        self.kill()
        self._nursery.stdin.close()
        self._nursery.wait(SECONDS)

    def status(self) -> dict[str, Any]:
        """The agent's status; {} while it serves none."""
        with suppress(OSError):
            return read_status(self.state_dir, SECONDS)
        return {}

    def wait_ready(self) -> None:
        """Wait until the agent is connected to containerd's NRI, and has confirmed all that runs."""
        wait("the agent is connected over NRI", lambda: (self.status().get("nri") or {}).get("connected"))
        self.wait_confirmed()

    def wait_confirmed(self) -> None:
        """Wait until the agent has compared every container with the kernel, without a difference."""
        expected = {"confirmed": len(self.running)} if self.running else {}

        def containers() -> object:
            return self.status().get("containers")

        wait(f"containers are {expected}", lambda: containers() == expected, last=containers)

    def wait_reconciled(self) -> None:
        """Wait until the agent has compared every container twice more, and found no difference.

        And until the runtime's record has every change: recording one undoes what others write meanwhile.
        """
        wait("changes are recorded", lambda: self.status()["runtime"]["unrecorded"] == 0)
        began = self.status()["reconcile"]["at"]
        wait("two reconciles", lambda: self.status()["reconcile"]["at"] > began + 2 * PERIOD)
        self.wait_confirmed()

    # -- the API server

    def topology(self) -> dict[str, Any]:
        """The node's NodeResourceTopology as it is stored; {} if there is none."""
        client, path = self.around.client, NodeResourceTopology.api.path(name=NAME)
        with suppress(Exception):
            return json.loads(self.around.call(client.raw("GET", path)))
        return {}

    def annotate(self, key: str, value: str | None) -> None:
        """Set an annotation of the Node; None removes it."""
        body = {"metadata": {"annotations": {key: value}}}
        self.around.call(self.around.client.patch(Node, NAME, body))

    def events(self) -> list[tuple[str, str, str]]:
        """Reason, object and message of every event."""
        listing = self.around.call(self.around.client.list(Event))
        return [(event.reason, event.involved_object.name, event.message) for event in listing.items]

    # -- pods

    def run(self, name: str, cpu: int = 0, *, mount: Path | None = None, command: str = REPORT) -> Running:
        """Run a pod of one container: Guaranteed with `cpu` CPUs, else Burstable.

        With `mount` the container sees that directory as /mounted.
        """
        made = self.around.call(self.around.client.create(manifest(name, cpu)))
        self.around.kubelet.pods = [*self.around.kubelet.pods, made]
        uid = made["metadata"]["uid"]
        pod = self.lab.run_pod(name, uid, "" if cpu else "burstable")
        amounts = {"shares": 102}
        if cpu:
            amounts = {"shares": 1024 * cpu, "quota": cpu * 100_000}
            group = GROUPS / self.lab.parent / "kubepods" / f"pod{uid}"
            (group / "cpu.max").write_text(f"{cpu * 100_000} 100000")
        mounts = {"/mounted": mount} if mount else {}
        shell = ("/bin/busybox", "sh", "-c", command)
        container = self.lab.run_container(pod, "app", command=shell, mounts=mounts, **amounts)
        pid = self.lab.pid(container)
        running = Running(container, pid, self.lab.cgroup(container), pod, cpu > 0)
        self.running.append(running)
        return running

    def end(self, running: Running) -> None:
        """End a pod as a kubelet does: its containers first, then its object."""
        self.lab.remove_pod(running.pod)
        self.running.remove(running)
        pods, client = self.around.kubelet.pods, self.around.client
        self.around.kubelet.pods = [pod for pod in pods if pod["metadata"]["uid"] != running.pod.uid]
        self.around.call(client.delete(APIPod, running.pod.name, namespace="default", grace_seconds=0))

    def condition(self, running: Running) -> tuple[str, str]:
        """Status and message of the pod's condition corelane.io/Pinned at the API server."""
        path = APIPod.api.path("default", running.pod.name)
        pod = json.loads(self.around.call(self.around.client.raw("GET", path)))
        found = [one for one in pod["status"].get("conditions", []) if one["type"] == "corelane.io/Pinned"]
        return (found[0]["status"], found[0].get("message", "")) if found else ("", "")

    def end_all(self) -> None:
        """End all pods, also those that a failing test began to make."""
        self.lab.remove_pods()
        self.running.clear()
        self.around.kubelet.pods = []
        for pod in self.around.call(self.around.client.list(APIPod)).items:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            self.around.call(self.around.client.delete(APIPod, name, namespace=namespace, grace_seconds=0))


def manifest(name: str, cpu: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": "16Mi"}
    resources = {"requests": amounts, "limits": amounts} if cpu else {"requests": {"cpu": "100m"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": ALIGNED if cpu else {}},
        "spec": {"nodeName": NAME, "containers": [{"name": "app", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }
