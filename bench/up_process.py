"""`corelane up` with simulated nodes, measured within: `up_process.py NODES PODS REPORT [IDLE_SECONDS]`.

The file REPORT has: seconds of the start, CPU time while idle, seconds from the first pod created until all
are Running, and CPU time meanwhile, all by part; requests to the API server, and memory. With PODS 0 no pods
are created.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from cpu_parts import PartSampler

from corelane import structured_log
from corelane.embedded.up.cluster import Cluster
from corelane.embedded.up.options import UpOptions

MACHINE: Final = "socket:2 numa:4 core:16 smt:2"
SETTLE_S: Final = 10.0
AFTER_S: Final = 5.0
START_S: Final = 1800.0
BURST_S: Final = 600.0


class PodCount:
    """Follows the pods in the server's store: when the first was created, and when all were Running."""

    def __init__(self, store: Any, wanted: int) -> None:
        self._store, self._wanted, self._cursor = store, wanted, store.revision
        self._running: set[str] = set()
        self.first = self.last = 0.0
        self.all_running = asyncio.Event()

    def changed(self) -> None:
        events = self._store.events("pods", self._cursor)
        self._cursor = self._store.revision
        if events and not self.first:
            self.first = time.monotonic()
        running = [e.record.key for e in events if e.record.fields.get("status.phase") == "Running"]
        self._running.update(running)
        if len(self._running) >= self._wanted and not self.last:
            self.last = time.monotonic()
            self.all_running.set()

    @property
    def running(self) -> int:
        return len(self._running)


async def main(nodes: int, count: int, report: Path, idle_s: float) -> None:
    structured_log.configure(as_json=True)
    sampler = PartSampler()
    figures: dict[str, Any] = {"nodes": nodes, "pods": count}
    with tempfile.TemporaryDirectory(prefix="corelane-bench-up-") as directory:
        options = UpOptions(
            data_dir=Path(directory) / "data", port=0, simulated=nodes, machine=MACHINE, cgroups="off"
        )
        cluster, begun = Cluster(options), time.monotonic()
        async with asyncio.timeout(START_S):
            await cluster.start()
        try:
            figures["start_s"] = time.monotonic() - begun
            figures["start"] = sampler.take()
            note(report, figures)
            await asyncio.sleep(SETTLE_S)
            await idle(sampler, figures, idle_s)
            note(report, figures)
            if count:
                await burst(cluster, sampler, figures, count)
            note(report, figures)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await cluster.stop(stop_pods=False)
            sampler.close()


async def idle(sampler: PartSampler, figures: dict[str, Any], seconds: float) -> None:
    sampler.take()
    begun = time.monotonic()
    await asyncio.sleep(seconds)
    figures["idle_s"] = time.monotonic() - begun
    figures["idle"] = sampler.take()
    figures["idle_rss_mb"] = memory_mb()


async def burst(cluster: Cluster, sampler: PartSampler, figures: dict[str, Any], count: int) -> None:
    server = cluster._server
    assert server is not None
    assert server._store is not None
    pods = PodCount(server._store, count)
    command = [sys.executable, str(Path(__file__).with_name("up_pods.py"))]
    creator = await asyncio.create_subprocess_exec(
        *command,
        str(cluster.directory.kubeconfig),
        str(count),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert creator.stdin is not None
    assert creator.stdout is not None
    await creator.stdout.readline()
    with server._store.woken("pods", pods.changed):
        before, revision = requests(server._metrics), server._store.revision
        sampler.take()
        sampler.places()
        creator.stdin.write(b"\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BURST_S):
                await pods.all_running.wait()
        figures["burst"] = sampler.take()
        figures["running"] = pods.running
        figures["burst_s"] = (pods.last or time.monotonic()) - pods.first
        await asyncio.sleep(AFTER_S)
        figures["after"] = sampler.take()
        figures["after_s"] = AFTER_S
    figures["revisions"] = server._store.revision - revision
    figures["requests"] = dict((requests(server._metrics) - before).most_common())
    figures["places"] = sampler.places()
    figures["rss_mb"] = memory_mb()
    creator.kill() if creator.returncode is None else None
    await creator.wait()


def requests(metrics: Any) -> Counter[str]:
    """Return the number of answered requests by verb, resource and subresource."""
    found: Counter[str] = Counter()
    for sample in metrics._totals.collect()[0].samples:
        if sample.name.endswith("_total"):
            said = sample.labels
            part = f"/{said['subresource']}" if said["subresource"] else ""
            found[f"{said['verb']} {said['resource']}{part} {said['code']}"] += int(sample.value)
    return found


def memory_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def note(report: Path, figures: dict[str, Any]) -> None:
    part = report.with_suffix(".part")
    part.write_text(json.dumps(figures, indent=1))
    part.replace(report)


if __name__ == "__main__":
    idle_seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 30.0
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), idle_seconds))
