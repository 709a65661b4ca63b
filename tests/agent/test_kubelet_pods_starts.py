"""The first events of an agent that starts beside running containers: they come in any order."""

import pytest

from corelane.agent.allocation import events
from corelane.agent.allocation.instructions import AnswerCreate, Pin
from corelane.cpuset import CPUSet
from corelane.workload.request import QOSClass
from support.agent_world import APP
from support.kubelet_world import KubeletWorld, bound_pod


def killed_before_others_left(nri: bool) -> KubeletWorld:
    """Pod x has CPUs 1-2 in the ledger on disk; the agent was killed before s left them."""
    world = KubeletWorld(cpus=4, nri=nri)
    world.add(bound_pod("s", ("a", APP, 100), qos=QOSClass.BURSTABLE))
    world.run_all()
    world.add(bound_pod("x", ("a", APP, 2000)))
    while not world.pending:
        world.deliver(0)
    world.carry_out(0)  # the ledger is saved
    world.start("x", "a")
    return world


@pytest.mark.parametrize("before", ["listed", "seen"])
def test_an_exclusive_container_seen_before_the_first_list_waits_for_those_that_are_not_known_yet(before):
    world = killed_before_others_left(nri=False)
    world.boot()
    world.inbox.insert(0, events.ContainerSeen(run=world.run_of(world.container("x")), **world.times()))
    if before == "seen":
        world.deliver(0)
        assert not [order for order in world.pending if isinstance(order, Pin)]
    world.settle()
    assert world.container("x").cpus == CPUSet.parse("1-2")
    assert world.container("s").cpus == CPUSet.parse("0,3")


def test_a_container_created_before_the_first_list_starts_in_the_shared_pool():
    world = killed_before_others_left(nri=True)
    world.boot()
    world.start("x", "a")
    world.deliver(0)
    assert not [order for order in world.pending if isinstance(order, AnswerCreate)]
    world.tick(0.45)
    world.deliver(len(world.inbox) - 1)
    [answer] = [order for order in world.pending if isinstance(order, AnswerCreate)]
    assert answer.adjust.cpus == CPUSet.parse("0,3")
    world.settle()
    assert world.container("x").cpus == CPUSet.parse("1-2")
    assert world.container("s").cpus == CPUSet.parse("0,3")
