"""One pod's or one node's broken annotations are told, and nobody else is disturbed by them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane.kube import keys
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, SetCondition
from support import objects
from support.garbage import ON_PODS, PUBLISHED, RECORDS, written
from support.pods import container, guaranteed, pod

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


AMOUNTS = ("1e30", "9223372036854775807", "9e15", "9e12", "1e10", "2147483648", "1000001", "1e-30", "0")


@pytest.mark.parametrize("policy", ["pools", "static", "none"])
@pytest.mark.parametrize("bound", [False, True], ids=["pending", "bound"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_amounts_beyond_any_machine_stop_no_other_pod(amount, bound, policy):
    """The API server accepts every quantity; one pod must not end the scheduler, now and at each start."""
    core = SchedulerCore()
    for name in ("bad", "good"):
        core.handle(NodeChanged(0, None, objects.node(name)))
        known = objects.topology(name, objects.state("core:8", name, policy=policy))
        core.handle(TopologyChanged(0, None, known))
    where = {"node": "bad"} if bound else {}
    huge = [
        pod(
            f"{what}-{label}",
            container("main", asked),
            labels={keys.QOS_CLASS: label} if label else {},
            scheduler_name=OURS,
            **where,
        )
        for what, asked in (
            ("cpu", f"cpu={amount}"),
            ("memory", f"cpu=1 memory={amount}"),
            ("other", f"cpu=1 memory=1Gi example.com/gpu={amount}"),
        )
        for label in ("", "LSE", "LS")
    ]
    sound = guaranteed("sound", "2", scheduler_name=OURS)
    done = []
    for one in (*huge, *huge, sound):
        done += core.handle(PodChanged(0, None, one))
    for _ in range(40):
        done += core.handle(CycleDue(0))
    assert "sound" in [one.pod.metadata.name for one in done if isinstance(one, Bind)]


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "example.com/gpu"])
def test_node_with_amounts_beyond_any_machine_does_not_end_the_scheduler(resource):
    core = SchedulerCore()
    node = objects.node("bad")
    amounts = node.status.allocatable | {resource: "1e30"}
    core.handle(NodeChanged(0, None, replace(node, status=replace(node.status, allocatable=amounts))))
    core.handle(NodeChanged(0, None, objects.node("good")))
    core.handle(TopologyChanged(0, None, objects.topology("good", objects.state("core:8", "good"))))
    done = instructions(core, guaranteed("sound", "2", scheduler_name=OURS))
    assert [one.pod.metadata.name for one in done if isinstance(one, Bind)] == ["sound"]
