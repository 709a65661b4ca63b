"""A real containerd of a test's own: its root, state, socket and images in a directory, and pods through CRI.

Its messages are encoded by `support.protobuf`, so that corelane's own are not tested against themselves.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.protobuf import encode, strings

IMAGE = "localhost/corelane-test:1"
NODE_NETWORK = {1: {1: 2}}  # namespace_options: network of the node
CONFIG = """
version = 2
root = "{home}/root"
state = "{home}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{home}/cni/bin"
    conf_dir = "{home}/cni/conf"
"""


class Containerd:
    """Runs pods. Their cgroups are below `parent`, whose name is this test's own."""

    def __init__(self, home: Path) -> None:
        import grpc

        self.home, self.socket = home, home / "containerd.sock"
        self.parent = f"corelane-test-{secrets.token_hex(4)}"
        self.sandboxes: list[str] = []
        self._channel = grpc.insecure_channel(
            f"unix://{self.socket}", options=[("grpc.default_authority", "localhost")]
        )

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def call(self, method: str, fields: dict) -> bytes:
        return self._channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(encode(fields), timeout=60)

    def run_pod(self, name: str, uid: str, qos: str = "") -> dict:
        """Start a pod as the kubelet does; returns its configuration, with the sandbox's id under "id"."""
        below = f"/{qos}" if qos else ""
        config = {
            1: {1: name, 2: uid, 3: "default", 4: 0},
            6: strings(
                {
                    "io.kubernetes.pod.name": name,
                    "io.kubernetes.pod.namespace": "default",
                    "io.kubernetes.pod.uid": uid,
                }
            ),
            8: {1: f"/{self.parent}/kubepods{below}/pod{uid}", 2: NODE_NETWORK},
        }
        sandbox = _only_text(self.call("RunPodSandbox", {1: config}))
        self.sandboxes.append(sandbox)
        return {"id": sandbox, "uid": uid, "name": name, "config": config}

    def run_container(self, pod: dict, name: str, *, shares: int, cpus: str = "") -> str:
        """Start a container that sleeps; returns its id."""
        labels = {
            "io.kubernetes.container.name": name,
            "io.kubernetes.pod.name": pod["name"],
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": pod["uid"],
        }
        resources = {1: 100_000, 3: shares, 5: 1000} | ({6: cpus} if cpus else {})
        config = {
            1: {1: name, 2: 0},
            2: {1: IMAGE},
            3: ["/bin/busybox", "sleep", "600"],
            9: strings(labels),
            15: {1: resources, 2: {3: {1: 2}}},
        }
        made = _only_text(self.call("CreateContainer", {1: pod["id"], 2: config, 3: pod["config"]}))
        self.call("StartContainer", {1: made})
        return made

    def stop(self, container: str) -> None:
        self.call("StopContainer", {1: container, 2: 0})

    def close(self) -> None:
        for sandbox in self.sandboxes:
            with suppress(Exception):
                self.call("StopPodSandbox", {1: sandbox})
            with suppress(Exception):
                self.call("RemovePodSandbox", {1: sandbox})
        self._channel.close()


def _only_text(message: bytes) -> str:
    """The first field of an answer, a short text."""
    assert message[0] == 0x0A
    return message[2 : 2 + message[1]].decode()


@contextmanager
def running(home: Path) -> Iterator[Containerd]:
    """A containerd that ends with the test, with all that it started; skips where none can be run."""
    _check()
    (home / "config.toml").write_text(CONFIG.format(home=home, image=IMAGE))
    lab = Containerd(home)
    with (home / "log").open("wb") as log:
        daemon = subprocess.Popen(
            ["containerd", "--config", home / "config.toml", "--log-level", "info"], stdout=log, stderr=log
        )
    try:
        _wait(lab, daemon)
        _import_image(lab)
        yield lab
    finally:
        lab.close()
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        _tidy(lab)


def _check() -> None:
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    for program in ("containerd", "ctr", "runc", "containerd-shim-runc-v2"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}: see tests/system/packages.txt")
    if not _busybox():
        pytest.skip("needs a static busybox: see tests/system/packages.txt")


def _busybox() -> Path | None:
    for path in (Path("/bin/busybox"), Path("/usr/bin/busybox")):
        if path.exists() and b"ld-linux" not in path.read_bytes()[:4096]:
            return path
    return None


def _wait(lab: Containerd, daemon: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(Exception):
            lab.call("Version", {1: "v1"})
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.2)
    pytest.fail(f"containerd does not come up:\n{(lab.home / 'log').read_text()[-3000:]}")


def _import_image(lab: Containerd) -> None:
    archive = lab.home / "image.tar"
    archive.write_bytes(_image(_busybox()))
    command = [
        "ctr",
        "-a",
        lab.socket,
        "-n",
        "k8s.io",
        "images",
        "import",
        "--snapshotter",
        "native",
        archive,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 30
    channel = lab._channel.unary_unary("/runtime.v1.ImageService/ImageStatus")
    while not channel(encode({1: {1: IMAGE}}), timeout=10):
        assert time.monotonic() < deadline, "the image is not known to CRI"
        time.sleep(0.2)


def _image(busybox: Path) -> bytes:
    """An image of one layer that holds busybox and runs for as long as it is left alone."""
    layer = _tar({"bin/busybox": busybox.read_bytes(), "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n"})
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Cmd": ["/bin/busybox", "sleep", "600"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "layer.tar": layer,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _tidy(lab: Containerd) -> None:
    """What a runtime leaves behind: empty groups in every hierarchy, and mounts below its state."""
    for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
        groups = [path for path in (top / lab.parent).rglob("*") if path.is_dir()]
        for path in (*sorted(groups, reverse=True), top / lab.parent):
            with suppress(OSError):
                path.rmdir()
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([one for one in mounts if one.startswith(f"{lab.home}/")]):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
