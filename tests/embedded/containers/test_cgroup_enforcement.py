"""What only cgroups can do, read back from the kernel."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from corelane.embedded.containers import enforce
from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import cgroup, proc
from corelane.runtime.base import ResourceUpdate, RuntimeFailure
from support.containers import (
    HIGH,
    LOW,
    MINE,
    alive,
    ended,
    eventually,
    have_cgroups,
    needs_two_cpus,
    opened,
    shell,
    spec,
)

pytestmark = pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written")

HAVE_VERSION_1 = have_cgroups() and cgroup.find().version == 1


@pytest.fixture
def mode():
    return "required"


def run(main):
    asyncio.run(asyncio.wait_for(main, 180))


@pytest.fixture
def groups():
    return cgroup.find()


async def test_request_limit_and_memory_nodes_reach_the_containers_own_group(runtime, groups):
    assert runtime.enforcement == f"cgroup v{groups.version}"
    assert runtime.notice == ""
    asked = spec("sleep", "60", cpu_shares_milli=500, quota_us=30_000, mems=LOW - LOW)
    found = await runtime.start(asked)
    group = cgroup.join(runtime.instance, "0a1b", "main")
    assert groups.pids(group) == [found.pid]
    settings = groups.read(group)
    assert (settings.cpus, settings.quota_us, settings.period_us) == (LOW, 30_000, 100_000)
    assert settings.shares == 512 if groups.version == 1 else settings.weight == 59
    await runtime.update(found.id, ResourceUpdate(quota_us=None, shares_milli=1000, mems=settings.mems))
    settings = groups.read(group)
    assert settings.quota_us is None
    assert settings.shares == 1024 if groups.version == 1 else settings.weight == 100
    await runtime.update(found.id, ResourceUpdate(quota_us=200_000))
    assert groups.read(group).quota_us == 200_000
    assert groups.read(group).cpus == LOW


async def test_a_pod_weighs_what_its_running_containers_request(runtime, groups):
    pod = cgroup.join(runtime.instance, "0a1b")

    def weight():
        found = groups.read(pod)
        return found.shares if groups.version == 1 else found.weight

    one = await runtime.start(spec("sleep", "60", name="one", cpu_shares_milli=1000))
    alone = weight()
    assert alone == (1024 if groups.version == 1 else 39)
    two = await runtime.start(spec("sleep", "60", name="two", cpu_shares_milli=1000))
    assert weight() == (2048 if groups.version == 1 else 79)
    await runtime.update(two.id, ResourceUpdate(shares_milli=3000))
    assert weight() == (4096 if groups.version == 1 else 157)
    await runtime.stop(one.id, 0)
    await runtime.stop(two.id, 0)
    assert weight() == (2 if groups.version == 1 else 1), "as a pod of best effort"


@needs_two_cpus
async def test_a_task_cannot_leave_its_cpus(runtime, groups):
    found = await runtime.start(shell(f"taskset -cp {HIGH} $$; exec sleep 60"))
    await eventually(lambda: proc.stat(found.pid).name == "sleep")
    assert proc.allowed(found.pid) == LOW


@needs_two_cpus
async def test_a_process_that_was_moved_out_of_its_cpuset_is_brought_back(tmp_path, groups):
    """Only v1 has a group apart for CPUs; who leaves the one of v2 has left the container."""
    if groups.version == 2:
        pytest.skip("cgroup v2 has one hierarchy")
    async with opened(tmp_path / "state", "required") as runtime:
        found = await runtime.start(spec("sleep", "60"))
        assert groups.gather(cgroup.join(runtime.instance, "0a1b", "main")) == []
        (groups.bases["cpuset"] / "cgroup.procs").write_text(str(found.pid))
        assert proc.allowed(found.pid) == MINE
        await runtime.update(found.id, ResourceUpdate(cpus=LOW))
        assert [task.cpus for task in await runtime.allowed(found.id)] == [LOW]
        assert proc.allowed(found.pid) == LOW


@needs_two_cpus
async def test_a_thread_that_was_moved_out_of_its_cpuset_alone_is_brought_back(tmp_path, groups):
    crowd = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(60)"
    if groups.version == 2:
        pytest.skip("cgroup v2 has one hierarchy")
    async with opened(tmp_path / "state", "required") as runtime:
        found = await runtime.start(spec(sys.executable, "-c", crowd))
        await eventually(lambda: len(proc.tasks(found.pid)) == 2)
        stray = proc.tasks(found.pid)[-1]
        (groups.bases["cpuset"] / "tasks").write_text(str(stray))
        assert proc.allowed(found.pid, stray) == MINE
        await runtime.update(found.id, ResourceUpdate(cpus=LOW))
        assert {task.cpus for task in await runtime.allowed(found.id)} == {LOW}


@needs_two_cpus
def test_what_corelane_itself_is_pinned_to_does_not_narrow_a_container(tmp_path, groups):
    """A task's own affinity is inherited and would be intersected with its cpuset, for good."""

    async def main():
        async with opened(tmp_path / "state", "required") as runtime:
            found = await runtime.start(spec("sleep", "60", cpus=MINE))
            assert [task.cpus for task in await runtime.allowed(found.id)] == [MINE]
            for cpus in (LOW, HIGH, MINE):
                await runtime.update(found.id, ResourceUpdate(cpus=cpus))
                assert [task.cpus for task in await runtime.allowed(found.id)] == [cpus]

    os.sched_setaffinity(0, LOW)
    try:
        run(main())
    finally:
        os.sched_setaffinity(0, MINE)


async def test_groups_go_with_their_containers_and_pods(tmp_path, groups):
    async with opened(tmp_path / "state", "required") as runtime:
        pod = cgroup.join(runtime.instance, "0a1b")
        one = await runtime.start(spec("sleep", "60", name="one"))
        two = await runtime.start(spec("sleep", "60", name="two"))
        assert groups.children(pod) == ["one", "two"]
        await runtime.stop(one.id, 0)
        assert groups.children(pod) == ["two"]
        with pytest.raises(RuntimeFailure, match="StartError"):
            await runtime.start(spec("no-such-program", name="three"))
        assert groups.children(pod) == ["two"]
        await runtime.stop(two.id, 0)
        await runtime.remove(one.id)
        assert groups.exists(pod)
        await runtime.remove(two.id)
        assert not groups.exists(pod)
        instance = runtime.instance
    assert not groups.exists(cgroup.join(instance))


async def test_two_instances_do_not_meet(tmp_path, groups):
    async with opened(tmp_path / "a", "required") as one, opened(tmp_path / "b", "required") as two:
        assert one.instance != two.instance
        ours, theirs = [await runtime.start(spec("sleep", "60")) for runtime in (one, two)]
        await one.destroy(0)
        assert not groups.exists(cgroup.join(one.instance))
        assert groups.pids(cgroup.join(two.instance)) == [theirs.pid]
        assert proc.identity(ours.pid) is None or not proc.is_alive(proc.identity(ours.pid))


@pytest.mark.parametrize("names", [{"name": "cpu.max"}, {"uid": "a/b"}, {"uid": ".."}])
async def test_a_name_that_cannot_be_a_group_is_a_failed_start(runtime, names):
    with pytest.raises(RuntimeFailure, match="cannot name a cgroup"):
        await runtime.start(spec("true", **names))
    assert await runtime.containers() == []


async def test_a_process_that_somebody_else_put_into_the_group_ends_with_it(runtime, groups):
    found = await runtime.start(spec("sleep", "60"))
    guest = await asyncio.create_subprocess_exec("sleep", "60")
    groups.add(cgroup.join(runtime.instance, "0a1b", "main"), guest.pid)
    assert {task.pid for task in await runtime.allowed(found.id)} == {found.pid, guest.pid}
    await runtime.stop(found.id, 5)
    assert await asyncio.wait_for(guest.wait(), 5) == -9


async def test_groups_that_a_crash_left_without_a_record_are_tidied_away(runtime, tmp_path, groups):
    kept = await runtime.start(spec("sleep", "60", name="kept"))
    await runtime.close()
    groups.create(cgroup.join(runtime.instance, "0a1b", "orphan"))
    groups.create(cgroup.join(runtime.instance, "gone", "orphan"))
    async with opened(tmp_path / "state", "required") as again:
        assert groups.children(cgroup.join(again.instance)) == ["0a1b"]
        assert groups.children(cgroup.join(again.instance, "0a1b")) == ["kept"]
        assert groups.pids(cgroup.join(again.instance)) == [kept.pid]


async def test_a_start_of_corelane_that_fails_half_way_kills_nobody(runtime, tmp_path, groups, monkeypatch):
    """It has not yet learned of those who run; what it tidies up must not depend on that."""

    def fail(state):
        raise OSError(5, "Input/output error")

    found = await runtime.start(spec("sleep", "60"))
    await runtime.close()
    with monkeypatch.context() as patch:
        patch.setattr("corelane.embedded.containers.records.RecordStore.ids", fail)
        with pytest.raises(OSError, match="Input/output error"):
            await LocalRuntime.open(tmp_path / "state", cgroups="required")
    assert groups.pids(cgroup.join(runtime.instance)) == [found.pid]
    async with opened(tmp_path / "state", "required") as again:
        assert [one.state for one in await again.containers()] == ["running"]


async def test_nothing_is_left_of_a_corelane_in_which_nothing_runs(runtime, tmp_path, groups):
    await ended(runtime, (await runtime.start(spec("true"))).id)
    await runtime.close()
    assert not groups.exists(cgroup.join(runtime.instance))
    async with opened(tmp_path / "state", "required") as again:
        await again.start(spec("sleep", "60", attempt=1))


async def test_the_container_was_never_anywhere_else(runtime):
    """Its very first instruction already sees its own group; the shim put it there before."""
    found = await runtime.start(spec("cat", "/proc/self/cgroup"))
    await ended(runtime, found.id)
    own = f"/corelane/{runtime.instance}/0a1b/main"
    text = b"".join([piece async for piece in runtime.logs(found.id)]).decode()
    assert sum(line.endswith(own) for line in text.splitlines()) >= 1


LEAVE = "for c in /sys/fs/cgroup/*/cgroup.procs; do echo $$ > $c; done 2>/dev/null; sleep 1000 & wait"


@pytest.mark.skipif(not HAVE_VERSION_1, reason="needs cgroup v1: its roots may be entered beside groups")
@needs_two_cpus
async def test_process_that_left_its_cgroups_is_observed_brought_back_and_ends_with_its_container(
    tmp_path, groups
):
    async with opened(tmp_path / "state", "required", sweep_seconds=3600) as runtime:
        begun = await runtime.start(shell(LEAVE, cpus=LOW))
        group = cgroup.join(runtime.instance, "0a1b", "main")
        await eventually(lambda: not groups.confined(group) and proc.children(begun.pid))
        (child,) = proc.children(begun.pid)
        for pid in (begun.pid, child):
            os.sched_setaffinity(pid, MINE)
        observed = await runtime.observe(begun.id)
        assert observed.populated
        assert observed.cpus == MINE, "the kernel lets its processes run there"
        await runtime.update(begun.id, ResourceUpdate(cpus=HIGH))
        assert groups.confined(group) == {begun.pid, child}
        assert proc.allowed(child) == HIGH
        for directory in groups.directories(group):
            (directory.parents[3] / "cgroup.procs").write_text(str(child))
        await runtime.stop(begun.id, 0)
        assert not alive(child)


@pytest.mark.skipif(not HAVE_VERSION_1, reason="needs cgroup v1: its roots may be entered beside groups")
async def test_process_that_left_its_cgroups_ends_with_its_container_whose_shim_was_killed(tmp_path, groups):
    async with opened(tmp_path / "state", "required", sweep_seconds=3600) as runtime:
        begun = await runtime.start(shell(f"({LEAVE}) & sleep 1000"))
        group = cgroup.join(runtime.instance, "0a1b", "main")
        await eventually(lambda: len(proc.bearing(enforce.mark(begun.id))) == 4)
        strays = set(proc.bearing(enforce.mark(begun.id))) - groups.confined(group)
        os.kill(proc.stat(begun.pid).ppid, signal.SIGKILL)
        os.kill(begun.pid, signal.SIGKILL)
        await ended(runtime, begun.id)
        assert strays
        assert not any(map(alive, strays))


@pytest.mark.skipif(
    not HAVE_VERSION_1, reason="in version 2 a group with processes hands no controllers down"
)
@needs_two_cpus
async def test_container_with_a_cpuset_of_its_own_follows_a_move(runtime, groups):
    """As systemd, docker or kubelet make them: those groups are narrowed first."""
    script = (
        "G=/sys/fs/cgroup/cpuset$(grep cpuset: /proc/self/cgroup | cut -d: -f3); mkdir -p $G/sub/deep; "
        "for d in sub sub/deep; do cat $G/cpuset.cpus > $G/$d/cpuset.cpus; "
        "cat $G/cpuset.mems > $G/$d/cpuset.mems; done; echo $$ > $G/sub/deep/cgroup.procs; sleep 1000 & wait"
    )
    begun = await runtime.start(shell(script, cpus=LOW | HIGH))
    path = f"/corelane/{runtime.instance}/0a1b/main/sub/deep"
    await eventually(lambda: path in Path(f"/proc/{begun.pid}/cgroup").read_text())
    for cpus in (LOW, HIGH, LOW | HIGH, HIGH):
        await runtime.update(begun.id, ResourceUpdate(cpus=cpus))
        assert proc.allowed(begun.pid) == cpus
    await runtime.stop(begun.id, 0)
