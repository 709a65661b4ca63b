"""cgroup version 1: one hierarchy a controller, each with our groups under the same path."""

from typing import Literal

from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.kernel.cgroup_tree import Groups, Level, Settings

__all__ = ["Groups1"]


class Groups1(Groups):
    """Groups in version 1. Only a cpuset with CPUs and memory may be entered, so new ones inherit."""

    version = 1

    def _create(self, group: str) -> None:
        for path in (*self._above(group), group):
            for controller in self.bases:
                self.files.mkdir(self._directory(path, controller))
            self._inherit(path, "cpus")
            self._inherit(path, "mems")

    def _inherit(self, group: str, resource: Literal["cpus", "mems"]) -> None:
        path = self._directory(group, "cpuset") / f"cpuset.{resource}"
        if not self.files.read(path):
            self.files.write(path, self.files.read(path.parent.parent / path.name))

    def set_request(self, group: str, milli: int, level: Level) -> None:
        self._write(group, "cpu", "cpu.shares", str(cfs.shares(milli)))

    def set_quota(self, group: str, quota_us: int | None, period_us: int = cfs.PERIOD_US) -> None:
        """The limit is lifted while the period changes: the old quota might be too much for the new one."""
        if self._read(group, "cpu", "cpu.cfs_period_us") != str(period_us):
            self._write(group, "cpu", "cpu.cfs_quota_us", "-1")
            self._write(group, "cpu", "cpu.cfs_period_us", str(period_us))
        self._write(group, "cpu", "cpu.cfs_quota_us", str(quota_us or -1))

    def read(self, group: str) -> Settings:
        quota = int(self._read(group, "cpu", "cpu.cfs_quota_us"))
        return Settings(
            cpus=CPUSet.parse(self._read(group, "cpuset", "cpuset.cpus")),
            effective=CPUSet.parse(self._read(group, "cpuset", "cpuset.effective_cpus")),
            mems=CPUSet.parse(self._read(group, "cpuset", "cpuset.effective_mems")),
            shares=int(self._read(group, "cpu", "cpu.shares")),
            weight=None,
            quota_us=None if quota < 0 else quota,
            period_us=int(self._read(group, "cpu", "cpu.cfs_period_us")),
        )

    def _set(self, group: str, resource: Literal["cpus", "mems"]) -> CPUSet | None:
        return CPUSet.parse(self._read(group, "cpuset", f"cpuset.{resource}"))
