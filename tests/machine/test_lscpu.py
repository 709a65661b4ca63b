import json
import shutil
import subprocess
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine import MachineError
from corelane.machine.lscpu import is_lscpu, parse_lscpu
from corelane.machine.sources import load
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


def counted(online, architecture="x86_64", **counts):
    fields = {"Architecture:": architecture, "On-line CPU(s) list:": online}
    fields |= {f"{name.replace('_', ' ')}:": value for name, value in counts.items()}
    return parse(json.dumps({"lscpu": [{"field": key, "data": value} for key, value in fields.items()]}))


def sizes(machine):
    return [mask.bit_count() for _, mask in machine.core_masks]


PER_CORE, PER_SOCKET, SOCKETS = "Thread(s) per core", "Core(s) per socket", "Socket(s)"


def test_a_hybrid_machines_cores_of_two_threads_are_counted_and_the_contradiction_is_noted():
    machine = counted("0-21", **{PER_CORE: "2", PER_SOCKET: "16", SOCKETS: "1"})
    assert sizes(machine) == [2] * 6 + [1] * 10
    assert "contradicts itself: 22 CPUs are online, not 2 (threads) x 16 (cores)" in machine.notes[0]
    assert "use `lscpu -J -e`" in machine.notes[0]


@pytest.mark.parametrize(
    ("architecture", "online", "counts", "cores"),
    [
        ("ppc64le", "0-79", ("8", "1", "10"), [0xFF << 8 * core for core in range(10)]),
        ("ppc64le", "0-3,104-107,112-115", ("4", "1", "2"), [0xF, 0xF << 104, 0xF << 112]),
        ("s390x", "0-7", ("2", "8", "1"), [0b11 << 2 * core for core in range(4)]),
        ("x86_64", "0-7", ("2", "4", "1"), [0b10001 << core for core in range(4)]),
    ],
)
def test_siblings_are_numbered_as_the_architectures_kernel_does(architecture, online, counts, cores):
    machine = counted(online, architecture, **dict(zip((PER_CORE, PER_SOCKET, SOCKETS), counts, strict=True)))
    assert [mask for _, mask in machine.core_masks] == cores
    assert machine.notes


def test_books_and_drawers_multiply_the_sockets():
    drawers = {"Socket(s) per book": "1", "Book(s) per drawer": "1", "Drawer(s)": "2"}
    machine = counted("0,1", "s390x", **{PER_CORE: "1", PER_SOCKET: "1"}, **drawers)
    assert (len(machine.socket_masks), bool(machine.notes)) == (2, True)
    books = counted(
        "0-7", "s390x", **{PER_CORE: "2", PER_SOCKET: "8", "Socket(s) per book": "3", "Book(s)": "8"}
    )
    assert (sizes(books), len(books.socket_masks)) == ([2] * 4, 1)
    assert "not 2 (threads) x 8 (cores) x 24" in books.notes[0]


def test_clusters_of_cores_are_no_sockets():
    machine = counted(
        "0-47", "aarch64", **{PER_CORE: "1", "Core(s) per cluster": "12", "Cluster(s)": "4", SOCKETS: "-"}
    )
    assert (len(machine.socket_masks), sizes(machine), machine.notes) == (1, [1] * 48, ())


def test_counts_of_several_models_are_added():
    models = [
        {"field": field, "data": data}
        for model in (("1", "4"), ("2", "2"))
        for field, data in ((PER_CORE, model[0]), (PER_SOCKET, model[1]), (SOCKETS, "1"))
    ]
    machine = parse(json.dumps({"lscpu": [{"field": "On-line CPU(s) list:", "data": "0-7"}, *models]}))
    assert sizes(machine) == [1, 1, 1, 1, 2, 2]
    assert "does not list the CPUs of its 2 CPU models" in machine.notes[0]


def test_offline_cpus_count_when_siblings_are_derived():
    machine = counted(
        "0-3,5-7", **{"Off-line CPU(s) list": "4", PER_CORE: "2", PER_SOCKET: "4", SOCKETS: "1"}
    )
    assert machine.core_masks == ((0, 0b1), (1, 0b100010), (2, 0b1000100), (3, 0b10001000))


@pytest.mark.parametrize(
    ("counts", "note"),
    [
        ({PER_CORE: "0", PER_SOCKET: "4"}, "no count 'Thread(s) per core': 2 assumed"),
        ({PER_CORE: "1", "NUMA node(s)": "2"}, "NUMA node(s): 2, but none is listed"),
        (
            {PER_CORE: "1", "NUMA node(s)": "2", "NUMA node0 CPU(s)": "0-7"},
            "NUMA node(s): 2, but 1 are listed",
        ),
        ({PER_CORE: "1", "NUMA node0 CPU(s)": "0-6"}, "CPU 7 is listed in no NUMA node: put into node 0"),
        (
            {PER_CORE: "1", "NUMA node0 CPU(s)": "0-7", "NUMA node1 CPU(s)": "7"},
            "CPU 7 is listed in several NUMA nodes: the lowest node taken",
        ),
        ({PER_CORE: "1", "CPU(s)": "16"}, "CPU(s): 16, but 8 are listed"),
        ({PER_CORE: "1", "L3": "8 MiB (9 instances)"}, "L3: 9 instances, more than the 8 cores"),
        ({PER_CORE: "1", "L1d": "8 MiB (4 instances)"}, "L1d: 4 instances, but 8 cores"),
        ({PER_CORE: "3", PER_SOCKET: "5", SOCKETS: "1"}, "8 CPUs are online, not 3 (threads) x 5 (cores)"),
    ],
)
def test_a_count_that_contradicts_another_is_noted(counts, note):
    assert any(note in each for each in counted("0-7", **counts).notes)


@settings(deadline=None)
@given(
    architecture=st.sampled_from(["x86_64", "ppc64le", "s390x", "aarch64"]),
    counts=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 3)),
    online=st.integers(1, (1 << 24) - 1),
    split=st.lists(st.integers(0, 24), max_size=3),
)
def test_counts_of_the_summary_hold_or_a_note_names_them(architecture, counts, online, split):
    bounds = [0, *sorted(split), 24]
    masks = [online & (1 << high) - (1 << low) for low, high in pairwise(bounds)]
    nodes = {f"NUMA node{node} CPU(s)": str(CPUSet.from_mask(mask)) for node, mask in enumerate(masks)}
    named = dict(zip((PER_CORE, PER_SOCKET, SOCKETS), map(str, counts), strict=True))
    machine = counted(str(CPUSet.from_mask(online)), architecture, **named, **nodes)
    assert machine.online == CPUSet.from_mask(online)
    assert [node.cpus.mask for node in machine.nodes] == masks, "cores never take a CPU out of its node"
    if not machine.notes:
        threads, cores, sockets = counts
        assert (threads, max(sockets, 1)) == (1, 1), "anything else needs a guess"
        assert sizes(machine) == [1] * (cores or len(machine.cpus))


def test_decimal_commas_of_a_locale_are_read_and_translated_output_is_named():
    cpus = '{"cpus": [{"cpu": 0, "core": 0, "online": true, "maxmhz": 3800,0000, "minmhz": 800,0000}]}'
    assert parse(cpus).cpu(0).max_khz == 3_800_000
    translated = {"lscpu": [{"field": "Processeur(s) :", "data": "4"}]}
    with pytest.raises(MachineError, match="LC_ALL=C lscpu -J -e"):
        parse(json.dumps(translated))
    with pytest.raises(MachineError, match=r"column online has 'oui' for CPU 0.*LC_ALL=C"):
        parse("CPU NODE SOCKET CORE ONLINE\n  0    0      0    0    oui\n")


def test_sockets_and_nodes_that_cross_are_noted():
    rows = "".join(f"{cpu},{cpu},{cpu // 4},{cpu // 2 % 2}\n" for cpu in range(8))
    (note,) = parse("# CPU,Core,Socket,Node\n" + rows).notes
    assert note.startswith("sockets 0,1 and NUMA nodes 0,1 cross")


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
