"""Memory limits on a real kernel: what the OOM killer ends, and how the ends of containers are reported."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import cgroup, cgroup_tree
from support.containers import (
    PYTHON,
    alive,
    ended,
    eventually,
    limits_memory,
    opened,
    output,
    shell,
    spec,
    status,
)

pytestmark = pytest.mark.skipif(not limits_memory(), reason="needs memory cgroups that can be written")

MIB = 1 << 20
LIMIT = 32 * MIB
EAT = "held = [bytearray(b'x') * (1 << 20) for _ in range(96)]"
"""Holds 96 MiB, three times the limit of these tests."""
CHILD_EATS = f"""
import os, signal, time
child = os.fork()
if child == 0:
    {EAT}
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def mode():
    return "required"


def run(main):
    async def limited():
        async with asyncio.timeout(180):
            await main

    asyncio.run(limited())


def eater(**more):
    return spec(*PYTHON, EAT, memory_limit=LIMIT, **more)


def groups_left(runtime):
    return [
        str(directory)
        for directory in runtime._enforcements.default.groups.directories(cgroup.join(runtime.instance))
        if directory.exists()
    ]


async def test_a_container_beyond_its_limit_is_killed_and_said_to_be_out_of_memory(runtime):
    assert (runtime.notice, runtime.capabilities.memory_limits) == ("", True)
    found = await ended(runtime, (await runtime.start(eater())).id)
    assert (found.exit_code, found.signal, found.oom_killed) == (137, signal.SIGKILL, True)
    again = await ended(runtime, (await runtime.start(eater(attempt=1))).id)
    assert (again.exit_code, again.oom_killed) == (137, True), "the next attempt as well"
    small = await runtime.start(shell("exit 3", attempt=2, memory_limit=LIMIT))
    found = await ended(runtime, small.id)
    assert (found.exit_code, found.oom_killed) == (3, False), "an earlier run does not count"


async def test_without_a_limit_or_within_it_nothing_is_killed(runtime):
    free = await runtime.start(spec(*PYTHON, EAT, name="free"))
    wide = await runtime.start(spec(*PYTHON, EAT, name="wide", memory_limit=256 * MIB))
    for one in (free, wide):
        found = await ended(runtime, one.id)
        assert (found.exit_code, found.oom_killed) == (0, False)


async def test_sigkill_alone_is_not_out_of_memory(runtime):
    one = await runtime.start(spec("sleep", "60", memory_limit=LIMIT))
    await runtime.stop(one.id, 0)
    found = await status(runtime, one.id)
    assert (found.exit_code, found.oom_killed) == (137, False)


async def test_a_child_that_is_killed_counts_once_the_container_ends(runtime, tmp_path):
    """As containerd: on version 1 the main process goes on; the reason is that of the whole container."""
    if runtime.enforcement != "cgroup v1":
        pytest.skip("version 2 kills the whole container: see the guest's test")
    script = CHILD_EATS + "while not os.path.exists(os.environ['GO']): time.sleep(0.01)\n"
    env = (("GO", str(tmp_path / "go")),)
    one = await runtime.start(spec(*PYTHON, script, memory_limit=LIMIT, env=env))
    await eventually(lambda: _said(runtime, one.id, "-9"))
    assert (await status(runtime, one.id)).state == "running"
    (tmp_path / "go").touch()
    found = await ended(runtime, one.id)
    assert (found.exit_code, found.oom_killed) == (0, True)


async def _said(runtime, container_id, text):
    return text in await output(runtime, container_id)


async def test_the_pods_limit_holds_for_containers_that_have_none(runtime):
    found = await ended(runtime, (await runtime.start(spec(*PYTHON, EAT, pod_memory_limit=LIMIT))).id)
    assert (found.exit_code, found.oom_killed) == (137, True)


async def test_the_pods_limit_is_that_of_its_containers_together(runtime):
    hold = "held = bytearray(b'x') * (20 << 20); print('held', flush=True); import time; time.sleep(60)"
    more = {"memory_limit": LIMIT, "pod_memory_limit": LIMIT}
    first = await runtime.start(spec(*PYTHON, hold, name="first", **more))
    await eventually(lambda: _said(runtime, first.id, "held"))
    second = await runtime.start(spec(*PYTHON, hold, name="second", **more))
    gone = await eventually(lambda: _one_ended(runtime))
    assert (gone.exit_code, gone.oom_killed) == (137, True)
    left = next(one for one in (first, second) if one.id != gone.id)
    assert (await status(runtime, left.id)).state == "running"


async def _one_ended(runtime):
    return next((one for one in await runtime.containers() if one.state == "exited"), None)


async def test_limits_reach_the_kernel_rounded_down_to_pages_and_without_swap(runtime):
    await runtime.start(spec("sleep", "60", memory_limit=LIMIT + 1, pod_memory_limit=3 * LIMIT, name="main"))
    groups = runtime._enforcements.default.groups
    pod = cgroup.join(runtime.instance, "0a1b")
    assert cgroup_tree.limit(groups, f"{pod}/main") == LIMIT
    assert cgroup_tree.limit(groups, pod) == 3 * LIMIT
    base = groups.bases["memory"] / f"{pod}/main"
    if (base / "memory.memsw.limit_in_bytes").exists():
        assert int((base / "memory.memsw.limit_in_bytes").read_text()) == LIMIT
    await runtime.start(spec("sleep", "60", name="free", pod_memory_limit=5 * LIMIT))
    assert cgroup_tree.limit(groups, f"{pod}/free") is None
    assert cgroup_tree.limit(groups, pod) == 5 * LIMIT, "raised, with memory and swap in use"


async def test_a_limit_that_is_too_small_to_start_is_out_of_memory_as_well(runtime):
    one = await runtime.start(spec("sleep", "60", memory_limit=64 << 10))
    found = await ended(runtime, one.id)
    assert (found.exit_code, found.oom_killed) == (137, True)


async def test_nothing_is_left_in_any_hierarchy(tmp_path):
    async with opened(tmp_path / "state", "required") as runtime:
        one = await runtime.start(eater())
        await ended(runtime, one.id)
        await runtime.remove(one.id)
        await eventually(lambda: not groups_left_of_pod(runtime))
    assert groups_left(runtime) == []


def groups_left_of_pod(runtime):
    groups = runtime._enforcements.default.groups
    return groups.exists(cgroup.join(runtime.instance, "0a1b"))


VICTIM = """
import asyncio, sys
from pathlib import Path
from corelane.embedded.containers.local import LocalRuntime
sys.path.insert(0, {support!r})
from support.containers import spec

async def main():
    runtime = await LocalRuntime.open(Path({state!r}), cgroups="required")
    env = (("GO", {go!r}),)
    one = await runtime.start(spec(*{command!r}, memory_limit={limit}, env=env))
    shim = runtime._known.find(one.id).outcome.shim_pid
    print(one.id, one.pid, shim, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
WAIT_AND_EAT = f"import os, time\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.01)\n{EAT}"


def killed_runtime(tmp_path):
    """Id, pid and shim of a container whose runtime was killed; it eats once GO is there."""
    text = VICTIM.format(
        support=str(Path(__file__).parents[2]),
        state=str(tmp_path / "state"),
        go=str(tmp_path / "go"),
        command=(*PYTHON, WAIT_AND_EAT),
        limit=LIMIT,
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as victim:
        container_id, pid, shim = victim.stdout.readline().split()
        os.killpg(victim.pid, signal.SIGKILL)
    return container_id, int(pid), int(shim)


@pytest.mark.parametrize("shim_lives", [True, False], ids=["with its shim", "without its shim"])
async def test_an_end_between_two_lives_of_the_runtime_keeps_its_reason(tmp_path, shim_lives):
    container_id, pid, shim = await asyncio.to_thread(killed_runtime, tmp_path)
    if not shim_lives:
        os.kill(shim, signal.SIGKILL)
        await eventually(lambda: not alive(shim))
    (tmp_path / "go").touch()
    await eventually(lambda: not alive(pid) and not (shim_lives and alive(shim)))
    for attempt in range(2):
        runtime = await LocalRuntime.open(tmp_path / "state", cgroups="required")
        try:
            found = await ended(runtime, container_id)
            code = 137 if shim_lives else 255
            assert (found.exit_code, found.oom_killed) == (code, True)
        finally:
            await (runtime.close() if attempt == 0 else runtime.destroy(0))


async def test_a_record_from_before_memory_limits_is_adopted(runtime):
    """Its container has no memory cgroup: it goes on, can be changed, and its end is not out of memory."""
    groups = runtime._enforcements.default.groups
    if groups.version == 2:
        pytest.skip("version 2 has one hierarchy")
    one = await runtime.start(spec("sleep", "60"))
    memory = groups.bases["memory"] / cgroup.join(runtime.instance, "0a1b", "main")
    (groups.bases["memory"] / "cgroup.procs").write_text(str(one.pid))
    memory.rmdir()
    await runtime._change(runtime._known.find(one.id), spec("sleep", "60", cpu_shares_milli=500))
    assert groups.pids(cgroup.join(runtime.instance, "0a1b", "main")) == [one.pid]
    await runtime.stop(one.id, 0)
    assert (await status(runtime, one.id)).oom_killed is False
