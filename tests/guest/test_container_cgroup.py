"""Cgroups of containers as the kubelet and a runtime make them, by both cgroup drivers, on cgroup v2."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, container_paths
from corelane.kernel.cgroupfs import CgroupGone
from corelane.kernel.container_cgroup import Bandwidth, ContainerGroup

TOP = Path("/sys/fs/cgroup")
ID = "c0ffee" * 10
SPECIFICATIONS = {
    "cgroupfs": f"/kubepods/burstable/pod1-2/{ID}",
    "systemd": f"kubepods-burstable-pod1_2.slice:cri-containerd:{ID}",
}
CONTROLLERS = "+cpuset +cpu +memory"


@pytest.fixture(scope="module")
def view():
    return container_paths.view()


@pytest.fixture(params=SPECIFICATIONS)
def specification(request):
    return SPECIFICATIONS[request.param]


@pytest.fixture
def group(specification):
    """The groups as they are made: with every controller, but without sets of their own."""
    path = TOP / container_paths.group_of_spec(specification)
    for above in reversed(path.relative_to(TOP).parents):
        (TOP / above).mkdir(exist_ok=True)
        (TOP / above / "cgroup.subtree_control").write_text(CONTROLLERS)
    path.mkdir()
    yield str(path.relative_to(TOP))
    while path != TOP:
        with suppress(FileNotFoundError):
            path.rmdir()
        path = path.parent


@pytest.fixture
def process(group):
    """A process in the group."""
    sleeping = subprocess.Popen(["sh", "-c", f"echo $$ >{TOP / group}/cgroup.procs; exec sleep 600"])
    while str(sleeping.pid) not in (TOP / group / "cgroup.procs").read_text().split():
        time.sleep(0.05)
    yield sleeping
    sleeping.kill()
    sleeping.wait()


def test_the_group_is_found_by_its_specification_and_by_its_process(view, group, specification, process):
    assert container_paths.locate(view, ID, specification) == group
    assert container_paths.locate(view, ID, pid=process.pid) == group
    assert container_paths.locate(view, ID) == group
    assert container_paths.kubelet_ancestors(group) == [
        str(above) for above in reversed(Path(group).parents[:-1])
    ]


def test_a_group_without_a_set_of_its_own_has_all_cpus_and_memory_nodes(view, group, process):
    everything, nodes = CPUSet(range(16)), CPUSet(range(4))
    expected = ContainerGroup(everything, CPUSet(), nodes, None, 100_000, 0, populated=True)
    assert container_cgroup.read(view, group) == expected


def test_a_process_moves_with_its_group_to_another_numa_node(view, group, process):
    for node in (3, 0, 2):
        cpus = CPUSet(range(4 * node, 4 * node + 4))
        container_cgroup.write_cpuset(view, group, cpus=cpus, mems=CPUSet([node]))
        found = container_cgroup.read(view, group)
        assert (found.cpus, found.cpus_requested, found.mems) == (cpus, cpus, CPUSet([node]))
        assert CPUSet(os.sched_getaffinity(process.pid)) == cpus
        assert f"Mems_allowed_list:\t{node}\n" in Path(f"/proc/{process.pid}/status").read_text()


def test_the_kubelets_groups_grow_where_they_lack_a_cpu(view, group, process):
    above = container_paths.kubelet_ancestors(group)
    (TOP / above[0] / "cpuset.cpus").write_text("0-7")
    (TOP / above[-1] / "cpuset.cpus").write_text("0-3")
    container_cgroup.write_cpuset(view, group, cpus=CPUSet.parse("2,12-13"))
    assert container_cgroup.effective(view, group) == CPUSet.parse("2,12-13")
    assert container_cgroup.effective(view, above[0]) == CPUSet.parse("0-7,12-13")
    assert container_cgroup.effective(view, above[-1]) == CPUSet.parse("0-3,12-13")


def test_quota_period_and_burst_are_set_and_lifted(view, group):
    for bandwidth in (
        Bandwidth(150_000),
        Bandwidth(50_000, 20_000, 40_000),
        Bandwidth(10_000, 20_000, 5_000),
        Bandwidth(None, 20_000, 5_000),
        Bandwidth(None),
    ):
        container_cgroup.write_bandwidth(view, group, bandwidth)
        assert container_cgroup.read_bandwidth(view, group) == bandwidth


def test_cpus_offline_leave_the_group_and_the_kernel_brings_them_back(view, group, process):
    container_cgroup.write_cpuset(view, group, cpus=CPUSet.parse("8-9"))
    switch = Path("/sys/devices/system/cpu/cpu9/online")
    try:
        switch.write_text("0")
        until(lambda: container_cgroup.effective(view, group), CPUSet([8]))
        assert container_cgroup.read(view, group).cpus_requested == CPUSet.parse("8-9")
    finally:
        switch.write_text("1")
    until(lambda: container_cgroup.effective(view, group), CPUSet.parse("8-9"))
    until(lambda: CPUSet(os.sched_getaffinity(process.pid)), CPUSet.parse("8-9"))


def test_a_group_with_all_its_cpus_offline_runs_on_those_above(view, group, process):
    """The kernel never stops processes: they run on what the group above has, until a CPU comes back."""
    container_cgroup.write_cpuset(view, group, cpus=CPUSet([9]))
    switch = Path("/sys/devices/system/cpu/cpu9/online")
    try:
        switch.write_text("0")
        until(lambda: container_cgroup.effective(view, group), CPUSet(range(16)) - CPUSet([9]))
        assert container_cgroup.read(view, group).cpus_requested == CPUSet([9])
    finally:
        switch.write_text("1")
    until(lambda: container_cgroup.effective(view, group), CPUSet([9]))


def test_a_group_is_populated_until_its_last_process_has_ended(view, group, process):
    assert [task.pid for task in container_cgroup.sample(view, group)] == [process.pid]
    process.kill()
    process.wait()
    until(lambda: container_cgroup.populated(view, group), False)
    (TOP / group).rmdir()
    assert not container_cgroup.populated(view, group)
    with pytest.raises(CgroupGone):
        container_cgroup.read(view, group)
    with pytest.raises(CgroupGone):
        container_cgroup.write_cpuset(view, group, cpus=CPUSet([0]))


def until(probe, expected, seconds=20):
    deadline = time.monotonic() + seconds
    while (found := probe()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == expected
