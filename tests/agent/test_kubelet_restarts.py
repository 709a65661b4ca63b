"""A kubelet that was started again: it lists no pods at first, and may refuse what it answered before."""

import asyncio

import pytest

from corelane.agent.allocation.modes import ModeName
from corelane.agent.kubelet import kubelet_sources
from corelane.agent.kubelet.kubelet_sources import CONFIGURATION_SECONDS
from corelane.agent.kubelet.pod_list import AbsentPod, AbsentPods
from corelane.cpuset import CPUSet
from corelane.kube.client import Unreachable
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node.entries import Origin
from corelane.node.kubelet.checkpoint import Checkpoint, encode
from support.clocks import SetClocks
from support.cluster_lab import events
from support.node_lab import in_lab, pod, source


def replace_file(path, content):
    """Write a file as the kubelet does: its readers see the old or the new one."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)


async def made(lab, name, cpu):
    """A pod of the API server that the kubelet lists; returns its manifest."""
    manifest = pod(name, cpu)
    del manifest["metadata"]["uid"]
    manifest = await lab.client.create(manifest)
    lab.kubelet.pods = [*lab.kubelet.pods, manifest]
    return manifest


async def lists(agent, lab, number=3):
    """Wait until the kubelet was asked for its pods so many times more."""
    expected = lab.kubelet.seen.count("/pods") + number
    await lab.until(lambda: lab.kubelet.seen.count("/pods") >= expected)


async def crashing(lab, agent):
    """A pod with exclusive CPUs none of whose containers runs at the moment; returns UID and manifest."""
    manifest = await made(lab, "server", "2")
    uid = manifest["metadata"]["uid"]
    ident = lab.start(uid, "server-0")
    await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
    lab.end(ident)
    await lab.until(lambda: not agent.runs())
    return uid, manifest


@in_lab()
async def test_a_pod_that_runs_nothing_keeps_its_cpus_while_a_restarted_kubelet_lists_no_pods(lab):
    async with lab.working() as agent:
        uid, manifest = await crashing(lab, agent)
        own = agent.ledger.entries[uid, "app"].cpus
        lab.kubelet.pods = []
        await lists(agent, lab)
        assert agent.ledger.entries[uid, "app"].cpus == own
    async with lab.working() as agent:  # started again while the kubelet lists nothing
        await lists(agent, lab)
        assert agent.ledger.entries[uid, "app"].cpus == own
        lab.kubelet.pods = [manifest]
        again = lab.start(uid, "server-1")
        await lab.until_cpus(again, str(own))


@in_lab()
async def test_a_deleted_pod_loses_its_cpus_with_the_next_list(lab):
    async with lab.working() as agent:
        uid, _ = await crashing(lab, agent)
        lab.kubelet.pods = []
        await lists(agent, lab)
        assert (uid, "app") in agent.ledger.entries
        await lab.client.delete(Pod, "server", namespace="default", grace_seconds=0)
        await lab.until(lambda: not agent.ledger.entries)


@in_lab()
async def test_a_pod_that_was_deleted_while_the_agent_was_down_loses_its_cpus(lab):
    async with lab.working() as agent:
        ended = lab.run("ended", "2")
        lab.run("stays", "2")
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
    lab.kubelet.pods = lab.kubelet.pods[1:]
    lab.node.remove(ended)
    async with lab.working() as agent:
        await lab.until(lambda: {uid for uid, _ in agent.ledger.entries} == {"uid-stays"})


@in_lab()
async def test_a_pod_that_ended_while_the_agent_was_down_loses_its_cpus(lab):
    """The kubelet lists it until it is deleted, and the runtime keeps its container for a while."""

    async with lab.working() as agent:
        ended = lab.run("ended", "2")
        lab.run("stays", "2")
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
    lab.kubelet.pods[0]["status"]["phase"] = "Succeeded"
    lab.node.set_state(ended, 2)
    async with lab.working() as agent:
        await lab.until(lambda: {uid for uid, _ in agent.ledger.entries} == {"uid-stays"})


@in_lab()
async def test_cpus_pinned_by_the_kubelet_stay_held_while_a_restarted_kubelet_lists_no_pods(lab):
    pinned = Checkpoint("static", CPUSet.parse("0-5"), {"uid-server": {"app": CPUSet.parse("6-7")}})
    replace_file(lab.state_file, encode(pinned))
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.KUBELET)
        await lab.until(lambda: agent.runs() and agent.ledger.entries)
        listed, lab.kubelet.pods = lab.kubelet.pods, []
        lab.kubelet.configuration["cpuManagerPolicy"] = "none"
        replace_file(lab.state_file, encode(Checkpoint("none")))
        await lab.until(lambda: agent.mode.name is ModeName.TAKEOVER)
        await lists(agent, lab)
        await asyncio.sleep(1.0)  # more readings of the state file
        assert agent.ledger.entries["uid-server", "app"].origin is Origin.KUBELET
        lab.kubelet.pods = listed
        await lists(agent, lab)
        assert agent.mode.name is ModeName.TAKEOVER
        lab.kubelet.pods = []
        lab.end(server)
        await lab.until(lambda: agent.mode.name is ModeName.OWNER)


@in_lab()
async def test_cpus_of_a_static_kubelet_are_written_to_a_pod_that_is_listed_after_the_state_file_was_read(
    lab,
):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    uid = (await made(lab, "server", "2"))["metadata"]["uid"]
    listed, lab.kubelet.pods = lab.kubelet.pods, []
    pinned = Checkpoint("static", CPUSet.parse("0-5"), {uid: {"app": CPUSet.parse("6-7")}})
    replace_file(lab.state_file, encode(pinned))
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.KUBELET)
        await lists(agent, lab)
        lab.kubelet.pods = listed

        async def annotation():
            written = await lab.client.get(Pod, "server", "default")
            return written.metadata.annotations.get("corelane.io/kubelet-cpusets")

        async with asyncio.timeout(120):
            while not (found := await annotation()):
                await asyncio.sleep(0.05)
        assert found == '{"app":"6-7"}'


@pytest.mark.parametrize(("status", "wait"), [(403, 0.5), (404, 0.0)])
@in_lab()
async def test_a_lasting_refusal_of_the_configuration_makes_the_policy_unknown(
    lab, monkeypatch, status, wait
):
    limits = {code: limit and wait for code, limit in kubelet_sources._REFUSALS.items()}
    monkeypatch.setattr(kubelet_sources, "_REFUSALS", limits)

    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.KUBELET)
        lab.kubelet.faults = {"/configz": status}
        await lab.until(lambda: agent.mode.name is ModeName.READ_ONLY)
        mode = agent.status()["mode"]
        assert "unknown" in mode["reasons"][0]
        assert str(status) in mode["reasons"][0]
        lab.kubelet.faults = {}
        lab.kubelet.configuration["cpuManagerPolicy"] = "none"
        await lab.until(lambda: agent.mode.name is ModeName.OWNER)


@pytest.mark.parametrize("status", [401, 500])
@in_lab()
async def test_an_api_server_that_the_kubelet_cannot_ask_does_not_change_the_mode(lab, monkeypatch, status):
    monkeypatch.setattr(kubelet_sources, "_REFUSALS", dict.fromkeys(kubelet_sources._REFUSALS, 0.0))

    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.OWNER)
        lab.kubelet.faults = {"/configz": status}
        await lab.until(lambda: source(agent, "kubelet configuration")["retries"] > 2)
        assert agent.mode.name is ModeName.OWNER


@in_lab()
async def test_after_a_refusal_the_state_file_tells_the_policy(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    replace_file(lab.state_file, encode(Checkpoint("static", CPUSet.parse("0-7"))))
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.KUBELET)
        lab.kubelet.faults = {"/configz": 404}
        replace_file(lab.state_file, encode(Checkpoint("none")))
        await lab.until(lambda: agent.mode.name is ModeName.OWNER)


@in_lab()
async def test_pods_that_came_while_the_policy_was_unknown_are_placed_once_it_is_known(lab):
    lab.kubelet.faults = {"/configz": 403}
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: "uid-server" in agent.ledger.pods)
        assert agent.mode.name is ModeName.READ_ONLY
        assert len(lab.cpus(server)) == 8
        lab.kubelet.faults = {}
        await lab.until(lambda: len(lab.cpus(server)) == 2)


@in_lab()
async def test_a_start_reports_the_mode_once_it_is_known(lab):
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.OWNER)

        async def modes():
            return [text for why, text in await events(lab.client, "here") if why == "ModeChanged"]

        async with asyncio.timeout(120):
            while not (found := await modes()):
                await asyncio.sleep(0.05)
        assert [text.partition(":")[0] for text in found] == ["mode owner"]


@in_lab()
async def test_a_condition_of_an_earlier_run_is_put_right_at_the_start(lab):
    stale = {"type": "corelane.io/LedgerWritable", "status": "False", "reason": "LedgerUnwritable"}
    await lab.client.patch(Node, "here", {"status": {"conditions": [stale]}}, subresource="status")

    async def condition():
        node = await lab.client.get(Node, "here")
        return next(one for one in node.status.conditions if one.type == "corelane.io/LedgerWritable")

    async with lab.working():
        async with asyncio.timeout(120):
            while (await condition()).status != "True":
                await asyncio.sleep(0.05)
    since = (await condition()).last_transition_time
    async with lab.working() as agent:
        await lab.until(lambda: source(agent, "Node")["state"] == "ok")
        await asyncio.sleep(1.2)
    assert (await condition()).last_transition_time == since


# -- without the API server


class NoAnswer:
    async def get(self, *_args):
        raise Unreachable("no route")

    async def list(self, *_args, **_options):
        raise Unreachable("no route")


OF_API, STATIC = AbsentPod("default", "a"), AbsentPod("default", "s", static=True)


@pytest.mark.parametrize(
    ("listed", "after", "expected"),
    [
        ([], 0.0, {"a", "s"}),
        ([], 3600.0, {"a"}),  # a kubelet without the API server lists static pods alone
        (["other"], 0.0, {"a", "s"}),
        (["other"], 3600.0, set()),
    ],
)
def test_without_the_api_server_lists_prove_an_end_only_if_they_have_pods_of_that_source(
    listed, after, expected
):
    pods = [Pod() for _ in listed]
    clocks = SetClocks()

    async def story():
        absent = AbsentPods(NoAnswer(), "here", clocks)
        pair = {"a": OF_API, "s": STATIC}
        await absent.remaining(pair, pods)
        clocks.now = after
        return await absent.remaining(pair, pods)

    assert asyncio.run(story()) == expected


# -- a kubelet that was started with policy static, and writes its cpusets


@pytest.mark.parametrize("with_file", [True, False])
@in_lab(look_seconds=CONFIGURATION_SECONDS)
async def test_cpusets_of_a_kubelet_that_turned_static_are_no_drift(lab, with_file):
    """The kubelet writes each cpuset once: if it were undone the container would stay on other CPUs."""

    if with_file:
        replace_file(lab.state_file, encode(Checkpoint("none")))
    server, noise = lab.run("server", "2"), lab.run("noise")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        await asyncio.sleep(0.5)  # between two looks at the kubelet
        pinned = Checkpoint("static", CPUSet.parse("0-5"), {"uid-server": {"app": CPUSet.parse("6-7")}})
        lab.kubelet.configuration["cpuManagerPolicy"] = "static"
        if with_file:
            replace_file(lab.state_file, encode(pinned))
        lab.drift(server, "6-7")
        lab.drift(noise, "0-5")
        await lab.until(lambda: agent.mode.name is ModeName.KUBELET)
        await asyncio.sleep(0.5)
        assert (str(lab.cpus(server)), str(lab.cpus(noise))) == ("6-7", "0-5")


@in_lab(look_seconds=CONFIGURATION_SECONDS)
async def test_cpus_that_the_kubelet_has_just_pinned_are_held_when_its_policy_becomes_none(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    replace_file(lab.state_file, encode(Checkpoint("static", CPUSet.parse("0-7"))))
    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name is ModeName.KUBELET)
        await asyncio.sleep(0.5)
        pinned = Checkpoint("static", CPUSet.parse("0-5"), {"uid-server": {"app": CPUSet.parse("6-7")}})
        replace_file(lab.state_file, encode(pinned))
        lab.run("server", "2")
        await lab.until(agent.runs)
        await asyncio.sleep(0.3)
        lab.kubelet.configuration["cpuManagerPolicy"] = "none"
        replace_file(lab.state_file, encode(Checkpoint("none")))
        await lab.until(lambda: agent.mode.name is ModeName.TAKEOVER)
        assert agent.ledger.entries["uid-server", "app"].cpus == CPUSet.parse("6-7")
