"""The agent beside a kubelet, measured: `make bench-agent`.

On this machine's containerd (root, runc, busybox-static; see tests/support/containerd.py): cost of an idle
agent, reconciling, start, and the time from a container's start until its CPUs were read back. Then what the
agent is for: a latency-critical server beside noise. Other programs that run meanwhile spoil the figures.
"""

# ruff: noqa: T201
import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import agent_lab
import beside_noise
import report
from agent_lab import Agent, AgentLab
from report import Row

IDLE_CONTAINERS: Final = 100
CONTAINERS: Final = 250
IDLE_SECONDS: Final = 60.0
STARTS: Final = 150
SHORT_PERIOD: Final = 2.0
UNSEEN_STARTS: Final = 30
NRI_STARTS: Final = 30
REPORT_CPUS: Final = (
    "/bin/busybox",
    "sh",
    "-c",
    "/bin/busybox grep Cpus_allowed_list /proc/self/status > /cpus; exec /bin/busybox sleep 86400",
)


async def on_containerd(lab: AgentLab) -> AsyncIterator[Row]:
    """Yield the rows of a runtime with events, and of the same one without."""
    await asyncio.to_thread(lab.hold_a_cpu)
    await asyncio.to_thread(lab.start_pods, IDLE_CONTAINERS - 1)
    with lab.agent() as agent:
        await agent.until_confirmed(lab.containers)
        yield await idle(agent)
        yield Row(f"idle, {IDLE_CONTAINERS} containers: RSS", agent.memory_mb(), "MB", 80)
        await asyncio.to_thread(lab.start_pods, CONTAINERS - IDLE_CONTAINERS)
        status = await agent.until_confirmed(lab.containers)
        assert status["overlap"]["count"] >= STARTS, status["overlap"]
        yield Row("startedAt to read back, events: p99", status["overlap"]["p99"] * 1e3, "ms", 100)
        yield Row("startedAt to read back, events: longest", status["overlap"]["longest"] * 1e3, "ms", None)
        yield await reconcile(agent)
        yield Row(f"idle, {CONTAINERS} containers: RSS", agent.memory_mb(), "MB", None)
    for name, fresh in (("no ledger", True), ("its ledger", False)):
        with lab.agent(fresh=fresh) as agent:
            await agent.until_confirmed(lab.containers)
            took = time.monotonic() - agent.began
            yield Row(f"start, {CONTAINERS} running, {name}", took, "s", 2)
            yield Row(f"start, {CONTAINERS} running, {name}: CPU time", agent.cpu_seconds(), "s", None)
    yield await without_events(lab)


async def idle(agent: Agent) -> Row:
    """Return the CPU time of an agent beside containers that do nothing."""
    await asyncio.sleep(15)
    before, began = agent.cpu_seconds(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    share = (agent.cpu_seconds() - before) / (time.monotonic() - began) * 100
    return Row(f"idle, {IDLE_CONTAINERS} containers: CPU", share, "% of a core", 0.5)


async def reconcile(agent: Agent) -> Row:
    """Return the longest of three unchanged comparisons of all containers with the kernel."""
    longest, at = 0.0, time.time()
    await agent.until(lambda status: status["reconcile"]["at"] > at)
    for _ in range(3):
        at = time.time()
        status = await agent.until(lambda status: status["reconcile"]["at"] > at)  # noqa: B023
        longest = max(longest, status["reconcile"]["seconds"])
    return Row(f"unchanged reconcile, {CONTAINERS} containers", longest * 1e3, "ms", 50)


async def without_events(lab: AgentLab) -> Row:
    """Return the longest time to the set read back where containers are listed each `SHORT_PERIOD`."""
    with lab.agent(events=False, period=SHORT_PERIOD) as agent:
        await agent.until_confirmed(lab.containers)
        for number in range(UNSEEN_STARTS):
            await asyncio.sleep(SHORT_PERIOD * number / UNSEEN_STARTS)
            await asyncio.to_thread(lab.start_pods, 1)
        status = await agent.until_confirmed(lab.containers)
        assert status["overlap"]["count"] >= UNSEEN_STARTS, status["overlap"]
        target = (SHORT_PERIOD + 0.1) * 1e3
        longest = status["overlap"]["longest"] * 1e3
        return Row("startedAt to read back, listed: longest", longest, "ms", target)


async def with_nri(lab: AgentLab) -> AsyncIterator[Row]:
    """Yield the share of containers whose first instruction ran on their CPUs alone."""
    await asyncio.to_thread(lab.hold_a_cpu)
    with lab.agent(nri=True) as agent:
        await agent.until_confirmed(lab.containers)
        await agent.until(lambda status: status["nri"]["connected"])
        made = await asyncio.to_thread(lab.start_pods, NRI_STARTS, REPORT_CPUS)
        status = await agent.until_confirmed(lab.containers)
        pool = await asyncio.to_thread(_effective, lab, made[0])
        seen = [await asyncio.to_thread(_first_seen, lab, container) for container in made]
        share = sum(cpus == pool for cpus in seen) / len(seen) * 100
        yield Row("on CPUs at the first instruction, NRI", share, "%", 100, "higher")
        yield Row("slowest answer to the runtime, NRI", status["nri"]["slowest"] * 1e3, "ms", 500)


def _effective(lab: AgentLab, container: str) -> str:
    group = lab.lab.cgroup(container)
    names = ("cpuset.effective_cpus", "cpuset.cpus.effective")
    return next((group / name).read_text().strip() for name in names if (group / name).exists())


def _first_seen(lab: AgentLab, container: str) -> str:
    file = Path(f"/proc/{lab.lab.pid(container)}/root/cpus")
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"container {container} reports nothing"
        time.sleep(0.05)
    return file.read_text().split()[1]


async def rows_of(release: str, measured: Callable[[AgentLab], AsyncIterator[Row]]) -> list[Row]:
    """Return the rows measured on a release of containerd; none, with the reason, where it cannot be run."""
    try:
        async with agent_lab.lab(release) as lab:
            return [_said(row) async for row in measured(lab)]
    except BaseException as error:  # pytest's Skipped
        if type(error).__name__ != "Skipped":
            raise
        print(f"not measured, containerd {release}: {error}")
        return []


def _said(row: Row) -> Row:
    """Print a row as soon as it is there: all of them take minutes."""
    print(f"{row.name}: {row.value:.2f} {row.unit}", file=sys.stderr, flush=True)
    return row


async def server_beside_noise() -> list[Row]:
    if len(os.sched_getaffinity(0)) < 2:
        print("not measured, server beside noise: needs two CPUs")
        return []
    return await beside_noise.measure()


async def main() -> None:
    began = time.monotonic()
    parts: list[Callable[[], Awaitable[list[Row]]]] = [
        server_beside_noise,
        lambda: rows_of("1.6", on_containerd),
        lambda: rows_of("1.7", with_nri),
    ]
    if not shutil.which("containerd"):
        print("bench/agent.py: no containerd on the PATH: see tests/system/packages.txt", file=sys.stderr)
        sys.exit(2)
    noise, *others = [await part() for part in parts]
    rows = [row for part in others for row in part]
    report.show(rows, f"{time.monotonic() - began:.0f} s in all")
    if noise:
        beside_noise.show(noise)
    report.keep("agent", rows + noise)


if __name__ == "__main__":
    asyncio.run(main())
