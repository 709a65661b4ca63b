"""A node with a real container runtime, a kubelet and an API server of the test, and an agent that is killed.

Pods come and go as a kubelet makes them, also while no agent runs. What the kernel has is read again and
again, and by the agent's process at each of its steps (`killed_agent`); `faults` judges all readings.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from corelane.agent.saved_state import load_ledger
from corelane.app.agent.command import host_machine
from corelane.cpuset import CPUSet
from corelane.kernel import container_paths
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod as PodObject
from corelane.node.config import NodeConfig
from support import cri_pods, killed_agent, kubelet_server
from support.certificates import Authority
from support.cluster_lab import cluster
from support.containerd import HAVE_NRI, Containerd
from support.crash_judge import judge
from support.kubelet_server import FakeKubelet
from support.node_lab import pod as manifest_of

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
STUBBORN = ("/bin/busybox", "sh", "-c", "trap '' TERM; while :; do /bin/busybox sleep 0.2; done")
STATE_FILE = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
SHAPES = {"exclusive": (("app", "1"),), "pair": (("app", "1"), ("side", "100m")), "shared": (("app", ""),)}
"""Containers with their CPU request and limit; "" is a request of 100m alone."""


class Services:
    """An API server and a kubelet's endpoint, served by a thread of their own."""

    def __init__(self, home: Path) -> None:
        self.home, self.kubelet = home, FakeKubelet(tokens={"token"})
        self.authority = Authority.make()
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        pair = self.authority.issue(self.home / "kubelet.pem", "here", "127.0.0.1")
        async with cluster(self.home) as self.client, kubelet_server.serving(self.kubelet, pair):
            await self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
            self._started.set()
            await self._stop.wait()

    def call(self, work: Callable[[KubeClient], Coroutine[Any, Any, Any]]) -> Any:
        """Ask the API server, from any thread."""
        return asyncio.run_coroutine_threadsafe(work(self.client), self._loop).result(PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)


@dataclass
class RunningPod:
    """A pod with its sandbox; `containers` are ids by name, `attempts` the runs of each so far."""

    shape: str
    manifest: dict
    sandbox: cri_pods.Pod
    containers: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        return self.manifest["metadata"]["uid"]

    @property
    def name(self) -> str:
        return self.manifest["metadata"]["name"]


class Watcher(threading.Thread):
    """Reads the kernel and the ledger on disk every few milliseconds, until the test ends."""

    def __init__(self, groups: Path, ledger: Path) -> None:
        super().__init__(daemon=True)
        self._place = groups, ledger
        self.snapshots: list[dict] = []
        self.ends = threading.Event()

    def run(self) -> None:
        last = None
        while not self.ends.wait(0.02):
            seen = killed_agent.snapshot(*self._place)
            if (what := (seen["first"], seen["second"], seen["ledger"])) != last:
                self.snapshots.append(seen)
                last = what


class CrashLab:
    """`agent` is the process of the agent, None where none was started."""

    def __init__(self, runtime: Containerd, home: Path, services: Services) -> None:
        self.runtime, self.home, self.services = runtime, home, services
        self.view = container_paths.view()
        self.machine = host_machine(self.view)
        self.groups = self.view.cpuset / runtime.parent
        self.state, self.steps = home / "state", home / "steps"
        self.pods: dict[str, RunningPod] = {}
        self.names: dict[str, str] = {}
        """`UID/CONTAINER` by id, of all containers ever made."""
        self.drifts: list[tuple[float, float, str]] = []
        self.agent: subprocess.Popen | None = None
        self.watcher = Watcher(self.groups, self.state / "ledger.json")
        self._log: list[dict] = []
        self._count = self._read_bytes = 0
        self._configure()

    def _configure(self) -> None:
        self.state.mkdir(exist_ok=True)
        nri = str(self.runtime.nri_socket) if self.runtime.release in HAVE_NRI else "off"
        (self.home / "token").write_text("token")
        (self.home / "cpu_manager_state").write_text(STATE_FILE)
        settings = {
            "policy": "pools",
            "reconcileSeconds": 1,
            "runtime": {"endpoint": self.runtime.endpoint, "nri": nri},
            "kubelet": {
                "address": self.services.kubelet.url,
                "caFile": str(self.services.authority.write(self.home / "ca.pem")),
                "tokenFile": str(self.home / "token"),
                "stateFile": str(self.home / "cpu_manager_state"),
            },
        }
        (self.home / "node.yaml").write_text(yaml.safe_dump(settings))

    # -- the agent

    def start_agent(self, at: str = "never") -> subprocess.Popen:
        """Start an agent that is killed at a step."""
        command = [sys.executable, "-m", "support.killed_agent", self.steps, self.groups, at]
        command += ["agent", "run", "--node-name=here", f"--node-config={self.home}/node.yaml"]
        command += [f"--kubeconfig={self.home}/kubeconfig", f"--state-dir={self.state}"]
        environment = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}/tests", "NO_PROXY": "*"}
        with (self.home / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                stdout=log,
                stderr=log,
                env=environment,
            )
        return self.agent

    @property
    def alive(self) -> bool:
        return self.agent is not None and self.agent.poll() is None

    def stop_agent(self, *, kill: bool) -> None:
        """End the agent by SIGKILL or SIGTERM."""
        if self.agent is not None:
            (self.agent.kill if kill else self.agent.terminate)()
            self.agent.wait(PATIENCE)

    def kill_agent(self) -> None:
        self.stop_agent(kill=True)

    def log(self) -> list[dict]:
        """The steps of all agents so far."""
        if self.steps.exists():
            with self.steps.open("rb") as file:
                file.seek(self._read_bytes)
                lines = file.read().split(b"\n")
            self._read_bytes += sum(len(line) + 1 for line in lines[:-1])
            self._log += map(json.loads, lines[:-1])
        return self._log

    def has_listed(self) -> bool:
        """Whether the agent that runs has listed the containers, and so has begun to work."""
        assert self.agent is not None
        return any(line["pid"] == self.agent.pid and line["step"] == "list:after" for line in self.log())

    def wait_listed(self) -> None:
        """Wait until the agent has begun to work, or has ended before."""
        deadline = time.monotonic() + PATIENCE
        while self.alive and not self.has_listed():
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.05)

    def wait_log(self, text: str, times: int) -> None:
        """Wait until agents have logged a text so often."""
        deadline = time.monotonic() + PATIENCE
        while (self.home / "agent.log").read_text().count(text) < times:
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.05)

    # -- pods

    def add(self, shape: str, *, stubborn: bool = False) -> RunningPod:
        """Make a pod as a kubelet does: object, list, sandbox, containers."""
        self._count += 1
        manifest = manifest_of(f"{shape}-{self._count}")
        del manifest["metadata"]["uid"]
        manifest["spec"]["containers"] = [_container(*one) for one in SHAPES[shape]]
        made = self.services.call(lambda client: client.create(manifest))
        made["status"] = {"phase": "Running"}
        self.services.kubelet.pods = [*self.services.kubelet.pods, made]
        uid, qos = made["metadata"]["uid"], "burstable" if shape == "shared" else ""
        sandbox = self.runtime.run_pod(made["metadata"]["name"], uid, qos)
        pod = self.pods[made["metadata"]["name"]] = RunningPod(shape, made, sandbox)
        for name, cpu in SHAPES[shape]:
            self.start(pod, name, cpu, STUBBORN if stubborn else None)
        return pod

    def start(self, pod: RunningPod, name: str, cpu: str, command: tuple[str, ...] | None = None) -> None:
        amounts: dict[str, Any] = {"shares": 1024 if cpu == "1" else 102}
        amounts["attempt"] = pod.attempts.get(name, 0)
        if cpu:
            amounts["quota"] = 100_000 if cpu == "1" else 10_000
        if command:
            amounts["command"] = command
        ident = self.runtime.create_container(pod.sandbox, name, **amounts)
        self.names[ident] = f"{pod.uid}/{name}"
        pod.containers[name] = ident
        pod.attempts[name] = pod.attempts.get(name, 0) + 1
        self.runtime.start(ident)

    def restart(self, pod: RunningPod, name: str) -> None:
        """End a container and start it again, as after a crash of it."""
        self.runtime.stop(pod.containers[name])
        self.runtime.remove(pod.containers.pop(name))
        self.start(pod, name, dict(SHAPES[pod.shape])[name])

    def delete(self, pod: RunningPod, *, object_first: bool = False, grace: int = 0) -> None:
        """End a pod as a kubelet does; `object_first` as after a forced deletion."""
        if object_first:
            self._forget(pod)
        for ident in pod.containers.values():
            self.runtime.stop(ident, grace)
        self.runtime.remove_pod(pod.sandbox)
        if not object_first:
            self._forget(pod)
        del self.pods[pod.name]

    def _forget(self, pod: RunningPod) -> None:
        kubelet = self.services.kubelet
        kubelet.pods = [one for one in kubelet.pods if one["metadata"]["uid"] != pod.uid]
        self.services.call(
            lambda client: client.delete(PodObject, pod.name, namespace="default", grace_seconds=0)
        )

    @contextmanager
    def moving(self, *idents: str) -> Iterator[None]:
        """Containers whose CPUs the test changes meanwhile."""
        begin = time.monotonic()
        yield
        self.drifts += [(begin, time.monotonic(), ident) for ident in idents]

    def update(self, ident: str, **amounts: object) -> None:
        """Change a container through CRI as the kubelet does: the runtime applies all of its record."""
        with self.moving(ident):
            self.runtime.update(ident, **amounts)

    def group(self, ident: str) -> Path:
        """A container's cgroup, found without the runtime."""
        return next(self.groups.rglob(ident))

    def drift(self, ident: str, cpus: CPUSet) -> None:
        """Change a container's cpuset behind the agent's back, by its file."""
        with self.moving(ident):
            (self.group(ident) / "cpuset.cpus").write_text(str(cpus))

    def owned(self, pod: RunningPod, name: str = "app") -> CPUSet:
        """Exclusive CPUs of a container by the ledger on disk."""
        ledger = killed_agent.exclusive_cpus(self.state / "ledger.json")
        return CPUSet.parse(ledger.get(f"{pod.uid}/{name}", ""))

    def until_kernel(self, pod: RunningPod, name: str, cpus: CPUSet) -> None:
        """Wait until a container has these CPUs in effect."""
        ident, deadline = pod.containers[name], time.monotonic() + PATIENCE
        while (seen := killed_agent.readings(self.groups).get(ident)) != str(cpus):
            assert time.monotonic() < deadline, f"{pod.name} {name}: {seen}, not {cpus}\n{self.tail()}"
            time.sleep(0.02)

    def published(self, reason: str) -> int:
        """The number of events of this reason."""
        listed = json.loads(self.services.call(lambda client: client.raw("GET", "/api/v1/events")))
        return sum(event["reason"] == reason for event in listed["items"])

    def condition(self, pod: RunningPod) -> str:
        """The status of the pod's condition `corelane.io/Pinned`; "" without one."""
        path = f"/api/v1/namespaces/default/pods/{pod.name}"
        got = json.loads(self.services.call(lambda client: client.raw("GET", path)))
        conditions = got.get("status", {}).get("conditions") or []
        return next((one["status"] for one in conditions if one["type"] == "corelane.io/Pinned"), "")

    # -- what must hold

    def differences(self) -> list[str]:
        """Where ledger, kernel, the runtime's record and the published condition do not agree yet."""
        ledger = load_ledger(self.state / "ledger.json", self.machine, NodeConfig(policy="pools")).ledger
        kernel = killed_agent.readings(self.groups)
        found = []
        if ledger.pods.keys() != {pod.uid for pod in self.pods.values()}:
            found.append(f"pods of the ledger: {sorted(ledger.pods)}")
        for pod in self.pods.values():
            for name, ident in pod.containers.items():
                entry = ledger.entries.get((pod.uid, name))
                target = str(ledger.runs_on(entry)) if entry else "none"
                record = self.runtime.recorded_cpu(ident).get("cpus", "")
                recorded = record or str(self.machine.usable)
                if not kernel.get(ident) == recorded == target:
                    found.append(
                        f"{pod.name} {name}: ledger {target}, kernel {kernel.get(ident)}, record {record!r}"
                    )
            owner = any(entry.exclusive for entry in ledger.of_pod(pod.uid))
            if owner and self.condition(pod) != "True":
                found.append(f"{pod.name}: condition Pinned is {self.condition(pod)!r}")
        return found

    def converge(self, seconds: float = PATIENCE) -> float:
        """Wait until nothing differs; return after how many seconds."""
        began = time.monotonic()
        while differences := self.differences():
            assert self.alive, f"the agent ended:\n{self.tail()}"
            assert time.monotonic() < began + seconds, f"{differences}\n{self.tail()}"
            time.sleep(0.1)
        return time.monotonic() - began

    def tail(self) -> str:
        return (self.home / "agent.log").read_text(errors="replace")[-4000:]

    def faults(self) -> list[str]:
        """What the readings so far show that must never be."""
        snapshots = [*self.log(), *self.watcher.snapshots]
        return judge(snapshots, self.names, str(self.machine.usable), self.drifts)


def _container(name: str, cpu: str) -> dict:
    amounts = {"cpu": cpu, "memory": "16Mi"}
    resources = {"requests": amounts, "limits": amounts} if cpu else {"requests": {"cpu": "100m"}}
    return {"name": name, "image": "i", "resources": resources}


@contextmanager
def crash_lab(runtime: Containerd, home: Path) -> Iterator[CrashLab]:
    """Everything around the agent; it ends with the test, and all pods with it."""
    with Services(home) as services:
        lab = CrashLab(runtime, home, services)
        lab.watcher.start()
        try:
            yield lab
        finally:
            lab.kill_agent()
            lab.watcher.ends.set()
            lab.watcher.join(PATIENCE)
            runtime.remove_pods()
