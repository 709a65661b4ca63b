"""Remembered load and EEVDF's order: held to closed forms, and to what the rule promises."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.turns import HALF_LIFE_NS, NICE_0, Load, Turns, average


def test_half_of_a_load_is_forgotten_in_32_windows():
    load = Load(0, 1000.0)
    assert load.update(HALF_LIFE_NS) == pytest.approx(500)
    load.change(HALF_LIFE_NS, 200)
    assert load.update(2 * HALF_LIFE_NS) == pytest.approx(350), "half way from 500 to 200"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3000)), max_size=20))
def test_updates_in_between_change_nothing(steps):
    often, seldom, now, queued = Load(0), Load(0), 0, 0
    for passed, weight in steps:
        for _ in range(4):
            now += passed * MS
            often.update(now)
        often.change(now, weight - queued)
        seldom.change(now, weight - queued)
        queued = weight
    assert often.average == pytest.approx(seldom.update(now))


class Entity:
    def __init__(self, weight):
        self.weight, self.vruntime, self.deadline, self.protected, self.lag, self.parted = (
            weight,
            0,
            0,
            0,
            0,
            0,
        )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 8000), min_size=2, max_size=6), st.integers(0, 99))
def test_no_entity_is_behind_or_ahead_by_more_than_a_slice(weights, seed):
    """The promise of EEVDF (Stoica and Abdel-Wahab 1995), where ends of slices are noticed at once."""
    turns, chance = Turns(True, MS, 0, 0), Random(seed)
    ready = []
    for weight in weights:
        entity = Entity(weight)
        turns.join(ready, entity, 0.0)
        ready.append(entity)
    running = None
    for _ in range(300):
        chosen = turns.choose(ready, running)
        if chosen is not running:
            running = chosen
            running.protected = running.deadline
        turns.charge(running, min(chance.randint(MS // 10, MS), max(turns.left_ns(running), 1)))
        turns.ends(running)
        now = average(ready, 0.0)
        for entity in ready:
            lag = (now - entity.vruntime) * entity.weight / NICE_0
            assert abs(lag) <= MS + 1000


def test_a_change_of_weight_leaves_the_lag_as_it_is():
    turns = Turns(True, MS, 0, 0)
    one, other = Entity(1024), Entity(2048)
    for entity in (one, other):
        turns.join([one] if entity is other else [], entity, 0.0)
    turns.charge(one, 500_000)
    before = (average([one, other], 0.0) - one.vruntime) * one.weight
    turns.reweigh([one, other], one, 512.0)
    assert (average([one, other], 0.0) - one.vruntime) * one.weight == pytest.approx(before)


def test_who_is_owed_time_preempts_a_spinner_at_once():
    """0.5 ms of each 20 ms: behind after a wait, it does not wait for ticks until that is used up."""
    system, took = Simulator(1, tick_ns=4 * MS), []

    def spin():
        while True:
            yield RUN, SECOND

    def sleeper():
        while True:
            due = system.now + 20 * MS + 300_000
            yield SLEEP, due - system.now
            yield RUN, MS // 2
            took.append((system.now - due) / MS)

    system.thread(system.group("busy"), spin(), 0)
    system.thread(system.group("light"), sleeper(), 0)
    system.run(5 * SECOND)
    assert sorted(took)[len(took) // 2] < 1, "at once"
    assert max(took) > 2, "at a tick"


def test_threads_that_find_no_idle_cpu_wake_where_their_work_comes_from():
    """Pinned spinners on both CPUs: all of the group's threads end up on CPU 1."""
    system = Simulator(2, waker=1)

    def spin():
        while True:
            yield RUN, SECOND

    def sleeper():
        while True:
            yield RUN, MS
            yield SLEEP, 9 * MS

    for cpu in (0, 1):
        system.thread(system.group("busy"), spin(), cpu, 1 << cpu)
    light = system.group("light")
    for _ in range(2):
        system.thread(light, sleeper(), 0)
    system.run(SECOND)
    assert light.queues[1].load.average > 5 * light.queues[0].load.average
