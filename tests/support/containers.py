"""Local containers for tests, in a directory of the test's own, gone with all that is theirs afterwards."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from corelane.cpuset import CPUSet
from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import cgroup, cgroup_tree, proc
from corelane.runtime.base import ContainerSpec, LogSelection, RuntimeStatus

MINE = CPUSet(os.sched_getaffinity(0))
LOW, HIGH = CPUSet([min(MINE)]), CPUSet([max(MINE)])

needs_two_cpus = pytest.mark.skipif(len(MINE) < 2, reason="needs two CPUs")
PYTHON = (sys.executable, "-I", "-S", "-c")


def have_cgroups() -> bool:
    try:
        groups = cgroup.find()
    except cgroup.CgroupsUnavailable:
        return False
    groups.prune(cgroup.OWN)
    return True


def limits_memory() -> bool:
    """Whether there are memory cgroups that can be written."""
    try:
        groups = cgroup.find()
    except cgroup.CgroupsUnavailable:
        return False
    groups.prune(cgroup.OWN)
    return cgroup_tree.is_limited(groups)


both_ways = pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "required",
            id="cgroup",
            marks=pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written"),
        ),
        pytest.param("off", id="affinity"),
    ],
)


def spec(
    *command: str, name: str = "main", pod: str = "web-0", uid: str = "0a1b", **more: object
) -> ContainerSpec:
    values: dict[str, object] = {"namespace": "default", "cpus": LOW, "command": command, **more}
    return ContainerSpec(pod=pod, pod_uid=uid, name=name, **values)  # type: ignore[arg-type]


def shell(script: str, **more: object) -> ContainerSpec:
    return spec("sh", "-c", script, **more)


@asynccontextmanager
async def opened(state: Path, mode: str = "auto", sweep_seconds: float = 0.2) -> AsyncIterator[LocalRuntime]:
    """A runtime; whatever it, or one before it, has started is ended when the test is done with it."""
    runtime = await LocalRuntime.open(state, cgroups=mode, sweep_seconds=sweep_seconds)  # type: ignore[arg-type]
    try:
        yield runtime
    finally:
        await runtime.destroy(0)


async def ended(runtime: LocalRuntime, container_id: str, seconds: float = 120) -> RuntimeStatus:
    """The status once a container has ended."""
    return await eventually(lambda: _ended(runtime, container_id), seconds)


async def _ended(runtime: LocalRuntime, container_id: str) -> RuntimeStatus | None:
    found = await status(runtime, container_id)
    return found if found.state == "exited" else None


async def status(runtime: LocalRuntime, container_id: str) -> RuntimeStatus:
    return next(found for found in await runtime.containers() if found.id == container_id)


async def eventually(check: Callable[[], object], seconds: float = 120):
    """What `check` gives (or comes to) once that is true; fails if it never is."""
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, f"nothing came of it in {seconds} s"
        await asyncio.sleep(0.01)


async def output(runtime: LocalRuntime, container_id: str, **selected: Any) -> str:
    choice = LogSelection(**selected)
    return b"".join([piece async for piece in runtime.logs(container_id, choice)]).decode()


def alive(pid: int) -> bool:
    who = proc.identity(pid)
    return who is not None and proc.is_alive(who)
