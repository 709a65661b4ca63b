"""How fast the optimal allocator is, and how often it proves its answer.

The requests are Koordinator's recorded ones (random states of every topology, with their bind, exclusive and
allocation policies), the best of some calls each; and, called once, random demands with every kind of
preference.
"""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from time import thread_time_ns
from typing import Any

from report import Row, best

from corelane.cpuset import bits, parse_list
from corelane.placement import topology
from corelane.placement.optimal import demand as demands
from corelane.placement.optimal import infeasible, search
from corelane.placement.optimal.demand import Demand, Occupancy, PodAffinityTerm, Resource, Shape
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy
from corelane.workload.placement_spec import Exclusivity, NUMAPolicy, TopologyLevel

REFERENCE = "Koordinator's Go code (a7a1b76b) on this kind of machine, the same requests"
GENOA = "epyc-genoa-2s96c2t-nps1"
SMALL = 24
"""Up to so many CPUs a request counts as small."""
MEDIANS = {GENOA: 150, "xeon-2s20c2t": 50}
"""Topology to the median asked for of small requests, in µs."""
UPSTREAM, UPSTREAM_P99 = 126, 9600
"""On GENOA, of all requests, in µs."""
P99, LARGE_MEDIAN, LARGE_P99 = 2_000, 5_000, 20_000
PROVEN = 99.9
EACH = 150
"""Random demands of each topology."""


def rows(data: Path) -> Iterator[Row]:
    """Medians and 99th percentiles for each topology."""
    topologies = json.loads((data / "topologies.json").read_text())
    shapes = {
        name: demands.from_topology(topology.build(map(tuple, rows))) for name, rows in topologies.items()
    }
    small, large, proven = defaultdict(list), defaultdict(list), []
    for line in gzip.decompress((data / "koordinator_take.jsonl.gz").read_bytes()).splitlines():
        recorded = json.loads(line)
        name = recorded["topo"]
        free, demand, others = _recorded(recorded)
        if not 1 <= demand.cpus <= free.bit_count():
            continue

        def call(of: Shape = shapes[name], asked: tuple[Any, ...] = (demand, free, others)) -> Any:
            return search.place(of, *asked)

        proven.append(_proven(call()))
        if demand.cpus <= SMALL:
            small[name].append(best(call) / 1000)
        else:
            large[name].append(best(call, thread_time_ns, 3) / 1000)
    for name, taken in small.items():
        genoa = name == GENOA
        yield Row(
            f"optimal {name} median",
            median(taken),
            "µs",
            MEDIANS.get(name),
            "lower",
            REFERENCE,
            UPSTREAM if genoa else None,
        )
        slow = UPSTREAM_P99 if genoa else None
        yield Row(f"optimal {name} p99", _p99(taken), "µs", P99, "lower", REFERENCE, slow)
    for name, taken in large.items():
        if len(taken) > 1:
            yield Row(f"optimal {name}, over {SMALL} CPUs, median", median(taken), "µs", LARGE_MEDIAN)
            yield Row(f"optimal {name}, over {SMALL} CPUs, p99", _p99(taken), "µs", LARGE_P99)
    yield Row("optimal, proven", 100 * sum(proven) / len(proven), "%", PROVEN, "higher")
    yield from _wishes(shapes)


def _p99(taken: list[float]) -> float:
    return quantiles(taken, n=100)[98]


def _proven(answer: Any) -> bool:
    return not isinstance(answer, infeasible.Placement) or answer.proven


def _recorded(recorded: dict[str, Any]) -> tuple[int, Demand, Occupancy]:
    """The free CPUs, the demand, and the owners of the others; a recorded CPU that is free may be shared."""
    same = dict.fromkeys(ExclusivePolicy, 0)
    for one in recorded["allocated"]:
        same[ExclusivePolicy(one["exclusive"])] |= 1 << one["cpu"]
    demand = Demand(
        max(recorded["n"], 1),
        bind=BindPolicy(recorded["bind"]),
        exclusive_policy=ExclusivePolicy(recorded["exclusive"]),
        strategy=NUMAStrategy(recorded["strategy"]),
    )
    others = Occupancy(
        same_core=same[ExclusivePolicy.PCPU_LEVEL], same_numa=same[ExclusivePolicy.NUMA_NODE_LEVEL]
    )
    return parse_list(recorded["avail"]), demand, others


def _wishes(shapes: dict[str, Shape]) -> Iterator[Row]:
    """Random demands with every preference, each placed once."""
    small: list[float] = []
    large: list[float] = []
    proven: list[bool] = []
    for name, shape in shapes.items():
        chance = random.Random(f"optimal {name}")  # noqa: S311 - reproducible, not secret
        for _ in range(EACH):
            free, others = _state(shape, chance)
            demand = _demand(shape, free, chance)
            start = thread_time_ns()
            answer = search.place(shape, demand, free, others)
            (small if demand.cpus <= SMALL else large).append((thread_time_ns() - start) / 1000)
            proven.append(_proven(answer))
    yield Row("optimal, every preference, once, median", median(small), "µs", None)
    yield Row("optimal, every preference, once, p99", _p99(small), "µs", None)
    yield Row(f"optimal, every preference, over {SMALL} CPUs, median", median(large), "µs", None)
    yield Row(f"optimal, every preference, over {SMALL} CPUs, p99", _p99(large), "µs", None)
    yield Row("optimal, every preference, proven", 100 * sum(proven) / len(proven), "%", PROVEN, "higher")


def _state(shape: Shape, chance: random.Random) -> tuple[int, Occupancy]:
    """Some cores taken whole, some in part, by eight holders."""
    load, holders = chance.random() * 0.9, [0] * 8
    for core in shape.cores():
        taken = core if chance.random() < load else 0
        if chance.random() < 0.15:
            taken = sum(1 << cpu for cpu in bits(core) if chance.random() < 0.5)
        holders[chance.randrange(8)] |= taken
    some = [holder for holder in holders if holder]
    same = [chance.choice(some) if some else 0 for _ in range(2)]
    return shape.all & ~sum(some), Occupancy(tuple(some), *same)


def _demand(shape: Shape, free: int, chance: random.Random) -> Demand:
    """One to three wishes, of every kind."""
    most = max(free.bit_count(), 1)
    placement_spec: dict[str, Any] = {
        "bind": chance.choice(list(BindPolicy)[:2]),
        "bind_required": True,
        "exclusive": Exclusivity(chance.choice(list(TopologyLevel)), chance.random() < 0.3),
        "exclusive_policy": chance.choice(list(ExclusivePolicy)),
        "pod_affinity": (
            PodAffinityTerm(
                chance.random() < 0.5, chance.choice(list(TopologyLevel)), chance.getrandbits(24) & shape.all
            ),
        ),
        "numa": chance.choice(list(NUMAPolicy)),
        "strategy": chance.choice(list(NUMAStrategy)),
        "resources": (Resource("nic", 1, {chance.choice(shape.node_ids): 1}),),
    }
    kept = chance.sample(sorted(placement_spec), chance.randint(1, 3))
    cpus = chance.randint(1, min(SMALL, most) if chance.random() < 0.7 else most)
    return Demand(cpus, **{name: placement_spec[name] for name in kept})
