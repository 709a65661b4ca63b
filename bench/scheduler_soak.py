"""`corelane scheduler` for half an hour: pods and nodes come and go, the API server restarts; then silence.

    bench/scheduler_soak.py --minutes 25 --idle 5 --server real

The scheduler is the program that is shipped, with leader election; its API server is the embedded one in
another process, or a real kube-apiserver and etcd (KUBEBUILDER_ASSETS names their directory). Pods of 20
shapes live for a minute or two, some are larger than any node; nodes are deleted with their pods, added,
cordoned. No CPU may be bound twice, no node may refuse a pod, no pod that a node admits may be left, memory
stays, and without anything to do the scheduler does next to nothing. Prints its seed; figures are in
build/bench/scheduler-soak.json.
"""

# ruff: noqa: T201
import argparse
import asyncio
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import report
import scheduler_cluster as clusters
import scheduler_load as load
from report import Row
from scheduler_soak_agents import GRACE_S, Agents, insist

from corelane.kube.client import KubeClient
from support import scheduler_lab
from support.programs import free_port
from support.scheduler_lab import Server

SAMPLED_EACH_S: Final = 5.0
SETTLING_S: Final = 30
QUIET_S: Final = 20.0
"""After the churn, before the idle time counts."""
HOPELESS_CPUS: Final = 2 * load.CPUS


@dataclass(frozen=True, slots=True)
class Options:
    """What happens. Times are in s."""

    seed: int
    churn: float
    idle: float
    nodes: int
    pods: int
    rate: float
    """Pods created a second."""
    restart_each: float
    forced: float
    """Share of pods that are deleted by force."""
    real: bool


@dataclass(slots=True)
class Figures:
    """What was measured of the scheduler's process."""

    memory: list[tuple[float, float]] = field(default_factory=list)
    """(s since the start, MB)."""
    files: list[int] = field(default_factory=list)
    created: int = 0
    restarts: int = 0
    removed_nodes: int = 0
    left: list[str] = field(default_factory=list)
    idle_share: float = 0.0
    churn_share: float = 0.0


class Soak:
    """One run."""

    def __init__(
        self, options: Options, server: Server, agents: Agents, client: KubeClient, pid: int
    ) -> None:
        self.options, self.server, self.agents, self.client, self.pid = options, server, agents, client, pid
        self.chance = random.Random(options.seed)  # noqa: S311
        self.figures = Figures()
        self._began = time.monotonic()
        self._over = asyncio.Event()
        """The churn is over: what was begun is finished, nothing new begins."""

    async def run(self) -> Figures:
        async with asyncio.TaskGroup() as tasks:
            always = [tasks.create_task(self.agents.run()), tasks.create_task(self._sample())]
            for _ in range(self.options.nodes):
                await self.agents.add()
            used, began = clusters.cpu_seconds(self.pid), time.monotonic()
            asyncio.get_running_loop().call_later(self.options.churn, self._over.set)
            await asyncio.gather(self._pods(), self._nodes(), self._hopeless(), self._restarts())
            self.figures.churn_share = (clusters.cpu_seconds(self.pid) - used) / (time.monotonic() - began)
            await self._settled()
            await self._idle()
            for one in always:
                one.cancel()
        return self.figures

    # Churn.

    async def _pods(self) -> None:
        """Create pods at random moments, each with a random time to live."""
        life = self.options.pods / self.options.rate
        async with asyncio.TaskGroup() as lives:
            for obj in load.pods(self.options.seed):
                await self._pause(self.chance.expovariate(self.options.rate))
                if self._over.is_set():
                    return
                lives.create_task(self._live(obj, self.chance.expovariate(1 / life)))

    async def _live(self, obj: load.Object, seconds: float) -> None:
        """Create a pod, and delete it after its time; pods that live at the end of the churn stay."""
        await insist(lambda: self.client.create(obj))
        self.figures.created += 1
        await self._pause(seconds)
        if not self._over.is_set():
            grace = 0 if self.chance.random() < self.options.forced else GRACE_S
            await self.agents.delete(obj["metadata"]["name"], grace)

    async def _hopeless(self) -> None:
        """Pods larger than any node come, and go a minute later."""
        async with asyncio.TaskGroup() as lives:
            for number in range(10**9):
                await self._pause(15)
                if self._over.is_set():
                    return
                lives.create_task(self._live(load.exclusive(f"hopeless-{number}", HOPELESS_CPUS), 60))

    async def _nodes(self) -> None:
        """Every half minute a node is deleted and a new one added; others are cordoned for a while."""
        while not self._over.is_set():
            await self._pause(15)
            name = self.chance.choice(sorted(self.agents.states))
            await self.agents.cordon(name, unschedulable=True)
            await self._pause(10)
            await self.agents.cordon(name, unschedulable=False)
            await self._pause(5)
            await self.agents.remove(self.chance.choice(sorted(self.agents.states)))
            self.figures.removed_nodes += 1
            await self._pause(self.chance.uniform(0, 5))
            await self.agents.add()

    async def _restarts(self) -> None:
        while True:
            await self._pause(self.options.restart_each)
            if self._over.is_set():
                return
            await asyncio.to_thread(self.server.kill)
            await asyncio.sleep(self.chance.choice((0, 3)))
            await asyncio.to_thread(self.server.start)
            self.figures.restarts += 1
            print(f"{self._now():.0f} s: API server restarted", file=sys.stderr, flush=True)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the churn."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    # Afterwards.

    async def _settled(self) -> None:
        """Uncordon all; what fits must be bound soon."""
        for name in list(self.agents.states):
            await self.agents.cordon(name, unschedulable=False)
        for _ in range(SETTLING_S):
            self.figures.left = self.agents.fitting()
            if not self.figures.left:
                return
            await asyncio.sleep(1)

    async def _idle(self) -> None:
        await asyncio.sleep(QUIET_S)
        used, began = clusters.cpu_seconds(self.pid), time.monotonic()
        await asyncio.sleep(self.options.idle)
        self.figures.idle_share = (clusters.cpu_seconds(self.pid) - used) / (time.monotonic() - began)

    async def _sample(self) -> None:
        while True:
            self.figures.memory.append((self._now(), clusters.memory_mb(self.pid)))
            with suppress(OSError):
                self.figures.files.append(open_files(self.pid))
            if len(self.figures.memory) % 12 == 0:
                findings = self.agents.findings
                print(
                    f"{self._now():.0f} s: {self.figures.created} pods created, {findings.bound} bound,"
                    f" {len(self.agents.pending)} pending, {len(findings.booked_twice)} CPUs bound twice,"
                    f" {len(findings.refused)} refused; {self.figures.memory[-1][1]:.1f} MB,"
                    f" {self.figures.files[-1]} files; load {os.getloadavg()[0]:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(SAMPLED_EACH_S)

    def _now(self) -> float:
        return time.monotonic() - self._began


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def scheduler(kubeconfig: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `corelane scheduler`, as a cluster does."""
    command = [sys.executable, "-m", "corelane", "scheduler", "--kubeconfig", str(kubeconfig)]
    with (home / "scheduler.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--port={free_port()}"], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def rows(options: Options, figures: Figures, agents: Agents, *, alive: bool) -> Iterator[Row]:
    """Yield the rows. Memory grows by what the medians of the last two thirds of the churn differ."""
    findings = agents.findings
    yield Row("pods bound", findings.bound, "", None)
    yield Row("restarts of the API server", figures.restarts, "", None)
    yield Row("nodes deleted and added", figures.removed_nodes, "", None)
    yield Row("CPUs bound twice", len(findings.booked_twice), "", 0)
    yield Row("CPUs bound again before the node released a deleted pod", len(findings.not_released), "", None)
    yield Row("refused by the node after binding", len(findings.refused), "pods", 0)
    yield Row("given other CPUs than bound", findings.reallocated, "pods", 0)
    yield Row("left pending though a node admits them", len(figures.left), "pods", 0)
    yield Row("the scheduler ended", float(not alive), "", 0)
    yield Row("CPU time during churn, of a core", 100 * figures.churn_share, "%", None)
    yield Row("idle, of a core", 100 * figures.idle_share, "%", 1)
    third = options.churn / 3
    middle, last = (
        statistics.median(mb for second, mb in figures.memory if third * part <= second < third * (part + 1))
        for part in (1, 2)
    )
    yield Row("resident memory, median of the last third", last, "MB", None)
    yield Row("its growth against the second third", 100 * (last / middle - 1), "%", 5)
    yield Row("resident memory after the idle time", figures.memory[-1][1], "MB", None)
    files = figures.files
    yield Row("open files, growth since the first minute", files[-1] - files[min(12, len(files) - 1)], "", 3)


def chosen() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--minutes", type=float, default=25, help="of churn (default 25)")
    parser.add_argument(
        "--idle", type=float, default=5, help="minutes without any change afterwards (default 5)"
    )
    parser.add_argument("--nodes", type=int, default=14, help="of 128 CPUs (default 14)")
    parser.add_argument("--pods", type=int, default=400, help="alive at a time, on average (default 400)")
    parser.add_argument("--rate", type=float, default=4, help="pods created a second (default 4)")
    parser.add_argument(
        "--restart-each", type=float, default=180, help="seconds between restarts of the server"
    )
    parser.add_argument("--forced", type=float, default=0, help="%% of pods deleted by force (default 0)")
    parser.add_argument("--server", choices=("embedded", "real"), default="embedded")
    one = parser.parse_args()
    return Options(
        seed=one.seed,
        churn=60 * one.minutes,
        idle=60 * one.idle,
        nodes=one.nodes,
        pods=one.pods,
        rate=one.rate,
        restart_each=one.restart_each,
        forced=one.forced / 100,
        real=one.server == "real",
    )


async def soak(options: Options, server: Server, home: Path) -> list[Row]:
    client = KubeClient.connect(server.kubeconfig(home / "admin.kubeconfig"))
    agents = Agents(client, random.Random(f"agents {options.seed}"))  # noqa: S311
    with scheduler(server.kubeconfig(home / "scheduler.kubeconfig"), home) as process:
        try:
            figures = await Soak(options, server, agents, client, process.pid).run()
        finally:
            await client.close()
        made = list(rows(options, figures, agents, alive=process.poll() is None))
    findings = agents.findings
    for line in (
        *findings.booked_twice[:20],
        *findings.not_released[:20],
        *findings.refused[:20],
        *figures.left[:20],
    ):
        print(line)
    return made


def main() -> int:
    """Return 0 if every target was met, else 1; then the scheduler's log stays."""
    options = chosen()
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="corelane-soak-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        with (scheduler_lab.real if options.real else scheduler_lab.embedded)(home) as server:
            made = asyncio.run(soak(options, server, home))
        met = all(row.met() for row in made)
        if not met:
            kept = report.ROOT / "build" / "bench" / "scheduler-soak.log"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes((home / "scheduler.log").read_bytes())
            print(f"the scheduler's log: {kept.relative_to(report.ROOT)}")
    what = "kube-apiserver" if options.real else "embedded server"
    report.show(made, f"seed {options.seed}; {what}; churn {options.churn:.0f} s, idle {options.idle:.0f} s")
    report.keep("scheduler-soak", made)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
