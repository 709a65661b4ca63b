"""A latency-critical server beside noise, in real cgroups, under none, static and pools, in turn.

Each policy's own admission places a Guaranteed pod with the server, a Burstable pod and a BestEffort pod with
noise. The server is measured in several rounds, and the policies alternate, so that a slower hour of the
machine meets all of them; a figure is the median of its rounds.
"""

# ruff: noqa: T201
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from report import Row

from corelane.cpuset import CPUSet
from corelane.embedded.containers.local import LocalRuntime
from corelane.machine.model import Machine
from corelane.machine.sources import load
from corelane.node import admit
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from corelane.runtime.base import ContainerSpec
from corelane.workload import PlacementSpec, PodQOS
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

POLICIES: Final = ("none", "static", "pools")
SCRIPT: Final = str(Path(__file__).with_name("latency_server.py"))
FIGURES: Final = {
    "throughput": ("requests/s", 1.0, "higher"),
    "p50": ("ms", 1e3, "lower"),
    "p99": ("ms", 1e3, "lower"),
    "p99.9": ("ms", 1e3, "lower"),
    "switches": ("/s", 1.0, "lower"),
    "migrations": ("/s", 1.0, "lower"),
}
Result = dict[str, float]


async def measure(rounds: int = 5, seconds: float = 6.0) -> list[Row]:
    """Return a row for each figure and policy; `seconds` is the time of one policy in one round."""
    machine = load()
    results: dict[str, list[Result]] = {policy: [] for policy in POLICIES}
    for number in range(rounds):
        for policy in POLICIES[number % 3 :] + POLICIES[: number % 3]:
            results[policy].append(await _round(machine, policy, seconds))
    return [
        Row(f"beside noise, {policy}: {name}", _median(results[policy], name) * factor, unit, None, better)
        for policy in POLICIES
        for name, (unit, factor, better) in FIGURES.items()
    ]


def _median(results: list[Result], name: str) -> float:
    return statistics.median(result[name] for result in results)


def show(rows: list[Row]) -> None:
    """Print the policies side by side."""
    values = {row.name.partition(", ")[2]: row for row in rows}
    print(f"\n{'server beside noise':<26}" + "".join(f"{policy:>12}" for policy in POLICIES))
    for name, (unit, _, _) in FIGURES.items():
        cells = (f"{values[f'{policy}: {name}'].value:>12,.2f}" for policy in POLICIES)
        print(f"{f'{name}, {unit}':<26}{''.join(cells)}")


async def _round(machine: Machine, policy: str, seconds: float) -> Result:
    with tempfile.TemporaryDirectory() as name:
        result = Path(name) / "result.json"
        runtime = await LocalRuntime.open(Path(name) / "runtime", cgroups="required")
        try:
            for spec in _containers(machine, policy, ("server", str(seconds), str(result))):
                await runtime.start(spec)
            async with asyncio.timeout(seconds * 4 + 30):
                while not result.exists():  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.1)
            answer: Result = json.loads(result.read_text())
            return answer
        finally:
            await runtime.destroy(0)


def _containers(machine: Machine, policy: str, server: tuple[str, ...]) -> Iterator[ContainerSpec]:
    """Yield the containers of all pods, noise first, on the CPUs that the policy's ledger gives them."""
    ledger, pods = new(machine, NodeConfig(policy=policy)), _pods(len(machine.usable), policy)
    for pod in pods:
        ledger, decision = admit(ledger, pod)
        assert decision.admitted, f"{pod.key}: {decision.message}"
    for pod in reversed(pods):
        for container in pod.containers:
            entry = ledger.entries[pod.uid, container.name]
            limited = container.cpu_limit and not entry.exclusive
            kind = container.name.partition("-")[0]
            yield ContainerSpec(
                pod_uid=pod.uid,
                namespace=pod.namespace,
                pod=pod.name,
                name=container.name,
                command=(sys.executable, SCRIPT, *(server if kind == "server" else (kind,))),
                cpus=ledger.runs_on(entry) if policy != "none" else CPUSet(machine.usable),
                cpu_shares_milli=container.cpu_request or 2,
                quota_us=container.cpu_limit * 100 if limited else None,
            )


def _pods(cpus: int, policy: str) -> list[PodRequest]:
    """Return the pods: beside the server they request a quarter of the CPUs, and use all that they get."""
    app = ContainerRequest("server", cpu_request=1000, cpu_limit=1000, memory_request=1, memory_limit=1)
    server = PodRequest("server", "bench", "server", QOSClass.GUARANTEED, (app,))
    if policy == "pools":
        server = replace(server, placement_spec=PlacementSpec(qos=PodQOS.LSE))
    bursts = tuple(ContainerRequest(f"burst-{number}", cpu_request=250) for number in range(cpus))
    spins = tuple(ContainerRequest(f"spin-{number}") for number in range(cpus))
    return [
        server,
        PodRequest("bursts", "bench", "bursts", QOSClass.BURSTABLE, bursts),
        PodRequest("spins", "bench", "spins", QOSClass.BEST_EFFORT, spins),
    ]


if __name__ == "__main__":
    show(asyncio.run(measure(*map(int, sys.argv[1:2]))))
