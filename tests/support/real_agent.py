"""`corelane agent run` as operators start it, beside a real kubelet: a process with an account of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from support.one_node import Cluster
from support.programs import Program, wait_for

ROOT = Path(__file__).parents[2]
PERMISSIONS = ROOT / "deploy/agent/rbac.yaml"
TOPOLOGY_DEFINITION = ROOT / "deploy/noderesourcetopologies.yaml"
ACCOUNT, NAMESPACE = "corelane-agent", "corelane-system"
PATIENCE = 120.0


@dataclass
class RealAgent:
    """An agent that can be stopped, killed and started again on its state."""

    cluster: Cluster
    home: Path
    settings: dict
    flags: list[str] = field(default_factory=list)
    process: Program | None = None

    @property
    def state_dir(self) -> Path:
        return self.home / "state"

    @property
    def log(self) -> Path:
        return self.home / "agent.log"

    def start(self) -> None:
        """Start it, and wait until it knows the kubelet's policy and has compared all containers once."""
        file = self.home / "node.yaml"
        file.write_text(yaml.safe_dump(self.settings))
        self.process = Program(
            self.log,
            *_command("run"),
            f"--node-config={file}",
            f"--node-name={self.cluster.node.name}",
            f"--kubeconfig={self.home / 'kubeconfig'}",
            f"--state-dir={self.state_dir}",
            *self.flags,
        )
        self.process.wait_until(lambda: (self.status() or {}).get("running"), PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.stop(number)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def restart(self, number: int = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def status(self) -> dict | None:
        """What `corelane agent status` shows; None where there is nothing yet."""
        command = [*_command("status"), f"--state-dir={self.state_dir}", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def report(self) -> str:
        """Its status and the end of its log, for a test that fails."""
        tail = self.process.tail() if self.process else ""
        return f"{json.dumps(self.status(), indent=1)}\n{tail}"

    def mode(self) -> str:
        """The mode's name, "" while it is not known."""
        mode = (self.status() or {}).get("mode") or {}
        return mode.get("name", "") if isinstance(mode, dict) else mode

    def wait_mode(self, name: str, seconds: float = PATIENCE) -> None:
        wait_for(f"the agent's mode is {name}", lambda: self.mode() == name, seconds)


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", "corelane", "agent", name]


def install(cluster: Cluster, home: Path) -> tuple[Path, Path]:
    """Apply permissions and the topology's definition; return files of the account: token, kubeconfig."""
    for manifest in (PERMISSIONS, TOPOLOGY_DEFINITION):
        cluster.kubectl("apply", "-f", str(manifest))
    # The namespace may have been made a moment ago.
    token = wait_for("a token of the agent's account", lambda: _token(cluster), 120)
    file = home / "token"
    file.write_text(token)
    return file, cluster.plane.kubeconfig(home / "kubeconfig", token)


def _token(cluster: Cluster) -> str:
    done = cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=2h", code=None)
    return done.stdout.strip() if done.returncode == 0 else ""


@contextmanager
def agent(cluster: Cluster, home: Path, *flags: str, **settings: object) -> Iterator[RealAgent]:
    """A running agent; `settings` are fields of the node's file, None removes one.

    Containers run on when it ends.
    """
    token, _ = install(cluster, home)
    node = cluster.node
    nri = cluster.runtime.nri_socket
    file = {
        "policy": "pools",
        "reconcileSeconds": 1,
        "runtime": {
            "endpoint": cluster.runtime.endpoint,
            "nri": str(nri) if cluster.runtime.release != "1.6" else "off",
        },
        "kubelet": {
            "address": node.url,
            "caFile": str(cluster.plane.ca_file),
            "tokenFile": str(token),
        },
        "kubeletState": str(node.cpu_state),
    }
    settings = {key: value for key, value in (file | settings).items() if value is not None}
    started = RealAgent(cluster, home, settings, list(flags))
    try:
        started.start()
        yield started
    finally:
        # Shown where the test fails.
        print(started.report())
        started.stop()
