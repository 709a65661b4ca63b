"""An agent beside a kubelet that starts again, and containers that cannot be read."""

import asyncio
import errno

from corelane.cpuset import CPUSet
from corelane.kernel.cgroupfs import CgroupError
from corelane.node.kubelet import checkpoint
from support.fake_node import EXITED
from support.node_lab import in_lab, pod, source


def write_state(lab, policy, **cpus):
    """The kubelet's state file: CPUs of the container `app` by pod UID."""
    entries = {uid: {"app": CPUSet.parse(text)} for uid, text in cpus.items()}
    made = checkpoint.Checkpoint(policy, CPUSet(range(8)) if policy == "static" else CPUSet(), entries)
    lab.state_file.write_bytes(checkpoint.encode(made))


@in_lab()
async def test_cpus_that_the_kubelet_pinned_stay_allocated_while_it_lists_no_pods_after_its_restart(lab):
    server = lab.run("server", "2", uid="u")
    lab.drift(server, "2-3")
    write_state(lab, "static", u="2-3")
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    async with lab.working() as agent:
        await lab.until(lambda: agent.ledger.exclusive == CPUSet([2, 3]))
        await lab.until(lambda: agent.status()["containers"])
        pods, lab.kubelet.pods = lab.kubelet.pods, []
        write_state(lab, "none")
        lab.kubelet.configuration["cpuManagerPolicy"] = "none"
        await lab.until(lambda: agent.mode.name == "takeover")
        await lab.until(lambda: not agent.pods.pods)
        await asyncio.sleep(0.6)
        assert agent.ledger.exclusive == CPUSet([2, 3])
        lab.kubelet.pods = pods
        await lab.until(lambda: agent.pods.pods)
        await asyncio.sleep(0.4)
        assert agent.ledger.exclusive == CPUSet([2, 3])
        lab.kubelet.pods = []
        lab.end(server)
        await lab.until(lambda: not agent.ledger.entries)


@in_lab()
async def test_a_start_that_cannot_be_read_is_read_again(lab):
    lab.run("noise")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        read, faults = lab.node.groups.read, [5]

        def failing(path):
            if "server" in str(path) and faults:
                faults.pop()
                raise CgroupError("read", path, OSError(errno.EMFILE, ""))
            return read(path)

        lab.node.groups.read = failing
        server = lab.run("server", "2")
        await lab.until(lambda: not faults)
        await lab.until(lambda: len(lab.cpus(server)) == 2)


@in_lab()
async def test_a_container_that_cannot_be_read_keeps_no_other_one_from_its_cpus(lab):
    lab.run("broken")
    read = lab.node.groups.read

    def failing(path):
        if "broken" in str(path):
            raise CgroupError("read", path, OSError(errno.EIO, ""))
        return read(path)

    lab.node.groups.read = failing
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.until(lambda: "broken" in source(agent, "cgroups")["error"])


@in_lab()
async def test_quotas_are_left_alone_as_soon_as_the_kubelet_enforces_none(lab):
    lab.kubelet.pods = [made := pod("noise")]
    limits = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}
    made["spec"]["containers"][0]["resources"] = limits
    noise = lab.start("uid-noise", "noise-0")
    group = lab.node.groups.root / lab.node.group(noise)
    async with lab.working() as agent:
        await lab.until(lambda: lab.node.groups.read(group / "cpu.max") == "50000 100000")
        lab.kubelet.configuration["cpuCFSQuota"] = False
        await lab.until(lambda: not agent.sources.kubelet.facts.configuration.cpu_cfs_quota)
        lab.node.groups.write(group / "cpu.max", "max 100000")
        await asyncio.sleep(0.7)
        assert lab.node.groups.read(group / "cpu.max") == "max 100000"


@in_lab()
async def test_cpus_of_an_ended_container_are_kept_while_a_process_is_left_in_its_cgroup(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        own = lab.cpus(server)
        lab.kubelet.pods = []
        lab.node.containers[server]["state"] = EXITED  # but its process cannot be killed
        lab.node.announce(server, 2)
        await lab.until(lambda: source(agent, "ended containers")["detail"] == "1 with processes left")
        await lab.until(lambda: not agent.pods.pods)
        await asyncio.sleep(0.8)
        assert agent.ledger.exclusive == own
    async with lab.working() as agent:
        await lab.until(lambda: source(agent, "ended containers")["detail"] == "1 with processes left")
        assert agent.ledger.exclusive == own
        (lab.node.groups.root / lab.node.group(server) / "cgroup.procs").write_text("")
        await lab.until(lambda: not agent.ledger.entries)
