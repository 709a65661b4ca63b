"""How fast Koordinator's picks are: the recorded ones of every topology, each the best of five calls."""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from report import Row, best

from corelane.cpuset import parse_list
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy

REFERENCE = "Koordinator's Go code (a7a1b76b) on this kind of machine"
GENOA = "epyc-genoa-2s96c2t-nps1"
TARGET, UPSTREAM, UPSTREAM_P99 = 40, 126, 9600
"""On GENOA, in µs: the median asked for, upstream's, and its 99th percentile."""


def rows(data: Path) -> Iterator[Row]:
    """A median and a 99th percentile for each topology."""
    topologies = json.loads((data / "topologies.json").read_text())
    built = {name: topology.build(map(tuple, rows)) for name, rows in topologies.items()}
    times: dict[str, list[float]] = defaultdict(list)
    for line in gzip.decompress((data / "koordinator_take.jsonl.gz").read_bytes()).splitlines():
        recorded = json.loads(line)
        call = _call(recorded, built[recorded["topo"]])
        times[recorded["topo"]].append(best(call) / 1000)
    for name, taken in times.items():
        genoa = name == GENOA
        target, upstream, p99 = (TARGET, UPSTREAM, UPSTREAM_P99) if genoa else (None, None, None)
        yield Row(f"koordinator {name} median", median(taken), "µs", target, "lower", REFERENCE, upstream)
        slow = quantiles(taken, n=100)[98]
        yield Row(f"koordinator {name} p99", slow, "µs", None, "lower", REFERENCE, p99)


def _call(recorded: dict[str, Any], of: topology.Topology) -> Callable[[], None]:
    policies = BindPolicy(recorded["bind"]), ExclusivePolicy(recorded["exclusive"])
    request = allocator.Request(*policies, NUMAStrategy(recorded["strategy"]))
    held = ((one["cpu"], one["ref"], ExclusivePolicy(one["exclusive"])) for one in recorded["allocated"])
    others, n = allocator.held(held, recorded["maxRef"]), recorded["n"]
    available, preferred = parse_list(recorded["avail"]), parse_list(recorded["preferred"])

    def call() -> None:
        with suppress(allocator.NotSatisfied):
            allocator.take(of, available, n, request, others, preferred=preferred)

    return call
