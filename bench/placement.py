"""How fast CPUs are picked: the recorded picks of every topology, 16 NUMA nodes, and the admission of pods.

Times are of a call, in one thread, without the parsing of the vectors' texts. A yardstick shows how fast the
machine was meanwhile. `make bench-placement` prints a table and writes build/bench/placement.json.
"""

import gc
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from statistics import median, quantiles
from time import thread_time_ns

import koordinator_rows
import machine_rows
import optimal_rows
import pools_rows
import report
from report import ROOT, Row, best

from corelane import node
from corelane.cpuset import parse_list
from corelane.machine import model
from corelane.placement import hints, memory_blocks, topology, topologymanager
from corelane.placement.kubelet import picker
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

DATA = ROOT / "tests" / "data"
REFERENCE = "Kubernetes v1.36.2's Go code on this kind of machine"
MEDIANS = {
    "laptop-1s4c2t": (6, 15),
    "xeon-2s20c2t": (12, 191),
    "xeon-2s28c2t-snc2": (15, 238),
    "epyc-milan-2s64c2t-nps4": (25, 823),
    "epyc-rome-1s64c2t-nps1-ccx4": (25, 543),
    "epyc-genoa-2s96c2t-nps1": (30, 2542),
}
"""Topology to the median asked for and upstream's, in µs."""
GENOA_P99 = 35_000
QUIET = 170.0
"""About the yardstick's best on the machine on which targets were judged, in ns."""


def picks() -> Iterator[Row | float]:
    """The rows, and between the picks what the yardstick shows."""
    topologies = json.loads((DATA / "topologies.json").read_text())
    times: dict[str, list[float]] = defaultdict(list)
    built = {name: topology.build(map(tuple, rows)) for name, rows in topologies.items()}
    lines = gzip.decompress((DATA / "kubelet_take.jsonl.gz").read_bytes()).splitlines()
    for number, line in enumerate(lines):
        if number % 500 == 0:
            yield yardstick()
        row = json.loads(line)
        of, available, n = built[row["topo"]], parse_list(row["avail"]), row["n"]
        strategy = picker.Strategy(
            row["mode"] == "distributed", row["strategy"] == "spread", row["uncore"], row["group"]
        )
        times[row["topo"]].append(best(lambda: attempt(of, available, n, strategy)) / 1000)  # noqa: B023
    for name, taken in times.items():
        target, upstream = MEDIANS.get(name, (None, None))
        yield Row(f"pick {name} median", median(taken), "µs", target, "lower", REFERENCE, upstream)
        p99 = quantiles(taken, n=100)[98]
        most = 200 if len(built[name].numa) <= 4 else 500
        slow = GENOA_P99 if "genoa-2s96c2t-nps1" in name else None
        yield Row(f"pick {name} p99", p99, "µs", most, "lower", REFERENCE, slow)


def yardstick() -> float:
    """The ns of a step of a fixed loop over 384-bit numbers: what pure Python takes here just now."""

    def loop() -> int:
        mask = found = (1 << 384) - 1
        for shift in range(1000):
            found = (found ^ mask >> shift % 64) & mask | found.bit_count()
        return found

    return best(loop, times=20) / 1000


def attempt(of: topology.Topology, available: int, n: int, strategy: picker.Strategy) -> None:
    with suppress(ValueError):
        picker.take(of, available, n, strategy)


def sixteen() -> topology.Topology:
    return topology.build([(cpu, cpu % 256, cpu % 256 // 64, cpu % 256 // 16, 0) for cpu in range(512)])


def distributed() -> Iterator[Row]:
    """The slowest of many requests, over free CPUs that are uneven in several ways."""
    machine, slowest = sixteen(), 0.0
    for step in (0, 3, 5, 7, 11):
        available = machine.all
        for i, one in enumerate(machine.numa):
            for _ in range(i * step % 13):
                available &= ~(one & available & -(one & available))
        for version in ("1.36", "1.38"):
            for by_socket in (False, True):
                strategy = picker.Strategy(True, group=1 + step % 2, by_socket=by_socket, version=version)
                for n in (2, 30, 64, 100, 150, 222, 260, 300, 370, 430):
                    taken = best(lambda: attempt(machine, available, n, strategy), thread_time_ns, 3)  # noqa: B023
                    slowest = max(slowest, taken / 1e6)
    yield Row("distribute over 16 NUMA nodes, slowest", slowest, "ms", 50)


def merged() -> Iterator[Row]:
    """Hints of CPUs, memory and devices on 16 nodes, and their merge by distance."""
    machine, slowest = sixteen(), 0.0
    far = {a: {b: 10 + abs(a - b) for b in range(16)} for a in range(16)}
    for wanted in (1, 2, 5, 8, 12, 15):
        for taken in (0, 1, 7):
            nodes = {
                i: memory_blocks.MemoryNode({"memory": 16}, {"memory": 16 - i * taken % 9}) for i in range(16)
            }

            def call(wanted: int = wanted, nodes: dict[int, memory_blocks.MemoryNode] = nodes) -> None:
                cpus = hints.cpu_family(machine, machine.all & ~1, 0, 32 * wanted, 0xFFFF)
                bytes_ = memory_blocks.memory_hints(nodes, {"memory": 16 * wanted})
                gpus = hints.device_hints(
                    [1 << i for i in range(16)], [1 << i for i in range(12)], wanted, 0xFFFF
                )
                topologymanager.merge([gpus, cpus, bytes_], 0xFFFF, "best-effort", distances=far)

            slowest = max(slowest, best(call, thread_time_ns, 3) / 1e6)
    yield Row("hints and merge over 16 NUMA nodes, slowest", slowest, "ms", 50)


def admissions() -> Iterator[Row]:
    """Pods of 1 to 16 CPUs that fill a node, again and again; only admitted pods count."""
    topologies = json.loads((DATA / "topologies.json").read_text())
    for name in ("laptop-1s4c2t", "epyc-milan-2s64c2t-nps4", "epyc-genoa-2s96c2t-nps1"):
        empty = state = node.new(model.from_rows(name, map(tuple, topologies[name])))
        spent = count = 0
        for i in range(500):
            milli = 1000 * (1 + i * 5 % min(16, len(empty.usable) - 2))
            container = ContainerRequest("c", cpu_request=milli, cpu_limit=milli)
            request = PodRequest(f"uid-{i}", "bench", f"pod-{i}", QOSClass.GUARANTEED, (container,))
            after, decision = node.admit(state, request)
            if not decision.admitted:
                state = empty
                continue
            spent += best(lambda: node.admit(state, request))  # noqa: B023
            count += 1
            state = after
        yield Row(f"admit {name}", count * 1e9 / spent, "1/s", 10_000, "higher")


def main() -> int:
    gc.disable()
    rows: list[Row] = []
    speeds: list[float] = []
    for measured in (
        picks(),
        distributed(),
        merged(),
        admissions(),
        koordinator_rows.rows(DATA),
        optimal_rows.rows(DATA),
        pools_rows.rows(),
        machine_rows.rows(),
    ):
        for one in measured:
            rows += [one] if isinstance(one, Row) else []
            speeds.append(yardstick() if isinstance(one, Row) else one)
    speed = median(speeds)
    known = "the machine on which targets were judged, at its best"
    rows.append(Row("yardstick, a step of a fixed loop", speed, "ns", None, "lower", known, QUIET))
    note = f"yardstick {speed:.0f} ns a step: {speed / QUIET:.2f} times its best where targets were judged"
    report.show(rows, note)
    report.keep("placement", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
