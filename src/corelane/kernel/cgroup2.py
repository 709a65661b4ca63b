"""cgroup version 2: one hierarchy; a controller reaches a group when every group above hands it down."""

import errno
import os
from pathlib import Path
from typing import Literal

from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.kernel.cgroup_tree import Groups, Level, Settings
from corelane.kernel.cgroupfs import CgroupError

__all__ = ["Groups2"]


class Groups2(Groups):
    """Groups in version 2. Processes live in leaves only; a group without a cpuset uses the one above."""

    version = 2

    def _create(self, group: str) -> None:
        for path in (*self._above(group), group):
            directory = self._directory(path, self._controller)
            self._enable(directory.parent)
            self._make(directory)

    def _enable(self, directory: Path) -> None:
        """Hand our controllers down from `directory`; only what is missing is written."""
        control = directory / "cgroup.subtree_control"
        enabled = self.files.read(control).split()
        missing = [name for name in self.bases if name not in enabled]
        if missing:
            text = " ".join(f"+{name}" for name in missing)
            self._refuse_to_thread(directory, f"write {text!r} to", control)
            self.files.write(control, text)

    def _refuse_to_thread(self, directory: Path, action: str, control: Path) -> None:
        """Beside processes the kernel hands cpu and cpuset down, but to groups that can hold only threads.

        What it would be left as can hardly be undone, so it is refused before (cgroup-v2.rst, "Threads").
        """
        if self._type(directory) == "domain" and self.files.read(directory / "cgroup.procs"):
            raise CgroupError(action, control, OSError(errno.EBUSY, os.strerror(errno.EBUSY)))

    def _make(self, directory: Path) -> None:
        """Make a group that can hold processes; below a threaded one it could not, and is not left there."""
        made = self.files.mkdir(directory)
        if self._type(directory) == "domain invalid":
            if made:
                self.files.rmdir(directory)
            reason = "the group above is threaded, as processes live in it while it hands cpu or cpuset down"
            raise CgroupError("create", directory, OSError(errno.EOPNOTSUPP, reason))

    def _type(self, directory: Path) -> str:
        """The hierarchy's root has no type: it may hold processes whatever it hands down."""
        try:
            return self.files.read(directory / "cgroup.type")
        except CgroupError as error:
            if error.errno != errno.ENOENT:
                raise
            return "root"

    def set_request(self, group: str, milli: int, level: Level) -> None:
        """By the kubelet's formula for pods, by the runtimes' newer one for containers."""
        formula = cfs.container_weight if level == "container" else cfs.pod_weight
        self._write(group, "cpu", "cpu.weight", str(formula(cfs.shares(milli))))

    def set_quota(self, group: str, quota_us: int | None, period_us: int = cfs.PERIOD_US) -> None:
        self._write(group, "cpu", "cpu.max", f"{quota_us or 'max'} {period_us}")

    def read(self, group: str) -> Settings:
        quota, period = self._read(group, "cpu", "cpu.max").split()
        return Settings(
            cpus=CPUSet.parse(self._read(group, "cpuset", "cpuset.cpus")),
            effective=CPUSet.parse(self._read(group, "cpuset", "cpuset.cpus.effective")),
            mems=CPUSet.parse(self._read(group, "cpuset", "cpuset.mems.effective")),
            shares=None,
            weight=int(self._read(group, "cpu", "cpu.weight")),
            quota_us=None if quota == "max" else int(quota),
            period_us=int(period),
        )

    def kill(self, group: str) -> list[int]:
        """By the kernel itself where it can (Linux 5.14), so that nobody escapes by forking."""
        found = self.pids(group)
        try:
            self.files.write(self._directory(group, self._controller) / "cgroup.kill", "1")
        except CgroupError:
            return super().kill(group)
        return found

    @property
    def _controller(self) -> str:
        return next(iter(self.bases))

    def _set(self, group: str, resource: Literal["cpus", "mems"]) -> CPUSet | None:
        return CPUSet.parse(self._read(group, "cpuset", f"cpuset.{resource}")) or None
