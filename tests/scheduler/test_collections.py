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
from corelane.scheduler.events import BindFailed, BindSucceeded, CycleDue
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition
from corelane.scheduler.queue import waiting
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass
from support import objects
from support.core_lab import CoreLab
from support.pods import guaranteed

NODES = 40
STEPS = 80
MOST_BOUND = 3
ROUNDS = 200


class History(CoreLab):
    """A cluster to which random things happen, and a digest of every decision."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.digest = hashlib.sha256()
        self.pending: dict[str, Pod] = {}
        self.placed: list[Pod] = []
        self.decisions = 0
        for number in range(NODES):
            name = f"n{number}"
            self.has(objects.node(name, 32, memory="512Gi"))
            self.publish(name, self.frayed(name))

    def frayed(self, name: str) -> NodeState:
        """A node on which a third of all CPUs is taken: no two nodes are in one state."""
        cpus = CPUSet(self.rng.sample(range(32), 11))
        request = PodRequest(name, "ns", name, QOSClass.GUARANTEED, (ContainerRequest("a"),), {"a": cpus})
        state = objects.state("socket:2 numa:1 l3:2 core:4 smt:2", name, policy="pools")
        return node_kinds.running(state, request, recorded=True)

    def history(self) -> str:
        for number in range(STEPS):
            self.now += self.rng.random()
            self.come(number)
            while len(self.placed) > MOST_BOUND:
                self.gone(self.placed.pop(self.rng.randrange(len(self.placed))))
            while len(self.pending) > MOST_BOUND:
                self.gone(self.pending.pop(self.rng.choice(sorted(self.pending))))
            for _ in range(ROUNDS):
                if not self.core.ready(self.now):
                    break
                self.carry_out(self.tell(CycleDue(self.now)))
        return self.digest.hexdigest()

    def gone(self, pod: Pod) -> None:
        """The pod is deleted; what is known of it stays in a reference cycle until garbage is collected."""
        cycle: list[object] = [PodInfo.of(pod)]
        cycle.append(cycle)
        self.carry_out(self.delete(pod))

    def come(self, number: int) -> None:
        """A pod of one of many shapes, most of which have no other pod at the time."""
        cpus, memory = self.rng.choice((2, 4, 6, 12, 40)), f"{self.rng.randrange(1, 3)}Gi"
        pod = guaranteed(f"p{number}", str(cpus), memory)
        priority = self.rng.choice((0, 0, 0, 1000))
        pod = replace(pod, spec=replace(pod.spec, scheduler_name=self.core.name, priority=priority))
        self.pending[pod.metadata.uid] = pod
        self.carry_out(self.seen(pod))

    def carry_out(self, done: list[Instruction]) -> None:
        for one in done:
            if isinstance(one, Bind):
                self.decisions += 1
                cpus = sorted((name, str(some)) for name, some in one.assignments.items())
                self.digest.update(repr((one.pod.metadata.name, one.node, cpus)).encode())
                self.bind(one)
            elif isinstance(one, Evict):
                self.digest.update(one.victim.metadata.name.encode())
                if one.victim.metadata.uid in (pod.metadata.uid for pod in self.placed):
                    self.placed = [pod for pod in self.placed if pod.metadata.uid != one.victim.metadata.uid]
                    self.gone(one.victim)
            elif isinstance(one, SetCondition):
                self.digest.update(repr((one.pod.metadata.name, one.message)).encode())

    def bind(self, bind: Bind) -> None:
        uid = bind.pod.metadata.uid
        if uid not in self.pending:
            return
        if self.rng.random() < 0.1:
            self.carry_out(self.tell(BindFailed(self.now, uid, "rejected", "no")))
            return
        self.carry_out(self.tell(BindSucceeded(self.now, uid)))
        del self.pending[uid]
        self.placed.append(self.show(bind))


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
            digest = history.history()
            assert history.decisions > STEPS // 2
            outcomes.add((digest, history.core.cluster.states.misses))
            del history
    assert len(outcomes) == 1
