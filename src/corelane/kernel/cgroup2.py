"""cgroup version 2: one hierarchy; a controller reaches a group when every group above hands it down."""

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
            self.files.mkdir(directory)

    def _enable(self, directory: Path) -> None:
        """Hand our controllers down from `directory`; only what is missing is written."""
        control = directory / "cgroup.subtree_control"
        missing = [name for name in self.bases if name not in self.files.read(control).split()]
        if missing:
            self.files.write(control, " ".join(f"+{name}" for name in missing))

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
