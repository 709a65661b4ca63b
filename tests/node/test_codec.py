import json

import pytest

from corelane import node
from corelane.node import codec
from corelane.workload import LabelRequirement, Operator, PodCPUAffinity, PodQOS, Selector, TopologyLevel
from support.node_asks import LAPTOP, container, init, pod
from support.pool_asks import admitted, labelled, pools

RULES_OF_NOBODY = {
    "level": "core",
    "labels": {},
    "required": True,
    "expressions": [{"key": "app", "operator": "Like", "values": []}],
}


def busy():
    state = node.new(LAPTOP)
    for request in (pod("a", init("i", 2000), container("x", 2000)), pod("b", container("y", 500))):
        state, _ = node.admit(state, request)
    return node.mark(state, "a", "x", node.Phase.CONFIRMED)


def broken(change):
    """The file with one change made to its JSON, and a checksum that fits it."""
    whole = json.loads(codec.encode(busy()))
    change(whole["ledger"])
    whole["checksum"] = codec.checksum(whole["ledger"])
    return json.dumps(whole).encode()


def decode(data):
    return codec.decode(data, LAPTOP, node.NodeConfig())


def test_a_state_survives_the_file():
    state = busy()
    assert decode(codec.encode(state)) == state


EXPRESSIONS = (LabelRequirement("app", Operator.IN, ("a", "b")), LabelRequirement("tier", Operator.EXISTS))


@pytest.mark.parametrize("others", [Selector({"app": "a"}), Selector({"x": "y"}, EXPRESSIONS)])
def test_whom_a_pod_avoids_survives_the_file(others):
    shy = labelled(
        "shy", PodQOS.LSE, 2000, affinities=(PodCPUAffinity(True, TopologyLevel.CORE, others, True),)
    )
    state = admitted(pools(LAPTOP), shy)
    assert codec.decode(codec.encode(state), LAPTOP, state.config) == state


def test_a_file_from_before_there_were_expressions_is_read():
    shy = labelled(
        "shy",
        PodQOS.LSE,
        2000,
        affinities=(PodCPUAffinity(True, TopologyLevel.CORE, Selector({"app": "a"})),),
    )
    state = admitted(pools(LAPTOP), shy)
    body = json.loads(codec.encode(state))["ledger"]
    assert body["tenants"]["shy"]["avoids"] == [{"level": "core", "labels": {"app": "a"}, "required": False}]


def test_the_file_is_the_same_for_the_same_state():
    assert codec.encode(busy()) == codec.encode(busy())


@pytest.mark.parametrize("size", [0, 1, 40, 200, 500])
def test_a_truncated_file_is_told_as_such(size):
    with pytest.raises(node.LedgerError, match=f"perhaps truncated after {size} bytes.*move the file away"):
        decode(codec.encode(busy())[:size])


def test_any_flipped_byte_of_the_content_is_noticed():
    data = codec.encode(busy())
    for i in range(0, len(data) - 1, 7):
        flipped = data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
        if flipped.split() != data.split():
            with pytest.raises(node.LedgerError):
                decode(flipped)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "^ledger field .whole file.: is list, not dict"),
        (b"{}", "field kind: is missing, not str"),
        (b'{"kind":"x"}', "field kind: 'x' is not 'corelane-ledger'"),
        (
            b'{"kind":"corelane-ledger","version":2}',
            "ledger of version 2; this corelane reads and writes version 1: start the corelane that wrote it",
        ),
        (b'{"kind":"corelane-ledger","version":true}', "field version: is bool, not int"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
    ],
)
def test_a_foreign_file_is_told_as_such(data, message):
    with pytest.raises(node.LedgerError, match=message):
        decode(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ledger: ledger.pop("entries"), "field ledger.entries: is missing, not list"),
        (lambda ledger: ledger["entries"].append(7), r"field ledger.entries\[3\]: is int, not dict"),
        (lambda ledger: ledger["entries"][0].update(cpus="1-"), r"field ledger.entries\[0\].cpus: strconv"),
        (
            lambda ledger: ledger["entries"][0].update(phase="x"),
            r"ledger.entries\[0\].phase: 'x' is none of reserved, applied",
        ),
        (lambda ledger: ledger["pods"].update(a="1"), r"field ledger.pods\['a'\]: is str, not int"),
        (
            lambda ledger: ledger["tenants"].update(a={"namespace": "n", "avoids": [RULES_OF_NOBODY]}),
            r"field ledger.tenants\[?.*'Like' is not a valid Operator",
        ),
        (lambda ledger: ledger.update(reserved=0), "field ledger.reserved: is int, not str"),
    ],
)
def test_a_wrong_field_is_named(change, message):
    with pytest.raises(node.LedgerError, match=message):
        decode(broken(change))


def test_a_state_read_back_is_equal_even_if_the_machines_topology_was_built_anew():
    """Topologies are cached by machine; an equal machine that is gone takes the cached one with it."""
    first = node.new(LAPTOP.restricted(0x7F))
    state = node.new(LAPTOP.restricted(0x7F))
    del first
    assert codec.decode(codec.encode(state), state.machine, state.config) == state
