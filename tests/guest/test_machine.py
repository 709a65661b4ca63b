"""The guest's machine as its kernel shows it: sockets, NUMA nodes, SMT, and CPUs that go off-line."""

import asyncio
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.machine import sysfs
from corelane.machine.watch import MachineWatch
from support import guest
from support.containers import opened, spec

EACH = guest.CORES * guest.THREADS
NODES = range(guest.SOCKETS * guest.NODES)
CPUS = range(len(NODES) * EACH)


@pytest.fixture
def switch():
    """Switch CPUs off and on; all are on-line again afterwards."""

    def write(cpu, value):
        Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(value)

    yield write
    for cpu in CPUS[1:]:
        write(cpu, "1")


def test_the_live_machine_is_the_one_that_qemu_was_asked_for():
    machine = sysfs.live()
    assert machine.online == machine.usable == CPUSet(CPUS)
    assert [cpu.numa for cpu in machine.cpus] == [cpu // EACH for cpu in CPUS]
    assert [cpu.socket for cpu in machine.cpus] == [cpu // (EACH * guest.NODES) for cpu in CPUS]
    assert [cpu.core for cpu in machine.cpus] == [cpu - cpu % guest.THREADS for cpu in CPUS]
    assert [mask for _, mask in machine.l3_masks] == [mask for _, mask in machine.numa_masks]
    assert [CPUSet.from_mask(machine.siblings(cpu)) for cpu in (0, 15)] == [CPUSet([0, 1]), CPUSet([14, 15])]
    assert machine.notes == ()


def test_each_numa_node_has_its_memory_and_distances():
    machine = sysfs.live()
    assert [node.id for node in machine.nodes] == [*NODES]
    assert [tuple(node.distances[other] for other in NODES) for node in machine.nodes] == [*guest.DISTANCES]
    for node in machine.nodes:
        assert 0.8 * guest.NODE_MIB < node.memory / (1 << 20) <= guest.NODE_MIB


def test_a_cpu_that_goes_offline_is_missing_until_it_comes_back(switch):
    whole = sysfs.live()
    switch(5, "0")
    without = sysfs.live()
    assert (without.offline, without.online) == (CPUSet([5]), CPUSet(CPUS) - CPUSet([5]))
    assert CPUSet.from_mask(without.siblings(4)) == CPUSet([4])
    assert [cpu for cpu in without.cpus if cpu.id != 5] == [cpu for cpu in whole.cpus if cpu.id != 5]
    switch(5, "1")
    assert sysfs.live() == whole


def test_a_watch_notices_once_that_cpus_go_offline_and_that_they_come_back(switch):
    watch = MachineWatch(sysfs.live())
    assert watch.changed() is None
    for cpu in (5, 9):
        switch(cpu, "0")
    assert watch.changed().usable == CPUSet(CPUS) - CPUSet([5, 9])
    assert watch.changed() is None
    for cpu in (5, 9):
        switch(cpu, "1")
    assert watch.changed().usable == CPUSet(CPUS)
    assert watch.changed() is None


def test_a_container_is_observed_on_the_cpus_that_are_online(switch, tmp_path):
    """Version 2 keeps the request, and puts a CPU back when it comes back."""
    cpus, rest = CPUSet.parse("4-7"), CPUSet.parse("4,6-7")

    async def scene():
        async with opened(tmp_path / "state", "required") as runtime:
            run = await runtime.start(spec("sleep", "600", cpus=cpus))
            seen = [await runtime.observe(run.id)]
            for value in "01":
                switch(5, value)
                seen.append(await runtime.observe(run.id))
            return [(one.cpus, one.cpus_requested) for one in seen]

    assert asyncio.run(scene()) == [(cpus, cpus), (rest, cpus), (cpus, cpus)]


def test_a_numa_node_can_lose_all_its_cpus_and_keep_its_memory(switch):
    for cpu in CPUS[-EACH:]:
        switch(cpu, "0")
    machine = sysfs.live()
    last = machine.node(NODES[-1])
    assert not last.cpus
    assert last.memory > 0
    assert machine.online == CPUSet(CPUS[:-EACH])
