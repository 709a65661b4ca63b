"""A real kubelet beside a test's own containerd and API server, with cgroups and directories of its own.

Two paths of the kubelet are fixed: /var/lib/kubelet/device-plugins and /var/log/containers; it also writes
six sysctls. All are put back at the end; on a machine with a kubelet of its own the tests fail.
"""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support.containerd import GROUPS, Containerd
from support.cri_pods import CRIPods
from support.programs import Program, free_port, wait_for
from support.protobuf import decode
from support.real_cluster import ControlPlane, status

NODE = "127.0.0.1"
"""The node's name. Being an address, it is also the one that the kubelet reports."""

STARTUP = 120.0
RECONCILE_SECONDS = 1
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_CONTAINER_LOGS = Path("/var/log/containers")
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


@dataclass
class Kubelet:
    """A node's kubelet, which can be stopped and started again while its containers run on."""

    program: Path
    home: Path
    endpoint: str
    """The container runtime's socket."""
    plane: ControlPlane
    serving: Path
    cgroup: str
    """Root of its cgroups: `/<cgroup>/kubepods/…`."""
    settings: dict = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: Program | None = None

    @property
    def name(self) -> str:
        return NODE

    @property
    def url(self) -> str:
        return f"https://{NODE}:{self.port}"

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def static_pods(self) -> Path:
        return self.home / "manifests"

    @property
    def podresources(self) -> Path:
        return self.root / "pod-resources/kubelet.sock"

    @property
    def cpu_state(self) -> Path:
        return self.root / "cpu_manager_state"

    @property
    def log(self) -> Path:
        return self.home / "kubelet.log"

    def configure(self, **settings: object) -> None:
        """Change fields of its KubeletConfiguration, from the next start on; None removes a field."""
        for key, value in settings.items():
            if value is None:
                self.settings.pop(key, None)
            else:
                self.settings[key] = value

    def start(self) -> None:
        """Start it, and wait until it serves and runs pods."""
        begun = time.time()
        process = self._launch()
        process.wait_until(lambda: self._runs_pods(begun) and self._serves(), STARTUP)

    def expect_refusal(self) -> None:
        """Start it with settings that it must refuse, as those that its state file contradicts."""
        process = self._launch()
        wait_for("the kubelet ends", lambda: process.process.poll() is not None, STARTUP)
        assert process.process.returncode != 0, process.tail()

    def _launch(self) -> Program:
        config = self.home / "config.yaml"
        config.write_text(yaml.safe_dump(self._configuration() | self.settings))
        self.process = Program(
            self.log,
            self.program,
            f"--config={config}",
            f"--kubeconfig={self.home / 'kubeconfig'}",
            f"--root-dir={self.root}",
            f"--cert-dir={self.home}/pki",
            f"--hostname-override={NODE}",
            "--v=2",
        )
        return self.process

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it; its containers run on."""
        if self.process is not None:
            self.process.stop(number)

    def restart(self, *, drop_cpu_state: bool = False, **settings: object) -> None:
        """Start it again, with other settings; a changed CPU manager policy takes `drop_cpu_state`."""
        self.stop()
        if drop_cpu_state:
            self.cpu_state.unlink(missing_ok=True)
        self.configure(**settings)
        self.start()

    @staticmethod
    def _runs_pods(begun: float) -> bool:
        # /healthz and /configz answer before: also of a kubelet that ends because of its state file. The
        # socket for device plugins comes last.
        return (_DEVICE_PLUGINS / "kubelet.sock").stat().st_mtime > begun

    def _serves(self) -> bool:
        return status(f"{self.url}/healthz", self.plane.ca_file, self.plane.token) == 200

    def _configuration(self) -> dict:
        nothing = dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE,
            "port": self.port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True, "cacheTTL": "1s"},
                "x509": {"clientCAFile": str(self.plane.ca_file)},
            },
            "authorization": {
                "mode": "Webhook",
                "webhook": {"cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s"},
            },
            "tlsCertFile": str(self.serving),
            "tlsPrivateKeyFile": str(self.serving),
            "containerRuntimeEndpoint": self.endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            # Without CAP_SYS_RESOURCE the kubelet cannot lower its own score.
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "staticPodPath": str(self.static_pods),
            "podLogsDir": str(self.home / "logs"),
            "volumePluginDir": str(self.home / "volume-plugins"),
            "evictionHard": nothing,
            "imageGCHighThresholdPercent": 100,
            "fileCheckFrequency": "1s",
            "cpuManagerReconcilePeriod": f"{RECONCILE_SECONDS}s",
            "maxPods": 50,
        }


@contextmanager
def kubelet(program: Path, plane: ControlPlane, runtime: Containerd, **settings: object) -> Iterator[Kubelet]:
    """A registered node whose pods end with the test; `settings` are fields of its KubeletConfiguration.

    Its files and cgroups lie below those of `runtime`, which removes them with its own.
    """
    _refuse_other_kubelet()
    home, cgroup = runtime.home / "kubelet", runtime.parent
    for directory in ("manifests", "logs", "volume-plugins"):
        (home / directory).mkdir(parents=True)
    user = plane.authority.issue(home / "client.pem", f"system:node:{NODE}", groups=("system:nodes",))
    plane.certificate_kubeconfig(home / "kubeconfig", user)
    serving = plane.authority.issue(home / "serving.pem", "kubelet", NODE, "localhost")
    node = Kubelet(program, home, runtime.endpoint, plane, serving, cgroup, dict(settings))
    with _sysctls_put_back(), _fixed_paths_put_back(home):
        _make_cgroups(cgroup)
        try:
            node.start()
            yield node
        finally:
            node.stop()
            remove_pods(runtime)


def remove_pods(runtime: CRIPods) -> None:
    """End and remove every sandbox of a test's own runtime, whoever made it."""
    with suppress(Exception):
        for item in runtime.call("ListPodSandbox", {}).get(1, []):
            sandbox = decode(item)[1][0].decode()
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                with suppress(Exception):
                    runtime.call(method, {1: sandbox})


def _refuse_other_kubelet() -> None:
    if os.geteuid() != 0:
        pytest.skip("a kubelet needs root")
    sock = _DEVICE_PLUGINS / "kubelet.sock"
    if _answers(sock):
        pytest.fail(f"{sock}: another kubelet runs on this machine; stop it, or run these tests elsewhere")
    sock.unlink(missing_ok=True)  # of a kubelet that was killed


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


@contextmanager
def _sysctls_put_back() -> Iterator[None]:
    files = [path for name in _SYSCTLS if (path := Path("/proc/sys") / name).exists()]
    before = {path: path.read_text() for path in files}
    try:
        yield
    finally:
        for path, value in before.items():
            if path.read_text() != value:
                path.write_text(value)


@contextmanager
def _fixed_paths_put_back(home: Path) -> Iterator[None]:
    paths = (_DEVICE_PLUGINS.parent, _CONTAINER_LOGS)
    made = [path for path in paths if not path.exists()]
    try:
        yield
    finally:
        for link in _CONTAINER_LOGS.glob("*"):
            if link.is_symlink() and str(link.readlink()).startswith(str(home)):
                link.unlink()
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def _make_cgroups(name: str) -> None:
    """The kubelet makes everything below its cgroup root, but not the root."""
    if (GROUPS / "cgroup.controllers").exists():
        (GROUPS / name).mkdir(exist_ok=True)
        return
    for top in (path for path in GROUPS.iterdir() if (path / "cgroup.procs").exists()):
        (top / name).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        # A cpuset without CPUs takes no process.
        (GROUPS / "cpuset" / name / file).write_text((GROUPS / "cpuset" / file).read_text())
