"""The columns' conditions are necessary: no node that `admit` accepts is excluded; and they are useful."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node import MemoryOptions, TopologyOptions
from corelane.node.ledger import NodeState
from corelane.node.zones.zone_state import Zone, ZonesState
from corelane.scheduler.cluster import needs, node_kinds
from corelane.scheduler.cluster.columns import Columns
from corelane.scheduler.cluster.node_kinds import CPUState
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.cluster.states import Fact, States
from corelane.workload.request import ContainerRequest, PodRequest, PodResources, QOSClass
from support import drawn_nodes, objects, pods
from support.drawn_nodes import GIB, GPU

ROW = np.array([0])


def shape_of(request: PodRequest, number: int) -> Shape:
    return Shape(1_000_000 + number, replace(request, uid="", name="", labels={}), {})


def columns_of(state: CPUState, states: States) -> Columns:
    columns = Columns()
    columns.new_row("n")
    columns.put_state(0, states.intern(state), state.requested if isinstance(state, NodeState) else 0)
    return columns


@settings(max_examples=60, deadline=None)
@given(drawn_nodes.fragmented())
def test_the_columns_leave_every_node_that_admits_the_pod(
    drawn: tuple[CPUState, list[PodRequest]],
) -> None:
    state, requests = drawn
    columns = columns_of(state, States())
    for number, request in enumerate(requests):
        shape = shape_of(request, number)
        assert shape.request is not None
        _, decision = node_kinds.admit(state, replace(shape.request, uid="new"))
        left = bool(needs.enough(columns, shape, ROW)[0])
        if decision.admitted:
            assert left, needs.needs(columns, shape).by_config[0]
        event(f"admitted {decision.admitted}, left by the columns {left}")


def test_a_pod_whose_piece_has_no_whole_cpus_needs_none() -> None:
    """Under gate PodLevelResourceManagers its containers share the pool, whatever they request."""
    state = ledger("core:4", numa=TopologyOptions("best-effort", "pod"), pod_level=True, exact=True)
    state, full = nodes.admit(state, translate.request(pods.guaranteed("full", "3")))
    assert full.admitted and not state.free_exclusive
    one = ContainerRequest("c", cpu_request=1000, cpu_limit=1000, memory_request=GIB, memory_limit=GIB)
    level = PodResources(2500, GIB, memory_limit=GIB)
    request = PodRequest("new", "test", "p", QOSClass.GUARANTEED, (one,), level=level)
    assert node_kinds.admit(state, request)[1].admitted
    assert needs.enough(columns_of(state, States()), shape_of(request, 0), ROW)[0]


# What they are good for.


def ledger(spec: str, policy: str = "static", **config: Any) -> NodeState:
    return objects.state(spec, "n", policy=policy, **config)


def aligned(*, memory: bool = False, devices: bool = False) -> NodeState:
    """Two NUMA nodes of 16 CPUs and 64 GiB, which a pod may not span."""
    reserved = MemoryOptions("Static", {0: {"memory": GIB}})
    return ledger(
        "socket:2 numa:1 core:8 smt:2",
        numa=TopologyOptions("single-numa-node"),
        memory=reserved if memory else MemoryOptions(),
        devices={GPU: {f"g{i}": 1 + i % 2 for i in range(8)}} if devices else {},
    )


def exported(rng: random.Random) -> ZonesState:
    amounts = ({"cpu": 1000 * rng.randrange(9), "memory": GIB * rng.randrange(9)} for _ in range(2))
    return ZonesState(tuple(map(Zone, range(2), amounts)), "single-numa-node")


def small(rng: random.Random, name: str) -> Pod:
    limits = f"cpu={rng.choice((1, 2, 3, 5))} memory={rng.choice((1, 5, 20))}Gi"
    return pods.pod(name, pods.container("c", f"{limits} {GPU}={rng.randrange(3)}"))


def crowded(state: NodeState, rng: random.Random) -> NodeState:
    """The node after 40 pods came, and most of them went."""
    for number in range(40):
        state, _ = nodes.admit(state, translate.request(small(rng, f"p{number}")))
        if number % 3:
            state = nodes.release(state, rng.choice(list(state.pods) or [""]))
    return state


def frayed(rng: random.Random) -> CPUState:
    """A node on which a third of all CPUs is taken, wherever they are."""
    cpus = CPUSet(rng.sample(range(32), 11))
    recorded = replace(drawn_nodes.requests_of_one(), proposal={"a": cpus})
    return node_kinds.running(ledger("socket:1 numa:1 core:16 smt:2", "pools"), recorded, recorded=True)


REQUIRED = '{"requiredCPUBindPolicy": "FullPCPUs"}'
CROWDS: dict[str, tuple[Callable[[random.Random], CPUState], Pod]] = {
    "memory beside CPUs": (
        lambda rng: crowded(aligned(memory=True), rng),
        pods.guaranteed("p", "4", "30Gi"),
    ),
    "devices beside CPUs": (
        lambda rng: crowded(aligned(devices=True), rng),
        pods.pod("p", pods.container("c", f"cpu=4 memory=1Gi {GPU}=2")),
    ),
    "exported zones": (exported, pods.guaranteed("p", "5", "6Gi")),
    "whole cores": (
        frayed,
        pods.guaranteed("p", "14", annotations={keys.RESOURCE_SPEC: REQUIRED}),
    ),
}


@pytest.mark.parametrize("name", CROWDS)
def test_no_node_that_lacks_something_is_admitted_exactly(name: str) -> None:
    """Of 60 fragmented nodes, those that refuse the pod are excluded without an admission of their own."""
    make, pod = CROWDS[name]
    rng = random.Random(name)
    states, columns, refused = States(), Columns(), Counter[str]()
    shape = PodInfo.of(pod).shape
    assert shape.request is not None
    for row in range(60):
        state = make(rng)
        columns.new_row(f"n{row}")
        columns.put_state(row, states.intern(state), 0)
        _, decision = node_kinds.admit(state, replace(shape.request, uid="new"))
        left = bool(needs.enough(columns, shape, np.array([row]))[0])
        enough_cpus = columns.facts[row, Fact.FREE_ZONE] >= shape.exclusive_cpus
        refused["admitted" if decision.admitted else "left" if left else "excluded"] += 1
        refused["with enough CPUs"] += bool(not decision.admitted and enough_cpus)
    assert refused["left"] == 0, refused
    assert refused["with enough CPUs"] >= 5, refused
    assert refused["admitted"] >= 5, refused
