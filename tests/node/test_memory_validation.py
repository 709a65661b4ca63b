"""With which files a kubelet's memory manager starts: 1.36's own answers, and each difference by its name."""

from dataclasses import replace

import pytest

from corelane.machine.model import NUMANode, from_rows
from corelane.node.kubelet import validation
from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint, NodeMemory, Table
from corelane.placement.memory_blocks import hugepages

GIB = 1 << 30
FREE = Table(4 * GIB, GIB, 3 * GIB, 0, 3 * GIB)
USED = Table(4 * GIB, GIB, 3 * GIB, GIB, 2 * GIB)
RESERVED = {0: {"memory": GIB}, 1: {"memory": GIB}}
BLOCK = Block((0,), "memory", GIB)


def machine(*nodes):
    found = from_rows("test", [(node.id, node.id, 0, node.id, 0) for node in nodes])
    return replace(found, nodes=nodes)


TWO = machine(*(NUMANode(node, frozenset(), 4 * GIB) for node in (0, 1)))


def problems(checkpoint, policy="Static", reserved=None, minor=36):
    found = validation.memory_start_problems(checkpoint, TWO, policy, reserved or RESERVED, minor)
    return [(one.code, one.text) for one in found]


def state(nodes=None, entries=None, **more):
    nodes = nodes or {0: NodeMemory({"memory": USED}, 1, (0,)), 1: NodeMemory({"memory": FREE}, 0, (1,))}
    return MemoryCheckpoint("Static", nodes, entries or {"u": {"c": (BLOCK,)}}, **more)


def test_a_file_that_fits_starts():
    assert problems(state()) == []


def test_another_policy_is_named_before_all_else():
    text = '[memorymanager] configured policy "None" differs from state checkpoint policy "Static"'
    assert problems(state(), "None") == [("policy", text)]


def test_policy_none_looks_at_nothing():
    checkpoint = MemoryCheckpoint("None", entries={"u": {"c": (BLOCK,)}})
    assert problems(checkpoint, "None") == []


def test_a_new_node_starts_and_one_that_forgot_its_machine_does_not():
    assert problems(MemoryCheckpoint("Static")) == []
    assert problems(MemoryCheckpoint("Static", entries={"u": {}}))[0][0] == "empty"


@pytest.mark.parametrize(
    ("checkpoint", "reserved", "words"),
    [
        (
            state({0: NodeMemory({"memory": USED}, 1, (0,))}),
            None,
            "node 1 is in the machine, not in the file",
        ),
        (
            state({**state().machine, 2: NodeMemory({})}),
            None,
            "NUMA node 2 is in the file, not in the machine",
        ),
        (
            state(),
            {**RESERVED, 0: {"memory": 2 * GIB}},
            "NUMA node 0: memory: reserved for the system is 1073741824 bytes in the file, 2147483648 now",
        ),
        (
            state({**state().machine, 0: NodeMemory({"memory": USED}, 2, (0,))}),
            None,
            "the file counts 2 assignments and holds 1",
        ),
        (
            state({**state().machine, 0: NodeMemory({"memory": USED}, 1, (0, 1))}),
            None,
            "its group is 0 1 in the file, by its blocks 0",
        ),
        (
            state({**state().machine, 0: NodeMemory({"memory": FREE}, 1, (0,))}),
            None,
            "memory: free is 3221225472 bytes in the file, 2147483648 by its blocks",
        ),
        (
            state({**state().machine, 1: NodeMemory({"memory": FREE, "hugepages-2Mi": FREE}, 0, (1,))}),
            None,
            "NUMA node 1: hugepages-2Mi is in the file, not in the machine",
        ),
    ],
)
def test_every_difference_is_named(checkpoint, reserved, words):
    found = problems(checkpoint, reserved=reserved)
    assert any(words in text for _, text in found)
    assert {code for code, _ in found} == {"machine"}


def test_blocks_of_a_pod_count_instead_of_its_containers():
    assert problems(state(pods={"u": (BLOCK,)}, entries={"u": {"c": (BLOCK, BLOCK)}})) == []


def test_blocks_over_a_group_only_have_to_add_up():
    """Which node gives how much depends on what was there first, which the file does not remember."""
    both = Block((0, 1), "memory", 4 * GIB)
    tables = [Table(4 * GIB, GIB, 3 * GIB, part * GIB, (3 - part) * GIB) for part in (1, 3)]
    nodes = {node: NodeMemory({"memory": tables[node]}, 1, (0, 1)) for node in (0, 1)}
    assert problems(state(nodes, {"u": {"c": (both,)}})) == []
    of_each = problems(state(nodes, {"u": {"c": (both,)}}), minor=31)
    assert {code for code, _ in of_each} == {"machine"}, "before 1.32 each node was compared by itself"


def test_without_a_reservation_the_files_own_can_be_taken():
    assert validation.reserved_in(state()) == RESERVED


@pytest.mark.parametrize(
    ("kib", "name"),
    [
        (64, "hugepages-64Ki"),
        (2048, "hugepages-2Mi"),
        (1 << 20, "hugepages-1Gi"),
        (16 << 20, "hugepages-16Gi"),
    ],
)
def test_huge_pages_are_named_as_kubernetes_does(kib, name):
    assert hugepages(kib) == name
