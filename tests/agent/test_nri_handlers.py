"""Containers that the runtime asks about before it creates them, beside updates that it has not answered."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from corelane.agent import nri_handlers
from corelane.cpuset import CPUSet
from corelane.runtime.base import KEEP
from corelane.runtime.cri.values import POD_UID
from corelane.runtime.nri.values import (
    ContainerCreating,
    ContainerUpdating,
    CPUResources,
    NRIContainer,
    NRIPod,
    Token,
    Unanswered,
)
from support.node_lab import in_lab, pod


@pytest.fixture(autouse=True)
def answers_however_busy_the_machine_is(monkeypatch):
    """Of a second, a loaded machine leaves the agent too little: the container starts in the shared pool."""
    for name in ("ANSWER_SECONDS", "DECISION_SECONDS", "POD_SECONDS", "UPDATE_SECONDS"):
        monkeypatch.setattr(nri_handlers, name, 20.0)


def question(name, ident=""):
    """The runtime is about to create the container `app` of a pod."""
    container = NRIContainer(id=ident or f"{name}-1", name="app", labels={POD_UID: f"uid-{name}"})
    return ContainerCreating(Token(1, 1), NRIPod(namespace="default", name=name), container, 2.0)


def burstable(lab, name):
    """A pod in the shared pool, which leaves exclusive CPUs."""
    lab.kubelet.pods = [*lab.kubelet.pods, manifest := pod(name)]
    manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return lab.start(manifest["metadata"]["uid"], f"{name}-0")


@asynccontextmanager
async def stuck_updates(lab):
    """The runtime answers no update of a container meanwhile, as during a handler's work; yields them."""
    release, begun, update = threading.Event(), [], lab.node.update

    def waiting(request, context):
        begun.append(request)
        assert release.wait(60)
        return update(request, context)

    lab.node.update = waiting
    try:
        yield begun
    finally:
        release.set()
        lab.node.update = update


@in_lab()
async def test_a_creation_waits_for_no_update_that_the_runtime_has_not_answered(lab):
    noise = burstable(lab, "noise")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        async with stuck_updates(lab) as begun:
            lab.drift(noise, "0-1")
            await lab.until(lambda: begun)
            await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
            for number, name in enumerate(("first", "second", "third")):
                lab.kubelet.pods = [*lab.kubelet.pods, pod(name, "1")]
                answer = await agent.handlers.on_creating(question(name))
                own = answer.adjust.cpus
                assert len(own) == 1, f"{name}: in the shared pool"
                assert not lab.cpus(noise) & own
                assert dict(answer.updates)[noise].cpus == lab.cpus(noise)
                assert len(lab.cpus(noise)) == 7 - number
            left, before = str(lab.cpus(noise)), len(lab.node.updates)
        # The older update is carried out after all; what was decided since is sent once more.
        await lab.until(lambda: len(lab.node.updates) >= before + 2)
        await lab.until(lambda: not agent.connections.runtime.unrecorded)
        await lab.until(lambda: lab.node.record(noise)["cpus"] == left == str(lab.cpus(noise)))


@in_lab()
async def test_no_update_is_begun_while_the_runtime_waits_for_an_answer(lab):
    burstable(lab, "noise")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        await lab.until(lambda: not agent.connections.runtime.unrecorded)
        lab.kubelet.pods = [*lab.kubelet.pods, pod("server", "2")]
        before, lab.node.updates = lab.node.updates, []
        answer = await agent.handlers.on_creating(question("server"))
        assert lab.node.updates == []
        assert [update.cpus for _, update in answer.updates] == [CPUSet(range(8)) - answer.adjust.cpus]
        await asyncio.sleep(0.5)
        assert lab.node.updates == [], "the answer has it"
        agent.handlers.on_event(Unanswered(question("server"), "overrun", 0.5))
        await lab.until(lambda: lab.node.updates)
        assert before is not lab.node.updates


def resize(ident, **requested):
    """A CRI client, as the kubelet at a resize in place, updates a container."""
    container = NRIContainer(id=ident, name="app")
    return ContainerUpdating(Token(1, 2), NRIPod(), container, CPUResources(**requested), 2.0)


@in_lab()
async def test_a_container_that_started_on_its_cpus_keeps_them_without_quota_at_an_update(lab):
    lab.kubelet.pods = [pod("server", "2")]
    async with lab.working() as agent:
        await lab.until(lambda: agent.pods.listed and agent.sources.containers.state.state == "ok")
        answer = await agent.handlers.on_creating(question("server"))
        lab.start("uid-server", "server-1")
        lab.drift("server-1", str(answer.adjust.cpus))
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        ((ident, update),) = await agent.handlers.on_updating(resize("server-1", quota_us=200_000))
        assert (ident, update) == ("server-1", answer.adjust)


@in_lab()
async def test_a_quota_that_the_kubelet_resizes_in_the_shared_pool_is_left_to_it(lab):
    noise = burstable(lab, "noise")
    limits = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}
    lab.kubelet.pods[0]["spec"]["containers"][0]["resources"] = limits
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        group = lab.node.groups.root / lab.node.group(noise)
        lab.node.groups.write(group / "cpu.max", "max 100000")
        await lab.until(lambda: lab.node.groups.read(group / "cpu.max") == "50000 100000")
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        updates = await agent.handlers.on_updating(resize(noise, quota_us=70_000))
        assert [(update.cpus, update.quota_us) for _, update in updates] == [(CPUSet(range(8)), KEEP)]


@in_lab()
async def test_what_was_ordered_for_ended_containers_is_forgotten(lab):
    async with lab.working() as agent:
        for number in range(3):
            noise = burstable(lab, f"noise{number}")
            await lab.until(lambda: agent.runs())
            lab.drift(noise, "0-1")
            await lab.until(lambda ident=noise: len(lab.cpus(ident)) == 8)
            lab.end(noise)
            await lab.until(lambda: not agent.runs())
        await lab.until(lambda: not agent.ordered)


@in_lab()
async def test_cpus_of_a_container_that_was_never_created_are_free_once_its_pod_is_gone(lab, monkeypatch):
    monkeypatch.setattr("corelane.agent.kubelet.kubelet_pods.CREATION_GRACE", 0.5)

    lab.kubelet.pods = [pod("server", "2")]
    async with lab.working() as agent:
        await lab.until(lambda: agent.pods.listed and agent.connections.runtime.follows_events)
        await lab.until(lambda: agent.sources.containers.state.state == "ok")
        answer = await agent.handlers.on_creating(question("server"))
        assert len(answer.adjust.cpus) == 2
        lab.kubelet.pods = []
        await lab.until(lambda: not agent.ledger.entries)


@pytest.mark.parametrize("listed", [True, False])
@in_lab()
async def test_a_creation_is_left_to_the_kubelet_once_the_mode_forbids_writes(lab, monkeypatch, listed):
    async with lab.working() as agent:
        await lab.until(lambda: agent.may_write())
        if listed:
            lab.kubelet.pods = [*lab.kubelet.pods, pod("server", "2")]
        find = agent.find_pod

        async def kubelet_becomes_static(uid, seconds):
            try:
                return await find(uid, 0.2)
            finally:
                monkeypatch.setattr(agent, "may_write", lambda: False)

        monkeypatch.setattr(agent, "find_pod", kubelet_becomes_static)
        assert await agent.handlers.on_creating(question("server")) == nri_handlers.NOTHING
