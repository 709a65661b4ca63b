"""Random histories with pods of different priorities: evictions, slow ends, late agents, lost nominations."""

from collections import Counter

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.meta import Condition
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    EvictFailed,
    NodeChanged,
    PodChanged,
    TopologyChanged,
)
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition
from support import objects
from support.pods import guaranteed

SPECS = {"n0": ("core:5", 4), "n1": ("socket:2 core:3", 5)}
DISRUPTED = Condition("DisruptionTarget", "True", "PreemptionByScheduler")
SEEN: Counter[str] = Counter()


class History:
    """A cluster whose API server and agents answer when the history says so."""

    def __init__(self) -> None:
        self.core, self.now, self.number = SchedulerCore(), 0.0, 0
        self.pods: dict[str, Pod] = {}
        self.agents: dict[str, NodeState] = {}
        self.published: dict[str, NodeState] = {}
        self.orders: list[Instruction] = []
        for name, (spec, cpus) in SPECS.items():
            self.tell(NodeChanged(0, None, objects.node(name, cpus)))
            self.agents[name] = objects.state(spec, name)
            self.publish(name)

    def tell(self, event: object) -> None:
        for one in self.core.handle(event):  # type: ignore[arg-type]
            if isinstance(one, Evict):
                SEEN["evict"] += 1
                assert one.victim.spec.priority < one.preemptor.spec.priority
                assert one.victim.spec.node_name in {one.node, ""}, "a victim may be being bound"
            if isinstance(one, Bind):
                SEEN["bind"] += 1
                self.check_place(one)
            if isinstance(one, SetCondition) and one.pod.metadata.uid in self.pods:
                self.show(one.pod.metadata.uid, nominated=one.nominated)
            if isinstance(one, Bind | Evict):
                self.orders.append(one)

    def check_place(self, bind: Bind) -> None:
        """Beside the nominated pods of higher priority on that node, what is bound fits in total."""
        priority, uid = bind.pod.spec.priority, bind.pod.metadata.uid
        node = self.core.cluster.get(bind.node)
        assert node is not None
        above = [
            one
            for one in self.core.cluster.nominations.on(bind.node)
            if one.pod.spec.priority >= priority and one.uid != uid
        ]
        held = sum(one.requests["cpu"] for one in (*above, *node.pods.values()))
        assert held <= node.allocatable["cpu"]

    def show(self, uid: str, nominated: str | None = None) -> None:
        old = self.pods[uid]
        if nominated is not None and not old.spec.node_name:
            new = replace(old, status=replace(old.status, nominated_node_name=nominated))
            self.pods[uid] = new
            self.tell(PodChanged(self.now, old, new))

    def publish(self, name: str) -> None:
        old = objects.topology(name, self.published[name]) if name in self.published else None
        self.published[name] = self.agents[name]
        self.tell(TopologyChanged(self.now, old, objects.topology(name, self.agents[name])))

    # Steps.

    def come(self, number: int) -> None:
        self.number += 1
        one = guaranteed(f"p{self.number}", str(1 + number % 4))
        spec = replace(one.spec, scheduler_name=self.core.name, priority=number % 3)
        one = replace(one, spec=spec)
        self.pods[one.metadata.uid] = one
        self.tell(PodChanged(self.now, None, one))

    def time(self, number: int) -> None:
        self.now += number
        for _ in range(300):
            if not self.core.ready(self.now):
                return
            self.tell(CycleDue(self.now))
        raise AssertionError("the core never rests")

    def answer(self, number: int) -> None:
        """Carry out one order, or fail it."""
        if not self.orders:
            return
        order = self.orders.pop(number % len(self.orders))
        if isinstance(order, Bind):
            self.answer_bind(order, fails=number % 7 == 0)
        elif isinstance(order, Evict):
            self.answer_evict(order, fails=number % 5 == 0)

    def answer_bind(self, bind: Bind, *, fails: bool) -> None:
        uid = bind.pod.metadata.uid
        old = self.pods.get(uid)
        if fails or old is None or old.metadata.deletion_timestamp:
            self.tell(BindFailed(self.now, uid, "rejected", "no"))
            return
        meta = replace(old.metadata, annotations={**old.metadata.annotations, **bind.annotations})
        new = replace(old, metadata=meta, spec=replace(old.spec, node_name=bind.node))
        self.pods[uid] = new
        self.agents[bind.node], decision = nodes.admit(self.agents[bind.node], translate.request(new))
        assert decision.admitted, decision.message
        assert not decision.repicked
        self.tell(BindSucceeded(self.now, uid))
        self.tell(PodChanged(self.now, old, new))

    def answer_evict(self, evict: Evict, *, fails: bool) -> None:
        uid = evict.victim.metadata.uid
        old = self.pods.get(uid)
        if old is None:
            return
        if fails:
            SEEN["evict failed"] += 1
            self.tell(EvictFailed(self.now, evict.preemptor.metadata.uid, uid, "no"))
            return
        meta = replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        new = replace(old, metadata=meta, status=replace(old.status, conditions=(DISRUPTED,)))
        self.pods[uid] = new
        self.tell(PodChanged(self.now, old, new))

    def end(self, number: int) -> None:
        """A pod that terminates, or any, ends on its node."""
        running = [uid for uid, one in self.pods.items() if one.spec.node_name]
        leaving = [uid for uid in running if self.pods[uid].metadata.deletion_timestamp]
        among = leaving or (running if number % 3 == 0 else [])
        if among:
            self.remove(among[number % len(among)])

    def delete(self, number: int) -> None:
        """A pending pod is deleted, also one that is nominated."""
        pending = [uid for uid, one in self.pods.items() if not one.spec.node_name]
        ordered = {one.pod.metadata.uid for one in self.orders if isinstance(one, Bind)}
        if among := [uid for uid in pending if uid not in ordered]:
            self.remove(among[number % len(among)])

    def remove(self, uid: str) -> None:
        old = self.pods.pop(uid)
        if name := old.spec.node_name:
            self.agents[name] = nodes.release(self.agents[name], uid)
        self.tell(PodChanged(self.now, old, None))

    def agent(self, number: int) -> None:
        self.publish(f"n{number % 2}")

    # The end.

    def finish(self) -> None:
        """Everything is answered and ends; then no pod waits that fits, or that could preempt."""
        for _ in range(40):
            while self.orders:
                self.answer(1)
            for uid in [uid for uid, one in self.pods.items() if one.metadata.deletion_timestamp]:
                self.remove(uid)
            for name in SPECS:
                self.publish(name)
            self.time(15)
            if not self.orders:
                break
        pending = [one for one in self.pods.values() if not one.spec.node_name]
        assert not self.orders
        for one in pending:
            for name in SPECS:
                assert not self.fits(one, name, preempting=False), f"{one.title} was forgotten on {name}"
                assert not self.fits(one, name, preempting=True), f"{one.title} could preempt on {name}"
        assert not self.core.cluster.nominations.evicting

    def fits(self, one: Pod, name: str, *, preempting: bool) -> bool:
        state, cpus = self.agents[name], SPECS[name][1]
        kept = [pod for pod in self.pods.values() if pod.spec.node_name == name]
        if preempting:
            for pod in [pod for pod in kept if pod.spec.priority < one.spec.priority]:
                state = nodes.release(state, pod.metadata.uid)
                kept.remove(pod)
        used = sum(translate.requests(pod)["cpu"] for pod in kept)
        if used + translate.requests(one)["cpu"] > 1000 * cpus:
            return False
        return nodes.admit(state, translate.request(one))[1].admitted


NAMES = "come come come time time answer answer answer end end delete agent agent"
STEP = st.tuples(st.sampled_from(NAMES.split()), st.integers(0, 40))
FILLING = [*[("come", 3), ("time", 1), ("answer", 5)] * 3, ("agent", 0), ("agent", 1)]
"""Pods of priority 0 fill both nodes."""
FAILING = [("come", 11), *[("time", 15), ("answer", 5)] * 4]
"""A pod of priority 2 preempts, and evictions fail."""


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=30, max_size=120))
@example(FILLING + FAILING)
def test_in_any_history_pods_of_lower_priority_give_way_and_no_pod_is_forgotten(
    steps: list[tuple[str, int]],
) -> None:
    history = History()
    for what, number in steps:
        getattr(history, what)(number)
    history.finish()


def test_the_histories_had_evictions() -> None:
    if SEEN:
        assert SEEN["evict"] > 20, SEEN
        assert SEEN["evict failed"] > 2, SEEN
