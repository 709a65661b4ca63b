import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, bits
from corelane.machine.jsonform import from_dict, to_dict
from corelane.machine.model import CPU, IRQ, Device, Machine, MachineError, NUMANode, from_rows
from corelane.machine.spec import parse_spec

FULL = replace(
    parse_spec("socket:2 numa:2 core:2 smt:2"),
    offline=CPUSet([40]),
    isolated=CPUSet([3]),
    nohz_full=CPUSet([3, 4]),
    managed_irq=CPUSet([3]),
    devices=(
        Device("0000:3b:00.0", "network", 1, CPUSet([2, 3]), "0x020000", "0x8086", "0x1592", "ice"),
        Device("0000:5e:00.0", "storage", None, CPUSet()),
    ),
    irqs=(IRQ(40, CPUSet([1]), "nvme0q1"),),
    notes=("something was odd",),
)


def test_a_machine_survives_json():
    text = json.dumps(to_dict(FULL))
    assert from_dict(json.loads(text)) == FULL
    assert hash(from_dict(json.loads(text))) == hash(FULL)
    assert json.loads(text)["counts"] == {"cpus": 16, "cores": 8, "l3": 4, "numa": 4, "sockets": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("name"), "field machine.name is missing"),
        (lambda d: d.update(cpus={}), "field cpus must be list, not dict"),
        (lambda d: d["cpus"][3].pop("core"), r"field cpus\[3\].core is missing"),
        (lambda d: d["cpus"][3].update(numa=True), r"field cpus\[3\].numa must be int, not bool"),
        (lambda d: d["cpus"].append(d["cpus"][0]), "field cpus: a CPU id appears twice"),
        (lambda d: d.update(online="0-x"), "field online is not a CPU list"),
        (
            lambda d: d["nodes"][0].update(hugepages={"x": 1}),
            r"field nodes\[0\].hugepages must have whole numbers",
        ),
        (lambda d: d["devices"][0].update(numa="1"), r"field devices\[0\].numa must be int, not str"),
    ],
)
def test_json_of_the_wrong_shape_names_the_field(change, message):
    data = to_dict(FULL)
    change(data)
    with pytest.raises(MachineError, match=message) as caught:
        from_dict(data, where="m.json")
    assert str(caught.value).startswith("m.json: ")


def test_a_machine_and_its_parts_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        FULL.name = "x"
    with pytest.raises(FrozenInstanceError):
        FULL.cpus[0].numa = 1


def test_unknown_ids_are_told_as_upstream_tells_them():
    for request in (FULL.cpu, FULL.siblings):
        with pytest.raises(MachineError, match="unknown CPU ID: 99"):
            request(99)
    with pytest.raises(MachineError, match="unknown NUMA node: 9"):
        FULL.node(9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, (1 << 20) - 1))
def test_a_restricted_machine_keeps_the_ids_of_the_whole(mask):
    part = FULL.restricted(mask)
    assert part.cpus_mask == mask & FULL.cpus_mask
    assert all(part.cpu(cpu) == FULL.cpu(cpu) for cpu in bits(part.cpus_mask))
    assert [node.memory for node in part.nodes] == [node.memory for node in FULL.nodes]
    assert (
        dict(part.core_masks).items() <= {core: members & mask for core, members in FULL.core_masks}.items()
    )
    assert part.usable.mask == mask & FULL.usable.mask
    assert part.restricted(mask) == part


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((-1, 0, 0, 0, 0), "field cpus: CPU -1 is not between 0 and 1048575"),
        ((10**20, 0, 0, 0, 0), "field cpus: CPU 100000000000000000000 is not"),
        ((0, 0, 0, 1024, 0), "field nodes: NUMA node 1024 is not between 0 and 1023"),
        ((0, 0, 0, -1, 0), "field nodes: NUMA node -1 is not"),
    ],
)
def test_ids_that_no_machine_has_are_named(row, told):
    cpu, core, socket, numa, l3 = row
    one = CPU(cpu, cpu, core, socket, 0, cpu, l3, numa)
    with pytest.raises(MachineError, match=f"machine m: {told}"):
        Machine("m", (one,), (), CPUSet())


def test_usable_cpus_are_online_and_allowed():
    machine = Machine("m", (), (), CPUSet([0, 1]), allowed=CPUSet([1, 2]))
    assert machine.usable == CPUSet([1])


def test_rows_of_cpu_core_socket_node_and_cache_make_a_machine():
    machine = from_rows("rows", [[0, 0, 0, 0, 0], [2, 0, 0, 0, 0], [1, 0, 1, 1, 5], [3, 0, 1, 1, 5]])
    assert machine.core_masks == ((0, 0b101), (1, 0b1010))
    assert machine.l3_masks == ((0, 0b101), (5, 0b1010))
    assert machine.nodes[1] == NUMANode(1, CPUSet([1, 3]), distances={0: 20, 1: 10})
    assert machine.cpu(3).core_id == 0
