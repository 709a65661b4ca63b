"""Pods come and go beside the agent: whether its memory, files and threads grow. `agent_soak.py [MINUTES]`.

A pod starts and another one ends each second, every fifth with an exclusive CPU, on a real containerd.
"""

# ruff: noqa: T201
import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import agent_lab
import report
from agent_lab import Agent, AgentLab
from report import Row

LIVE: Final = 20
WARM_UP: Final = 120.0


def figures(agent: Agent) -> dict[str, float]:
    process = Path(f"/proc/{agent.process.pid}")
    return {
        "RSS, MB": agent.memory_mb(),
        "files": float(len(list((process / "fd").iterdir()))),
        "threads": float(len(list((process / "task").iterdir()))),
    }


async def soak(lab: AgentLab, seconds: float) -> list[Row]:
    """Return by how much each figure grew since the end of the warm-up."""
    await asyncio.to_thread(lab.start_pods, LIVE)
    with lab.agent(fresh=True) as agent:
        await agent.until_confirmed(lab.containers)
        began = asyncio.get_running_loop().time()
        first: dict[str, float] = {}
        for number, due in enumerate(_each_second(began, WARM_UP + seconds)):
            await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0.0))
            await asyncio.to_thread(lab.hold_a_cpu if number % 5 == 0 else lambda: lab.start_pods(1))
            await asyncio.to_thread(lab.stop_pod)
            if not first and due - began >= WARM_UP:
                first = figures(agent)
            if number % 60 == 0:
                print(f"{due - began:.0f} s, {number} pods: {figures(agent)}", file=sys.stderr, flush=True)
        await asyncio.sleep(5)
        last = figures(agent)
        status = agent.status()
        print(f"{number} pods; {status['containers'] if status else 'no status'}", file=sys.stderr)
    targets = {"RSS, MB": 2.0, "files": 3.0, "threads": 1.0}
    return [Row(f"growth, {name}", last[name] - first[name], "", targets[name]) for name in first]


def _each_second(began: float, seconds: float) -> Iterator[float]:
    """Yield when each pod is due; one that starts late is not made up for."""
    due = began
    while due < began + seconds:
        yield due
        due = max(due + 1.0, time.monotonic())


async def main(minutes: float) -> None:
    async with agent_lab.lab("1.6") as lab:
        rows = await soak(lab, minutes * 60)
    report.show(rows, f"after {minutes:g} minutes")
    report.keep("agent-soak", rows)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if sys.argv[1:] else 10.0))
