"""Containers of other instances: their CPUs are blocked, said once, and prevent a confirmation."""

import pytest

from corelane.agent.allocation import cpu_moves
from corelane.cpuset import CPUSet
from corelane.embedded.pods.other_instances import OthersSeen
from corelane.node.entries import Phase
from corelane.node.recovery.unplaced import OtherContainer
from support.agent_world import APP, World, plan


def look(world, *found):
    world.feed(OthersSeen(containers=found, **world.times()))
    world.settle()


def seen(world, *cpus):
    look(world, *(OtherContainer("/other", f"ns/p{n}/c", CPUSet.parse(one)) for n, one in enumerate(cpus)))


def told(world):
    return [one.reason for one in world.told if one.reason.startswith("OtherInstances")]


def test_new_pods_avoid_their_cpus_until_they_are_gone():
    world = World(cpus=4)
    seen(world, "1-2")
    world.add(plan("x", ("a", APP, 1000)))
    world.add(plan("y", ("a", APP, 1000)))
    world.settle()
    assert world.container("x", "a").cpus == CPUSet.parse("3")
    assert world.container("y", "a") is None  # refused: the only other CPU is reserved
    seen(world)
    world.add(plan("z", ("a", APP, 2000)))
    world.settle()
    assert world.container("z", "a").cpus == CPUSet.parse("1-2")
    assert told(world) == ["OtherInstances", "OtherInstancesGone"]


def test_exclusive_cpus_that_others_may_use_are_not_confirmed_and_not_moved():
    world = World(cpus=4)
    world.add(plan("x", ("a", APP, 1000)))
    world.settle()
    cpus = world.container("x", "a").cpus
    assert world.core.ledger.entries["x", "a"].phase == Phase.CONFIRMED
    seen(world, "0-3")
    assert world.core.ledger.entries["x", "a"].phase == Phase.APPLIED
    assert world.container("x", "a").cpus == cpus
    seen(world, "0-3")
    assert told(world) == ["OtherInstances"]
    seen(world)
    assert world.core.ledger.entries["x", "a"].phase == Phase.CONFIRMED


def test_event_names_container_instance_cpus_and_the_command():
    world = World(cpus=4)
    seen(world, "2", "0-1")
    (text,) = [one.message for one in world.told if one.reason == "OtherInstances"]
    assert "ns/p0/c of /other on CPU 2; ns/p1/c of /other on CPUs 0-1. Their CPUs" in text
    assert "to end them: corelane down --data-dir DIRECTORY" in text


def test_a_restart_keeps_what_is_held_and_the_pods():
    world = World(cpus=4)
    seen(world, "2")
    world.add(plan("x", ("a", APP, 1000)))
    world.settle()
    before = world.core.ledger.entries
    world.boot()
    seen(world, "2")
    assert world.core.ledger.entries.keys() == before.keys()
    world.boot()
    seen(world)
    assert {uid for uid, _ in world.core.ledger.entries} == {"x"}


def condition(world):
    return cpu_moves.pinned_condition(world.core.allocation.pods["x"])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("claim", "a: alleged container ns/p/c of user 7 may use CPU 1"),
        ("process", "a: ns/p/c of user 7 may use CPU 1"),
        ("unseen", "a: user 7 cannot be seen, and may use CPU 1"),
    ],
)
def test_what_is_merely_seen_takes_no_cpus_but_is_the_reason_why_they_are_not_exclusive(kind, why):
    world = World(cpus=4)
    world.add(plan("x", ("a", APP, 1000)))
    world.settle()
    assert world.container("x", "a").cpus == CPUSet.parse("1")
    look(world, OtherContainer("user 7", "ns/p/c", CPUSet.parse("1-3"), kind))
    assert world.core.ledger.entries["x", "a"].phase == Phase.APPLIED
    reason, message = condition(world)
    assert reason == "NotExclusive"
    assert message.startswith(why)
    world.add(plan("y", ("a", APP, 2000)))
    world.settle()
    assert world.container("y", "a").cpus == CPUSet.parse("2-3")
    look(world)
    assert condition(world) == ("", "")


def test_process_that_may_use_a_reserved_cpu_is_the_machines():
    world = World(cpus=4)
    world.add(plan("x", ("a", APP, 1000)))
    world.settle()
    look(world, OtherContainer("user 0", "process 7", CPUSet.parse("0-2"), "process"))
    assert world.core.ledger.entries["x", "a"].phase == Phase.CONFIRMED
