"""With which files a kubelet starts, and with which words it does not."""

import pytest

from corelane import node
from corelane.node import StaticOptions
from corelane.node.config import NodeConfig
from corelane.node.kubelet import checkpoint, validation
from corelane.node.kubelet.checkpoint import Checkpoint
from support.node_asks import LAPTOP, container, cpus, pod

STRICT = StaticOptions(strict_cpu_reservation=True)


def of(default, entries=None, policy="static", pods=None):
    sets = {uid: {name: cpus(text) for name, text in own.items()} for uid, own in (entries or {}).items()}
    return Checkpoint(policy, cpus(default), sets, {uid: cpus(text) for uid, text in (pods or {}).items()})


def texts(state, config=None):
    """Of a machine with CPUs 0-7, of which 0 and 4 are reserved."""
    config = config or NodeConfig(reserved=cpus("0,4"))
    return [problem.text for problem in validation.start_problems(state, LAPTOP, config)]


STRICTLY = NodeConfig(reserved=cpus("0,4"), options=STRICT)


@pytest.mark.parametrize(
    ("state", "config"),
    [
        (of(""), None),
        (of("0-7"), None),
        (of("0,2-4,6-7", {"a": {"x": "1,5"}}), None),
        (of("0,2-4,6-7", pods={"a": "1,5"}), None),
        (of("0,2-4,6-7", {"a": {"x": "1,5", "init": "1"}}), None),
        (of("1-3,5-7"), STRICTLY),
        (of("", policy="none"), NodeConfig("none")),
        (of("9", policy="none"), NodeConfig("none")),
    ],
)
def test_a_kubelet_starts_with(state, config):
    assert texts(state, config) == []


@pytest.mark.parametrize(
    ("state", "config", "expected"),
    [
        (
            of("0-7"),
            NodeConfig("none"),
            'configured policy "none" differs from state checkpoint policy "static"',
        ),
        (of("", {"a": {"x": "1"}}), None, "default cpuset cannot be empty"),
        (of("", {"a": {}}), None, "default cpuset cannot be empty"),
        (
            of("1-7", {"a": {"x": "0"}}),
            None,
            'not all reserved cpus: "0,4" are present in defaultCpuSet: "1-7"',
        ),
        (
            of("1-7"),
            STRICTLY,
            'some of strictly reserved cpus: "4" are present in defaultCpuSet: "1-7"',
        ),
        (
            of("0-7", {"a": {"x": "1,5"}}),
            None,
            'pod: a, container: x cpuset: "1,5" overlaps with default cpuset "0-7"',
        ),
        (
            of("0-5"),
            None,
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-5"',
        ),
        (
            of("0-9"),
            None,
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-9"',
        ),
        (
            of("1-3,5-6"),
            STRICTLY,
            'current set of available CPUs "1-3,5-7" doesn\'t match with CPUs in state "1-3,5-6"',
        ),
    ],
)
def test_a_kubelet_exits_with(state, config, expected):
    assert texts(state, config)[0] == expected


def test_every_fault_is_named_in_upstreams_order():
    found = validation.start_problems(
        of("1-5", {"b": {"y": "2"}, "a": {"x": "1,7"}}), LAPTOP, NodeConfig(reserved=cpus("0,4"))
    )
    assert [(p.code, p.uid, str(p.cpus)) for p in found] == [
        ("reserved", "", "0"),
        ("overlap", "a", "1"),
        ("overlap", "b", "2"),
        ("total", "", "0,6"),
    ]


def test_the_reserved_cpus_are_those_that_the_settings_make_the_kubelet_pick():
    config = NodeConfig(reserved_count=2)
    assert node.new(LAPTOP, config).reserved == cpus("0,4")
    assert texts(of("1-7"), config)[0].startswith('not all reserved cpus: "0,4"')
    assert texts(of("0,4"), config)[0].startswith("current set")


@pytest.mark.parametrize("options", [StaticOptions(), STRICT])
def test_what_a_node_remembers_lets_it_start_again_until_strict_reservation_leaves_no_pool(options):
    """The exception is kubernetes#141196: all CPUs handed out, and an empty pool that cannot be read back."""
    config = NodeConfig(reserved=cpus("0,4"), options=options, exact=True)
    state = node.new(LAPTOP, config)
    for uid in "abc":
        state, decision = node.admit(state, pod(uid, container("x", 2000)))
        assert decision.admitted
        expected = ["default cpuset cannot be empty"] if options == STRICT and uid == "c" else []
        assert texts(checkpoint.from_state(state), config) == expected
