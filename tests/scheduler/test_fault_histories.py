"""Random histories on nodes of every kind: restarts, relists, lost nodes, repeated and damaged news."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.objects import NodeSpec
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue.parked import LONGEST_PARKED
from support.pods import container, guaranteed, pod
from support.scheduler_faults import KINDS, FaultyWorld

SPECS = (("core:4 smt:2", 8), ("socket:2 core:4", 8))
LSR = {keys.QOS_CLASS: "LSR"}
SHAPES: tuple[Callable[[str], Pod], ...] = (
    *(lambda name, cpus=cpus: guaranteed(name, cpus) for cpus in ("1", "2", "4")),
    *(lambda name, cpus=cpus: guaranteed(name, cpus, labels=LSR) for cpus in ("1", "2", "3")),
    *(lambda name, cpus=cpus: pod(name, container("x", f"cpu={cpus}", "")) for cpus in ("500m", "3")),
    lambda name: pod(name, container("a", "cpu=2 memory=1Gi"), container("b", "cpu=1 memory=1Gi")),
    lambda name: pod(name, container("a", "cpu=2 memory=1Gi"), init=(container("i", "cpu=3 memory=1Gi"),)),
    lambda name: guaranteed(name, "2", priority=10),
    lambda name: guaranteed(name, "4", labels=LSR, priority=20),
    lambda name: pod(name, container("x", "cpu=5", ""), priority=20),
)
NUMBERS = st.integers(0, 40)
NODES = st.integers(0, 2)
OBJECTS = st.sampled_from(["node", "topology", "pod"])


def step(name: str, argument: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[str, object]]:
    return st.tuples(st.just(name), argument)


FAULT = st.one_of(
    step("restart", st.just(0)),
    step("relist", OBJECTS),
    step("duplicate", OBJECTS),
    step("vanish", NODES),
    step("return_", st.tuples(NODES, st.sampled_from(KINDS))),
    step("damage", NODES),
    step("damage_pod", NUMBERS),
)
STEP = st.one_of(
    step("come", st.integers(0, len(SHAPES) - 1)),
    step("come", st.integers(0, len(SHAPES) - 1)),
    step("come", st.integers(0, len(SHAPES) - 1)),
    step("end", NUMBERS),
    step("delete", NUMBERS),
    step("work", NODES),
    step("publish", NODES),
    step("cordon", NODES),
    step("hear", st.sampled_from(["node", "topology", "pod"])),
    step("hear", st.just("pod")),
    step("hear", st.just("all")),
    step("time", st.sampled_from([0, 0, 1, 1, 5, 70])),
    step("time", st.just(0)),
    step("time", st.just(0)),
    step("answer", st.sampled_from(["ok", "ok", "refuse", "throttle"])),
    step("answer", st.sampled_from(["ok", "lose", "late", "mute", "mute"])),
    step("look_up", st.sampled_from(["ok", "ok", "lose"])),
    step("conflict", st.sampled_from(["mute", "late"])),
    step("late", st.just(0)),
    step("evict", st.sampled_from(["ok", "ok", "lose"])),
)
_PLACE: list[tuple[str, object]] = [("time", 0), ("answer", "ok"), ("hear", "all")]
EVICTING: list[tuple[str, object]] = [
    *[one for _ in range(10) for one in (("come", 1), *_PLACE)],
    *[one for _ in range(3) for one in (("come", len(SHAPES) - 2), *_PLACE, ("evict", "ok"), *_PLACE)],
]
"""Nodes full of pods of no priority, then others that need their places: chance seldom makes it."""
DISPLACED: list[tuple[str, object]] = [
    ("vanish", 1),
    *[("come", 0)] * 12,
    ("hear", "all"),
    ("time", 0),
    ("time", 0),
    ("answer", "throttle"),
    ("answer", "ok"),
]
"""A binding is sent again after a later one: the kubelet gives the later pod the other's foreseen CPUs."""
SEEN: Counter[str] = Counter()


class History:
    """Takes steps in a world, and checks after each."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.world = FaultyWorld()
        self.world.on_bind = self.check_binding  # type: ignore[method-assign]
        self.count = 0
        for number, kind in enumerate(kinds):
            self.world.kind_comes(f"n{number}", kind, *SPECS[number % 2])

    def take(self, what: str, how: object) -> None:
        getattr(self, what)(how)
        SEEN[what] += 1
        self.check()

    # What happens.

    def come(self, shape: int) -> None:
        self.count += 1
        self.world.pod_comes(SHAPES[shape](f"p{self.count}"))

    def end(self, number: int) -> None:
        running = [
            u for u, p in self.world.pods.items() if p.spec.node_name in self.world.nodes and not p.ended
        ]
        if running:
            self.world.pod_ends(running[number % len(running)])

    def delete(self, number: int) -> None:
        idle = [u for u, p in self.world.pods.items() if p.ended or not p.spec.node_name]
        if idle:
            self.world.remove_pod(idle[number % len(idle)])

    def name(self, number: int) -> str:
        return f"n{number}"

    def work(self, number: int) -> None:
        self.world.agent_works(self.name(number))

    def publish(self, number: int) -> None:
        self.world.publish(self.name(number))

    def cordon(self, number: int) -> None:
        if node := self.world.nodes.get(self.name(number)):
            spec = NodeSpec(unschedulable=not node.spec.unschedulable)
            self.world.set_node(replace(node, spec=spec))

    def hear(self, kind: str) -> None:
        if kind == "all":
            self.world.hear_everything()
        else:
            self.world.hear(kind)

    def time(self, seconds: float) -> None:
        self.world.tick(seconds)

    def answer(self, how: str) -> None:
        """As the shell: what need not be sent any more is not."""
        if self.world.asked and self.world.core.bindings.unsendable(self.world.asked[0]):
            how = "refuse"
        SEEN[how] += self.world.answer(how) is not None

    def conflict(self, how: str) -> None:
        """A binding is carried out without an answer, and answered with 409 when it is sent again."""
        if self.world.asked:
            self.answer(how)
            self.late(0)
            self.time(1)
            self.answer("ok")

    def look_up(self, how: str) -> None:
        self.world.look_up(how)

    def late(self, _: int) -> None:
        self.world.carry_out_late()

    def evict(self, how: str) -> None:
        """Victims are of lower priority, and on the node that is to be freed, or being bound to it."""
        if done := self.world.evict(how):
            SEEN["evicted"] += 1
            assert done.victim.spec.priority < done.preemptor.spec.priority
            assert done.victim.spec.node_name in {"", done.node}

    def restart(self, _: int) -> None:
        for how in ("ok", "lose", "ok"):
            self.answer(how)
        self.world.restart()

    def relist(self, kind: str) -> None:
        self.world.relist(kind)

    def duplicate(self, kind: str) -> None:
        self.world.duplicate(kind)

    def vanish(self, number: int) -> None:
        if self.name(number) in self.world.nodes:
            self.world.node_vanishes(self.name(number))

    def return_(self, which: tuple[int, str]) -> None:
        if self.name(which[0]) not in self.world.nodes:
            self.world.kind_comes(self.name(which[0]), which[1], *SPECS[which[0] % 2])

    def damage(self, number: int) -> None:
        """What the node publishes cannot be read from now on, or can be read again."""
        if self.name(number) in self.world.nodes:
            self.world.damaged ^= {self.name(number)}
            self.world.publish(self.name(number))

    def damage_pod(self, number: int) -> None:
        """The annotation of a bound pod becomes unreadable."""
        held = [
            uid
            for uid, one in self.world.pods.items()
            if self.world.kinds.get(one.spec.node_name) in {"static", "pools"} and not one.ended
        ]
        if held:
            one = self.world.pods[held[number % len(held)]]
            annotations = {**one.metadata.annotations, keys.RESOURCE_STATUS: "{"}
            self.world.set_pod(replace(one, metadata=replace(one.metadata, annotations=annotations)))

    # What must hold.

    def check_binding(self, bind: Bind) -> None:
        SEEN["bind"] += 1
        assert bind.node in self.world.seen["node"], f"{bind.pod.title}: no node {bind.node}"

    def check(self) -> None:
        self.every_pending_pod_is_known_and_has_a_reason()
        self.no_node_refuses_or_allocates_again()
        self.no_cpu_is_promised_twice()
        self.no_node_is_promised_more_than_it_has()

    def every_pending_pod_is_known_and_has_a_reason(self) -> None:
        pending = {u for u, p in self.world.seen["pod"].items() if not p.spec.node_name and not p.ended}
        reasons = self.world.core.pending()
        assert set(reasons) == pending
        assert all(reasons.values())

    def no_node_refuses_or_allocates_again(self) -> None:
        assert self.world.refusals == 0
        assert self.world.repicks == 0

    def bound(self, name: str) -> list[Pod]:
        return [p for p in self.world.pods.values() if p.spec.node_name == name and not p.ended]

    def no_cpu_is_promised_twice(self) -> None:
        for name, kind in self.world.kinds.items():
            if kind in {"static", "pools", "koordlet"}:
                taken = CPUSet()
                for one in self.bound(name):
                    mine = CPUSet()
                    for cpus in self.world.cpus.get(one.metadata.uid, {}).values():
                        mine |= cpus
                    assert mine.isdisjoint(taken), f"{name}: {mine} of {one.title} and of another: {taken}"
                    taken |= mine

    def no_node_is_promised_more_than_it_has(self) -> None:
        for name in self.world.kinds:
            requested = [PodInfo.of(one).requests.get("cpu", 0) for one in self.bound(name)]
            assert sum(requested) <= 8000, f"{name}: {requested}"

    def finish(self) -> None:
        """When all faults are over, pods that still wait fit nowhere, by a fresh scheduler."""
        for name in sorted(self.world.damaged):
            self.damage(int(name[1:]))
        for _ in range(8):
            self.settle()
        waiting = self.world.core.pending()
        self.decides_the_same_again()
        self.world.restart()
        self.world.hear_everything()
        while self.world.core.ready(self.world.now):
            self.world.handle(CycleDue(self.world.now))
        placed = {bind.pod.metadata.uid: bind.node for bind in self.world.asked}
        assert not placed, f"{placed} were forgotten, of {waiting}"
        assert not self.world.evictions, f"{self.world.evictions} were not thought of, for {waiting}"

    def settle(self) -> None:
        self.world.hear_everything()
        for name in list(self.world.kinds):
            self.world.agent_works(name)
            self.world.publish(name)
        self.world.hear_everything()
        self.time(20)
        for _ in range(400):
            busy = self.world.asked or self.world.looked_up or self.world.evictions
            if not (busy or self.world.core.ready(self.world.now)):
                break
            self.answer("ok")
            self.evict("ok")
            self.look_up("ok")
            self.world.hear_everything()
            self.time(0)
        self.check()

    def decides_the_same_again(self) -> None:
        """The same events, given to another core, yield the same instructions."""
        core = SchedulerCore(self.world.core.name)
        for number, (event, instructions) in enumerate(self.world.log):
            again = core.handle(event)
            assert again == instructions, f"event {number}: {event}"


class Orderly(History):
    """A history without faults, in which every promise can be counted."""

    def check_binding(self, bind: Bind) -> None:
        """No CPU goes to two pods, and what is promised in all fits the node."""
        super().check_binding(bind)
        mine = bind.pod.metadata.uid
        others = self.promised(bind.node) - {mine}
        taken = CPUSet()
        for uid in others:
            for cpus in self.assignments(uid).values():
                taken |= cpus
        for cpus in bind.assignments.values():
            assert cpus.isdisjoint(taken), f"{cpus} of {bind.pod.title} belong to another: {taken}"
        infos = [PodInfo.of(self.world.pods[uid]) for uid in others | {mine} if uid in self.world.pods]
        assert sum(info.requests.get("cpu", 0) for info in infos) <= 8000

    def promised(self, node: str) -> set[str]:
        """Pods that run on a node, or have been promised it without an answer so far."""
        asked = {bind.pod.metadata.uid for bind in self.sent() if bind.node == node}
        alive = {uid for uid in asked if uid in self.world.pods and not self.world.pods[uid].ended}
        return alive | {pod.metadata.uid for pod in self.bound(node)}

    def sent(self) -> list[Bind]:
        return [*self.world.asked, *(bind for _, bind in self.world.late)]

    def assignments(self, uid: str) -> Mapping[str, CPUSet]:
        if self.world.pods[uid].spec.node_name:
            return self.world.cpus[uid]
        return next(bind.assignments for bind in self.sent() if bind.pod.metadata.uid == uid)

    def check(self) -> None:
        super().check()
        for node in self.world.core.cluster.placeable():
            assert not isinstance(node.state, NodeState) or nodes.validate(node.state) == []
            summed: Counter[str] = Counter()
            for info in node.pods.values():
                summed.update(info.requests)
            assert +Counter(node.requested) == +summed, "every pod counts once"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=50, max_size=150))
def test_in_any_history_no_cpu_is_proposed_twice_and_no_pod_is_lost(steps: list[tuple[str, object]]) -> None:
    history = Orderly(("static", "static"))
    for one in steps:
        history.take(*one)
    history.finish()


@pytest.mark.parametrize(
    "kinds",
    [("static", "pools"), ("koordlet", "static"), ("kubelet", "koordlet"), ("zones", "pools", "totals")],
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.one_of(STEP, FAULT, FAULT), min_size=60, max_size=150))
@example(steps=EVICTING)
@example(steps=DISPLACED)
def test_faults_book_no_cpu_twice_and_starve_no_pod(
    kinds: tuple[str, ...], steps: list[tuple[str, object]]
) -> None:
    history = History(kinds)
    for one in steps:
        history.take(*one)
    history.finish()


def test_the_histories_had_every_fault_and_answer() -> None:
    """Runs after those above."""
    if SEEN:
        faults = ("restart", "relist", "duplicate", "vanish", "return_", "damage", "bind", "evicted")
        answers = ("ok", "refuse", "lose", "mute", "late")
        assert min(SEEN[what] for what in faults + answers) > 1, SEEN
    assert LONGEST_PARKED > 8 * 20, "what is retried by time alone must not help histories to finish"
