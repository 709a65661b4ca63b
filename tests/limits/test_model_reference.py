"""The model against brute force that was written from the kernel's documents: every counter, to the step."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest

from corelane.limits.model import queues as model
from corelane.limits.model.bandwidth import LATEST, CFSLimit, CPUStat, Switches
from corelane.limits.model.queues import RUN, SLEEP
from corelane.limits.model.simulator import Simulator
from support.bandwidth_reference import MS, STEP, Group, Reference, Rules, Thread

UNTIL = 500 * MS
SHAPES = {"alone": [None], "pod": [None, 0], "pod, one of two limited": [None, 0, 0], "two": [None, 0, 0]}
CLOCKS = {
    "throttle": {"clock_needs_tasks": False, "task_throttling": False},
    "tasks": {"task_throttling": False},
    "any task below": {},
}


class Case(NamedTuple):
    """Limits are quota, period, burst, phase; threads are group, start, run, sleep, one on every CPU."""

    tick: int
    phases: list[int]
    parents: list[int | None]
    limits: list[tuple[int, int, int, int]]
    threads: list[tuple[int, int, int, int]]


def limit(random: Random, slot: int) -> tuple[int, int, int, int]:
    """Quota, period, burst, phase. Slots keep timers and CPUs from meeting at one instant."""
    period = random.choice([10, 20, 50, 100, 100])
    quota = max(1, int(period * random.choice([0.1, 0.2, 0.5, 0.9, 1, 1.5, 2])))
    burst = random.choice([0, 0, quota // 2, quota])
    return quota * MS, period * MS, burst * MS, random.randrange(period) * MS + slot * STEP


def thread(random: Random, cpu: int) -> tuple[int, int, int]:
    """Start, run, sleep."""
    run = random.choice([1, 2, 3, 5, 8, 20, 70, 0]) * MS
    start = random.randrange(100) * MS + (8 + cpu) * STEP
    sleep = random.choice([1, 3, 9, 30, 200]) * MS
    return (start, run + (2 * cpu + 1) * STEP, sleep) if run else (start, 1000 * MS, 0)


@pytest.mark.parametrize(
    ("newest_first", "expiry", "clock"),
    [
        (False, False, "any task below"),
        (False, False, "tasks"),
        (True, False, "throttle"),
        (False, True, "throttle"),
        (True, True, "any task below"),
    ],
)
def test_the_model_counts_what_brute_force_counts(newest_first, expiry, clock):
    """Until two CPUs meet at a pool at one instant, whose order is anybody's."""
    kept: Counter[str] = Counter()
    rules = Rules(newest_first, expiry, clock)
    kernel = replace(LATEST, order="head" if newest_first else "tail", expiry=expiry, **CLOCKS[clock])
    for seed in range(10):
        case = drawn(Random(f"{seed}/{rules}"))
        until = referred(case, rules, UNTIL)[1] or UNTIL
        groups, _ = referred(case, rules, until)
        found = modelled(case, kernel, until)
        for one, group in zip(found, groups, strict=True):
            assert (one.nr_periods, one.nr_throttled, one.nr_bursts) == group.counts(), (seed, until)
            times = one.throttled_ns, one.burst_ns, one.usage_ns
            assert times == pytest.approx(group.times(), abs=1000), (seed, until)
        kept["throttled"] += any(group.throttled for group in groups)
        kept["bursts"] += any(group.bursts for group in groups)
        kept["nested"] += len(groups) > 1
    assert min(kept[what] for what in ("throttled", "bursts", "nested")) > 1


def drawn(random: Random) -> Case:
    cpus, tick = random.choice([1, 2, 3, 4]), random.choice([1, 4, 4, 10]) * MS
    shape = random.choice(list(SHAPES))
    parents = SHAPES[shape]
    limits = [limit(random, 5 + i) for i in range(len(parents))]
    if shape == "pod, one of two limited":
        limits[1] = (0, 100 * MS, 0, 0)
    leaves = [0] if shape == "alone" else list(range(1, len(parents)))
    return Case(
        tick,
        [random.randrange(tick // MS) * MS + cpu * STEP for cpu in range(cpus)],
        parents,
        limits,
        [(random.choice(leaves), *thread(random, cpu)) for cpu in range(cpus)],
    )


def referred(case: Case, rules: Rules, until: int) -> tuple[list[Group], int | None]:
    groups: list[Group] = []
    cpus = len(case.phases)
    for parent, values in zip(case.parents, case.limits, strict=True):
        groups.append(Group(None if parent is None else groups[parent], cpus, *values))
    threads = [Thread(groups[leaf], cpu, *rest) for cpu, (leaf, *rest) in enumerate(case.threads)]
    reference = Reference(groups, threads, case.tick, case.phases, rules)
    reference.run(until)
    return groups, reference.tied


def modelled(case: Case, kernel: Switches, until: int) -> list[CPUStat]:
    system = Simulator(len(case.phases), kernel, tick_ns=case.tick, tick_phases=lambda cpu: case.phases[cpu])
    groups: list[model.CPUGroup] = []
    for parent, (quota, period, burst, phase) in zip(case.parents, case.limits, strict=True):
        above = None if parent is None else groups[parent]
        bounds = CFSLimit(quota, period, burst) if quota else None
        groups.append(system.group("", above, limit=bounds, phase_ns=phase))
    for cpu, (leaf, start, run, sleep) in enumerate(case.threads):
        begin(system, groups[leaf], cpu, start, run, sleep)
    system.run(until)
    return [group.stat() for group in groups]


def begin(system: Simulator, group: model.CPUGroup, cpu: int, start: int, run: int, sleep: int) -> None:
    def behave():
        while True:
            yield RUN, run
            if sleep:
                yield SLEEP, sleep

    system.after(start, lambda _argument, _stamp: system.thread(group, behave(), cpu, 1 << cpu))
