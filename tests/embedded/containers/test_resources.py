"""Resources of a running container: changed in part or whole, put back, and observed."""

import json

import pytest

from corelane.embedded.containers.records import RecordStore
from corelane.kernel import cfs, cgroup
from corelane.runtime.base import ResourceUpdate
from support.containers import HIGH, LOW, MINE, both_ways, have_cgroups, needs_two_cpus, opened, spec

needs_cgroups = pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written")


@both_ways
@needs_two_cpus
async def test_observed_cpus_are_what_the_kernel_grants(runtime):
    run = await runtime.start(spec("sleep", "60", cpus=LOW))
    for cpus in (LOW, MINE, HIGH):
        await runtime.update(run.id, ResourceUpdate(cpus=cpus))
        observed = await runtime.observe(run.id)
        assert (observed.cpus, observed.cpus_requested, observed.populated) == (cpus, cpus, True)
        assert observed.cgroup == run.cgroup
    await runtime.stop(run.id, 0)
    ended = await runtime.observe(run.id)
    assert ended is None or not ended.populated


@needs_cgroups
async def test_a_lifted_quota_is_put_back_with_its_period(runtime):
    run = await runtime.start(spec("sleep", "60", quota_us=25_000, period_us=50_000))

    async def quota():
        observed = await runtime.observe(run.id)
        return observed.quota_us, observed.period_us

    assert await quota() == (25_000, 50_000)
    await runtime.update(run.id, ResourceUpdate(quota_us=None))
    assert await quota() == (None, 50_000)
    await runtime.update(run.id, ResourceUpdate(cpus=MINE))
    assert await quota() == (None, 50_000), "only the given fields change"
    await runtime.update(run.id, ResourceUpdate(quota_us=30_000, period_us=cfs.PERIOD_US))
    assert await quota() == (30_000, cfs.PERIOD_US)


@needs_cgroups
async def test_a_quota_that_was_changed_from_outside_is_put_back(runtime):
    run = await runtime.start(spec("sleep", "60", quota_us=25_000))
    groups = cgroup.find()
    groups.set_quota(run.cgroup, None)
    await runtime.update(run.id, ResourceUpdate(quota_us=25_000))
    assert (await runtime.observe(run.id)).quota_us == 25_000


@needs_cgroups
async def test_a_burst_never_exceeds_a_quota_that_shrinks(runtime):
    run = await runtime.start(spec("sleep", "60", quota_us=50_000))
    groups = cgroup.find()
    if not (groups.bases["cpu"] / run.cgroup / "cpu.cfs_burst_us").exists():
        pytest.skip("this kernel has no CFS burst")
    await runtime.update(run.id, ResourceUpdate(burst_us=40_000))
    await runtime.update(run.id, ResourceUpdate(quota_us=20_000, burst_us=10_000))
    observed = await runtime.observe(run.id)
    assert (observed.quota_us, observed.burst_us) == (20_000, 10_000)


async def test_a_record_of_an_earlier_version_keeps_its_quota(tmp_path):
    async with opened(tmp_path / "state", "off") as runtime:
        run = await runtime.start(spec("sleep", "60", quota_us=30_000))
        path = tmp_path / "state/containers" / run.id / "spec.json"
        record = json.loads(path.read_text())
        del record["spec"]["quota_us"], record["spec"]["period_us"], record["spec"]["burst_us"]
        record["spec"]["quota_milli"], record["version"] = 300, 1
        path.write_text(json.dumps(record))
        stored = RecordStore.load(runtime._state, run.id)
        assert (stored.spec.quota_us, stored.spec.period_us) == (30_000, cfs.PERIOD_US)
