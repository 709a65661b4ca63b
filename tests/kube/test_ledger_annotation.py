"""What a node publishes of its settings under pools, broken by somebody on its way to the scheduler."""

import json

import pytest

from corelane import node
from corelane.kube import keys, translate
from corelane.kube.translate import TranslationError, ledger_annotation
from corelane.machine.spec import parse_spec
from support.pods import container, pod

MACHINE = parse_spec("socket:1 core:4 smt:2")


@pytest.mark.parametrize("value", [5, {"a": 1}, [1], "x", "1/0", "1e999999999", None])
@pytest.mark.parametrize("setting", ["withheld", "system", "amplification"])
def test_settings_that_cannot_be_read_are_the_annotations_fault(setting, value):
    published = json.loads(ledger_annotation.dump(node.new(MACHINE, node.NodeConfig(policy="pools"))))
    published["config"]["pools"][setting] = value
    with pytest.raises(TranslationError, match="config"):
        ledger_annotation.load(json.dumps(published), MACHINE)


def labelled(labels):
    state = node.new(MACHINE, node.NodeConfig(policy="pools"))
    one = pod("p", container("c", "cpu=2 memory=1Gi"), labels={keys.QOS_CLASS: "LSR", **labels})
    state, decision = node.admit(state, translate.request(one))
    assert decision.admitted, decision.message
    (placed_pod,) = state.placed_pods.values()
    (told,) = ledger_annotation.load(ledger_annotation.dump(state), MACHINE).placed_pods.values()
    return placed_pod.labels, told.labels


def test_all_labels_of_a_pod_are_published_unchanged():
    own, told = labelled({f"key-{i}": "v" * 60 for i in range(50)})
    assert list(told.items()) == list(own.items())


def test_of_very_long_labels_the_shortest_are_published():
    own, told = labelled({f"key-{i}": "v" * 60 for i in range(4000)} | {"app": "a"})
    assert len(own) == 4002
    assert told.items() <= own.items()
    assert {"app", keys.QOS_CLASS} <= told.keys()
    assert 4000 < sum(len(key) + len(value) for key, value in told.items()) <= 4096
