"""CPUs that go off-line and come back, as the agent of a node sees and repairs them."""

from contextlib import asynccontextmanager

import pytest

from corelane.cpuset import named
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.pods.pod_agent import Agent
from corelane.kernel import cgroup
from corelane.kube.objects import Event
from corelane.kube.pod import Pod
from corelane.machine.model import MachineError
from corelane.machine.sources import load
from corelane.machine.watch import MachineWatch
from corelane.runtime.base import RuntimeStatus
from support.cluster_lab import SERVE, cluster, container, pod, until, working
from support.containers import HIGH, LOW, MINE, both_ways, have_cgroups, needs_two_cpus

needs_cgroups = pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written")


class Hotplug:
    """This machine, of which CPUs can be said to be off-line."""

    def __init__(self):
        self.whole = self.machine = load()
        self.broken = False

    def read(self, path):
        return str(self.machine.online)

    def watch(self):
        return MachineWatch(
            self.whole, load=self.read_machine, sys=self, allowed=lambda: self.machine.allowed
        )

    def read_machine(self):
        if self.broken:
            raise MachineError("cannot be read")
        return self.machine


@asynccontextmanager
async def node(directory, mode, hotplug, reconcile_seconds=0.3):
    runtime = await LocalRuntime.open(directory / "runtime", cgroups=mode, sweep_seconds=0.2)
    async with cluster(directory) as client:
        agent = Agent(
            client,
            node_name="here",
            machine=hotplug.whole,
            runtime=runtime,
            state_dir=directory,
            reconcile_seconds=reconcile_seconds,
            validate=True,
            machine_watch=hotplug.watch(),
        )
        try:
            async with working(agent):
                yield client, runtime
        finally:
            again = await LocalRuntime.open(directory / "runtime", cgroups=mode)
            await again.destroy(0)


async def the_container(client, runtime) -> RuntimeStatus:
    await client.create(pod("p", container("shared", SERVE)))
    return await the_container_of(runtime)


async def the_container_of(runtime) -> RuntimeStatus:
    async def started():
        return next((one for one in await runtime.containers() if one.state == "running"), None)

    return await until(started)


async def cpus_become(runtime, run, cpus):
    async def granted():
        observed = await runtime.observe(run.id)
        return observed and observed.cpus == cpus

    await until(granted)


@both_ways
@needs_two_cpus
async def test_containers_leave_cpus_that_go_offline_and_return_with_them(tmp_path, mode):
    hotplug = Hotplug()
    async with node(tmp_path, mode, hotplug) as (client, runtime):
        run = await the_container(client, runtime)
        await cpus_become(runtime, run, MINE)
        hotplug.machine = hotplug.whole.restricted(LOW.mask)
        await cpus_become(runtime, run, LOW)
        hotplug.machine = hotplug.whole
        await cpus_become(runtime, run, MINE)


@both_ways
@needs_two_cpus
async def test_a_start_ordered_before_its_cpus_went_offline_gets_others(tmp_path, mode):
    """The machine is read with the failure, not with the next period."""

    hotplug = Hotplug()
    async with node(tmp_path, mode, hotplug, reconcile_seconds=3600) as (client, runtime):
        runtime.sys = hotplug
        hotplug.machine = hotplug.whole.restricted(LOW.mask)
        run = await the_container(client, runtime)
        await cpus_become(runtime, run, LOW)
        events = await client.list(Event)
        failed = [one for one in events.items if one.reason == "Failed"]
        assert len(failed) == 1
        assert f"{named(HIGH.mask)} went off-line" in failed[0].message


@both_ways
@needs_two_cpus
async def test_a_start_on_an_offline_cpu_waits_until_it_is_back_even_if_the_machine_cannot_be_read(
    tmp_path, mode
):
    hotplug = Hotplug()
    async with node(tmp_path, mode, hotplug, reconcile_seconds=3600) as (client, runtime):
        runtime.sys = hotplug
        hotplug.machine = hotplug.whole.restricted(LOW.mask)
        hotplug.broken = True
        await client.create(pod("p", container("shared", SERVE), restartPolicy="Never"))

        async def refused():
            found = await client.get(Pod, "p", "default")
            states = [one.state.waiting for one in found.status.container_statuses]
            return states and states[0] and states[0].reason == "CPUsOffline"

        await until(refused)
        assert await runtime.containers() == []
        hotplug.machine = hotplug.whole
        run = await the_container_of(runtime)
        await cpus_become(runtime, run, MINE)


@needs_cgroups
@needs_two_cpus
async def test_cpus_that_the_kernel_does_not_restore_are_written_back(tmp_path):
    """Version 1 takes an off-line CPU from every cpuset.cpus, and does not put it back."""

    async with node(tmp_path, "required", Hotplug()) as (client, runtime):
        run = await the_container(client, runtime)
        await cpus_become(runtime, run, MINE)
        for _ in range(2):
            cgroup.find().set_cpus(run.cgroup, LOW)
            await cpus_become(runtime, run, MINE)
