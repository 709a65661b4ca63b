"""A real containerd of a test's own: its root, state, socket and images in a directory, and pods through CRI.

Releases: Debian's own (1.6), and those that tests/system/fetch-containerd.sh unpacks below build/ (1.7 with
NRI, 2.x). All run the machine's runc.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support import busybox_image
from support.busybox_image import IMAGE
from support.cri_pods import IMAGES, CRIPods

ROOT = Path(__file__).parents[2]
DIRECTORIES = {
    "1.6": None,
    "1.7": Path(os.environ.get("CORELANE_CONTAINERD_1_7") or ROOT / "build/containerd-1.7"),
    "2": Path(os.environ.get("CORELANE_CONTAINERD_2") or ROOT / "build/containerd-2"),
}
"""Release to the directory of its programs; None for the ones installed."""
HAVE_NRI = ("1.7", "2")
NEEDED = ("containerd", "ctr", "containerd-shim-runc-v2", "runc")
GROUPS = Path("/sys/fs/cgroup")

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
  enable_cdi = false
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{home}/cni/bin"
    conf_dir = "{home}/cni/conf"
"""
NRI = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "{home}/nri.sock"
  plugin_path = "{home}/nri/plugins"
  plugin_config_path = "{home}/nri/conf.d"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "{nri_timeout}"
"""


class Containerd(CRIPods):
    """A daemon and its pods. `nri_socket` is where NRI plugins connect; 1.6 has none."""

    def __init__(
        self, home: Path, release: str = "1.6", extra_config: str = "", nri_timeout: str = "2s"
    ) -> None:
        super().__init__(home / "containerd.sock", f"corelane-test-{secrets.token_hex(4)}")
        self.home, self.release = home, release
        self.nri_socket = home / "nri.sock"
        directory = DIRECTORIES[release]
        self.environment = dict(os.environ)
        if directory:
            self.environment["PATH"] = f"{directory}:{os.environ.get('PATH', os.defpath)}"
        config = CONFIG + (NRI if release in HAVE_NRI else "")
        (home / "config.toml").write_text(
            config.format(home=home, image=IMAGE, nri_timeout=nri_timeout) + extra_config
        )
        self.daemon: subprocess.Popen | None = None

    def program(self, name: str) -> str | None:
        return shutil.which(name, path=self.environment.get("PATH"))

    def start_daemon(self) -> None:
        """Start containerd, and return once CRI answers."""
        command = [self.program("containerd"), "--config", self.home / "config.toml", "--log-level", "info"]
        with (self.home / "log").open("ab") as log:
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        self.wait_ready()

    def kill_daemon(self) -> None:
        """SIGKILL; containers and their shims go on."""
        self.daemon.kill()
        self.daemon.wait()

    def stop_daemon(self) -> None:
        """SIGTERM, as systemd stops it; containers and their shims go on."""
        if self.daemon is None:
            return
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            self.kill_daemon()

    def restart(self) -> None:
        """Kill containerd and start it again on the same state."""
        self.kill_daemon()
        self.start_daemon()

    def wait_ready(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(Exception):
                self.call("Version", {1: "v1"}, seconds=5)
                return
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        pytest.fail(f"containerd does not come up:\n{self.log()[-3000:]}")

    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def import_image(self) -> None:
        file = self.home / "image.tar"
        file.write_bytes(busybox_image.archive(busybox_image.busybox()))
        command = [self.program("ctr"), "-a", self.socket, "-n", "k8s.io", "images", "import"]
        # From 2.0 on the daemon unpacks, unless asked not to, with the snapshotters of its own configuration.
        command += ["--snapshotter", "native", *(["--local"] if self.release == "2" else []), file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=self.environment)
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + 120
        while not self.call("ImageStatus", {1: {1: IMAGE}}, IMAGES):
            assert time.monotonic() < deadline, "the image is not known to CRI"
            time.sleep(0.1)

    def close(self) -> None:
        """Remove the pods and end the daemon; then whatever is left of both, by force."""
        self.remove_pods()
        self.disconnect()
        self.stop_daemon()
        _end_leftovers(self)
        _remove_sockets(self.home / "state")
        _unmount_below(self.home)
        _remove_groups(self.parent)


@contextmanager
def running(
    home: Path, release: str = "1.6", extra_config: str = "", nri_timeout: str = "2s"
) -> Iterator[Containerd]:
    """A containerd that ends with the test, with all that it started; skips where none can be run.

    `home` must be short: a socket's path has at most 107 bytes. `extra_config` is TOML at the end, and
    `nri_timeout` how long it waits for an NRI plugin's answer.
    """
    lab = Containerd(home, release, extra_config, nri_timeout)
    require(lab)
    try:
        lab.start_daemon()
        lab.import_image()
        yield lab
    finally:
        lab.close()


def require(lab: Containerd) -> None:
    """Skip the test where this release cannot be run, and say what is missing."""
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    directory = DIRECTORIES[lab.release]
    if directory and not (directory / "containerd").exists():
        pytest.skip(f"needs containerd {lab.release} in {directory}: see tests/system/fetch-containerd.sh")
    for program in NEEDED:
        if not lab.program(program):
            pytest.skip(f"needs {program}: see tests/system/packages.txt")
    if not busybox_image.busybox():
        pytest.skip("needs a static busybox: see tests/system/packages.txt")
    version = subprocess.run(
        [lab.program("containerd"), "--version"], capture_output=True, text=True, env=lab.environment
    ).stdout
    if not re.search(rf"\b{re.escape(lab.release)}\.", version):
        pytest.skip(f"needs containerd {lab.release}; this is {version.strip() or 'not runnable here'}")


def _end_leftovers(lab: Containerd) -> None:
    """Kill the processes in the test's cgroups and the shims that serve its socket, by their ids."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        left = {*_members(lab.parent), *_shims(lab.home)}
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _members(parent: str) -> Iterator[int]:
    for top in _hierarchies():
        for procs in (top / parent).rglob("cgroup.procs"):
            with suppress(OSError):
                yield from map(int, procs.read_text().split())


def _shims(home: Path) -> Iterator[int]:
    """Shims name their containerd's socket on their command line, and work in a directory of its state."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"containerd-shim-runc-v2") and any(
                word.startswith(f"{home}/".encode()) for word in words[1:]
            ):
                yield int(process.name)


def _remove_sockets(state: Path) -> None:
    """Shims' sockets lie in /run/containerd/s for every containerd; a killed shim leaves its own behind."""
    for address in (*state.rglob("address"), *state.rglob("bootstrap.json")):
        socket = re.search(r"unix://(/run/containerd/s/[0-9a-f]+)", address.read_text(errors="replace"))
        if socket:
            Path(socket[1]).unlink(missing_ok=True)


def _unmount_below(home: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([path for path in mounts if path.startswith(f"{home}/")]):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def _hierarchies() -> list[Path]:
    return [GROUPS, *(path for path in GROUPS.iterdir() if path.is_dir() and not path.is_symlink())]


def _remove_groups(parent: str) -> None:
    """Empty groups that a runtime leaves behind, in every hierarchy."""
    for top in _hierarchies():
        groups = [path for path in (top / parent).rglob("*") if path.is_dir()]
        for path in (*sorted(groups, reverse=True), top / parent):
            with suppress(OSError):
                path.rmdir()
