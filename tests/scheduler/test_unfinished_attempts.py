"""An attempt in portions, between which the cluster changes, ends like one attempt on its last state."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest

from corelane.reasons import Code, Reason
from corelane.scheduler import core as scheduling
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists, vectors
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.events import BindRequested, CycleDue
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition
from corelane.scheduler.plugins import preemption
from corelane.scheduler.queue.waiting import MOST_PORTIONS
from support import objects
from support.core_lab import CoreLab, binds, profile_with
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
    return SchedulerCore(profile=profile_with(ByRow(), name=OURS), name=OURS)


class Story(CoreLab):
    """A cluster that changes at random, and its scheduler."""

    def __init__(self, seed: int) -> None:
        super().__init__(core=core())
        self.random = random.Random(seed)
        self.count = 0
        for number in range(NODES):
            self.put_node(f"n{number}")
        for _ in range(3 * NODES):
            self.run_pod()
        self.size, self.labels = "4", {"app": "web"}
        self.change_pod(self.size, "web")

    def put_node(self, name: str) -> None:
        """A new or changed node: other CPUs, cordoned or not."""
        cores = self.random.choice((4, 5, 6, 7))
        node = objects.node(name, cores, unschedulable=self.random.random() < 0.2)
        self.has(node, spec=f"core:{cores}")

    def run_pod(self) -> None:
        """A pod of another scheduler starts somewhere."""
        self.count += 1
        one = guaranteed(f"r{self.count}", str(self.random.choice((1, 2))), labels={"app": "web"})
        self.on(f"n{self.random.randrange(NODES)}", one, priority=self.random.randrange(12))

    def end_pod(self) -> None:
        """A pod on a node ends."""
        running = [info.pod for node in self.core.cluster.placeable() for info in node.pods.values()]
        if running:
            self.delete(self.random.choice(running))

    def delete_node(self) -> None:
        self.lose(self.random.choice(sorted(self.nodes)))

    def extender_binds(self) -> None:
        """Another scheduler has this one bind a pod that is alike, to a node of its choice."""
        self.count += 1
        one = guaranteed(f"e{self.count}", self.size, labels=self.labels)
        event = BindRequested(0, one, f"n{self.random.randrange(NODES)}", self.core.profile)
        for bind in binds(self.tell(event)):
            self.accept(bind)

    def change_pod(self, size: str = "", app: str = "") -> None:
        """The pending pod is changed: its request and its labels."""
        self.size = size or self.random.choice(("2", "3", "4", "5", "8"))
        self.labels = {"app": app or self.random.choice(("web", "db"))}
        self.pod = self.add(guaranteed("asked", self.size, labels=self.labels), priority=11)

    def step(self) -> None:
        """Change something, at random."""
        changes: list[Callable[[], None]] = [self.change_pod, self.delete_node]
        changes += 2 * [self.end_pod, lambda: self.put_node(f"n{self.random.randrange(NODES)}")]
        changes += 4 * [self.run_pod] + 2 * [self.extender_binds]
        self.random.choice(changes)()

    def fresh(self) -> SchedulerCore:
        """Return a scheduler that meets the cluster as it is now."""
        fresh = CoreLab(*self.nodes.values(), core=core())
        for name, state in self.agents.items():
            fresh.publish(name, state)
        for name in sorted(f"n{number}" for number in range(NODES)):
            node = self.core.cluster.get(name)
            for info in node.pods.values() if node else ():
                fresh.seen(info.pod)
        fresh.seen(self.pod)
        return fresh.core


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
            return Attempt(Cycle(pod, pod.shape, cluster=nodes), unfinished=True)
        return usual(profile, nodes, pod, *rest, **more)

    monkeypatch.setattr(finalists, "attempt", attempt)
    story.add(guaranteed("other", "1"), priority=10)
    portions, result = outcome(story.core)
    assert result[0][0] == "bind"
    assert portions <= MOST_PORTIONS + 2
    assert story.core.ready(0)
    assert story.core.pending()["uid-asked"] == "queued"


def test_a_binding_for_another_scheduler_judges_its_node_only() -> None:
    story = Story(2)
    story.run()
    story.size, before = "3", judged(story.core)
    story.extender_binds()
    assert judged(story.core) == before + 1


def judged(core: SchedulerCore) -> int:
    """Number of canonical states judged for pods of some shape."""
    return sum(len(one.states) for one in core.cluster.columns.vectors.values())
