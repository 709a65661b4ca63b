"""How long containers ran on CPUs that were not theirs."""

from corelane.agent.allocation.events import Pinned
from corelane.agent.node_sources import Overlap
from corelane.cpuset import CPUSet
from corelane.runtime.base import RuntimeStatus

OWN, ALL = CPUSet([1]), CPUSet([0, 1])


def overlap():
    times = [100.0]
    return Overlap(lambda: times[0]), times


def status(at, ident="c"):
    return RuntimeStatus(id=ident, pod_uid="uid", name="app", attempt=0, state="running", started_at=at)


def pinned(allowed):
    return Pinned(id="c", cpus=OWN, allowed=allowed, at=0.0, now=0.0)


def test_it_lasts_from_the_start_until_the_cpus_are_read_back_once():
    found, times = overlap()
    found.started(status(101.0))
    times[0] = 101.5
    found.pinned(pinned(ALL))
    found.pinned(pinned(OWN))
    found.pinned(pinned(OWN))
    assert found.plain() == {"count": 1, "p99": 0.5, "longest": 0.5}


def test_containers_placed_at_their_creation_older_ones_and_ended_ones_have_none():
    found, _ = overlap()
    found.placed("c")
    found.started(status(101.0))
    found.pinned(pinned(OWN))
    found.started(status(99.0))
    found.pinned(pinned(OWN))
    found.started(status(101.0))
    found.ended("c")
    found.pinned(pinned(OWN))
    assert found.plain()["count"] == 0
