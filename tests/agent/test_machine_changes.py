"""CPUs that go off-line and come back, as the agent of a node sees and repairs them."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from corelane.agent.agent import Agent
from corelane.kernel import cgroup
from corelane.machine.sources import load
from corelane.machine.watch import MachineWatch
from corelane.runtime.base import RuntimeStatus
from corelane.runtime.local import LocalRuntime
from support.cluster_lab import SERVE, cluster, container, pod, until, working
from support.containers import LOW, MINE, both_ways, have_cgroups, needs_two_cpus

needs_cgroups = pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written")


class Hotplug:
    """This machine, of which CPUs can be said to be off-line."""

    def __init__(self):
        self.whole = self.machine = load()

    def read(self, path):
        return str(self.machine.online)

    def watch(self):
        return MachineWatch(
            self.whole, load=lambda: self.machine, sys=self, allowed=lambda: self.machine.allowed
        )


@asynccontextmanager
async def node(directory, mode, hotplug):
    runtime = await LocalRuntime.open(directory / "runtime", cgroups=mode, sweep_seconds=0.2)
    async with cluster(directory) as client:
        agent = Agent(
            client,
            node_name="here",
            machine=hotplug.whole,
            runtime=runtime,
            state_dir=directory,
            reconcile_seconds=0.3,
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
def test_containers_leave_cpus_that_go_offline_and_return_with_them(tmp_path, mode):
    async def scenario():
        hotplug = Hotplug()
        async with node(tmp_path, mode, hotplug) as (client, runtime):
            run = await the_container(client, runtime)
            await cpus_become(runtime, run, MINE)
            hotplug.machine = hotplug.whole.restricted(LOW.mask)
            await cpus_become(runtime, run, LOW)
            hotplug.machine = hotplug.whole
            await cpus_become(runtime, run, MINE)

    asyncio.run(scenario())


@needs_cgroups
@needs_two_cpus
def test_cpus_that_the_kernel_does_not_restore_are_written_back(tmp_path):
    """Version 1 takes an off-line CPU from every cpuset.cpus, and does not put it back."""

    async def scenario():
        async with node(tmp_path, "required", Hotplug()) as (client, runtime):
            run = await the_container(client, runtime)
            await cpus_become(runtime, run, MINE)
            for _ in range(2):
                cgroup.find().set_cpus(run.cgroup, LOW)
                await cpus_become(runtime, run, MINE)

    asyncio.run(scenario())
