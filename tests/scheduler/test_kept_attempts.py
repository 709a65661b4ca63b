"""An attempt that is kept between portions of preemption is what a new one would find."""

import random
from collections import Counter

import pytest

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.cycle.finalists import MOST_KEPT, Attempts
from corelane.scheduler.events import BindFailed, BindSucceeded, CycleDue, PodChanged
from corelane.scheduler.framework.profile import DEFAULT_NAME
from corelane.scheduler.instructions import Bind, Evict, Instruction
from corelane.scheduler.plugins import preemption
from corelane.scheduler.queue import scheduling_queue
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import DecisionReporter
from support import objects
from support.core_lab import CoreLab, binds
from support.pods import guaranteed

NODES = 8


def waiting(name: str, cpus: int, priority: int) -> Pod:
    return guaranteed(name, str(cpus), scheduler_name=DEFAULT_NAME, priority=priority)


def cluster(decisions: DecisionReporter | None = None) -> CoreLab:
    """Nodes of 5 to 7 CPUs, 1 of them reserved; each has a pod of highest priority, and one of lower."""
    lab = CoreLab(core=SchedulerCore(decisions=decisions))
    for number in range(NODES):
        name, cores = f"n{number}", 5 + number % 3
        lab.has(objects.node(name, cores), spec=f"core:{cores}")
        for each, priority in enumerate((1000, number % 5)):
            lab.on(name, guaranteed(f"r{number}-{each}", "1"), priority=priority)
    return lab


def rejected(attempt: Attempt) -> tuple[object, ...]:
    """What of an attempt decides: why each node rejects the pod, and the nodes that only lack CPUs."""
    assert attempt.node is None
    return attempt.rejected, dict(attempt.rejections), sorted(attempt.cycle.admissions.lacking)


def story(seed: int) -> list[tuple[str, str, str]]:
    """Pods that preempt, or try to in vain, with events between their portions; return what was decided."""
    chance, lab = random.Random(seed), cluster()
    for number in range(3):
        lab.add(waiting(f"vain{number}", 6, 100 - number))
    lab.add(waiting("urgent", 5, chance.choice((80, 101))))
    del lab.done[:]
    for portion in range(150):
        if chance.random() < 0.1:
            lab.add(waiting(f"small{portion}", 1 + portion % 2, 99))
        if not lab.core.ready(0):
            break
        for bind in binds(lab.tell(CycleDue(0))):
            if chance.random() < 0.7:
                uid = bind.pod.metadata.uid
                fails = chance.random() < 0.3
                lab.core.handle(BindFailed(0, uid, "rejected", "no") if fails else BindSucceeded(0, uid))
    return [
        ("bind", one.pod.metadata.name, one.node)
        if isinstance(one, Bind)
        else ("evict", one.victim.metadata.name, one.node)
        for one in lab.done
        if isinstance(one, Bind | Evict)
    ]


@pytest.mark.parametrize("many", [0, finalists.MANY_REASONS])
@pytest.mark.parametrize("seed", range(12))
def test_a_kept_attempt_is_what_a_new_one_finds_and_decisions_are_the_same(
    seed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalists, "MANY_REASONS", many)
    monkeypatch.setattr(preemption, "DRY_RUNS_AT_ONCE", 1)
    monkeypatch.setattr(scheduling_queue, "MOST_PORTIONS", 2)  # Then pods take turns.
    used: Counter[bool] = Counter()
    pop = Attempts.pop

    def new(self: Attempts, info: PodInfo) -> Attempt | None:
        if (kept := pop(self, info)) is not None:
            self._popped = finalists.attempt(SchedulerCore().profile, kept.cycle.cluster, info)
        return self._popped

    with monkeypatch.context() as without:
        without.setattr(Attempts, "pop", new)
        expected = story(seed)

    def compared(self: Attempts, info: PodInfo) -> Attempt | None:
        kept = pop(self, info)
        used[kept is not None] += 1
        if kept is not None:
            assert rejected(kept) == rejected(
                finalists.attempt(SchedulerCore().profile, kept.cycle.cluster, info)
            )
        return kept

    monkeypatch.setattr(Attempts, "pop", compared)
    assert story(seed) == expected
    assert used[True] >= 3
    assert used[False] >= 3


def test_reasons_that_are_many_are_concluded_in_a_portion_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def portions() -> tuple[int, list[Instruction]]:
        core = cluster().core
        core.handle(PodChanged(0, None, waiting("hopeless", 9, 0)))
        done: list[Instruction] = []
        count = 0
        while core.ready(0) and not done:
            count, done = count + 1, core.handle(CycleDue(0))
        return count, done

    count, done = portions()
    monkeypatch.setattr(finalists, "MANY_REASONS", 0)
    assert portions() == (count + 1, done)


def test_an_attempt_with_preemption_in_portions_is_reported_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "DRY_RUNS_AT_ONCE", 1)
    ended: list[bool] = []

    class Reporter(DecisionReporter):
        def attempted(self, now: float, waiting: Waiting, attempt: Attempt) -> None:
            ended.append(not attempt.unfinished)

    cluster(Reporter()).place(waiting("vain", 6, 100))
    assert (len(ended), sum(ended)) == (NODES + 1, 1)


def test_few_attempts_are_kept_and_each_event_ends_them() -> None:
    lab = cluster()
    core = lab.core
    kept = Attempts(core.cluster)
    infos = [PodInfo.of(waiting(f"p{number}", 9, 0)) for number in range(MOST_KEPT + 1)]
    for info in infos:
        kept.keep(info, finalists.attempt(core.profile, core.cluster, info))
    assert kept.pop(infos[0]) is None
    assert kept.pop(infos[1]) is not None
    assert kept.pop(infos[1]) is None
    kept.clear()
    assert kept.pop(infos[2]) is None


@pytest.mark.parametrize("change", ["pod", "node", "nomination", "update"])
def test_an_attempt_is_not_kept_beyond_a_change(change: str) -> None:
    lab = cluster()
    core = lab.core
    kept = Attempts(core.cluster)
    info = PodInfo.of(waiting("asked", 9, 0))
    kept.keep(info, finalists.attempt(core.profile, core.cluster, info))
    if change == "pod":
        lab.delete("r1-0")
        core.cluster.settle()
    elif change == "node":
        lab.has(objects.node("new", 20))
        core.cluster.settle()
    elif change == "nomination":
        core.cluster.nominations.put(PodInfo.of(waiting("other", 2, 5)), "n1")
    else:
        info = PodInfo.of(info.pod)
    assert kept.pop(info) is None
