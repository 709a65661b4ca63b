"""Any labels and annotations of pods and nodes: the agent applies or refuses them, without an error."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.agent.saved_state import NOTHING_SAVED, EffectiveSettings
from corelane.embedded.pods import pod_manifest
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.machine.spec import parse_spec
from corelane.node import admit, validate
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from support.garbage import ON_NODES, ON_PODS, RECORDS, written

MACHINE = parse_spec("socket:2 core:4 smt:2")


def manifest(annotations, labels):
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    container = {"name": "x", "command": ["serve"], "resources": resources}
    meta = {"name": "odd", "namespace": "n", "uid": "u", "annotations": annotations, "labels": labels}
    whole = {"metadata": meta, "spec": {"nodeName": "here", "containers": [container]}}
    return msgspec.convert(whole, RunPod)


@settings(max_examples=80, deadline=None)
@given(written(ON_PODS + RECORDS), st.booleans())
def test_a_plan_has_the_pods_request_or_a_refusal(said, labelled):
    plan = pod_manifest.pod_plan(manifest(said, said if labelled else {}), processes=True)
    assert [one.name for one in plan.request.containers] == ["x"]
    if plan.refusal is not None:
        assert plan.refusal.message.startswith("metadata.")
        return
    state, decision = admit(new(MACHINE, NodeConfig(policy="pools")), plan.request)
    assert decision.admitted or decision.message
    assert validate(state) == []


@settings(max_examples=80, deadline=None)
@given(written(ON_NODES))
def test_valid_node_labels_apply_and_invalid_ones_are_faults(said):
    node = EffectiveSettings(NodeConfig(policy="pools"), MACHINE, NOTHING_SAVED)
    faults = node.update(MACHINE, said, said)
    assert all(text.isprintable() for text in faults)
    assert validate(new(MACHINE, node.config)) == []
    assert node.update(MACHINE, said, said) == []
