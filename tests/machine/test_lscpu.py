import json
import shutil
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine import MachineError, load
from corelane.machine.lscpu import is_lscpu, parse_lscpu
from corelane.machine.spec import parse_spec
from corelane.machine.sysfs import live
from corelane.view.topology import lscpu

P = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,0,0,0,,0,0,0,0
3,1,0,0,,1,1,1,0
4,2,1,2,,2,2,2,1
"""

E = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ
  0    0      0    0 0:0:0:0          yes 4800.0000
  1    0      0    0 0:0:0:0          yes 4800.0000
  2    0      0    1 4:4:1:0          yes 3500.0000
  3    -      -    - -                 no         -
"""


def parse(text):
    assert is_lscpu(text)
    return parse_lscpu(text, name="m", source="out.txt")


def test_parsable_output_gives_cores_sockets_nodes_and_l3():
    machine = parse(P)
    assert machine.core_masks == ((0, 0b101), (1, 0b1010), (4, 1 << 4))
    assert machine.socket_masks == machine.l3_masks == ((0, 0b1111), (1, 1 << 4))
    assert machine.numa_masks == ((0, 0b1111), (2, 1 << 4))
    assert machine.node(2).distances == {0: 20, 2: 10}


def test_columns_may_come_in_any_order_and_number():
    machine = parse(
        "# Socket,CPU,Core\n".replace("# Socket,CPU", "# CPU,Socket") + "0,0,0\n1,0,0\n2,1,0\n3,1,0\n"
    )
    assert machine.core_masks == ((0, 0b11), (2, 0b1100)), "cores count within their socket"
    assert machine.l3_masks == machine.socket_masks
    assert {cpu.numa for cpu in machine.cpus} == {0}


def test_extended_output_gives_kinds_and_offline_cpus():
    machine = parse(E)
    assert [cpu.kind for cpu in machine.cpus] == ["P", "P", "E"]
    assert machine.cpu(0).max_khz == 4_800_000
    assert (machine.online, machine.offline) == (CPUSet([0, 1, 2]), CPUSet([3]))
    assert machine.l3_masks == ((0, 0b111),)


def test_json_of_each_cpu_is_read_even_with_lscpus_bare_dashes():
    rows = [
        {"cpu": 0, "node": 0, "socket": 0, "core": 0, "l1d:l1i:l2:l3": "0:0:0:0", "online": True},
        {"cpu": 1, "node": 0, "socket": 0, "core": 0, "l1d:l1i:l2:l3": "0:0:0:0", "online": "yes"},
        {"cpu": 2, "node": "BARE", "socket": None, "core": "-", "l1d:l1i:l2:l3": "-", "online": False},
    ]
    machine = parse(json.dumps({"cpus": rows}, indent=3).replace('"BARE"', "-"))
    assert machine.core_masks == ((0, 0b11),)
    assert machine.offline == CPUSet([2])


def summary(**fields):
    names = {
        "cpus": "On-line CPU(s) list:",
        "threads": "Thread(s) per core:",
        "sockets": "Socket(s):",
        "l3": "L3:",
    }
    items = [{"field": names.get(key, key), "data": value} for key, value in fields.items()]
    return json.dumps({"lscpu": [{"field": "Architecture:", "data": "x86_64", "children": items}]})


def test_the_summary_is_filled_up_as_linux_numbers_cpus_on_x86_and_noted():
    nodes = {
        "NUMA node0 CPU(s):": "0-3,8-11",
        "NUMA node1 CPU(s):": "4-7,12-15",
        "NUMA node2 CPU(s):": "None",
    }
    machine = parse(summary(cpus="0-15", threads="2", sockets="2", l3="64 MiB (4 instances)", **nodes))
    assert machine.siblings(5) == 1 << 5 | 1 << 13
    assert machine.numa_masks == ((0, 0x0F0F), (1, 0xF0F0))
    assert [mask for _, mask in machine.socket_masks] == [0x0F0F, 0xF0F0]
    assert [f"{mask:04x}" for _, mask in machine.l3_masks] == ["0303", "0c0c", "3030", "c0c0"]
    assert "use `lscpu -J -e`" in machine.notes[0]


def test_a_summary_with_more_sockets_than_nodes_deals_cores_to_sockets():
    machine = parse(summary(cpus="0-7", threads="1", sockets="2"))
    assert machine.socket_masks == ((0, 0x0F), (1, 0xF0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# CPU,Core\n0,0\nx,1\n", "column cpu has 'x', which is not a number"),
        ("# CPU,Core\n0,0\n1,0,3,4\n", "line 3 has 4 columns, not 2"),
        ("# CPU,Core\n", "names no CPU that is online"),
        ("# CPU,Core\n0,-7\n", "column core has '-7'"),
        ('{"cpus": 7}', "neither a list 'cpus' nor a list 'lscpu'"),
        ('{"cpus": [', "not valid JSON"),
        ('{"cpus": [{"core": 1}]}', "a row without a CPU number"),
        (
            '{"lscpu": [{"field": "On-line CPU(s) list:", "data": "0-x"}]}',
            "'On-line CPU(s) list' is not a CPU list",
        ),
        ('{"lscpu": []}', "names no CPU that is online"),
        ("# CPU,Core\n0,0\n0,0\n", "a CPU id appears twice"),
    ],
)
def test_broken_output_is_named(text, message):
    with pytest.raises(MachineError) as caught:
        parse_lscpu(text, name="m", source="out.txt")
    assert message in str(caught.value)


@settings(deadline=None)
@given(st.text(alphabet='#CPU,\n 0123-:{}[]"cpus', max_size=60))
def test_any_text_gives_a_machine_or_an_error_of_ours(text):
    with suppress(MachineError):
        parse_lscpu(text, name="m", source="s")


def test_our_own_output_reads_back():
    machine = parse_spec("socket:2 numa:2 l3:2 core:3 smt:2")
    again = parse(lscpu(machine))
    for table in ("core_masks", "l3_masks", "numa_masks", "socket_masks"):
        assert getattr(again, table) == getattr(machine, table)


@pytest.mark.skipif(not shutil.which("lscpu"), reason="needs lscpu (util-linux)")
@pytest.mark.parametrize("options", [["-p"], ["-e"], ["-J", "-e"], ["-J"]])
def test_this_machine_reads_the_same_from_lscpu(options, tmp_path):
    told = subprocess.run(["lscpu", *options], capture_output=True, text=True, check=True, timeout=180).stdout
    (tmp_path / "told").write_text(told)
    theirs, ours = load(str(tmp_path / "told")), live()
    assert theirs.online == ours.online
    if options != ["-J"]:
        assert theirs.core_masks == ours.core_masks
        assert [mask for _, mask in theirs.socket_masks] == [mask for _, mask in ours.socket_masks]
