"""`corelane up` with simulated nodes, measured: `make bench-up`, with `--nodes 5000` for other sizes.

For each number of nodes a process of its own: seconds to start, CPU time while idle, memory, then 500 pods
created at once (exclusive CPUs, burstable and best effort in turn): pods a second from the first create until
all are Running, and CPU time a pod, by part. API server, scheduler, controller and agents share the process
and its two cores; only the creates come from another one, over HTTPS. Then `corelane up` with 50 local pods:
start, memory and idle, with cgroups and with affinity alone (`--local` measures nothing else).
"""

# ruff: noqa: T201
import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import cpu_parts
import report
import up_local
from report import Row

NODES: Final = (10, 100, 1000)
PODS: Final = 500
IDLE_S: Final = 30.0
PATIENCE_S: Final = 3600.0
HERE: Final = Path(__file__).parent

Targets = dict[int, float]
RATE: Final[Targets] = {100: 100, 1000: 60}
CPU_MS: Final[Targets] = {100: 8, 1000: 12}
START_S: Final[Targets] = {1000: 8, 5000: 60}
IDLE_PERCENT: Final[Targets] = {100: 1, 1000: 5}
MEMORY_MB: Final[Targets] = {1000: 300}


def measure(nodes: int, pods: int, idle_s: float, kept: Path | None) -> dict[str, Any]:
    """Run `up_process.py`, and return its report: what there is of it, if the process failed."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-up-") as directory:
        found = Path(directory) / "report.json"
        script, numbers = str(HERE / "up_process.py"), (str(nodes), str(pods))
        command = [sys.executable, script, *numbers, str(found), str(idle_s)]
        log = Path(directory) / "log"
        try:
            with log.open("wb") as errors:
                ended = subprocess.run(command, stderr=errors, timeout=PATIENCE_S, check=False).returncode
        except subprocess.TimeoutExpired:
            ended = -1
        if ended:
            print(f"{nodes} nodes: the process failed ({ended}): {log.read_text()[-2000:]}", file=sys.stderr)
        figures: dict[str, Any] = json.loads(found.read_text()) if found.exists() else {"nodes": nodes}
        if kept:
            (kept / f"up-{nodes}.json").write_text(json.dumps(figures, indent=1) + "\n")
            (kept / f"up-{nodes}.log").write_bytes(log.read_bytes())
        return figures


def rows(figures: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of one number of nodes."""
    nodes = figures["nodes"]
    title = f"{nodes:,} nodes"
    if "start_s" not in figures:
        yield Row(f"{title}: started", 0, "of 1", 1, "higher")
        return
    yield Row(f"{title}: start", figures["start_s"], "s", START_S.get(nodes))
    yield Row(f"{title}: CPU time of the start", figures["start"]["total"], "s", None)
    if "idle" in figures:
        share = 100 * figures["idle"]["total"] / figures["idle_s"]
        yield Row(f"{title}: idle", share, "% of a core", IDLE_PERCENT.get(nodes))
        yield Row(f"{title}: memory, idle", figures["idle_rss_mb"], "MB", MEMORY_MB.get(nodes))
    if "burst" in figures:
        yield from burst(title, figures)


def burst(title: str, figures: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of the pods: CPU time until all run, and of what is written in the seconds after."""
    nodes, running = figures["nodes"], figures["running"]
    yield Row(f"{title}: pods running", running, f"of {figures['pods']}", figures["pods"], "higher")
    if not running:
        return
    rate = running / figures["burst_s"]
    yield Row(f"{title}: pods a second", rate, "1/s", RATE.get(nodes), "higher")
    costs = by_part(figures)
    yield Row(f"{title}: CPU time a pod", costs["total"], "ms", CPU_MS.get(nodes))
    yield Row(
        f"{title}: pods a second, if a whole core were free", 1e3 / costs["total"], "1/s", None, "higher"
    )
    until = 1e3 * figures["burst"]["total"] / running
    yield Row(f"{title}: CPU time a pod, until all run", until, "ms", None)
    yield Row(f"{title}: requests a pod", sum(figures["requests"].values()) / running, "", None)
    yield Row(f"{title}: revisions a pod", figures["revisions"] / running, "", None)
    yield Row(f"{title}: memory with the pods", figures["rss_mb"], "MB", None)


def by_part(figures: dict[str, Any]) -> dict[str, float]:
    """Return CPU time a pod in ms by part; of the seconds after, what an idle process uses is left out."""
    spent, after, running = figures["burst"], figures["after"], figures["running"]
    idle = {part: figures["after_s"] * used / figures["idle_s"] for part, used in figures["idle"].items()}
    return {
        part: 1e3 * (spent.get(part, 0) + max(0.0, after.get(part, 0) - idle.get(part, 0))) / running
        for part in (*cpu_parts.NAMES, "total")
    }


def show_parts(everything: list[dict[str, Any]]) -> None:
    """Print CPU time by part: a column for each number of nodes."""
    columns = [figures for figures in everything if "start" in figures]
    if not columns:
        return
    print("\nCPU time by part: start in s, idle in % of a core, a pod in ms")
    width = max(map(len, cpu_parts.NAMES))
    heads = "".join(f"{figures['nodes']:>12,} nodes        " for figures in columns)
    print(f"{'':<{width}} {heads}")
    print(f"{'':<{width}} " + f"{'start':>8} {'idle':>8} {'a pod':>8} " * len(columns))
    for part in (*cpu_parts.NAMES, "total"):
        print(f"{part:<{width}} " + " ".join(_cells(part, figures) for figures in columns))


def _cells(part: str, figures: dict[str, Any]) -> str:
    start = f"{figures['start'].get(part, 0):8.2f}"
    idle = f"{100 * figures['idle'].get(part, 0) / figures['idle_s']:8.2f}" if "idle" in figures else " " * 8
    pod = f"{by_part(figures)[part]:8.2f}" if figures.get("running") else " " * 8
    return f"{start} {idle} {pod}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, action="append", help=f"numbers of nodes, by default {NODES}")
    parser.add_argument("--local", action="store_true", help="local pods only")
    parser.add_argument("--pods", type=int, default=PODS, help="0: start and idle only")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds")
    parser.add_argument("--keep", type=Path, help="directory for each process's report and log")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    everything = []
    for nodes in () if given.local else given.nodes or NODES:
        everything.append(measure(nodes, given.pods, given.idle, given.keep))
        print(f"{nodes:,} nodes measured", file=sys.stderr, flush=True)
    found = [row for figures in everything for row in rows(figures)]
    if given.local or not given.nodes:
        found += up_local.rows(given.idle)
    report.show(found)
    show_parts(everything)
    report.keep("up-local" if given.local else "up", found)


if __name__ == "__main__":
    main()
