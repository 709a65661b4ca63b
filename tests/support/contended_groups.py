"""Real cgroups (version 1) with busy processes, of which theory knows what holds each back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corelane.kernel import cgroup

SPIN = "while True: pass"
BURSTS = """
import random, sys, time
own, run, pause = random.Random(int(sys.argv[2])), 0.02, 0.02
out = open(sys.argv[1], "w", buffering=1)
while True:
    work, wall, cpu = own.expovariate(1 / run), time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < work: pass
    out.write(f"{time.perf_counter()} {time.perf_counter() - wall - (time.thread_time() - cpu)}\\n")
    time.sleep(own.expovariate(1 / pause))
"""
"""Bursts of CPU time with pauses; writes when each ended and for how long it did not run meanwhile."""
SERVER = """
import sys, time
out, work, rate, due = open(sys.argv[1], "w", buffering=1), 0.01, 15.0, time.monotonic()
while True:
    time.sleep(max(0.0, due - time.monotonic()))
    cpu = time.thread_time()
    while time.thread_time() - cpu < work: pass
    out.write(f"{due} {time.monotonic()}\\n")
    due += 1 / rate
"""
"""Fifteen requests a second of 10 ms each, one after the other; writes when each was due and answered."""
_CONTROLLERS = ("cpu", "cpuacct", "cpuset")
_MOST_SHARES = 65536


@dataclass
class Lab:
    """Groups below one of our own, which has far more shares than other work on the machine."""

    bases: dict[str, Path]
    name: str
    groups: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def group(
        self, name: str, *, shares: int = 1024, cpus: str = "", quota_us: int = -1, idle: bool = False
    ) -> None:
        path = f"{self.name}/{name}" if name else self.name
        for controller in _CONTROLLERS:
            (self.bases[controller] / path).mkdir()
        self.groups.append(path)
        above = (self.bases["cpuset"] / path).parent
        for resource in ("cpus", "mems"):
            value = (above / f"cpuset.{resource}").read_text()
            (self.bases["cpuset"] / path / f"cpuset.{resource}").write_text(value)
        if cpus:
            (self.bases["cpuset"] / path / "cpuset.cpus").write_text(cpus)
        (self.bases["cpu"] / path / "cpu.cfs_quota_us").write_text(str(quota_us))
        (self.bases["cpu"] / path / "cpu.shares").write_text(str(shares))
        if idle:
            (self.bases["cpu"] / path / "cpu.idle").write_text("1")

    def set_shares(self, name: str, shares: int) -> None:
        (self.bases["cpu"] / self.name / name / "cpu.shares").write_text(str(shares))

    def start(self, name: str, code: str, *arguments: object, count: int = 1) -> subprocess.Popen[bytes]:
        for _ in range(count):
            command = [sys.executable, "-S", "-c", code, *map(str, arguments)]
            process = subprocess.Popen(command)
            self.processes.append(process)
            for controller in _CONTROLLERS:
                (self.bases[controller] / self.name / name / "cgroup.procs").write_text(str(process.pid))
        return process

    def directory(self, name: str) -> Path:
        return self.bases["cpu"] / self.name / name

    def clear(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for path in reversed(self.groups):
            for controller in _CONTROLLERS:
                _remove(self.bases[controller] / path)
        self.processes, self.groups = [], []


def _remove(directory: Path) -> None:
    for _ in range(100):
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


@contextmanager
def lab() -> Iterator[Lab]:
    """A lab, gone when it is over. Skips where groups of version 1 cannot be made."""
    try:
        groups = cgroup.find()
    except cgroup.CgroupsUnavailable as error:
        pytest.skip(f"needs cgroups that can be written: {error}")
    if groups.version != 1 or not set(_CONTROLLERS) <= groups.bases.keys():
        pytest.skip("needs cgroup version 1 with cpu, cpuacct and cpuset")
    made = Lab({name: groups.bases[name] for name in _CONTROLLERS}, f"corelane-causes-{os.getpid()}")
    try:
        made.group("", shares=_MOST_SHARES)
        yield made
    finally:
        made.clear()
        groups.prune(cgroup.OWN)
