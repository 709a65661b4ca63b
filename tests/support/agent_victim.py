"""An agent in a process of its own, to be killed: `python agent_victim.py KUBECONFIG STATE CGROUPS`."""

import asyncio
import sys
from pathlib import Path

from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.pods.pod_agent import Agent
from corelane.kube.client import KubeClient
from corelane.machine.sources import load


async def main(kubeconfig: str, state: str, cgroups: str) -> None:
    runtime = await LocalRuntime.open(Path(state) / "runtime", cgroups=cgroups)
    agent = Agent(
        KubeClient.connect(Path(kubeconfig)),
        node_name="here",
        machine=load(),
        runtime=runtime,
        state_dir=Path(state),
        reconcile_seconds=0.3,
        validate=True,
    )
    running = asyncio.create_task(agent.run())
    await agent.ready()
    print("ready", flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
