"""Vectors that are patched by the kinds of changed rows are those computed over columns, bit for bit."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.vectors import KindForms, ShapeVectors
from corelane.scheduler.events import CycleDue
from corelane.scheduler.framework.plugin import Cycle
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.plugins.node_numa_resource import NodeNUMAResource
from corelane.scheduler.plugins.node_resources import NodeResourcesFit, Strategy
from support import objects
from support.core_lab import CoreLab, binds, cycle_of, profile_with
from support.pods import container, guaranteed, pod

NODES = 12
STEPS = 150
SIZES = ("core:4", "socket:2 core:4 smt:2", "numa:2 core:3 smt:2")


class Cluster(CoreLab):
    """Nodes of one policy, some with reserved CPUs, without a topology, or with few pods allowed."""

    def __init__(self, seed: int, policy: str, strategy: Strategy, first: str) -> None:
        self.random = random.Random(seed)
        profile = profile_with(NodeResourcesFit(strategy), NodeNUMAResource(strategy))
        plugins = sorted(profile.plugins, key=lambda plugin: plugin.name != first)
        super().__init__(profiles=(dataclasses.replace(profile, plugins=tuple(plugins)),))
        self.running: list[Pod] = []
        for number in range(NODES):
            self.put_node(f"n{number:02}", policy)

    def put_node(self, name: str, policy: str) -> None:
        cpus = self.random.choice((4, 8, 16, 24))
        node = objects.node(
            name, cpus, memory=self.random.choice(("8Gi", "32Gi")), pods=self.random.randint(3, 30)
        )
        self.has(node)
        if self.random.random() < 0.9:
            self.publish(name, objects.state(self.random.choice(SIZES), name, policy=policy))

    def pending(self, number: int) -> Pod:
        name, memory = f"p{number}", self.random.choice(("1Gi", "3Gi", "7000000"))
        if self.random.random() < 0.6:
            return guaranteed(name, self.random.choice(("1", "2", "4", "500m")), memory)
        return pod(
            name, container("main", f"cpu={self.random.choice(('100m', '1500m'))} memory={memory}", "")
        )

    def step(self, number: int) -> None:
        if self.running and self.random.random() < 0.25:
            gone = self.running.pop(self.random.randrange(len(self.running)))
            self.delete(gone)
            return
        self.add(self.pending(number))
        for _ in range(20):
            done = self.tell(CycleDue(0))
            self.running += [self.show(bind) for bind in binds(done)]
            if not done or any(isinstance(one, Bind | SetCondition) for one in done):
                return

    def pairs(self) -> Iterator[tuple[ShapeVectors, ShapeVectors]]:
        """Vectors of each shape as they were patched, and computed anew, with what is known of states."""
        cache, profile = self.core.cluster.columns.vectors, self.core.profile
        for number in range(len(self.running)):
            info = PodInfo.of(
                replace(self.running[number], spec=replace(self.running[number].spec, node_name=""))
            )
            cycle, skipped, rejected = finalists.begin(profile, self.core.cluster, info)
            assert rejected is None
            plan = profile.plan(skipped)
            patched = finalists.vectors_of(plan, cycle)
            assert patched.update(cycle)
            key = next(reversed(cache))
            del cache[key]
            anew = finalists.vectors_of(plan, cycle)
            anew.states = patched.states
            assert anew.update(cycle)
            cache[key] = patched
            yield patched, anew


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
@pytest.mark.parametrize("policy", ["pools", "static", "none"])
@pytest.mark.parametrize(("seed", "first"), [(0, ""), (1, ""), (2, "CPUPlacement")])
def test_rows_are_scored_by_kind_as_over_columns(
    seed: int, first: str, policy: str, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    judge = ShapeVectors._judge_kinds

    def judged(self: ShapeVectors, cycle: Cycle, plugins: KindForms, *of: Any) -> Any:
        asked.append(len(of[0]))
        return judge(self, cycle, plugins, *of)

    monkeypatch.setattr(ShapeVectors, "_judge_kinds", judged)
    cluster, compared, rejected = Cluster(seed, policy, strategy, first), 0, 0
    for number in range(STEPS):
        cluster.step(number)
        if number % 30:
            continue
        live = cluster.core.cluster.columns.live_rows()
        for patched, anew in cluster.pairs():
            assert patched.total[live].tobytes() == anew.total[live].tobytes()
            assert (patched.blame[live] == anew.blame[live]).all()
            rejected += int(np.count_nonzero(patched.blame[live]))
            compared += 1
    assert compared > 20 and rejected and sum(asked) > 100


def test_totals_are_those_of_nodes_whose_scores_were_never_estimates() -> None:
    chance, lab = (
        random.Random(1),
        CoreLab(*map("n{}".format, range(NODES)), spec="socket:2 numa:2 core:8 smt:2"),
    )
    columns = lab.core.cluster.columns
    for number in range(80):
        new = guaranteed(f"p{number}", chance.choice("12357"), f"{chance.randint(1, 700)}Mi")
        for bind in binds(lab.place(new)):
            lab.accept(bind)
        cycle, vectors = cycle_of(new, lab.core.cluster), next(reversed(columns.vectors.values()))
        assert vectors.update(cycle)
        patched = vectors.total.tobytes()
        vectors._allocate(columns.capacity)
        vectors._nodes_at = vectors._pods_at = -1
        assert vectors.update(cycle)
        assert vectors.total.tobytes() == patched
