"""Pods on containerd, runc and NRI with cgroup v2 and four NUMA nodes: pinned, pinned again, and repaired."""

import asyncio
import time
from itertools import count
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_paths
from corelane.runtime.base import ObservedResources, ResourceUpdate
from corelane.runtime.cri.runtime import CRIRuntime
from support.nri_agent import PinningAgent

FILES = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cpu.max")
FILLED = 4 << 20
FILL = ("/bin/busybox", "sh", "-c", f"x=$(head -c {FILLED} /dev/zero | tr '\\0' a); sleep 600; echo $x")
REPORT = "grep _allowed_list /proc/self/status >/seen; exec sleep 600"
UIDS = (f"{number:08}-2222-4333-8444-555555555555" for number in count())


@pytest.fixture
def pod(lab):
    pod = lab.run_pod("web", next(UIDS))
    yield pod
    lab.remove_pod(pod)


def files(group):
    return {name: (group / name).read_text().strip() for name in FILES}


def effective(group):
    return (files(group)["cpuset.cpus.effective"], files(group)["cpuset.mems.effective"])


def memory(group):
    """Bytes of the processes' own memory by NUMA node."""
    rows = (line.split() for line in (group / "memory.numa_stat").read_text().splitlines())
    cells = next(cells for name, *cells in rows if name == "anon")
    return {int(node.removeprefix("N")): int(size) for node, size in (cell.split("=") for cell in cells)}


def until(probe, expected, seconds=20):
    deadline = time.monotonic() + seconds
    while (found := probe()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == expected


def through_cri(lab, container, *changes):
    """Change a container with corelane's CRI client; returns what it observes after each change."""

    async def scene():
        runtime = CRIRuntime(container_paths.view(), lab.endpoint)
        try:
            await runtime.containers()
            observed = []
            for change in changes:
                await runtime.update(container, change)
                observed.append(await runtime.observe(container))
            return observed, runtime.unrecorded
        finally:
            await runtime.close()

    return asyncio.run(scene())


def test_a_container_starts_on_the_cpus_and_memory_nodes_of_its_creation(lab, pod):
    container = lab.run_container(pod, "app", shares=2048, cpus="8-11", mems="2", quota=400_000)
    assert files(lab.cgroup(container)) == {
        "cpuset.cpus": "8-11",
        "cpuset.cpus.effective": "8-11",
        "cpuset.mems": "2",
        "cpuset.mems.effective": "2",
        "cpu.max": "400000 100000",
    }
    assert f"pod{pod.uid}" in str(lab.cgroup(container))


def test_a_container_moves_to_another_numa_node_with_its_memory(lab, pod):
    container = lab.run_container(pod, "app", command=FILL, cpus="12-15", mems="3", quota=200_000)
    group = lab.cgroup(container)
    until(lambda: memory(group)[3] >= FILLED, True)
    change = ResourceUpdate(cpus=CPUSet.parse("4-7"), mems=CPUSet([1]))
    [observed], unrecorded = through_cri(lab, container, change)
    assert observed == ObservedResources(
        cpus=CPUSet.parse("4-7"),
        cpus_requested=CPUSet.parse("4-7"),
        mems=CPUSet([1]),
        quota_us=200_000,
        cgroup=str(group.relative_to("/sys/fs/cgroup")),
    )
    assert unrecorded == []
    assert effective(group) == ("4-7", "1")
    until(lambda: memory(group)[1] >= FILLED, True)
    assert memory(group)[3] == 0
    status = Path(f"/proc/{lab.pid(container)}/status").read_text()
    assert "Cpus_allowed_list:\t4-7\n" in status
    assert "Mems_allowed_list:\t1\n" in status


def test_a_quota_is_lifted_and_put_back_with_its_burst(lab, pod):
    container = lab.run_container(pod, "app", cpus="0-3", quota=400_000)
    lifted = ResourceUpdate(cpus=CPUSet.parse("0-1"), quota_us=None)
    back = ResourceUpdate(quota_us=50_000, period_us=50_000, burst_us=20_000)
    observed, _ = through_cri(lab, container, lifted, back)
    assert [(one.quota_us, one.period_us, one.burst_us) for one in observed] == [
        (None, 100_000, 0),
        (50_000, 50_000, 20_000),
    ]
    assert files(lab.cgroup(container))["cpu.max"] == "50000 50000"
    assert files(lab.cgroup(container))["cpuset.cpus"] == "0-1"


def test_an_update_of_cpus_leaves_weight_memory_and_unified_settings_alone(lab, pod):
    names = ("cpu.weight", "cpu.max", "memory.max", "memory.high", "pids.max")
    unified = {"memory.high": str(48 << 20), "pids.max": "77"}
    amounts = {"shares": 2048, "quota": 150_000, "memory": 64 << 20, "unified": unified}
    container = lab.run_container(pod, "app", cpus="0-3", **amounts)
    group = lab.cgroup(container)
    before = {name: (group / name).read_text() for name in names}
    recorded = lab.info(container)["runtimeSpec"]["linux"]["resources"]
    through_cri(lab, container, ResourceUpdate(cpus=CPUSet.parse("4-5")))
    assert {name: (group / name).read_text() for name in names} == before
    assert before["memory.high"] == f"{48 << 20}\n"
    recorded["cpu"]["cpus"] = "4-5"
    assert lab.info(container)["runtimeSpec"]["linux"]["resources"] == recorded


def test_a_set_changed_behind_the_runtimes_back_is_seen_and_repaired(lab, pod):
    container = lab.run_container(pod, "app", cpus="6-7", mems="1")
    group = lab.cgroup(container)
    (group / "cpuset.cpus").write_text("0-15")
    assert effective(group) == ("0-15", "1")
    [observed], _ = through_cri(lab, container, ResourceUpdate(cpus=CPUSet.parse("6-7")))
    assert observed.cpus == CPUSet.parse("6-7")
    assert effective(group) == ("6-7", "1")
    assert lab.recorded_cpu(container)["cpus"] == "6-7"


def test_a_container_and_its_cpus_outlive_a_killed_containerd(lab, pod):
    container = lab.run_container(pod, "app", cpus="6-7")
    pid, group = lab.pid(container), lab.cgroup(container)
    lab.restart()
    assert lab.pid(container) == pid
    assert files(group)["cpuset.cpus.effective"] == "6-7"
    lab.update(container, cpus="4-5")
    assert files(group)["cpuset.cpus.effective"] == "4-5"


def test_the_kernel_gives_a_container_back_the_cpu_that_was_offline(lab, pod):
    container = lab.run_container(pod, "app", cpus="10-11")
    group = lab.cgroup(container)
    switch = Path("/sys/devices/system/cpu/cpu11/online")
    try:
        switch.write_text("0")
        until(lambda: files(group)["cpuset.cpus.effective"], "10")
        assert files(group)["cpuset.cpus"] == "10-11"
    finally:
        switch.write_text("1")
    until(lambda: files(group)["cpuset.cpus.effective"], "10-11")


def test_through_nri_a_container_has_its_numa_node_before_its_first_instruction(lab, pod):
    """And one that runs in the shared pool has shrunk by then."""
    shared = lab.run_container(pod, "shared", cpus="0-15")
    with PinningAgent(lab.home, lab.nri_socket, {"pinned": "8-11"}) as agent:
        agent.wait_report("connected: containerd")
        agent.shrink = {shared: "0-7,12-15"}
        command = ("/bin/busybox", "sh", "-c", REPORT)
        pinned = lab.run_container(pod, "pinned", command=command, cpus="0-15", mems="2")
    seen = Path(f"/proc/{lab.pid(pinned)}/root/seen")
    until(lambda: seen.exists() and seen.read_text().split()[1::2], ["8-11", "2"])
    assert files(lab.cgroup(shared))["cpuset.cpus.effective"] == "0-7,12-15"
    assert lab.recorded_cpu(pinned)["cpus"] == "8-11"
    assert lab.recorded_cpu(shared)["cpus"] == "0-7,12-15"
