"""The root file system of a guest: an archive that its kernel unpacks into memory, made without root.

It holds this host's Python with the packages that corelane and pytest need, busybox, containerd and runc,
each at the path that it has here. All that is used is in memory before the first process starts: under
emulation that is several times quicker than a disk or the host's files.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
EXTRAS = ("agent", "server")
TOOLS = ("pytest", "grpclib")
PROGRAMS = ("sh", "setpriv", "lscpu", "unshare", "mount", "umount", "runc")
NEVER_IMPORTED = re.compile(r"\.opt-[12]\.pyc$|\.(pyi|pyx|pxd|c|h|a|exe)$|(^|/)numpy/(.*/)?(tests|f2py)/")
STANDARD_NOT_NEEDED = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|config-\d[^/]*|\w+-packages)$"
)
LARGEST = 512 << 20
"""Of the guest's 3 GiB: unpacking needs it twice."""
SOURCES = ("src", "tests/guest", "tests/support", "examples", "pyproject.toml")


class Tree:
    """Files, directories and symbolic links by path: mode, time, and where the bytes are."""

    def __init__(self) -> None:
        self.entries: dict[Path, tuple[int, int, Path | bytes]] = {}

    def add(self, path: Path, skip: re.Pattern[str] = NEVER_IMPORTED) -> None:
        """Add a file of this host, or a directory with all in it, and the links on the way to it."""
        for step in (*reversed(path.parents[:-1]), path):
            if step.is_symlink():
                target = str(step.readlink())
                self._put(step, stat.S_IFLNK | 0o777, 0, target.encode())
                self.add(Path(os.path.normpath(step.parent / target / path.relative_to(step))), skip)
                return
        if path.is_dir():
            self._put(path, stat.S_IFDIR | 0o755, 0, b"")
            for below in sorted(path.iterdir()):
                if not (skip.search(str(below)) or NEVER_IMPORTED.search(str(below))):
                    self.add(below, skip)
        else:
            found = path.stat()
            self._put(path, stat.S_IFREG | (found.st_mode & 0o777) | 0o444, int(found.st_mtime), path)

    def add_link(self, path: str, target: str) -> None:
        self._put(Path(path), stat.S_IFLNK | 0o777, 0, target.encode())

    def add_bytes(self, path: str, data: bytes) -> None:
        self._put(Path(path), stat.S_IFREG | 0o755, 0, data)

    def add_directory(self, path: str) -> None:
        self._put(Path(path), stat.S_IFDIR | 0o755, 0, b"")

    def _put(self, path: Path, mode: int, time: int, content: Path | bytes) -> None:
        for above in reversed(path.parents[:-1]):
            self.entries.setdefault(above, (stat.S_IFDIR | 0o755, 0, b""))
        self.entries.setdefault(path, (mode, time, content))

    def write(self, out: BinaryIO) -> None:
        """Write a cpio archive in the "newc" format (kernel: early-userspace/buffer-format.rst)."""
        for number, (path, (mode, time, content)) in enumerate(self.entries.items(), start=1):
            data = content.read_bytes() if isinstance(content, Path) else content
            out.write(_entry(number, str(path)[1:], mode, time, data))
        out.write(_entry(0, "TRAILER!!!", 0, 0, b""))


def _entry(inode: int, name: str, mode: int, time: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, time, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def build(target: BinaryIO, programs: Iterable[Path], files: dict[str, bytes]) -> None:
    """Write the archive: `programs` of the host go to /usr/local/bin, `files` to the paths given."""
    tree = Tree()
    for path in ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/lib", "/root", "/etc/ssl"):
        tree.add_directory(path)
    for name in ("bin", "sbin", "lib", "lib64"):
        if (top := Path("/", name)).is_symlink():
            tree.add_link(str(top), str(top.readlink()))
    for path, data in files.items():
        tree.add_bytes(path, data)
    binaries = [*_add_python(tree), *_add_packages(tree), *_add_programs(tree, programs)]
    for library in _libraries(binaries):
        tree.add(library)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            _compile(ROOT / name)
        tree.add(ROOT / name)
    tree.write(target)
    assert target.tell() <= LARGEST, f"a guest's file system takes {target.tell()} bytes of its memory"


def _add_python(tree: Tree) -> Iterator[Path]:
    for path in (sys.executable, Path(sys.prefix) / "pyvenv.cfg"):
        tree.add(Path(path))
    binary = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_path("stdlib"))
    tree.add(standard, STANDARD_NOT_NEEDED)
    return iter((binary, *standard.glob("lib-dynload/*.so")))


def _add_packages(tree: Tree) -> Iterator[Path]:
    """Add what corelane's extras and pytest need, and yield the shared objects among them."""
    for distribution in _distributions():
        for entry in distribution.files or ():
            path = Path(os.path.normpath(entry.locate()))
            if path.exists() and not NEVER_IMPORTED.search(str(entry)) and ".." not in str(entry):
                tree.add(path)
                if path.suffix == ".so":
                    yield path


def _distributions() -> Iterator[importlib.metadata.Distribution]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    todo = [*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra]), *TOOLS]
    requirements, names = [Requirement(line) for line in todo], set()
    while requirements:
        requirement = requirements.pop()
        if requirement.name not in names:
            names.add(requirement.name)
            yield (found := importlib.metadata.distribution(requirement.name))
            below = [Requirement(line) for line in found.requires or ()]
            requirements += [one for one in below if _applies(one, requirement.extras)]


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def _add_programs(tree: Tree, programs: Iterable[Path]) -> Iterator[Path]:
    for path in (*map(program, PROGRAMS), busybox()):
        tree.add(path)
        yield path
    for path in programs:
        tree.add_bytes(f"/usr/local/bin/{path.name}", path.read_bytes())
        yield path
    tree.add_link("/busybox", str(busybox()))
    listed = subprocess.run([busybox(), "--list"], capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if not any(Path(place, name) in tree.entries for place in ("/usr/bin", "/usr/sbin")):
            tree.add_link(f"/usr/bin/{name}", str(busybox()))


def program(name: str) -> Path:
    """Return where a program is; skip the test where it is missing."""
    found = shutil.which(name)
    return Path(found) if found else pytest.skip(f"needs {name}: see tests/system/packages.txt")


def busybox() -> Path:
    for path in (Path("/usr/bin/busybox"), Path("/bin/busybox")):
        if path.exists() and b"ld-linux" not in path.read_bytes()[:4096]:
            return path
    pytest.skip("needs a static busybox: see tests/system/packages.txt")


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    """Return the shared libraries of programs and extension modules, as the dynamic linker names them."""
    command = ["ldd", *dict.fromkeys(map(str, binaries))]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}


def _compile(path: Path) -> None:
    """Compile modules beforehand where this user may: under emulation that takes minutes."""
    compileall.compile_dir(path, quiet=2, workers=os.cpu_count() or 1)
