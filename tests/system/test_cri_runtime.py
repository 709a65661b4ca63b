"""Containers of a real containerd, held to their CPUs through CRI and cgroup files."""

import asyncio
import time
from contextlib import asynccontextmanager, suppress

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, container_paths
from corelane.runtime.base import ResourceUpdate, RuntimeFailure, UnknownContainer
from corelane.runtime.cri.runtime import CRIRuntime
from support import containerd

pytestmark = pytest.mark.system

SECONDS = 30
UIDS = (f"{number:08}-2222-4333-8444-555555555555" for number in range(10_000))


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def lab(request, tmp_path_factory):
    with containerd.running(tmp_path_factory.mktemp("cd"), request.param) as found:
        yield found


@pytest.fixture(scope="module")
def view():
    return container_paths.view()


@pytest.fixture(scope="module")
def cpus(view):
    """All CPUs, the lowest, and the highest."""
    online = container_cgroup.effective(view, "")
    if len(online) < 2:
        pytest.skip("needs two CPUs")
    return online, CPUSet([min(online)]), CPUSet([max(online)])


@pytest.fixture
def pod(lab):
    made = lab.run_pod("web", next(UIDS))
    yield made
    with suppress(Exception):
        lab.remove_pod(made)


@asynccontextmanager
async def connected(lab, view, **options):
    runtime = CRIRuntime(view, lab.endpoint, **options)
    try:
        yield runtime
    finally:
        await runtime.close()


def with_runtime(lab, view, scene, **options):
    async def play():
        async with asyncio.timeout(SECONDS * 4), connected(lab, view, **options) as runtime:
            return await scene(runtime)

    return asyncio.run(play())


async def status_of(runtime, container):
    return next((one for one in await runtime.containers() if one.id == container), None)


async def until(condition, seconds=SECONDS):
    async with asyncio.timeout(seconds):
        while not (value := condition()):
            await asyncio.sleep(0.02)
    return value


def test_a_container_is_listed_as_the_kubelet_labelled_it(lab, view, pod):
    container = lab.run_container(pod, "app", shares=1024, attempt=2)

    async def scene(runtime):
        status = await status_of(runtime, container)
        assert (status.pod_uid, status.namespace, status.pod) == (pod.uid, "default", "web")
        assert (status.name, status.attempt, status.state) == ("app", 2, "running")
        assert status.sandbox_id == pod.id
        assert view.cpuset / status.cgroup == lab.cgroup(container)
        assert (status.pid, runtime.name) == (lab.pid(container), "containerd")
        assert abs(status.started_at - time.time()) < 60

    with_runtime(lab, view, scene)


def test_pinning_and_repinning_keep_quota_shares_and_memory_nodes(lab, view, pod, cpus):
    everything, low, high = cpus
    container = lab.run_container(
        pod, "app", shares=2048, quota=150_000, cpus=str(everything), mems="0", memory=64 << 20
    )

    async def scene(runtime):
        for target in (low, high, everything):
            await runtime.update(container, ResourceUpdate(cpus=target))
            observed = await runtime.observe(container)
            assert (observed.cpus, observed.cpus_requested, observed.populated) == (target, target, True)
            assert (observed.quota_us, observed.period_us) == (150_000, 100_000)
            assert {task.cpus for task in await runtime.allowed(container)} == {target}
            record = lab.recorded_cpu(container)
            assert record == {
                "shares": 2048,
                "quota": 150_000,
                "period": 100_000,
                "cpus": str(target),
                "mems": "0",
            }
        assert runtime.unrecorded == []

    with_runtime(lab, view, scene)
    assert int((lab.cgroup(container, "cpu") / "cpu.shares").read_text()) == 2048
    assert int((lab.cgroup(container, "memory") / "memory.limit_in_bytes").read_text()) == 64 << 20


def test_a_quota_is_lifted_and_put_back_with_its_period_and_burst(lab, view, pod, cpus):
    container = lab.run_container(pod, "app", shares=1024, quota=150_000, cpus=str(cpus[0]))
    steps = [(None, 100_000, 0), (40_000, 20_000, 0), (150_000, 100_000, 0)]
    if (view.cpu / "cpu.cfs_burst_us").exists():
        steps += [(50_000, 100_000, 30_000), (20_000, 100_000, 10_000), (150_000, 100_000, 0)]

    async def scene(runtime):
        for quota, period, burst in steps:
            await runtime.update(container, ResourceUpdate(quota_us=quota, period_us=period, burst_us=burst))
            observed = await runtime.observe(container)
            assert (observed.quota_us, observed.period_us, observed.burst_us) == (quota, period, burst)
            record = lab.recorded_cpu(container)
            assert (record["quota"], record["period"]) == (-1 if quota is None else quota, period)
            assert record["cpus"] == str(cpus[0])

    with_runtime(lab, view, scene)


def test_drift_is_seen_in_the_cgroup_and_repaired(lab, view, pod, cpus):
    _, low, high = cpus
    container = lab.run_container(pod, "app", shares=1024, cpus=str(low))

    async def scene(runtime):
        assert (await runtime.observe(container)).cpus == low
        (lab.cgroup(container) / "cpuset.cpus").write_text(str(high))
        assert (await runtime.observe(container)).cpus == high
        await runtime.update(container, ResourceUpdate(cpus=low))
        assert (await runtime.observe(container)).cpus == low

    with_runtime(lab, view, scene)


def test_after_a_write_to_the_cgroup_the_record_follows_so_that_no_update_brings_the_old_set_back(
    lab, view, pod, cpus
):
    _, low, high = cpus
    container = lab.run_container(pod, "app", shares=1024, quota=100_000, cpus=str(low))

    async def scene(runtime):
        await runtime.write_cgroup(container, ResourceUpdate(cpus=high, quota_us=None))
        observed = await runtime.observe(container)
        assert (observed.cpus, observed.quota_us) == (high, None)
        await until(lambda: not runtime.unrecorded)
        record = lab.recorded_cpu(container)
        assert (record["cpus"], record["quota"]) == (str(high), -1)
        lab.update(container, shares=512)
        observed = await runtime.observe(container)
        assert (observed.cpus, observed.quota_us) == (high, None)

    with_runtime(lab, view, scene)


def test_a_restart_of_containerd_is_survived_and_a_change_meanwhile_is_recorded_later(lab, view, pod, cpus):
    everything, low, high = cpus
    container = lab.run_container(pod, "app", shares=1024, cpus=str(everything))

    async def scene(runtime):
        await runtime.update(container, ResourceUpdate(cpus=low))
        lab.kill_daemon()
        with pytest.raises(RuntimeFailure, match="the container runtime is running"):
            await runtime.containers()
        assert (await runtime.observe(container)).cpus == low, "the kernel needs no runtime"
        await runtime.update(container, ResourceUpdate(cpus=high))
        assert (await runtime.observe(container)).cpus == high
        assert runtime.unrecorded == [container]
        await asyncio.to_thread(lab.start_daemon)
        await until(lambda: not runtime.unrecorded)
        assert lab.recorded_cpu(container)["cpus"] == str(high)
        assert (await status_of(runtime, container)).state == "running"
        await runtime.update(container, ResourceUpdate(cpus=low))
        assert (await runtime.observe(container)).cpus == low

    with_runtime(lab, view, scene, call_seconds=5.0)


def test_starts_and_ends_are_reported_at_once_again_after_a_restart(lab, view, pod):
    async def scene(runtime):
        seen = set()

        async def listen():
            async for status in runtime.wait_events():
                seen.add((status.id, status.state))

        listener = asyncio.create_task(listen())
        for restart in (False, True):
            if restart:
                await asyncio.to_thread(lab.restart)
            await until(lambda: runtime.follows_events)
            await asyncio.sleep(1.2)  # past the lists that cover the stream's beginning
            container = await asyncio.to_thread(lab.run_container, pod, f"app{restart}", shares=2)
            await until(lambda: (container, "running") in seen)  # noqa: B023
            await asyncio.to_thread(lab.stop, container)
            await until(lambda: (container, "exited") in seen)  # noqa: B023
        listener.cancel()

    with_runtime(lab, view, scene, list_seconds=3600.0)


def test_a_container_that_has_gone_is_unknown_and_one_that_ended_is_left_alone(lab, view, pod, cpus):
    low = cpus[1]
    container = lab.run_container(pod, "app", shares=1024)

    async def scene(runtime):
        assert (await runtime.observe(container)).populated
        await asyncio.to_thread(lab.stop, container)
        assert await runtime.observe(container) is None
        with pytest.raises(UnknownContainer):
            await runtime.write_cgroup(container, ResourceUpdate(cpus=low))
        assert (await status_of(runtime, container)).state == "exited"
        await runtime.update(container, ResourceUpdate(cpus=low))
        await asyncio.to_thread(lab.remove, container)
        assert await status_of(runtime, container) is None
        assert await runtime.observe(container) is None
        with pytest.raises(UnknownContainer):
            await runtime.update(container, ResourceUpdate(cpus=low))

    with_runtime(lab, view, scene)


def test_a_set_that_the_kernel_refuses_is_reported_in_its_words_and_nothing_changes(lab, view, pod, cpus):
    container = lab.run_container(pod, "app", shares=1024, cpus=str(cpus[1]))

    async def scene(runtime):
        with pytest.raises(RuntimeFailure, match=r"cpuset\.cpus: E[A-Z]+: "):
            await runtime.update(container, ResourceUpdate(cpus=CPUSet([4000])))
        assert (await runtime.observe(container)).cpus == cpus[1]
        assert lab.recorded_cpu(container)["cpus"] == str(cpus[1])
        assert runtime.unrecorded == []

    with_runtime(lab, view, scene)


def test_a_container_with_groups_of_its_own_follows_where_runc_cannot(lab, view, pod, cpus):
    """As Docker in a pod: in version 1 runc fails on a set that a group below does not allow."""
    if view.version != 1:
        pytest.skip("version 2 narrows groups below by itself")
    everything, low, high = cpus
    container = lab.run_container(pod, "app", shares=1024, cpus=str(everything))
    nested = lab.cgroup(container) / "nested"
    nested.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        (nested / name).write_text((nested.parent / name).read_text())

    async def scene(runtime):
        for target in (low, high):
            await runtime.update(container, ResourceUpdate(cpus=target))
            assert (await runtime.observe(container)).cpus == target
            assert (nested / "cpuset.cpus").read_text().strip() == str(target)
            await until(lambda: not runtime.unrecorded)
            assert lab.recorded_cpu(container)["cpus"] == str(target)

    try:
        with_runtime(lab, view, scene)
    finally:
        nested.rmdir()
