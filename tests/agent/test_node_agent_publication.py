"""What the agent beside a kubelet publishes about its node, and when it does not."""

import asyncio
import json

from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology
from support.node_lab import pod, with_lab


async def published(lab):
    """The node's topology as the API server has it."""
    return json.loads(await lab.client.raw("GET", NodeResourceTopology.api.path(name="here")))


async def allocations(lab):
    return (await published(lab))["metadata"]["annotations"][keys.CPU_ALLOCATIONS]


def test_phases_alone_are_not_published_and_requests_in_the_shared_pool_are(tmp_path):
    async def scene(lab):
        server = lab.run("server", "2")
        async with lab.working() as agent:
            await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
            await asyncio.sleep(1.0)  # a batch is published after its ledger is on disk
            await asyncio.wait_for(agent.upkeep.publisher.idle(), 120)
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

    with_lab(tmp_path, scene)
