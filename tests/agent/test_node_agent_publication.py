"""What the agent beside a kubelet publishes about its node, and when it does not."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.event_loop import Clocks
from corelane.agent.node_publication import TopologyWatch
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.topology_writer import TopologyWriter
from corelane.agent.reporting import AgentReporter
from corelane.kube import keys
from corelane.kube.client import APIError
from corelane.kube.objects import Event, Lease, Node, NodeResourceTopology
from support import virtual_time
from support.cluster_lab import events
from support.node_lab import in_lab, pod, source


async def published(lab):
    """The node's topology as the API server has it."""
    return json.loads(await lab.client.raw("GET", NodeResourceTopology.api.path(name="here")))


async def allocations(lab):
    return (await published(lab))["metadata"]["annotations"][keys.CPU_ALLOCATIONS]


@in_lab()
async def test_phases_alone_are_not_published_and_requests_in_the_shared_pool_are(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        await asyncio.sleep(1.0)  # a batch is published after its ledger is on disk
        await asyncio.wait_for(agent.publication.idle(120), 120)
        before, generation, own = await published(lab), agent.ledger.generation, str(lab.cpus(server))
        lab.drift(server, "0-7")
        await lab.until(lambda: agent.ledger.generation > generation)
        await lab.until_cpus(server, own)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        await asyncio.sleep(1.0)
        assert await published(lab) == before
        lab.kubelet.pods = [*lab.kubelet.pods, noise := pod("noise")]
        noise["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "300m"}}
        lab.start("uid-noise", "noise-0")
        async with asyncio.timeout(120):  # the ledger is on disk before it is published
            while '"uid-noise"' not in (after := await allocations(lab)):
                await asyncio.sleep(0.05)
        assert "300" in after


@in_lab()
async def test_what_waits_to_be_published_when_the_agent_ends_is_published(lab):
    reasons = [f"LastWords{number}" for number in range(5)]
    async with lab.working() as agent:
        await lab.until(lambda: agent.lease.held)
        for reason in reasons:
            agent.publication.event(PublishEvent("", reason, "the agent ends"))
    assert {reason for reason, _ in await events(lab.client, "here")} >= set(reasons)


async def deleted(lab):
    await lab.client.delete(NodeResourceTopology, "here")


def changed(**patch):
    async def change(lab):
        await lab.client.patch(NodeResourceTopology, "here", patch, field_manager="kubectl-edit")

    return change


def annotated(**annotations):
    return changed(metadata={"annotations": annotations})


async def edited_amounts(lab):
    zones = (await published(lab))["zones"]
    for resource in zones[0]["resources"]:
        resource["available"] = "0"
    await changed(zones=zones)(lab)


@pytest.mark.parametrize(
    "others",
    [
        deleted,
        annotated(**{keys.CPU_ALLOCATIONS: "{}"}),
        annotated(**{keys.MACHINE: None}),
        annotated(**{keys.MACHINE: "["}),
        changed(metadata={"annotations": None}),
        changed(metadata={"labels": {keys.MANAGED_BY: None}}),
        edited_amounts,
    ],
    ids=["deleted", "emptied", "removed", "damaged", "all-annotations-removed", "label-removed", "amounts"],
)
@in_lab()
async def test_a_topology_that_others_deleted_or_damaged_is_written_again_without_a_change_of_the_ledger(
    lab, others
):
    lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        await lab.until(lambda: source(agent, "NodeResourceTopology")["detail"] != "not written yet")
        await lab.until(lambda: agent.lease.held)
        await asyncio.sleep(1.0)
        await asyncio.wait_for(agent.publication.idle(120), 120)
        before, generation = await published(lab), agent.ledger.generation
        await others(lab)
        async with asyncio.timeout(15):
            while not await same_content(lab, before):
                await asyncio.sleep(0.05)
        assert agent.ledger.generation == generation


async def same_content(lab, before):
    """Whether the ledger, the other annotations and the zones are as they were."""
    try:
        return content(await published(lab)) == content(before)
    except APIError:
        return False


def content(topology):
    """What is published, of the ledger the pods' CPUs: phases may have changed meanwhile."""
    annotations = dict(topology["metadata"].get("annotations") or {})
    ledger = json.loads(annotations.pop(keys.CPU_ALLOCATIONS, "{}"))
    cpus = [(entry["uid"], entry["cpus"]) for entry in ledger.get("entries", ())]
    return annotations, topology["metadata"].get("labels"), cpus, topology["zones"]


@in_lab()
async def test_a_change_that_damages_nothing_is_left_and_not_taken_for_a_contest(lab):
    async with lab.working() as agent:
        writer = agent.publication.topology_writer
        await lab.until(lambda: agent.lease.held and agent.topology_watch.source.state.state == "ok")
        await asyncio.sleep(1.0)
        await asyncio.wait_for(agent.publication.idle(60), 60)
        await annotated(**{"example.com/note": "x"})(lab)
        before = await published(lab)
        version = before["metadata"]["resourceVersion"]
        await lab.until(lambda: int(writer.version) >= int(version), 60)
        assert writer.repairs == 0
        assert (await published(lab))["metadata"]["annotations"]["example.com/note"] == "x"


class Deleted:
    """An API server on which another program deletes the object after each write."""

    def __init__(self):
        self.created, self.version = [], 0

    async def patch(self, *_, **__):
        raise APIError(404, "NotFound", "not found")

    async def read_tree(self, path, *, accept=""):
        raise APIError(404, "NotFound", "not found")

    async def create(self, whole, field_manager=None):
        self.created.append(asyncio.get_running_loop().time())
        self.version += 1
        return {**whole, "metadata": {**whole["metadata"], "resourceVersion": str(self.version)}}


def test_repairs_that_are_undone_again_and_again_are_rare_and_reported_once_until_a_calm_time():
    server, lines, node_events = Deleted(), [], []
    body = {"apiVersion": "topology.node.k8s.io/v1alpha2", "metadata": {"name": "n", "annotations": {}}}
    body |= {"kind": "NodeResourceTopology", "zones": [], "attributes": []}

    class Reporter(AgentReporter):
        def source_failed(self, name, error):
            lines.append(str(error))

    async def main():
        publisher = Publisher(server, "n", Reporter(), Clocks())
        queue, writer = publisher.node_queue, TopologyWriter(server, "n", publisher, Reporter())
        publication = SimpleNamespace(
            topology_writer=writer,
            publish_topology=lambda *, if_damaged: writer.repair(lambda: body),
            event=lambda event: node_events.append(event.reason),
        )
        watch = TopologyWatch(None, "n", publication, Reporter(), Clocks())
        task = asyncio.create_task(queue.run())
        writer.write(lambda: body)
        await writer.written.wait()
        server.created.clear()

        async def fight(seconds):
            end = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end:
                watch.seen("")  # deleted again
                await asyncio.sleep(0.1)

        await fight(3600.0)
        at = server.created
        assert [round(second - first) for first, second in pairwise(at)][-3:] == [60] * 3
        assert at[0] < 1.0
        assert at[4] < 20.0
        assert len(at) < 80
        assert node_events == ["TopologyContested"]
        (line,) = lines
        assert "NodeResourceTopology n: another program undid 6 repairs in a row" in line
        await asyncio.sleep(300.0)
        before, began = len(at), asyncio.get_running_loop().time()
        await fight(2.0)
        assert at[before] - began < 1.0
        assert len(lines) == 1
        task.cancel()

    virtual_time.run(main())


@in_lab()
async def test_nothing_is_published_for_a_node_that_does_not_exist_until_it_does(lab):
    node = json.loads(await lab.client.raw("GET", Node.api.path(name="here")))
    await lab.client.delete(Node, "here")
    server = lab.run("server", "2")
    kinds = (NodeResourceTopology, Lease, Event)
    before = [len((await lab.client.list(kind)).items) for kind in kinds]
    async with lab.working() as agent:
        await lab.until(lambda: source(agent, "Node")["state"] == "failing")
        assert "Node here does not exist" in source(agent, "Node")["error"]
        assert "--node-name" in source(agent, "Node")["error"]
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        await lab.until_cpus(server, str(lab.cpus(server)))
        assert [len((await lab.client.list(kind)).items) for kind in kinds] == before
        metadata = {"name": "here"}
        await lab.client.create({**node, "metadata": metadata})
        async with asyncio.timeout(60):
            while not any(
                one.metadata.name == "here" for one in (await lab.client.list(NodeResourceTopology)).items
            ):
                await asyncio.sleep(0.05)
        assert source(agent, "Node")["state"] == "ok"
