"""corelane's scheduler as a process of its own: `scheduler_process.py KUBECONFIG NAME REPORT_FILE`.

Once it is ended, the file has: seconds from the start of the process until all is listed, until the first
binding was sent and accepted; longest pauses of the event loop while it lists, until then, and after;
resident memory.
"""

import asyncio
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import scheduler_cluster

from corelane.kube.client import KubeClient
from corelane.scheduler.daemon import garbage
from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter

PROBE_S = 0.005


class Report(SchedulerReporter):
    """Notes times, in s since the process began."""

    def __init__(self, began: float, path: Path) -> None:
        self.began, self.path = began, path
        self.figures: dict[str, float] = {"bound": 0}
        self.pauses: list[float] = []
        self.work: list[float] = []
        """CPU time that this process used in each pause: the rest was other programs' turn."""
        self.listing: list[float] = []
        """Pauses while all is listed."""
        self.first = asyncio.Event()

    def started(self, name: str) -> None:
        self._note("started")
        garbage.settle()  # As the daemon does.
        self.listing, self.pauses = self.pauses, []
        self.work.clear()

    def listed(self, kind, objects) -> None:  # noqa: ANN001
        garbage.settle()

    def binding(self, pod, node, assignments) -> None:  # noqa: ANN001
        self._note("first_sent")

    def bound(self, pod, node, seconds) -> None:  # noqa: ANN001
        if "first_bound" not in self.figures:
            self._note("first_bound")
            self.figures["cpu_at_first_s"] = time.process_time()
            self.figures["rss_at_first_mb"] = scheduler_cluster.memory_mb(os.getpid())
            self.first.set()
        self.figures["bound"] += 1

    def _note(self, what: str) -> None:
        self.figures.setdefault(what, time.monotonic() - self.began)

    async def rewrite(self) -> None:
        """Write the file every second, and so not within what is measured."""
        while True:
            await asyncio.sleep(1)
            self.write()

    async def probe(self) -> None:
        """Note how much later than asked the loop comes round."""
        while True:
            before, used = time.monotonic(), time.process_time()
            await asyncio.sleep(PROBE_S)
            late = time.monotonic() - before - PROBE_S
            if late > 0.002:
                self.pauses.append(late)
                self.work.append(min(late, time.process_time() - used))
            if self.first.is_set() and "pause_until_first_ms" not in self.figures:
                self.figures["pause_of_lists_ms"] = 1e3 * max(self.listing, default=0.0)
                self.figures["pause_until_first_ms"] = 1e3 * max(self.pauses, default=0.0)
                self.figures["work_until_first_ms"] = 1e3 * max(self.work, default=0.0)
                self.pauses.clear()
                self.work.clear()

    def write(self) -> None:
        worst = sorted(self.pauses, reverse=True)
        self.figures |= {
            "longest_pause_ms": 1e3 * worst[0] if worst else 0.0,
            "pauses_over_50_ms": sum(late > 0.05 for late in worst),
            "longest_work_ms": 1e3 * max(self.work, default=0.0),
            "rss_mb": scheduler_cluster.memory_mb(os.getpid()),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "cpu_s": time.process_time(),
        }
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.figures))
        part.replace(self.path)


async def main(kubeconfig: Path, name: str, path: Path, began: float) -> None:
    garbage.collect_young()
    report = Report(began, path)
    client = KubeClient.connect(kubeconfig)
    probes = [asyncio.create_task(report.probe()), asyncio.create_task(report.rewrite())]
    running = asyncio.create_task(Scheduler(client, name=name, reporter=report).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        pass
    finally:
        for probe in probes:
            probe.cancel()
        report.write()
        await client.close()


if __name__ == "__main__":
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(
        Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    ) / os.sysconf("SC_CLK_TCK")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), time.monotonic() - age))
