"""What a node publishes of its settings under pools, broken by somebody on its way to the scheduler."""

import json

import pytest

from corelane import node
from corelane.kube.translate import TranslationError, ledgers
from corelane.machine.spec import parse_spec

MACHINE = parse_spec("socket:1 core:4 smt:2")


@pytest.mark.parametrize("value", [5, {"a": 1}, [1], "x", "1/0", "1e999999999", None])
@pytest.mark.parametrize("setting", ["withheld", "system", "amplification"])
def test_settings_that_cannot_be_read_are_the_annotations_fault(setting, value):
    published = json.loads(ledgers.dump(node.new(MACHINE, node.NodeConfig(policy="pools"))))
    published["config"]["pools"][setting] = value
    with pytest.raises(TranslationError, match="config"):
        ledgers.load(json.dumps(published), MACHINE)
