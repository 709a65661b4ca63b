"""A container's cgroup in the kernel's own version 1: sets, limits, groups below, and the kubelet's above."""

import os
import subprocess
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup
from corelane.kernel.cgroupfs import CgroupError, CgroupGone
from corelane.kernel.container_cgroup import Bandwidth


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def ends(view):
    everything = container_cgroup.effective(view, "")
    return everything, CPUSet([min(everything)]), CPUSet([max(everything)])


def test_a_container_moves_and_its_groups_below_follow(view, group, sleeper):
    everything, low, high = ends(view)
    (view.cpuset / group / "nested/cgroup.procs").write_text(str(sleeper.pid))
    for cpus in (low, high, everything, high, low):
        container_cgroup.write_cpuset(view, group, cpus=cpus)
        reading = container_cgroup.read(view, group)
        assert (reading.cpus, reading.cpus_requested, reading.populated) == (cpus, cpus, True)
        assert CPUSet(os.sched_getaffinity(sleeper.pid)) == cpus


def test_a_group_below_that_chose_fewer_cpus_keeps_them_where_it_can(view, group):
    everything, low, high = ends(view)
    nested = f"{group}/nested"
    container_cgroup.write_cpuset(view, nested, cpus=low)
    container_cgroup.write_cpuset(view, group, cpus=everything)
    assert container_cgroup.effective(view, nested) == low
    container_cgroup.write_cpuset(view, group, cpus=high)
    assert container_cgroup.effective(view, nested) == high


def test_kubelet_groups_that_lost_a_cpu_get_it_back(view, group):
    """As after a CPU was off-line: the kernel takes it from every group, and never gives it back."""
    _, low, high = ends(view)
    pod, top = group.rpartition("/")[0], group.split("/")[0]
    for path in (f"{group}/nested", group, pod, f"{top}/kubepods"):
        Path(view.cpuset, path, "cpuset.cpus").write_text(str(low))
    container_cgroup.write_cpuset(view, group, cpus=high)
    assert container_cgroup.effective(view, group) == high
    assert container_cgroup.effective(view, pod) == low | high


def test_groups_that_are_not_the_kubelets_are_not_widened(view, group):
    _, low, high = ends(view)
    for path in (f"{group}/nested", group, *map(str, list(Path(group).parents)[:-1])):
        Path(view.cpuset, path, "cpuset.cpus").write_text(str(low))
    with pytest.raises(CgroupError, match="EACCES: the group above does not have all of these CPUs"):
        container_cgroup.write_cpuset(view, group, cpus=high)


def test_limits_are_set_and_lifted(view, group):
    steps = [
        Bandwidth(150_000),
        Bandwidth(20_000, 20_000),
        Bandwidth(None, 20_000),
        Bandwidth(300_000, 100_000),
        Bandwidth(50_000, 50_000),
    ]
    if (view.cpu / group / "cpu.cfs_burst_us").exists():
        steps += [Bandwidth(50_000, 50_000, 40_000), Bandwidth(10_000, 100_000, 5_000), Bandwidth(None)]
    for step in steps:
        container_cgroup.write_bandwidth(view, group, step)
        assert container_cgroup.read_bandwidth(view, group) == step
        reading = container_cgroup.read(view, group)
        assert (reading.quota_us, reading.period_us, reading.burst_us) == (
            step.quota_us,
            step.period_us,
            step.burst_us,
        )


def test_cpus_that_do_not_exist_are_refused_and_nothing_changes(view, group):
    before = container_cgroup.read(view, group)
    with pytest.raises(CgroupError, match=r"cpuset\.cpus"):
        container_cgroup.write_cpuset(view, group, cpus=CPUSet([4000]))
    assert container_cgroup.read(view, group) == before


def test_a_group_that_was_removed_is_gone(view, group):
    (view.cpuset / group / "nested").rmdir()
    (view.cpuset / group).rmdir()
    with pytest.raises(CgroupGone):
        container_cgroup.read(view, group)
    with pytest.raises(CgroupGone):
        container_cgroup.write_cpuset(view, group, cpus=CPUSet([0]))
