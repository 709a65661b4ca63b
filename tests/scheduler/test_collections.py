"""What the scheduler decides does not depend on when Python's garbage collector runs."""

import gc
import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    NodeChanged,
    PodChanged,
    TopologyChanged,
)
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition
from corelane.scheduler.queue import waiting
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass
from support import objects
from support.pods import guaranteed

NODES = 40
STEPS = 80
MOST_BOUND = 3
ROUNDS = 200


class History:
    """A cluster to which random things happen, and a digest of every decision."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = SchedulerCore()
        self.now = 0.0
        self.digest = hashlib.sha256()
        self.pending: dict[str, Pod] = {}
        self.bound: list[Pod] = []
        self.decisions = 0
        for number in range(NODES):
            name = f"n{number}"
            self.core.handle(NodeChanged(0, None, objects.node(name, 32, memory="512Gi")))
            self.core.handle(TopologyChanged(0, None, objects.topology(name, self.frayed(name))))

    def frayed(self, name: str) -> NodeState:
        """A node on which a third of all CPUs is taken: no two nodes are in one state."""
        cpus = CPUSet(self.rng.sample(range(32), 11))
        request = PodRequest(name, "ns", name, QOSClass.GUARANTEED, (ContainerRequest("a"),), {"a": cpus})
        state = objects.state("socket:2 numa:1 l3:2 core:4 smt:2", name, policy="pools")
        return node_kinds.running(state, request, recorded=True)

    def run(self) -> str:
        for number in range(STEPS):
            self.now += self.rng.random()
            self.come(number)
            while len(self.bound) > MOST_BOUND:
                self.gone(self.bound.pop(self.rng.randrange(len(self.bound))))
            while len(self.pending) > MOST_BOUND:
                self.gone(self.pending.pop(self.rng.choice(sorted(self.pending))))
            for _ in range(ROUNDS):
                if not self.core.ready(self.now):
                    break
                self.carry_out(self.core.handle(CycleDue(self.now)))
        return self.digest.hexdigest()

    def gone(self, pod: Pod) -> None:
        """The pod is deleted; what is known of it stays in a reference cycle until garbage is collected."""
        cycle: list[object] = [PodInfo.of(pod)]
        cycle.append(cycle)
        self.carry_out(self.core.handle(PodChanged(self.now, pod, None)))

    def come(self, number: int) -> None:
        """A pod of one of many shapes, most of which have no other pod at the time."""
        cpus, memory = self.rng.choice((2, 4, 6, 12, 40)), f"{self.rng.randrange(1, 3)}Gi"
        pod = guaranteed(f"p{number}", str(cpus), memory)
        priority = self.rng.choice((0, 0, 0, 1000))
        pod = replace(pod, spec=replace(pod.spec, scheduler_name=self.core.name, priority=priority))
        self.pending[pod.metadata.uid] = pod
        self.carry_out(self.core.handle(PodChanged(self.now, None, pod)))

    def carry_out(self, done: list[Instruction]) -> None:
        for one in done:
            if isinstance(one, Bind):
                self.decisions += 1
                cpus = sorted((name, str(some)) for name, some in one.assignments.items())
                self.digest.update(repr((one.pod.metadata.name, one.node, cpus)).encode())
                self.bind(one)
            elif isinstance(one, Evict):
                self.digest.update(one.victim.metadata.name.encode())
                if one.victim.metadata.uid in (pod.metadata.uid for pod in self.bound):
                    self.bound = [pod for pod in self.bound if pod.metadata.uid != one.victim.metadata.uid]
                    self.gone(one.victim)
            elif isinstance(one, SetCondition):
                self.digest.update(repr((one.pod.metadata.name, one.message)).encode())

    def bind(self, bind: Bind) -> None:
        uid, pod = bind.pod.metadata.uid, bind.pod
        if uid not in self.pending:
            return
        if self.rng.random() < 0.1:
            self.carry_out(self.core.handle(BindFailed(self.now, uid, "rejected", "no")))
            return
        self.carry_out(self.core.handle(BindSucceeded(self.now, uid)))
        metadata = replace(pod.metadata, annotations={**pod.metadata.annotations, **bind.annotations})
        placed = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))
        self.bound.append(placed)
        del self.pending[uid]
        self.carry_out(self.core.handle(PodChanged(self.now, pod, placed)))


@contextmanager
def collections(thresholds: tuple[int, int, int] | None) -> Iterator[None]:
    """The collector with these thresholds; None: it does not run."""
    usual = gc.get_threshold()
    gc.collect()
    if thresholds is None:
        gc.disable()
    else:
        gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.enable()


@pytest.mark.parametrize("seed", [1])
def test_decisions_do_not_depend_on_garbage_collections(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_SPARE", 4)  # Else void entries of a heap keep all shapes alive.
    outcomes = set()
    for thresholds in (None, (700, 10, 10), (20, 2, 2)):
        with collections(thresholds):
            history = History(seed)
            digest = history.run()
            assert history.decisions > STEPS // 2
            outcomes.add((digest, history.core.cluster.states.misses))
            del history
    assert len(outcomes) == 1
