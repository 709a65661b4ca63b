"""A real cgroup under a quota with busy loops in it, in which tests measure what throttling does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.kernel import cgroup


class Group:
    """Its directories, the cpu controller's first (version 1)."""

    def __init__(self, directories: list[Path]) -> None:
        self.directories = directories

    def limit(self, quota_us: int) -> None:
        (self.directories[0] / "cpu.cfs_quota_us").write_text(str(quota_us))


@contextmanager
def limited(quota_us: int) -> Iterator[Group]:
    """A group with a quota for every 100 ms, and more weight than all others."""
    try:
        groups = cgroup.find()
    except cgroup.CgroupsUnavailable as error:
        pytest.skip(f"needs cgroups that can be written: {error}")
    bases = groups.bases
    if not (bases["cpu"] / "cpu.shares").exists():
        pytest.skip("needs cgroup version 1, in which any process may be alone in a group")
    name = f"corelane-busy-{os.getpid()}"
    made = list(dict.fromkeys(bases[one] / name for one in ("cpu", "cpuacct") if one in bases))
    for directory in made:
        directory.mkdir()
    try:
        (made[0] / "cpu.shares").write_text("262144")
        found = Group(made)
        found.limit(quota_us)
        yield found
    finally:
        for directory in made:
            directory.rmdir()
        groups.prune(cgroup.OWN)


@contextmanager
def spinning(group: Group, count: int) -> Iterator[None]:
    """So many busy loops in the group."""
    spins = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for directory in group.directories:
            for spin in spins:
                (directory / "cgroup.procs").write_text(str(spin.pid))
        yield
    finally:
        for spin in spins:
            spin.kill()
        for spin in spins:
            spin.wait()
