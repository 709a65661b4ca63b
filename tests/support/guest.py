"""A machine of a test's own inside qemu: Debian's cloud kernel, 16 CPUs in 4 NUMA nodes, and cgroup v2.

Emulated in software, so it needs neither root nor hardware support, only time. One guest runs many tests:
pytest runs inside, and each report comes out through a serial port, which is a file here, as soon as it is
made. So the tests look as if they ran on this host.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from support import containerd, guest_image
from support.guest_image import ROOT

KERNEL = Path(os.environ.get("CORELANE_GUEST_KERNEL") or ROOT / "build/guest-kernel")
INIT = Path(__file__).with_name("guest-init.sh")
HOW = "see tests/system/packages.txt and tests/system/fetch-guest-kernel.sh"
INSIDE = "CORELANE_GUEST" in os.environ
"""Whether this process runs in a guest."""

BOOTS, BOOT_SECONDS = 2, 120.0
SECONDS = 1500.0
"""For all boots and all tests of one run."""
TEST_SECONDS = 240
RELEASE = "1.7"
SHIPPED = ("containerd", "ctr", "containerd-shim-runc-v2")

SOCKETS, NODES, CORES, THREADS = 2, 2, 2, 2
"""Sockets, NUMA nodes of each, cores of each, threads of each. A NUMA node is a die with an L3 cache."""
DISTANCES = ((10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10))
NODE_MIB = 768
CPU = "Haswell-noTSX,-erms,-smap,-smep"
"""Threads of a core show with Intel's processors only. Without the rest emulation is quicker, as without
string instructions in the kernel (clearcpuid)."""
QUICK_KERNEL = "mitigations=off nokaslr clearcpuid=rep_good rcupdate.rcu_expedited=1"

SETTINGS = {
    "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost guest\n",
    "/etc/hostname": b"guest\n",
    "/etc/resolv.conf": b"",
}
COMMAND = """
export CORELANE_GUEST=1 PYTHONFAULTHANDLER=1 CORELANE_CONTAINERD_1_7=/usr/local/bin
export PYTHONPATH={source} PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 COLUMNS=110
cd {root}
exec {python} -m pytest -p support.guest_reports -p no:cacheprovider \\
    --confcutdir=tests/guest --tb=short -v {tests}
"""


class GuestEndedError(Exception):
    """The guest ended, or was ended, before a test of it was reported; the message holds what it printed."""


class Guest:
    """Runs tests by their ids, in one boot; the files are made in `directory`."""

    def __init__(self, directory: Path, tests: list[str]) -> None:
        self._directory = directory
        self._deadline = time.monotonic() + SECONDS
        self._qemu: subprocess.Popen[bytes] | None = None
        self._reports: dict[str, list[dict[str, Any]]] = {}
        self._read = 0
        self._boot(tests)

    def reports(self, test: str) -> Iterator[dict[str, Any]]:
        """Yield a test's reports as they come; raises GuestEndedError if the last one never does."""
        seen = 0
        while True:
            ended = not self._running()
            self._receive()
            reports = self._reports.get(test, [])
            yield from reports[seen:]
            seen = len(reports)
            if reports and reports[-1]["when"] == "teardown":
                return
            if ended:
                raise GuestEndedError(f"the guest ended before {test} did\n{self._said()}")
            time.sleep(0.1)

    def close(self) -> None:
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _boot(self, tests: list[str]) -> None:
        """Start qemu, and again if the kernel does not come up: on a busy host a boot may stall."""
        with TemporaryFile() as image:
            guest_image.build(image, _programs(), _files(tests))
            image.flush()
            for _ in range(BOOTS):
                self._start(image.fileno())
                if self._comes_up():
                    return
                self._qemu.kill()
                self._qemu.wait()

    def _start(self, image: int) -> None:
        self._output.write_bytes(b"")
        left = int(self._deadline - time.monotonic())
        # Where this process is killed, the guest goes with it.
        command = ["setpriv", "--pdeathsig", "KILL", *_qemu(image, self._directory, left)]
        with (self._directory / "qemu").open("wb") as log:
            self._qemu = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[image]
            )

    def _comes_up(self) -> bool:
        latest = min(self._deadline, time.monotonic() + BOOT_SECONDS)
        while time.monotonic() < latest and self._qemu.poll() is None:
            if b"\n" in self._output.read_bytes():
                return True
            time.sleep(0.1)
        return False

    def _running(self) -> bool:
        if time.monotonic() > self._deadline:
            self._qemu.kill()
            self._qemu.wait()
        return self._qemu.poll() is None

    def _receive(self) -> None:
        with self._output.open("rb") as output:
            output.seek(self._read)
            whole, newline, _ = output.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                report = json.loads(line)
                self._reports.setdefault(report["nodeid"], []).append(report)

    @property
    def _output(self) -> Path:
        return self._directory / "output"

    def _said(self) -> str:
        """The end of what qemu and the console printed."""
        files = (self._directory / name for name in ("qemu", "console"))
        text = "".join(path.read_text(errors="replace") for path in files if path.exists())
        lines = [line for line in text.splitlines() if "TCG doesn't support requested feature" not in line]
        return "\n".join(lines)[-6000:]


def requirements() -> None:
    """Skip the test where a guest cannot be booted."""
    for program in ("qemu-system-x86_64", "setpriv", "runc"):
        if not shutil.which(program):
            pytest.skip(f"needs {program} for a guest with cgroup v2; {HOW}")
    if not (KERNEL / "vmlinuz").exists():
        pytest.skip(f"needs a kernel for a guest, but {KERNEL}/vmlinuz does not exist; {HOW}")
    if not (_containerd() / "containerd").exists():
        pytest.skip(f"needs containerd {RELEASE} in {_containerd()}: see tests/system/fetch-containerd.sh")
    guest_image.busybox()


def _containerd() -> Path:
    directory = containerd.DIRECTORIES[RELEASE]
    assert directory is not None
    return directory


def _programs() -> list[Path]:
    return [_containerd() / name for name in SHIPPED]


def _files(tests: list[str]) -> dict[str, bytes]:
    command = COMMAND.format(
        source=shlex.quote(f"{ROOT / 'src'}:{ROOT / 'tests'}"),
        root=shlex.quote(str(ROOT)),
        python=shlex.quote(sys.executable),
        tests=shlex.join(tests),
    )
    modules = {f"/modules/{path.name}": path.read_bytes() for path in KERNEL.glob("*.ko")}
    return {"/init": INIT.read_bytes(), "/command": command.encode(), **SETTINGS, **modules}


def _qemu(image: int, directory: Path, seconds: int) -> list[str]:
    kernel = f"console=ttyS0 loglevel=4 panic=-1 {QUICK_KERNEL} SECONDS_LEFT={seconds}"
    return [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "pc", "-nic", "none", "-accel", "tcg,thread=multi"),
        *("-cpu", CPU, "-m", f"{NODE_MIB * len(DISTANCES)}", *_layout()),
        *("-kernel", f"{KERNEL}/vmlinuz", "-initrd", f"/proc/self/fd/{image}", "-append", kernel),
        *("-serial", f"file:{directory}/console", "-serial", f"file:{directory}/output"),
    ]


def _layout() -> list[str]:
    each = CORES * THREADS
    sizes = f"sockets={SOCKETS},dies={NODES},cores={CORES},threads={THREADS}"
    words = ["-smp", f"{SOCKETS * NODES * each},{sizes}"]
    for node in range(len(DISTANCES)):
        words += ["-object", f"memory-backend-ram,size={NODE_MIB}M,id=m{node}"]
        words += ["-numa", f"node,nodeid={node},cpus={node * each}-{node * each + each - 1},memdev=m{node}"]
    for one, two in combinations(range(len(DISTANCES)), 2):
        words += ["-numa", f"dist,src={one},dst={two},val={DISTANCES[one][two]}"]
    return words
