"""API servers and schedulers as processes: the embedded server, or a real kube-apiserver with etcd."""

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from support import kubectl, real_cluster, server_process
from support.programs import Program, free_port

SCHEDULER = (sys.executable, "-m", "corelane", "scheduler")
_CRD = Path(__file__).parents[2] / "deploy/noderesourcetopologies.yaml"
LEASE = {"lease-duration": 4, "renew-deadline": 3, "retry-period": 0.5}


class Server(Protocol):
    """An API server that can be ended and started again."""

    def kubeconfig(self, path: Path) -> Path:
        """Write an administrator's kubeconfig."""

    def kill(self) -> None:
        """End the server; what it stored stays."""

    def start(self) -> None:
        """Start it again at the same address, and wait until it is ready."""


class EmbeddedServer:
    """corelane's own, in a process."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.process: Program | None = None

    def start(self) -> None:
        program = Path(server_process.__file__)
        self.process = Program(self.home / "server.log", sys.executable, program, self.home, self.port)
        self.process.wait_until(self._ready, 60)

    def _ready(self) -> bool:
        authority = self.home / "ca.crt"
        if not authority.exists():
            return False
        return real_cluster.status(f"{self.url}/readyz", authority, server_process.TOKEN) == 200

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, path: Path) -> Path:
        path.write_text(_yaml(kubectl.kubeconfig(self.url, self.home / "ca.crt", server_process.TOKEN)))
        return path

    def kill(self) -> None:
        assert self.process is not None
        self.process.process.kill()
        self.process.process.wait(30)


class RealServer:
    """kube-apiserver, beside its etcd."""

    def __init__(self, plane: real_cluster.ControlPlane) -> None:
        self.plane = plane

    def kubeconfig(self, path: Path) -> Path:
        return self.plane.kubeconfig(path, self.plane.token)

    def kill(self) -> None:
        self.plane.stop_server()

    def start(self) -> None:
        self.plane.start_server()


@contextmanager
def embedded(home: Path) -> Iterator[Server]:
    server = EmbeddedServer(home)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def real(home: Path, *options: str) -> Iterator[RealServer]:
    """A real one; skips without $KUBEBUILDER_ASSETS."""
    with real_cluster.control_plane(real_cluster.servers(), home, options=options) as plane:
        server = RealServer(plane)
        asyncio.run(_define_topologies(server.kubeconfig(home / "admin.kubeconfig")))
        yield server


async def _define_topologies(kubeconfig: Path) -> None:
    client = KubeClient.connect(kubeconfig)
    body = json.dumps(yaml.safe_load(_CRD.read_text())).encode()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await client.raw("POST", path, body=body)
    while True:
        try:
            await client.raw("GET", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies")
        except APIError:
            await asyncio.sleep(0.2)
        else:
            break
    await client.close()


@dataclass
class Replica:
    """A scheduler's process."""

    program: Program
    port: int

    def page(self, path: str) -> str:
        """A page's text; "" while it cannot be had."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    @property
    def leads(self) -> bool:
        return 'leader_election_master_status{name="corelane-scheduler"} 1' in self.page("/metrics")


@dataclass
class Replicas:
    """Starts schedulers, and ends those that are left."""

    home: Path
    kubeconfig: Path
    all: list[Replica] = field(default_factory=list)

    def start(self, *options: str) -> Replica:
        port = free_port()
        times = [f"--leader-elect-{name}={seconds}" for name, seconds in LEASE.items()]
        command = (*SCHEDULER, "--kubeconfig", self.kubeconfig, f"--port={port}", *times, *options)
        replica = Replica(Program(self.home / f"scheduler-{len(self.all)}.log", *command), port)
        self.all.append(replica)
        replica.program.wait_until(lambda: replica.page("/healthz") == "ok", 60)
        return replica

    def leader(self) -> Replica:
        """Wait until one leads, and return it."""
        for _ in range(600):
            for replica in self.all:
                if replica.program.process.poll() is None and replica.leads:
                    return replica
            time.sleep(0.1)
        raise AssertionError("no replica leads")


@contextmanager
def replicas(home: Path, server: Server) -> Iterator[Replicas]:
    made = Replicas(home, server.kubeconfig(home / "scheduler.kubeconfig"))
    with ExitStack() as stack:
        stack.callback(lambda: [replica.program.stop() for replica in made.all])
        yield made


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value))
