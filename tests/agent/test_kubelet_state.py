"""A kubelet with static CPU manager beside the agent: valid and invalid state files, and allocations."""

import asyncio
import os
from dataclasses import replace

import pytest

from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.events import ConfigChanged, PodsListed
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.cpuset import CPUSet, named
from corelane.embedded.containers.simulated import SimulatedRuntime
from corelane.embedded.pods.lifecycle import Lifecycle
from corelane.embedded.pods.pod_agent import Agent
from corelane.kube import translate
from corelane.kube.keys import POD_CPU_ALLOCS
from corelane.kube.objects import NodeResourceTopology
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Origin
from corelane.node.kubelet.checkpoint import Checkpoint, encode
from corelane.workload.request import QOSClass
from support.agent_world import APP, World, plan
from support.cluster_lab import cluster, event, events, until, working


def pinned(**pods):
    """Return a state with the CPUs of each pod UID's only container."""
    return Checkpoint("static", entries={uid: {"app": CPUSet.parse(text)} for uid, text in pods.items()})


def told(world, reason):
    return [one.message for one in world.told if one.reason == reason]


# -- the file


def test_the_state_file_is_read(tmp_path):
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(encode(pinned(web="1-2")))
    said = KubeletStateFile(path).read()
    assert (said.checkpoint, said.running, said.fault) == (pinned(web="1-2"), None, "")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", "the file"),
        (encode(pinned(web="1-2"))[:40], "the file"),
        (encode(pinned(web="1-2")).replace(b"1-2", b"1-3"), "checksum: checkpoint is corrupted"),
        (b"\xff\xfe{}", "the file"),
        (b"{}", "policyName: '' is neither static nor none"),
        (b"null", "policyName: '' is neither static nor none"),
        (encode(Checkpoint("dynamic")), "policyName: 'dynamic' is neither static nor none"),
        (b'{"policyName":"static","entries":{"f00":"1-2"}}', "version 1 names containers by id"),
        (b"[]", "the file"),
    ],
)
def test_an_unreadable_state_file_is_a_fault(tmp_path, content, why):
    path = tmp_path / "cpu_manager_state"
    if content is not None:
        path.write_bytes(content)
    said = KubeletStateFile(path).read()
    assert said.checkpoint is None
    assert said.fault.startswith(f"{path}: ")
    assert why in said.fault
    assert said.fault.endswith("CPUs pinned by the kubelet stay allocated as last read")
    assert "\n" not in said.fault


def test_a_directory_is_a_fault(tmp_path):
    assert "Is a directory" in KubeletStateFile(tmp_path).read().fault


def test_a_pipe_without_a_writer_does_not_block(tmp_path):
    path = tmp_path / "cpu_manager_state"
    os.mkfifo(path)
    assert KubeletStateFile(path).read().checkpoint is None


class WebRuns:
    """The pods of a kubelet: one, which runs."""

    def running(self):
        return ["web"]

    def names(self):
        return {}


def test_running_pods_are_listed_only_under_policy_none(tmp_path):
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(encode(Checkpoint("none")))
    assert KubeletStateFile(path, WebRuns()).read().running == {"web"}
    path.write_bytes(encode(pinned(web="1-2")))
    assert KubeletStateFile(path, WebRuns()).read().running is None


# -- what follows from it


def test_cpus_pinned_by_a_kubelet_are_not_allocated_until_released():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned(web="1-2", db="3"))
    shared, best = (
        plan("s", ("a", APP, 100), qos=QOSClass.BURSTABLE),
        plan("b", ("a", APP, 0), qos=QOSClass.BEST_EFFORT),
    )
    world.add(shared)
    world.add(best)
    world.settle()
    assert world.container("s", "a").cpus == world.container("b", "a").cpus == CPUSet.parse("0,4-5")
    world.add(plan("r", ("a", APP, 3000)))
    world.settle()
    assert world.statuses["r"]["reason"] in ("OutOfcpu", "InsufficientCPUs")
    world.set_kubelet_state(pinned(db="3"))
    world.settle()
    assert world.container("s", "a").cpus == CPUSet.parse("0-2,4-5")
    assert told(world, "KubeletCPUsHeld") == [
        "CPUs 1-3 pinned by a kubelet: pod with UID db/app 3, pod with UID web/app 1-2"
    ]
    assert told(world, "KubeletCPUsFreed") == ["CPUs 1-2 released by a kubelet: pod with UID web/app 1-2"]
    assert told(world, "TakeoverDone") == []
    world.set_kubelet_state(pinned())
    world.settle()
    assert world.container("b", "a").cpus == world.machine.usable
    assert len(told(world, "TakeoverDone")) == 1


def test_running_pods_leave_cpus_that_a_kubelet_pins_later():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned())
    world.add(plan("s", ("a", APP, 100), qos=QOSClass.BURSTABLE))
    world.settle()
    world.set_kubelet_state(pinned(web="4-5"))
    world.settle()
    assert world.container("s", "a").cpus == CPUSet.parse("0-3")


def test_a_start_without_the_file_keeps_the_last_content():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned(web="1-2"))
    world.settle()
    ledger = world.core.ledger
    world.core = Lifecycle(Allocation(ledger, validate=True, follows_kubelet=True))
    world.feed(PodsListed(**world.times()))
    assert world.core.ledger.bound == CPUSet.parse("1-2")


def test_without_the_setting_kubelet_cpus_are_released():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned(web="1-2"))
    world.settle()
    world.kubelet = None
    world.boot()
    assert world.core.ledger.bound == CPUSet()


def test_after_a_policy_change_kubelet_cpus_are_held_before_admissions():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned(web="1-2"))
    none = replace(world.config, policy="none")
    world.feed(ConfigChanged(config=none, **world.times()))
    world.set_kubelet_state(pinned(web="1-2", db="3"))
    world.settle()
    world.feed(ConfigChanged(config=world.config, **world.times()))
    assert world.core.ledger.bound == CPUSet.parse("1-3")


def test_allocated_cpus_stay_allocated_and_the_conflict_is_reported_once():
    world = World(cpus=6, pools=PoolOptions(), kubelet=pinned())
    world.add(plan("r", ("a", APP, 2000)))
    world.settle()
    own = world.container("r", "a").cpus
    for _ in range(3):
        world.set_kubelet_state(pinned(web=str(own)))
        world.settle()
    assert world.container("r", "a").cpus == own
    (text,) = told(world, "KubeletCPUsConflict")
    assert f"{named(own.mask)} also allocated to another container" in text


def replace_file(path, content):
    """Write a file at once, as the kubelet does: half of one is never read by chance."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)


async def test_an_agent_follows_the_state_file_and_publishes_kubelet_allocations(tmp_path):
    path = tmp_path / "cpu_manager_state"
    replace_file(path, encode(pinned(web="1-2")))

    def make(client):
        return Agent(
            client,
            node_name="far",
            machine=parse_spec("core:8"),
            runtime=SimulatedRuntime(tmp_path),
            config=NodeConfig("pools"),
            state_dir=tmp_path,
            reconcile_seconds=0.05,
            validate=True,
            kubelet=KubeletStateFile(path),
        )

    async with cluster(tmp_path) as client:
        async with working(make(client)) as agent:
            assert agent.ledger.entries["web", "app"].origin is Origin.KUBELET
            replace_file(path, b'{"policyName":"sta')
            assert "stay allocated as last read" in await event(client, "far", "KubeletStateUnreadable")
            assert agent.ledger.bound == CPUSet.parse("1-2")
            replace_file(path, encode(pinned(web="1-2", db="4")))

            async def published():
                nodes = (await client.list(NodeResourceTopology)).items
                pinned_cpus = CPUSet.parse("1-2,4")
                return next((n for n in nodes if translate.state_from_topology(n).bound == pinned_cpus), None)

            told = (await until(published)).metadata.annotations[POD_CPU_ALLOCS]
            assert '"managedByKubelet":true' in told
            path.unlink()
            await asyncio.sleep(0.2)
        async with working(make(client)) as agent:
            assert agent.ledger.bound == CPUSet.parse("1-2,4"), "the file is gone, the ledger's is not"
            replace_file(path, encode(pinned()))
            assert await event(client, "far", "TakeoverDone")
            assert agent.ledger.shared_pool == CPUSet.parse("0-7")
            reasons = [reason for reason, _ in await events(client, "far")]
            assert reasons.count("KubeletStateUnreadable") == 3, "half written, gone, gone at the next start"
