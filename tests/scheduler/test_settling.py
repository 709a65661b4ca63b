"""New nodes are taken in over several CycleDue, so that none takes long; what is decided stays the same."""

from typing import Any

import pytest

from corelane.scheduler import core as scheduling
from corelane.scheduler.cluster.states import States
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue
from corelane.scheduler.instructions import Evict
from corelane.scheduler.plugins import preemption
from support import objects
from support.core_lab import CoreLab, binds
from support.pods import guaranteed

NODES = 10


def cluster(pods: int, unequal: bool = False) -> CoreLab:
    """Nodes, in as many canonical states if they are `unequal`, and pods to place."""
    lab = CoreLab()
    for number in range(NODES):
        lab.has(f"n{number}", spec=f"core:{9 + number * unequal}")
    for number in range(pods):
        lab.add(guaranteed(f"p{number}", "2"))
    return lab


def run(core: SchedulerCore) -> tuple[int, list[tuple[str, str]]]:
    """How many CycleDue there were before the first binding, and all bindings."""
    before, bound = 0, []
    while core.ready(0):
        bound += [(bind.pod.title, bind.node) for bind in binds(core.handle(CycleDue(0)))]
        before += not bound
    return before, bound


@pytest.mark.parametrize(
    ("module", "limit", "unequal"),
    [(scheduling, "SETTLED_AT_ONCE", False), (finalists, "JUDGED_AT_ONCE", True)],
    ids=["nodes are taken in", "states are judged"],
)
def test_a_few_at_a_time(module: Any, limit: str, unequal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, expected = run(cluster(25, unequal).core)
    assert before == 0 and len(expected) == 25
    monkeypatch.setattr(module, limit, 3)
    assert run(cluster(25, unequal).core) == (NODES // 3, expected)


def test_each_pod_of_a_node_is_a_step() -> None:
    lab = cluster(pods=0)
    nodes = lab.core.cluster
    assert nodes.settle(NODES)
    for number in range(4):
        lab.on(f"n{number % 2}", guaranteed(f"r{number}", "1"))
    assert [nodes.settle(steps) for steps in (3, 3, 0)] == [False, True, True]


def test_what_changes_while_states_are_judged_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, [(_, best)] = run(cluster(1, unequal=True).core)
    monkeypatch.setattr(finalists, "JUDGED_AT_ONCE", 3)
    lab = cluster(1, unequal=True)
    assert lab.tell(CycleDue(0)) == []
    lab.change(best, unschedulable=True)
    _, [(_, other)] = run(lab.core)
    assert other != best


def preempted(candidates: int = 100) -> list[tuple[str, str]]:
    """What is evicted for pods of high priority, on full nodes of 4 pods each.

    With fewer `candidates` than nodes, those that are certainly none are left out beforehand.
    """
    lab = cluster(pods=0)
    plugin = next(one for one in lab.core.profile.plugins if isinstance(one, preemption.DefaultPreemption))
    plugin._absolute = candidates
    for number in range(4 * NODES):
        lab.on(f"n{number % NODES}", guaranteed(f"r{number}", "2"), priority=number % 7)
    for name, priority in (("urgent", 100), ("more", 90), ("most", 80)):
        lab.add(guaranteed(name, "2"), priority=priority)
    evictions = [one for one in lab.run() if isinstance(one, Evict)]
    return [(one.victim.metadata.name, one.preemptor.metadata.name) for one in evictions]


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
