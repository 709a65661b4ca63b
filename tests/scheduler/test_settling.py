"""New nodes are taken in over several CycleDue, so that none takes long; what is decided stays the same."""

import pytest
from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.scheduler import core as scheduling
from corelane.scheduler.cluster.states import States
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, Evict
from corelane.scheduler.plugins import preemption
from support import objects
from support.pods import guaranteed

NODES = 10


def core(pods: int) -> SchedulerCore:
    made = SchedulerCore()
    for number in range(NODES):
        name = f"n{number}"
        made.handle(NodeChanged(0, None, objects.node(name, 8)))
        made.handle(TopologyChanged(0, None, objects.topology(name, objects.state("core:9", name))))
    for number in range(pods):
        made.handle(PodChanged(0, None, pending(made, f"p{number}")))
    return made


def placed(one: Pod, **spec: object) -> Pod:
    return replace(one, spec=replace(one.spec, **spec))


def pending(made: SchedulerCore, name: str) -> Pod:
    return placed(guaranteed(name, "2"), scheduler_name=made.name)


def run(made: SchedulerCore) -> tuple[int, list[tuple[str, str]]]:
    """How many CycleDue there were before the first binding, and all bindings."""
    before, bound = 0, []
    while made.ready(0):
        done = [(one.pod.title, one.node) for one in made.handle(CycleDue(0)) if isinstance(one, Bind)]
        bound += done
        before += not bound
    return before, bound


def test_nodes_are_taken_in_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before, expected = run(core(pods=25))
    assert before == 0 and len(expected) == 25
    monkeypatch.setattr(scheduling, "SETTLED_AT_ONCE", 3)
    before, bound = run(core(pods=25))
    assert before == NODES // 3
    assert bound == expected


def test_each_pod_of_a_node_is_a_step() -> None:
    made = core(pods=0)
    assert made.cluster.settle(NODES)
    for number in range(4):
        running = placed(guaranteed(f"r{number}", "1"), node_name=f"n{number % 2}")
        made.handle(PodChanged(0, None, running))
    assert not made.cluster.settle(3)
    assert made.cluster.settle(3)
    assert made.cluster.settle(0)


def unequal(pods: int) -> SchedulerCore:
    """A core with nodes of as many canonical states, all of them settled."""
    made = SchedulerCore()
    for number in range(NODES):
        name = f"n{number}"
        made.handle(NodeChanged(0, None, objects.node(name, 8)))
        known = objects.state(f"core:{9 + number}", name)
        made.handle(TopologyChanged(0, None, objects.topology(name, known)))
    for number in range(pods):
        made.handle(PodChanged(0, None, pending(made, f"p{number}")))
    return made


def test_states_are_judged_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before, expected = run(unequal(pods=25))
    assert before == 0 and len(expected) == 25
    monkeypatch.setattr(finalists, "JUDGED_AT_ONCE", 3)
    before, bound = run(unequal(pods=25))
    assert before == NODES // 3
    assert bound == expected


def test_what_changes_while_states_are_judged_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, [(_, best)] = run(unequal(pods=1))
    monkeypatch.setattr(finalists, "JUDGED_AT_ONCE", 3)
    made = unequal(pods=1)
    assert made.handle(CycleDue(0)) == []
    old = made.cluster.node(best).node
    assert old is not None
    new = replace(old, spec=replace(old.spec, unschedulable=True))
    made.handle(NodeChanged(0, old, new))
    _, [(_, other)] = run(made)
    assert other != best


def preempted(candidates: int = 100) -> list[tuple[str, str]]:
    """What is evicted for pods of high priority, on full nodes of 4 pods each.

    With fewer `candidates` than nodes, those that are certainly none are left out beforehand.
    """
    made = core(pods=0)
    plugin = next(one for one in made.profile.plugins if isinstance(one, preemption.DefaultPreemption))
    plugin._absolute = candidates
    for number in range(4 * NODES):
        running = placed(guaranteed(f"r{number}", "2"), node_name=f"n{number % NODES}", priority=number % 7)
        made.handle(PodChanged(0, None, running))
    made.handle(PodChanged(0, None, placed(pending(made, "urgent"), priority=100)))
    made.handle(PodChanged(0, None, placed(pending(made, "more"), priority=90)))
    made.handle(PodChanged(0, None, placed(pending(made, "most"), priority=80)))
    done = []
    while made.ready(0):
        done += [one for one in made.handle(CycleDue(0)) if isinstance(one, Evict)]
    return [(one.victim.metadata.name, one.preemptor.metadata.name) for one in done]


@pytest.mark.parametrize("at_once", [1, 3])
def test_preemption_in_portions_evicts_the_same_pods(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(preemption, "DRY_RUNS_AT_ONCE", preemption.MOST_DRY_RUNS)
    expected = preempted()
    assert len(expected) >= 2
    monkeypatch.setattr(preemption, "DRY_RUNS_AT_ONCE", at_once)
    assert preempted() == expected


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_nodes_are_left_out_of_preemption_in_portions(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    expected = preempted(candidates=2)
    assert len(expected) >= 2
    looked: list[int] = []
    look = preemption._Search.look
    monkeypatch.setattr(
        preemption._Search,
        "look",
        lambda self, *args, **more: (look(self, *args, **more), looked.append(self._looks)),
    )
    monkeypatch.setattr(preemption, "LOOKED_AT_ONCE", at_once)
    assert preempted(candidates=2) == expected
    assert 1 <= max(looked) <= at_once


def test_equal_settings_are_one_configuration_and_others_are_not() -> None:
    states = States()
    ids = [
        states.intern(objects.state("core:9", name, **settings)).config
        for name, settings in [("a", {}), ("b", {}), ("c", {"reserved_count": 2}), ("d", {})]
    ]
    assert ids[0] == ids[1] == ids[3] != ids[2]
