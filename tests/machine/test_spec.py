import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.machine.model import MachineError
from corelane.machine.spec import parse_spec


def test_counts_are_per_parent_and_cpus_numbered_as_on_x86():
    machine = parse_spec("socket:2 numa:4 core:16 smt:2")
    assert len(machine.cpus) == 256
    assert [len(table) for table in (machine.socket_masks, machine.numa_masks, machine.l3_masks)] == [2, 8, 8]
    assert str(machine.node(1).cpus) == "16-31,144-159"
    assert [machine.cpu(145).core, machine.cpu(145).socket, machine.cpu(255).socket] == [17, 0, 1]
    assert machine.siblings(17) == 1 << 17 | 1 << 145
    assert machine.usable == machine.online
    assert machine.node(0).distances == {0: 10, 1: 12, 2: 12, 3: 12, 4: 32, 5: 32, 6: 32, 7: 32}


def test_l3_domains_lie_between_node_and_core():
    machine = parse_spec("socket:1 numa:2 l3:4 core:2 smt:2")
    assert len(machine.l3_masks) == 8
    assert len(machine.cpus) == 32
    assert {machine.cpu(cpu).l3 for cpu in machine.node(1).cpus} == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("core:2 mem:64G", 64 << 30),
        ("core:2 mem:512MiB", 512 << 20),
        ("core:2 mem:1024", 1024),
        ("core:2", 8 << 30),
    ],
)
def test_memory_is_that_of_each_node(text, memory):
    assert parse_spec(text).node(0).memory == memory


@pytest.mark.parametrize(
    ("text", "isolated"),
    [
        ("core:4 smt:2 isolated:2-3", "2-3"),
        ("isolated:1,5 core:4 smt:2", "1,5"),
        ("core:4,isolated:2-3, 6,smt:2, mem:4G", "2-3,6"),
        ("core:4 smt:2 Isolated:0-7", "0-7"),
        ("core:4", ""),
    ],
)
def test_isolated_cpus_are_listed_with_commas_whatever_parts_the_words(text, isolated):
    machine = parse_spec(text)
    assert str(machine.isolated) == isolated
    assert machine.usable == machine.online


def test_levels_left_out_count_one_and_hwlocs_words_are_known():
    assert len(parse_spec("smt:2").cpus) == 2
    machine = parse_spec("Package:2, NUMANode:1 L3Cache:2 Core:3 PU:2")
    assert (len(machine.socket_masks), len(machine.l3_masks), len(machine.cpus)) == (2, 4, 24)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4))
def test_every_spec_gives_a_well_formed_machine(socket, numa, l3, core, smt):
    machine = parse_spec(f"socket:{socket} numa:{numa} l3:{l3} core:{core} smt:{smt}")
    cores = socket * numa * l3 * core
    assert len(machine.cpus) == cores * smt
    assert len(machine.core_masks) == cores
    for table in (machine.core_masks, machine.l3_masks, machine.numa_masks, machine.socket_masks):
        assert sum(mask for _, mask in table) == machine.cpus_mask
    for number, mask in machine.core_masks:
        assert number == (mask & -mask).bit_length() - 1
        assert len({(cpu.socket, cpu.numa, cpu.l3) for cpu in machine.cpus if mask >> cpu.id & 1}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no level"),
        ("mem:4G", "names no level"),
        ("socket:2 cores:4", "'cores:4' is none of its words"),
        ("socket", "'socket' is none of its words"),
        ("socket:0", "'socket:0' needs a count from 1 to 8192"),
        ("socket:-1", "'socket:-1' needs a count"),
        ("core:x", "'core:x' needs a count"),
        ("core:2 core:3", "core is given twice"),
        ("core:2 socket:3", "levels go from the outside in: socket numa l3 core smt"),
        ("core:2 mem:lots", "mem:lots is not a size"),
        ("socket:64 core:256", "16384 CPUs are more than Linux' 8192"),
        ("core:99999999999", "needs a count"),
        ("socket:2 numa:513", "1026 NUMA nodes are more than Linux' 1024; lower a count"),
        ("core:4 isolated:4", "isolated CPU 4 is not on it: it has 0-3"),
        ("core:4 isolated:", "'isolated:' is not a list of CPUs such as isolated:2-3,10"),
        ("core:4 isolated:3-2", "'isolated:3-2' is not a list of CPUs"),
        ("core:4 isolated:1 isolated:2", "isolated is given twice"),
        ("isolated:0", "names no level"),
    ],
)
def test_bad_specs_say_what_is_wrong(text, message):
    with pytest.raises(MachineError, match="machine spec") as caught:
        parse_spec(text)
    assert message in str(caught.value)
