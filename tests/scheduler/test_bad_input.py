"""One pod's or one node's broken annotations are told, and nobody else is disturbed by them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane.kube import keys
from corelane.scheduler.events import TopologyChanged
from support import objects
from support.core_lab import CoreLab, conditions, names
from support.garbage import ON_PODS, PUBLISHED, RECORDS, written
from support.pods import container, guaranteed, pod

OURS = "corelane-scheduler"


def published(name, damage):
    known = objects.topology(name, objects.state("core:8", name, policy="pools"))
    return replace(known, metadata=replace(known.metadata, annotations=known.metadata.annotations | damage))


@settings(max_examples=40, deadline=None)
@given(written(ON_PODS + RECORDS), written(PUBLISHED, 3), st.booleans())
def test_a_sound_pod_is_bound_beside_whatever_others_say(on_pod, on_node, bound):
    labels = {key: text for key, text in on_pod.items() if key in (keys.QOS_CLASS, keys.PRIORITY_CLASS)}
    where = {"node": "good"} if bound else {}
    odd = guaranteed("odd", "1", annotations=on_pod, labels=labels, scheduler_name=OURS, **where)
    sound = guaranteed("sound", "2", labels={keys.QOS_CLASS: "LSE"}, scheduler_name=OURS)
    lab = CoreLab("bad", "good", "other")
    for name in lab.nodes:
        lab.tell(TopologyChanged(0, None, published(name, on_node if name == "bad" else {})))
    for each in (odd, sound):
        lab.seen(each)
    done = lab.run()
    assert names(done)[-1] == "sound"
    for condition in conditions(done):
        assert condition.pod.metadata.name == "odd"
        assert condition.message.isprintable()


AMOUNTS = ("1e30", "9223372036854775807", "9e15", "9e12", "1e10", "2147483648", "1000001", "1e-30", "0")


@pytest.mark.parametrize("policy", ["pools", "static", "none"])
@pytest.mark.parametrize("bound", [False, True], ids=["pending", "bound"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_amounts_beyond_any_machine_stop_no_other_pod(amount, bound, policy):
    """The API server accepts every quantity; one pod must not end the scheduler, now and at each start."""
    lab = CoreLab().has("bad", "good", spec="core:8", policy=policy)
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
    for each in (*huge, *huge, guaranteed("sound", "2", scheduler_name=OURS)):
        lab.seen(each)
    assert "sound" in names(lab.run())


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "example.com/gpu"])
def test_node_with_amounts_beyond_any_machine_does_not_end_the_scheduler(resource):
    node = objects.node("bad")
    amounts = node.status.allocatable | {resource: "1e30"}
    lab = CoreLab(replace(node, status=replace(node.status, allocatable=amounts))).has("good", spec="core:8")
    assert lab.bound(guaranteed("sound", "2")) == ["good"]
