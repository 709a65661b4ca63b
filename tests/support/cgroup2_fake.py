"""A directory that obeys cgroup version 2's rules (kernel documentation, cgroup-v2.rst)."""

import errno
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from corelane.cpuset import CPUSet
from corelane.kernel.cgroupfs import CgroupError

FILES = {
    "cpuset": {
        "cpuset.cpus": "",
        "cpuset.mems": "",
        "cpuset.cpus.effective": "",
        "cpuset.mems.effective": "0",
    },
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000", "cpu.max.burst": "0"},
    "memory": {"memory.max": "max"},
}

THREADED = {"cpu", "cpuset"}
"""The controllers that groups of threads can have, and that processes in inner groups do not rule out."""


class FakeV2:
    """Files, as `corelane.kernel.cgroupfs.Files` asks for them, below `root` on a machine with these CPUs."""

    def __init__(
        self, root: Path, cpus: str = "0-7", controllers: str = "cpuset cpu memory", kill: bool = True
    ):
        self.root, self.cpus, self.kill = root, CPUSet.parse(cpus), kill
        self.written: list[tuple[str, str]] = []
        self.refusals: dict[tuple[str, str], int] = {}
        """The errno with which "read" or "write" fails, by that word and the end of a file's path."""
        root.mkdir(parents=True)
        self._populate(root, controllers)

    def _populate(self, group: Path, controllers: str) -> None:
        for name in ("cgroup.procs", "cgroup.subtree_control", *(["cgroup.kill"] if self.kill else [])):
            (group / name).write_text("")
        (group / "cgroup.controllers").write_text(controllers)
        if group != self.root:
            (group / "cgroup.type").write_text("domain")
            self._add_interfaces(group, controllers.split())

    def _add_interfaces(self, group: Path, controllers: list[str]) -> None:
        for name, content in (item for controller in controllers for item in FILES[controller].items()):
            if not (group / name).exists():
                (group / name).write_text(content)

    def processes(self, group: Path) -> list[str]:
        return (group / "cgroup.procs").read_text().split()

    def _heed_refusals(self, action: str, path: Path) -> None:
        for (refused, end), code in self.refusals.items():
            if refused == action and str(path).endswith(end):
                self._refuse(action, path, code)

    def read(self, path: Path | str) -> str:
        path = Path(path)
        self._heed_refusals("read", path)
        try:
            if path.name == "cpuset.cpus.effective" and path.exists():
                return str(self._effective(path.parent))
            if path.name == "cgroup.events" and path.parent.is_dir():
                return f"populated {int(self._populated(path.parent))}\nfrozen 0"
            if path.name == "cgroup.type" and path.exists():
                return self._type(path.parent)
            return path.read_text().strip()
        except OSError as error:
            raise CgroupError("read", path, error) from error

    def _type(self, group: Path) -> str:
        """Processes beside controllers make a group the root of a threaded subtree."""
        if group == self.root:
            return "root"
        if self._type(group.parent) not in ("root", "domain"):
            return "domain invalid"
        inner = (group / "cgroup.subtree_control").read_text() and self.processes(group)
        return "domain threaded" if inner else "domain"

    def _populated(self, group: Path) -> bool:
        return any(self.processes(procs.parent) for procs in group.rglob("cgroup.procs"))

    def _may_be_threaded(self, group: Path, controllers: set[str]) -> bool:
        below = (self.processes(group / child) for child in self.groups(group))
        return controllers <= THREADED and not any(below)

    def _effective(self, group: Path) -> CPUSet:
        if group == self.root:
            return self.cpus
        above = self._effective(group.parent)
        own = group / "cpuset.cpus"
        wanted = CPUSet.parse(own.read_text().strip()) if own.exists() else CPUSet()
        return wanted & above or above

    def write(self, path: Path, text: str) -> None:
        self._heed_refusals("write", path)
        if not path.exists():
            self._refuse(f"write {text!r} to", path, errno.ENOENT)
        self.written.append((str(path.relative_to(self.root)), text))
        rule = getattr(self, "_write_" + path.name.replace(".", "_"), None)
        if rule:
            rule(path, text)
        else:
            _write_at_once(path, text)

    def _write_cgroup_subtree_control(self, path: Path, text: str) -> None:
        group, wanted = path.parent, [word.removeprefix("+") for word in text.split()]
        if not set(wanted) <= set((group / "cgroup.controllers").read_text().split()):
            self._refuse("write", path, errno.ENOENT)
        enabled = list(dict.fromkeys([*path.read_text().split(), *wanted]))
        inner = group != self.root and self.processes(group)
        if inner and not self._may_be_threaded(group, set(enabled)):
            self._refuse("write", path, errno.EBUSY)
        path.write_text(" ".join(enabled))
        for child in self.groups(group):
            (group / child / "cgroup.controllers").write_text(" ".join(enabled))
            self._add_interfaces(group / child, enabled)

    def _write_cgroup_procs(self, path: Path, text: str) -> None:
        group = path.parent
        if self._type(group) == "domain invalid":
            self._refuse("write", path, errno.EOPNOTSUPP)
        enabled = set((group / "cgroup.subtree_control").read_text().split())
        if group != self.root and enabled and not self._may_be_threaded(group, enabled):
            self._refuse("write", path, errno.EBUSY)
        for other in self.root.rglob("cgroup.procs"):
            other.write_text("\n".join(pid for pid in other.read_text().split() if pid != text))
        path.write_text("\n".join([*self.processes(group), text]))

    def _write_cgroup_kill(self, path: Path, text: str) -> None:
        for procs in path.parent.rglob("cgroup.procs"):
            for pid in procs.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            procs.write_text("")

    def _write_cpu_max(self, path: Path, text: str) -> None:
        """A quota is at least 1 ms and the burst (kernel/sched/core.c, tg_set_cfs_bandwidth)."""
        quota = text.split()[0]
        if quota != "max" and int(quota) < max(1000, int((path.parent / "cpu.max.burst").read_text())):
            self._refuse("write", path, errno.EINVAL)
        path.write_text(text)

    def _write_cpu_max_burst(self, path: Path, text: str) -> None:
        quota = (path.parent / "cpu.max").read_text().split()[0]
        if quota != "max" and int(text) > int(quota):
            self._refuse("write", path, errno.EINVAL)
        path.write_text(text)

    def _write_cpu_weight(self, path: Path, text: str) -> None:
        if not 1 <= int(text) <= 10000:
            self._refuse("write", path, errno.ERANGE)
        path.write_text(text)

    def mkdir(self, path: Path) -> bool:
        if path.is_dir():
            return False
        if not path.parent.is_dir():
            self._refuse("create", path, errno.ENOENT)
        path.mkdir()
        self._populate(path, (path.parent / "cgroup.subtree_control").read_text())
        return True

    def rmdir(self, path: Path) -> bool:
        if not path.is_dir():
            return False
        if self.processes(path) or self.groups(path):
            self._refuse("remove", path, errno.EBUSY)
        shutil.rmtree(path)
        return True

    def groups(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []

    def _refuse(self, action: str, path: Path, number: int) -> None:
        raise CgroupError(action, path, OSError(number, os.strerror(number)))


def _write_at_once(path: Path, text: str) -> None:
    """As the kernel does: no reader sees a file that is empty because it is being written."""
    new = path.with_name(f".{path.name}.{threading.get_ident()}")
    new.write_text(text)
    new.replace(path)
