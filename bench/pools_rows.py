"""How fast pods are admitted under policy `pools`, on a large node that is two fifths full."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from report import Row, best

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.node.config import AllocatorName, NodeConfig, PoolOptions
from corelane.node.ledger import NodeState
from corelane.workload import Exclusivity, NUMAPolicy, PlacementSpec, PodQOS, TopologyLevel
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

GENOA = parse_spec("socket:2 numa:1 l3:12 core:8 smt:2", name="epyc-genoa-2s96c2t-nps1")
TARGET = 1000
"""µs for a pod without wishes, on GENOA."""


def rows() -> Iterator[Row]:
    """The time of an admission by kind of pod."""
    for allocator in get_args(AllocatorName):
        state = _busy(allocator)
        for name, request in _asks().items():
            taken = best(lambda: node.admit(state, request)) / 1000  # noqa: B023
            target = TARGET if name in ("2 CPUs", "shared pool", "best effort") else None
            yield Row(f"pools, {allocator}: {name}", taken, "µs", target)


def _busy(allocator: AllocatorName) -> NodeState:
    chance = random.Random(1)  # noqa: S311
    state = node.new(GENOA, NodeConfig("pools", pools=PoolOptions(allocator=allocator)))
    count = 0
    while len(state.bound) < 150:
        placement_spec = PlacementSpec(qos=chance.choice([None, PodQOS.LSE, PodQOS.LSR]))
        state, _ = node.admit(
            state, _ask(f"p{count}", 1000 * chance.choice([1, 2, 2, 3, 4, 4, 6, 8]), placement_spec)
        )
        count += 1
    for i in range(60):
        state, _ = node.admit(state, _ask(f"f{i}", 300))
    return state


def _ask(uid: str, milli: int, placement_spec: PlacementSpec | None = None) -> PodRequest:
    one = ContainerRequest("a", cpu_request=milli, cpu_limit=milli)
    return PodRequest(
        uid, "bench", uid, QOSClass.GUARANTEED, (one,), placement_spec=placement_spec or PlacementSpec()
    )


def _asks() -> dict[str, PodRequest]:
    return {
        "shared pool": _ask("next", 300),
        "best effort": replace(_ask("next", 0), qos=QOSClass.BEST_EFFORT),
        "2 CPUs": _ask("next", 2000),
        "24 CPUs": _ask("next", 24_000),
        "4 CPUs in one NUMA node": _ask("next", 4000, PlacementSpec(numa=NUMAPolicy.SINGLE_NUMA_NODE)),
        "4 CPUs, an L3 domain to itself": _ask(
            "next", 4000, PlacementSpec(exclusive=Exclusivity(TopologyLevel.L3, True))
        ),
    }
