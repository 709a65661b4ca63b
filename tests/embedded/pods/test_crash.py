"""An agent killed with SIGKILL repeatedly, at random times."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest

import corelane
from corelane.embedded.containers.local import LocalRuntime
from corelane.machine.sources import load
from corelane.node import codec, validate
from corelane.node.config import NodeConfig
from support.cluster_lab import SERVE, cluster, container, phase, pod, until
from support.containers import needs_two_cpus

VICTIM = Path(__file__).parents[2] / "support" / "agent_victim.py"


async def start(directory: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(VICTIM),
        str(directory / "kubeconfig"),
        str(directory),
        "auto",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(corelane.__file__).parents[1])},
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.communicate()


def ledger(directory: Path):
    return codec.decode((directory / "ledger.json").read_bytes(), load(), NodeConfig())


@pytest.mark.system
@needs_two_cpus
def test_kills_at_random_times_lose_no_pod_and_keep_exclusive_cpus_exclusive(tmp_path):
    """Pods are created and deleted meanwhile; the kernel is checked between two starts of the agent.

    The exclusive pod is recreated once its predecessor's CPUs are released: before that it is rejected.
    """
    chance = random.Random(20)

    async def scenario():
        async with cluster(tmp_path) as client:
            names = iter(f"p{number}" for number in range(100))
            alive: list[str] = []
            agent = None
            try:
                for _ in range(5):
                    agent = await start(tmp_path)
                    doing = asyncio.create_task(churn(client, names, alive, agent))
                    await asyncio.sleep(chance.uniform(0.5, 1.6))
                    await kill(agent)
                    await doing
                    await check(tmp_path)
                agent = await start(tmp_path)
                if "fast" not in alive:
                    await until(released)
                    await create_fast(client, alive)
                for name in alive:
                    await phase(client, name, "Running")

                async def settled():
                    state = ledger(tmp_path)
                    kept = {entry.pod.partition("/")[2] for entry in state.entries.values()}
                    return kept == set(alive) and {e.phase for e in state.entries.values()} <= {"confirmed"}

                await until(settled)
                await kill(agent)
                await check(tmp_path)
            finally:
                if agent and agent.returncode is None:
                    await kill(agent)
                runtime = await LocalRuntime.open(tmp_path / "runtime")
                await runtime.destroy(0)

    async def released():
        if not (tmp_path / "ledger.json").exists():
            return True
        return all(entry.pod != "default/fast" for entry in ledger(tmp_path).entries.values())

    async def create_fast(client, alive):
        alive.append("fast")
        await client.create(pod("fast", container("lane", SERVE, "1")))

    async def churn(client, names, alive, agent):
        from corelane.kube.pod import Pod

        for _ in range(2):
            name = next(names)
            alive.append(name)
            await client.create(pod(name, container("shared", SERVE)))
        if len(alive) > 4:
            await client.delete(Pod, alive.pop(0), namespace="default", grace_seconds=0)
        if "fast" in alive:
            alive.remove("fast")
            await client.delete(Pod, "fast", namespace="default", grace_seconds=0)
            return
        while not await released():
            if agent.returncode is not None:
                return
            await asyncio.sleep(0.03)
        await create_fast(client, alive)

    async def check(directory):
        assert validate(ledger(directory)) == [] if (directory / "ledger.json").exists() else True
        runtime = await LocalRuntime.open(directory / "runtime")
        lanes, others = [], []
        for one in await runtime.containers():
            if one.state == "running":
                cpus = {task.cpus for task in await runtime.allowed(one.id)}
                (lanes if one.name == "lane" else others).extend(cpus)
        await runtime.close()
        for number, lane in enumerate(lanes):
            assert len(lane) == 1
            assert all(lane.isdisjoint(other) for other in (*lanes[:number], *others))

    asyncio.run(scenario())
