"""A machine of our own inside qemu: Debian's kernel, the host's files read-only, and cgroup v2 with cpuset.

Emulated in software, so it needs neither root nor hardware support, only time. The command that runs in it
prints to a serial port, which is a file here.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = Path(os.environ.get("CORELANE_GUEST_KERNEL") or ROOT / "build/guest-kernel")
INIT = ROOT / "tests/system/guest-init.sh"
HOW = "see tests/system/packages.txt and tests/system/fetch-guest-kernel.sh"

BOOTS, BOOT_SECONDS = 2, 100.0
MODULES = ("virtio_pci", "9pnet_virtio", "9p")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")

SOCKETS, CORES, THREADS = 2, 1, 2
"""CPUs 0 and 1 are the threads of a core in NUMA node 0, CPUs 2 and 3 of one in node 1."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a guest left behind: what its command printed, what its kernel and qemu said, and how it ended."""

    output: str
    console: str
    in_time: bool


def run(directory: Path, command: str, seconds: float) -> Outcome:
    """Boot, run a shell script as root, switch off; skips where that is impossible.

    The guest's own files are made in `directory`. It is switched off after `seconds`, by itself even where
    nobody is left to do it. On a busy host a boot may stall; then there is another one.
    """
    emulator, image = _needed("qemu-system-x86_64"), _image()
    initramfs = directory / "initramfs"
    initramfs.write_bytes(_initramfs(command))
    for _ in range(BOOTS):
        outcome = _run([emulator, *_arguments(image, initramfs, directory, seconds)], directory, seconds)
        if outcome.output:
            break
    return outcome


def _run(command: list[str], directory: Path, seconds: float) -> Outcome:
    output = directory / "output"
    output.unlink(missing_ok=True)
    with (directory / "qemu").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        in_time = _ends(process, output, seconds)
    finally:
        process.kill()
        process.wait()
    said = "".join(_text(directory / name) for name in ("qemu", "console"))
    return Outcome(_text(output), said, in_time)


def _ends(process: subprocess.Popen[bytes], output: Path, seconds: float) -> bool:
    """Wait for the guest to switch off; False if it has taken too long, or has not even come to its init."""
    begun = time.monotonic()
    while process.poll() is None:
        took = time.monotonic() - begun
        if took > seconds or (took > BOOT_SECONDS and not _text(output)):
            return False
        time.sleep(0.2)
    return process.returncode == 0


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _needed(program: str) -> str:
    found = shutil.which(program)
    return found or pytest.skip(f"needs {program} for a guest with cgroup v2; {HOW}")


def _image() -> Path:
    image = KERNEL / "vmlinuz"
    return image if image.exists() else pytest.skip(f"needs a kernel for a guest, but no {image}; {HOW}")


def _arguments(image: Path, initramfs: Path, directory: Path, seconds: float) -> list[str]:
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-accel", "tcg,thread=multi", "-cpu", "Haswell-noTSX", "-m", "1024"),
        *("-smp", f"sockets={SOCKETS},cores={CORES},threads={THREADS}"),
        *("-object", "memory-backend-ram,size=512M,id=m0", "-numa", "node,nodeid=0,cpus=0-1,memdev=m0"),
        *("-object", "memory-backend-ram,size=512M,id=m1", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1"),
        *("-numa", "dist,src=0,dst=1,val=21"),
        *("-kernel", str(image), "-initrd", str(initramfs)),
        *("-append", f"console=ttyS0 loglevel=6 panic=-1 mitigations=off SECONDS_LEFT={int(seconds)}"),
        *("-serial", f"file:{directory}/console", "-serial", f"file:{directory}/output"),
        *("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
    ]


def _initramfs(command: str) -> bytes:
    """What the kernel unpacks and starts: our init, busybox, the modules in order, and the command."""
    files = {"init": INIT.read_bytes(), "busybox": Path(_needed("busybox")).read_bytes()}
    for place, name in enumerate(_load_order(MODULES)):
        files[f"modules/{place:02}-{name}.ko"] = _module(name)
    return _archive(files | {"command": command.encode()})


def _load_order(names: Iterable[str]) -> list[str]:
    """The modules and all that they depend on, each after those it depends on."""
    order: list[str] = []
    for name in names:
        found = _DEPENDS.search(_module(name))
        before = found[1].decode().split(",") if found and found[1] else []
        order += [one for one in (*_load_order(before), name) if one not in order]
    return list(dict.fromkeys(order))


def _module(name: str) -> bytes:
    plain, packed = KERNEL / f"{name}.ko", KERNEL / f"{name}.ko.xz"
    return plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())


def _archive(files: dict[str, bytes]) -> bytes:
    """A cpio archive in the "newc" format (kernel: early-userspace/buffer-format.rst)."""
    directories = sorted({str(Path(name).parent) for name in files} - {"."})
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in directories]
    entries += [(name, stat.S_IFREG | 0o755, data) for name, data in files.items()]
    numbered = enumerate((*entries, ("TRAILER!!!", 0, b"")), start=1)
    return b"".join(_entry(number, *entry) for number, entry in numbered)


def _entry(inode: int, name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
