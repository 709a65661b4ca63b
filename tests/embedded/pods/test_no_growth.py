"""Pods that come and go leave nothing behind in the agent's memory: every collection is as long as before."""

import gc

from support import reachable
from support.node_lab import with_lab

PODS, WARM_UP, ROUNDS = 12, 2, 6
BOUNDED = {"Overlap._recent"}
"""Grow with every start, to a fixed length."""


async def come_and_go(lab, agent, number):
    """Pods of every kind start, are confirmed, and end; the kubelet and the runtime forget them."""
    names = [f"pod{number}-{n}" for n in range(PODS)]
    made = [lab.run(name, "1" if n % 4 == 0 else "") for n, name in enumerate(names)]
    await lab.until(lambda: agent.status()["containers"] == {"confirmed": PODS})
    lab.kubelet.pods = []
    for ident in made:
        lab.end(ident)
        lab.node.remove(ident)
        lab.node.announce(ident, 3)
    await lab.until(lambda: not agent.runs() and not agent.ledger.entries and not agent.pods.pods)
    await lab.until(lambda: not any(state.waiting for state in agent.publication.publisher.states()))


def test_no_collection_of_the_agent_grows_with_the_pods_that_came_and_went(tmp_path):
    async def scene(lab):
        async with lab.working() as agent:
            for number in range(WARM_UP):
                await come_and_go(lab, agent, number)
            gc.collect()
            before = reachable.lengths(agent, ("corelane.", "asyncio.queues"))
            for number in range(ROUNDS):
                await come_and_go(lab, agent, WARM_UP + number)
            grown = {
                name: (before[name], length)
                for name, length in reachable.lengths(agent, ("corelane.", "asyncio.queues")).items()
                if length > before[name] + PODS and name not in BOUNDED
            }
            assert not grown

    with_lab(tmp_path, scene)
