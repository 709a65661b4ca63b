"""One pod's or one node's broken annotations are told, and nobody else is disturbed by them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane.kube import keys
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.scheduling import SchedulerCore
from support import objects
from support.garbage import ON_PODS, PUBLISHED, RECORDS, written
from support.pods import guaranteed

OURS = "corelane-scheduler"


def published(name, damage):
    known = objects.topology(name, objects.state("core:8", name, policy="pools"))
    return replace(known, metadata=replace(known.metadata, annotations=known.metadata.annotations | damage))


def world(damage):
    """A core that knows a node whose topology is damaged, and two that are in order."""
    core = SchedulerCore()
    for name, wrong in (("bad", damage), ("good", {}), ("other", {})):
        core.handle(NodeChanged(0, None, objects.node(name)))
        core.handle(TopologyChanged(0, None, published(name, wrong)))
    return core


def instructions(core, *pods):
    done = []
    for one in pods:
        done += core.handle(PodChanged(0, None, one))
    for _ in range(4):
        done += core.handle(CycleDue(0))
    return done


@settings(max_examples=40, deadline=None)
@given(written(ON_PODS + RECORDS), written(PUBLISHED, 3), st.booleans())
def test_a_sound_pod_is_bound_beside_whatever_others_say(on_pod, on_node, bound):
    labels = {key: text for key, text in on_pod.items() if key in (keys.QOS_CLASS, keys.PRIORITY_CLASS)}
    where = {"node": "good"} if bound else {}
    odd = guaranteed("odd", "1", annotations=on_pod, labels=labels, scheduler_name=OURS, **where)
    sound = guaranteed("sound", "2", labels={keys.QOS_CLASS: "LSE"}, scheduler_name=OURS)
    done = instructions(world(on_node), odd, sound)
    assert [one.pod.metadata.name for one in done if isinstance(one, Bind)][-1] == "sound"
    for one in done:
        if isinstance(one, SetCondition):
            assert one.pod.metadata.name == "odd"
            assert one.message.isprintable()
