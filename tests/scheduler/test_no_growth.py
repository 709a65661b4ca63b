"""Pods that come and go leave nothing behind in the core's memory: every collection is as long as before."""

import gc

from support import reachable
from support.pods import container, guaranteed, pod
from support.scheduler_faults import FaultyWorld

PODS, WARM_UP, ROUNDS = 12, 3, 6
SLACK = 4
BOUNDED = (
    "ChangeLog._rows",
    "WaitingHeap.",
    "Waiting.",
    "States._young",
    "States._old",
    "States._states",
    "Answer.",
    "CanonicalState.",
)
"""Void entries of heaps, changed rows and answers of the table of states are dropped beyond limits."""


def come_and_go(world, number):
    """Pods of two shapes and one that fits nowhere are placed, run, end and are deleted."""
    for n in range(PODS):
        name = f"r{number}-{n}"
        world.pod_comes(guaranteed(name, "1") if n % 2 else pod(name, container("x", "cpu=250m", "")))
    world.pod_comes(guaranteed(f"r{number}-huge", "99"))
    for _ in range(8 * PODS):
        world.hear_everything()
        world.tick(0.1)
        world.answer("ok")
    for uid, one in list(world.pods.items()):
        if one.spec.node_name:
            world.pod_ends(uid)
        world.remove_pod(uid)
    world.hear_everything()
    world.tick(1)
    world.log.clear()


def test_no_collection_of_the_core_grows_with_the_pods_that_came_and_went():
    world = FaultyWorld()
    world.kind_comes("n0", "static", "core:8 smt:2", 16)
    world.kind_comes("n1", "pools", "core:8 smt:2", 16)
    for number in range(WARM_UP):
        come_and_go(world, number)
    gc.collect()
    before = reachable.lengths(world.core, ("corelane.scheduler",))
    for number in range(ROUNDS):
        come_and_go(world, WARM_UP + number)
    gc.collect()
    after = reachable.lengths(world.core, ("corelane.scheduler",))
    assert not world.core.pending()
    grown = {
        name: (before[name], length)
        for name, length in after.items()
        if length > before[name] + SLACK and not name.startswith(BOUNDED)
    }
    assert not grown
