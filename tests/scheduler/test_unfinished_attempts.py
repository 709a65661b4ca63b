"""An attempt in portions, between which the cluster changes, ends like one attempt on its last state."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason
from corelane.scheduler import core as scheduling
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists, vectors
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.events import (
    BindRequested,
    BindSucceeded,
    CycleDue,
    NodeChanged,
    PodChanged,
    TopologyChanged,
)
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition
from corelane.scheduler.plugins import default, preemption
from corelane.scheduler.queue.waiting import MOST_PORTIONS
from support import objects
from support.pods import guaranteed

NODES = 6
OURS = "corelane"
PORTIONS = 60
"""More than the nodes, their pods, states, admissions and dry runs together, one at a time."""
Outcome: TypeAlias = Sequence[tuple[object, ...]]


class ByRow:
    """A third party's plugin without a vectorised form: rejects some nodes, and likes others."""

    name = "ByRow"
    scope = Scope.ROW

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if node.allocatable.get("cpu", 0) % 5000 or not node.pods:
            return None
        return Rejection.of(self.name, Reason(Code.POD_INVALID, ("five CPUs, and pods",)))

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return 10.0 * (len(node.pods) % 4)


def core() -> SchedulerCore:
    usual = default.profile(OURS)
    return SchedulerCore(OURS, dataclasses.replace(usual, plugins=(*usual.plugins, ByRow())))


class Story:
    """A cluster that changes at random, and its scheduler."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.core = core()
        self.nodes: dict[str, NodeChanged] = {}
        self.topologies: dict[str, TopologyChanged] = {}
        self.count = 0
        for number in range(NODES):
            self.put_node(f"n{number}")
        for _ in range(3 * NODES):
            self.run_pod()
        self.size, self.priority, self.labels = "4", 11, {"app": "web"}
        self.pod = self.pending()
        self.core.handle(PodChanged(0, None, self.pod))

    def pending(self) -> Pod:
        one = guaranteed("asked", self.size, labels=self.labels)
        return replace(one, spec=replace(one.spec, scheduler_name=OURS, priority=self.priority))

    def put_node(self, name: str) -> None:
        """A new or changed node: other CPUs, cordoned or not."""
        cores = self.random.choice((4, 5, 6, 7))
        node = objects.node(name, cores, unschedulable=self.random.random() < 0.2)
        self.change(NodeChanged(0, self.nodes[name].new if name in self.nodes else None, node))
        known = objects.topology(name, objects.state(f"core:{cores}", name))
        self.change(TopologyChanged(0, self.topologies[name].new if name in self.topologies else None, known))

    def change(self, event: NodeChanged | TopologyChanged) -> None:
        kept = self.nodes if isinstance(event, NodeChanged) else self.topologies
        assert event.new is not None
        kept[event.new.metadata.name] = event  # type: ignore[assignment]
        self.core.handle(event)

    def run_pod(self) -> None:
        """A pod of another scheduler starts somewhere."""
        self.count += 1
        one = guaranteed(f"r{self.count}", str(self.random.choice((1, 2))), labels={"app": "web"})
        spec = replace(
            one.spec, node_name=f"n{self.random.randrange(NODES)}", priority=self.random.randrange(12)
        )
        self.core.handle(PodChanged(0, None, replace(one, spec=spec)))

    def end_pod(self) -> None:
        """A pod on a node ends."""
        running = [info.pod for node in self.core.cluster.placeable() for info in node.pods.values()]
        if running:
            self.core.handle(PodChanged(0, self.random.choice(running), None))

    def delete_node(self) -> None:
        name = self.random.choice(sorted(self.nodes))
        self.core.handle(NodeChanged(0, self.nodes.pop(name).new, None))

    def extender_binds(self) -> None:
        """Another scheduler has this one bind a pod that is alike, to a node of its choice."""
        self.count += 1
        one = guaranteed(f"e{self.count}", self.size, labels=self.labels)
        event = BindRequested(0, one, f"n{self.random.randrange(NODES)}", self.core.profile)
        for bind in self.core.handle(event):
            if isinstance(bind, Bind):
                meta = replace(one.metadata, annotations=dict(bind.annotations))
                placed = replace(one, metadata=meta, spec=replace(one.spec, node_name=bind.node))
                self.core.handle(BindSucceeded(0, one.metadata.uid))
                self.core.handle(PodChanged(0, None, placed))

    def change_pod(self) -> None:
        """The pending pod is changed: its request and its labels."""
        self.size = self.random.choice(("2", "3", "4", "5", "8"))
        self.labels = {"app": self.random.choice(("web", "db"))}
        old, self.pod = self.pod, self.pending()
        self.core.handle(PodChanged(0, old, self.pod))

    def step(self) -> None:
        """Change something, at random."""
        changes: list[Callable[[], None]] = [self.change_pod, self.delete_node]
        changes += 2 * [self.end_pod, lambda: self.put_node(f"n{self.random.randrange(NODES)}")]
        changes += 4 * [self.run_pod] + 2 * [self.extender_binds]
        self.random.choice(changes)()

    def fresh(self) -> SchedulerCore:
        """Return a scheduler that meets the cluster as it is now."""
        fresh = core()
        for kept in (self.nodes, self.topologies):
            for event in kept.values():
                fresh.handle(type(event)(0, None, event.new))  # type: ignore[arg-type]
        named = {f"n{number}" for number in range(NODES)}
        for name in sorted(named):
            node = self.core.cluster.get(name)
            for info in node.pods.values() if node else ():
                fresh.handle(PodChanged(0, None, info.pod))
        fresh.handle(PodChanged(0, None, self.pod))
        return fresh


def decided(done: Sequence[Instruction]) -> Outcome:
    """What was decided about the pod; nothing while its attempt is not finished."""
    found: list[tuple[object, ...]] = []
    for one in done:
        if isinstance(one, Bind):
            found.append(("bind", one.node, sorted(one.annotations.items()), dict(one.assignments)))
        elif isinstance(one, Evict):
            found.append(("evict", one.node, one.victim.metadata.uid))
        elif isinstance(one, SetCondition):
            found.append(("condition", one.reason, one.message, one.nominated))
    return found


def outcome(core: SchedulerCore, between: Callable[[int], None] = lambda _: None) -> tuple[int, Outcome]:
    """Return how many portions an attempt took, with changes `between` them, and what was decided."""
    for portion in range(1, PORTIONS):
        assert core.ready(0)
        if done := decided(core.handle(CycleDue(0))):
            return portion, done
        between(portion)
    raise AssertionError(f"not finished after {PORTIONS} portions")


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalists, "MOST_ADMISSIONS", 1)
    monkeypatch.setattr(finalists, "COUNTED_AT_ONCE", 2)
    monkeypatch.setattr(finalists, "JUDGED_AT_ONCE", 1)
    monkeypatch.setattr(vectors, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(scheduling, "SETTLED_AT_ONCE", 4)
    monkeypatch.setattr(preemption, "DRY_RUNS_AT_ONCE", 1)


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("seed", [*range(16), 57, 58, 97])
def test_an_attempt_that_changes_interrupt_ends_as_a_fresh_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(seed)
    until, often = story.random.randrange(1, 25), story.random.choice((0.2, 0.5, 1.0))

    def between(portion: int) -> None:
        if portion < until and story.random.random() < often:
            story.step()

    portions, result = outcome(story.core, between)
    assert portions > 1
    monkeypatch.undo()
    assert outcome(story.fresh())[1] == result


def test_an_attempt_that_never_ends_lets_other_pods_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nodes change faster than they are asked, pods of the same priority are not kept waiting."""
    story = Story(0)
    usual = finalists.attempt

    def attempt(profile: Profile, nodes: NodeCache, pod: PodInfo, *rest: Any, **more: Any) -> Attempt:
        if pod.pod.metadata.name == "asked":
            return Attempt(Cycle(pod, cluster=nodes), unfinished=True)
        return usual(profile, nodes, pod, *rest, **more)

    monkeypatch.setattr(finalists, "attempt", attempt)
    other = guaranteed("other", "1")
    other = replace(other, spec=replace(other.spec, scheduler_name=OURS, priority=10))
    story.core.handle(PodChanged(0, None, other))
    portions, result = outcome(story.core)
    assert result[0][0] == "bind"
    assert portions <= MOST_PORTIONS + 2
    assert story.core.ready(0)
    assert story.core.pending()["uid-asked"] == "queued"


def test_a_binding_for_another_scheduler_judges_its_node_only() -> None:
    story = Story(2)
    while story.core.ready(0):
        story.core.handle(CycleDue(0))
    story.size, before = "3", judged(story.core)
    story.extender_binds()
    assert judged(story.core) == before + 1


def judged(core: SchedulerCore) -> int:
    """Number of canonical states judged for pods of some shape."""
    return sum(len(one.states) for one in core.cluster.columns.vectors.values())
