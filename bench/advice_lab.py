"""Real runs for `make bench-advice`: a load in a cgroup with a limit, neighbours, all below one group.

That group has the largest cpu.shares, so that other processes of the machine hardly run meanwhile. Clients,
and what reads counters, are outside of it with real-time priority: their weight changes nothing on the CPUs
that they wake threads on. Version 1 of the cpu controller. Everything is removed at the end, on Ctrl-C and
SIGTERM, too.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from advice_load import Load

from corelane.app.limits.advise import NodeSource
from corelane.app.limits.sites import ALL, CgroupSource
from corelane.kernel import cgroup
from corelane.kernel.cgroup import Groups1
from corelane.kernel.cgroup_tree import join
from corelane.limits.measure import Measurement

WARMUP_SECONDS: Final = 0.4
MOST_LATE: Final = 0.03
_ATTEMPTS: Final = 3
_NAP_SECONDS, _LATE_SECONDS = 0.004, 0.001
_SCRIPT: Final = str(Path(__file__).with_name("advice_load.py"))
_NAME: Final = "corelane-bench-"


class LabError(Exception):
    """Runs are impossible here; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The container's resources: quota and burst in ms of a period of 100, request in milliCPU."""

    quota_ms: float | None
    burst_ms: float = 0.0
    request: int = 1000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Threads that spin beside it, in a group with this request."""

    threads: int = 0
    request: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """A run: what `limits advise` measures, and all latencies: seconds when sent, ms.

    `late` is the part of wake-ups of a real-time thread that came late: what the hypervisor, or other
    real-time threads, have disturbed.
    """

    measured: Measurement
    latencies: list[tuple[float, float]]
    completed: int
    seconds: float
    late: float

    @property
    def disturbed(self) -> bool:
        return self.late > MOST_LATE


class Lab:
    """Cgroups below one with the most shares."""

    def __init__(self, groups: Groups1, cpus: Sequence[int]) -> None:
        self._groups, self._cpus = groups, tuple(cpus)

    def quiet_run(self, load: Load, setting: Setting, beside: Neighbours, seconds: float) -> Observed:
        """Run until nothing disturbs, a few times at most; return the least disturbed run."""
        found: list[Observed] = []
        for _ in range(_ATTEMPTS):
            found.append(self.run(load, setting, beside, seconds))
            if not found[-1].disturbed:
                break
        return min(found, key=lambda one: one.late)

    def run(self, load: Load, setting: Setting, beside: Neighbours, seconds: float) -> Observed:
        """Run a load from its start: `seconds` after the warm-up are measured."""
        with ExitStack() as stack:
            group = stack.enter_context(self._pod("subject", setting.request))
            if beside.threads:
                other = stack.enter_context(self._pod("beside", beside.request))
                spin = Load("spin", beside.threads, 0, cpus=self._cpus)
                self._start(stack, spin, other)
            whole = replace(load, seconds=seconds + WARMUP_SECONDS + 0.1, cpus=self._cpus)
            process = self._start(stack, whole, group)
            quota = None if setting.quota_ms is None else round(setting.quota_ms * 1000)
            self._groups.set_quota(group, quota, burst_us=round(setting.burst_ms * 1000))
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            with _real_time():
                return self._observe(process, group, seconds)

    def _observe(self, process: "subprocess.Popen[str]", group: str, seconds: float) -> Observed:
        paths = tuple(self._groups.directories(group))[:1]
        source = NodeSource(CgroupSource(groups=paths), seconds)
        assert process.stdout is not None
        with ThreadPoolExecutor(2) as pool:
            answer = pool.submit(process.stdout.readline)
            time.sleep(WARMUP_SECONDS)
            late = pool.submit(_late_part, seconds)
            (measured, *_), _ = source.measure(ALL)
            line = answer.result(timeout=30)
        if not line:
            raise LabError("the load ended early")
        latencies = [(at, took) for at, took in json.loads(line)["latencies"]]
        counted = [(at, took) for at, took in latencies if at >= WARMUP_SECONDS]
        end = WARMUP_SECONDS + seconds
        completed = sum(WARMUP_SECONDS <= at + took / 1000 < end for at, took in latencies)
        return Observed(measured, counted, completed, seconds, late.result())

    @contextmanager
    def _pod(self, name: str, request: int) -> Iterator[str]:
        """The group of a container in a pod without a limit, as the kubelet makes them."""
        pod, container = join(name), join(name, "app")
        self._groups.create(container)
        try:
            self._groups.set_request(pod, request, "pod")
            self._groups.set_request(container, request, "container")
            yield container
        finally:
            self._groups.empty(pod)
            self._groups.delete(pod)

    def _start(self, stack: ExitStack, load: Load, group: str) -> "subprocess.Popen[str]":
        command = (sys.executable, "-I", "-S", _SCRIPT)
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        stack.callback(_end, process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(load)) + "\n")
        process.stdin.flush()
        for pid in json.loads(process.stdout.readline() or "[]"):
            self._groups.add(group, pid)
        return process


def _late_part(seconds: float) -> float:
    """Sleep again and again; return the part of the wake-ups that came late."""
    with _real_time():
        end, late, count = time.monotonic() + seconds, 0, 0
        while (begin := time.monotonic()) < end:
            time.sleep(_NAP_SECONDS)
            late += time.monotonic() - begin - _NAP_SECONDS > _LATE_SECONDS
            count += 1
        return late / max(count, 1)


@contextmanager
def _real_time() -> Iterator[None]:
    """Let this thread run before all others; what it starts does not inherit that."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            if stream is not None:
                stream.close()


@contextmanager
def opened(cpus: Sequence[int]) -> Iterator[Lab]:
    """Make the group with the most shares, and remove it however this ends. Raises LabError."""
    mounted = {name: mount for mount in cgroup.mounts() for name in mount.controllers}
    missing = [name for name in ("cpu", "cpuacct", "cpuset") if name not in mounted]
    if missing:
        raise LabError(f"cgroup version 1 controllers are not mounted: {', '.join(missing)}")
    try:
        with _real_time():
            pass
    except PermissionError as error:
        raise LabError("real-time priority is refused: run as root, in the topmost cpu cgroup") from error
    tops = {name: mounted[name].directory / f"{_NAME}{os.getpid()}" for name in ("cpu", "cpuacct", "cpuset")}
    groups = Groups1(tops)
    old = signal.signal(signal.SIGTERM, _stop)
    try:
        for name, top in tops.items():
            top.mkdir(exist_ok=True)
            if name == "cpuset":
                for part in ("cpuset.mems", "cpuset.cpus"):
                    (top / part).write_text((top.parent / part).read_text())
        (tops["cpu"] / "cpu.shares").write_text("262144")
        yield Lab(groups, cpus)
    finally:
        signal.signal(signal.SIGTERM, old)
        _remove(groups, tops)


def _remove(groups: Groups1, tops: dict[str, Path]) -> None:
    if any((top / "corelane").exists() for top in tops.values()):
        groups.empty("corelane")
        groups.delete("corelane")
    for top in tops.values():
        with suppress(FileNotFoundError):
            top.rmdir()


def _stop(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)
