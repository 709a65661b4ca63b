"""What affinity alone can do, and what it says it cannot."""

import asyncio
import logging
import os

import pytest

from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import proc
from corelane.kernel.cgroup import CgroupsUnavailable
from corelane.runtime.base import ResourceUpdate
from support.containers import (
    HIGH,
    LOW,
    MINE,
    PYTHON,
    eventually,
    needs_two_cpus,
    opened,
    output,
    shell,
    spec,
)


async def mask(runtime, container_id):
    return {task.cpus for task in await runtime.allowed(container_id)}


@needs_two_cpus
async def test_a_task_that_leaves_its_cpus_is_soon_brought_back(tmp_path, caplog):
    caplog.set_level(logging.INFO, "corelane.runtime")
    async with opened(tmp_path / "state", "off", sweep_seconds=0.1) as runtime:
        found = await runtime.start(shell("sleep 60 & sleep 60 & wait"))
        await eventually(lambda: len(proc.descendants(found.pid)) == 2)
        for pid in (found.pid, proc.descendants(found.pid)[1]):
            os.sched_setaffinity(pid, MINE)

        async def back():
            return await mask(runtime, found.id) == {LOW}

        await eventually(back, 5)
        await eventually(lambda: f"had left CPUs {LOW}" in caplog.text)


@needs_two_cpus
async def test_a_task_that_pins_itself_within_its_cpus_is_left_alone(tmp_path):
    pin = f"import os, time; os.sched_setaffinity(0, [{min(HIGH)}]); print(1, flush=True); time.sleep(60)"
    async with opened(tmp_path / "state", "off", sweep_seconds=0.05) as runtime:
        found = await runtime.start(spec(*PYTHON, pin, cpus=MINE))
        await eventually(lambda: output(runtime, found.id))
        await asyncio.sleep(0.3)
        assert await mask(runtime, found.id) == {HIGH}
        await runtime.update(found.id, ResourceUpdate(cpus=LOW))
        assert await mask(runtime, found.id) == {LOW}, "nothing of its choice is left to it"


async def test_what_is_missing_is_said_once_and_can_be_asked_for(tmp_path, caplog):
    async with opened(tmp_path / "state", "off") as runtime:
        assert runtime.enforcement == "affinity"
        assert "no quota, shares, memory limits or memory nodes" in runtime.notice
        assert "cgroups are switched off" in runtime.notice
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
        found = await runtime.start(spec("sleep", "60", quota_us=10_000, cpu_shares_milli=100))
        await runtime.update(found.id, ResourceUpdate(quota_us=None, shares_milli=200))


async def test_where_no_cgroup_can_be_written_the_reason_is_told(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 ro\n")
    runtime = await LocalRuntime.open(tmp_path / "state", root=tmp_path)
    try:
        assert runtime.enforcement == "affinity"
        assert "sys/fs/cgroup: no controller cpuset and cpu there" in runtime.notice
    finally:
        await runtime.destroy(0)
    with pytest.raises(CgroupsUnavailable):
        await LocalRuntime.open(tmp_path / "state", root=tmp_path, cgroups="required")
    await (await LocalRuntime.open(tmp_path / "state", cgroups="off")).destroy(0)  # nothing holds it


async def test_an_end_is_noticed_where_the_kernel_has_no_pidfds(tmp_path, monkeypatch):
    def missing(pid, flags=0):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    async with opened(tmp_path / "state", "off", sweep_seconds=0.05) as runtime:
        events = runtime.wait_events()
        found = await runtime.start(shell("sleep 0.2; exit 6"))
        assert (await anext(events)).state == "running"
        assert (await anext(events)).exit_code == 6
        stubborn = await runtime.start(shell("trap '' TERM; while :; do sleep 1; done", attempt=1))
        await runtime.stop(stubborn.id, 0.1)
        assert found.id != stubborn.id
