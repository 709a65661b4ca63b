"""How long containers ran on CPUs that were not theirs."""

from corelane.agent.allocation.events import Pinned
from corelane.agent.node_sources import Overlap
from corelane.cpuset import CPUSet
from corelane.runtime.base import RuntimeStatus

OWN, ALL = CPUSet([1]), CPUSet([0, 1])


def overlap():
    return Overlap(since=100.0)


def status(at, ident="c"):
    return RuntimeStatus(id=ident, pod_uid="uid", name="app", attempt=0, state="running", started_at=at)


def pinned(allowed, at=101.5):
    return Pinned(id="c", cpus=OWN, allowed=allowed, at=at, now=0.0)


def test_it_lasts_from_the_start_until_the_cpus_are_read_back_once():
    times = overlap()
    times.started(status(101.0))
    times.pinned(pinned(ALL))
    times.pinned(pinned(OWN))
    times.pinned(pinned(OWN))
    assert times.plain() == {"count": 1, "p99": 0.5, "longest": 0.5}


def test_containers_placed_at_their_creation_older_ones_and_ended_ones_have_none():
    times = overlap()
    times.placed("c")
    times.started(status(101.0))
    times.pinned(pinned(OWN))
    times.started(status(99.0))
    times.pinned(pinned(OWN))
    times.started(status(101.0))
    times.ended("c")
    times.pinned(pinned(OWN))
    assert times.plain()["count"] == 0
