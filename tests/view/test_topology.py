import subprocess
import sys
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine.model import IRQ, Device, NUMANode
from corelane.machine.spec import parse_spec
from corelane.view.topology import FORMS, HEADINGS, lscpu, table, tree

LAPTOP = parse_spec("core:2 smt:2 mem:16G", name="laptop")
SERVER = parse_spec("socket:2 numa:2 l3:2 core:8 smt:2 mem:64G", name="server")


def test_a_small_machine_names_every_core():
    assert tree(LAPTOP) == (
        "laptop: 1 socket · 1 NUMA node · 1 L3 domain · 2 cores · 4 CPUs · 16 GiB\n"
        "└─ Socket 0 · NUMA node 0 · L3 0  16 GiB\n"
        "   ├─ Core 0: CPUs 0,2\n"
        "   └─ Core 1: CPUs 1,3\n"
    )


def test_a_large_machine_takes_a_line_for_each_l3():
    lines = tree(SERVER).splitlines()
    assert lines[:4] == [
        "server: 2 sockets · 4 NUMA nodes · 8 L3 domains · 64 cores · 128 CPUs · 256 GiB",
        "├─ Socket 0",
        "│  ├─ NUMA node 0  64 GiB",
        "│  │  ├─ L3 0  8 cores x 2 threads: CPUs 0-7,64-71",
    ]
    assert lines[14:] == [
        "      └─ L3 7  8 cores x 2 threads: CPUs 56-63,120-127",
        "distances    0  1  2  3",
        "  node 0    10 12 32 32",
        "  node 1    12 10 32 32",
        "  node 2    32 32 10 12",
        "  node 3    32 32 12 10",
    ]


def test_what_is_odd_about_a_machine_is_told_below_it():
    machine = replace(
        LAPTOP,
        nodes=(replace(LAPTOP.node(0), hugepages={2048: 5, 1048576: 0}), NUMANode(1, CPUSet(), 1 << 40)),
        offline=CPUSet([4]),
        allowed=CPUSet([0, 1, 2]),
        isolated=CPUSet([2]),
        devices=(
            Device("0000:3b:00.0", "network", 0, CPUSet([0]), driver="ice"),
            Device("0000:5e:00.0", "storage", None, CPUSet()),
        ),
        irqs=(IRQ(41, CPUSet([2]), "nvme0q2"),),
        notes=("CPU 3 was odd",),
    )
    lines = tree(machine).splitlines()
    assert "└─ NUMA node 1  1 TiB  no CPUs" in lines
    assert "├─ Socket 0 · NUMA node 0 · L3 0  16 GiB  5 x 2 MiB pages" in lines
    assert "│  └─ network: 0000:3b:00.0 ice" in lines
    assert "└─ storage: 0000:5e:00.0" in lines
    assert lines[-5:] == [
        "offline: 4",
        "not allowed to this process: 3",
        "isolated: 2",
        "managed interrupt 41 (nvme0q2): CPU 2",
        "note: CPU 3 was odd",
    ]


def test_an_l3_across_nodes_holds_them_and_one_across_sockets_stands_beside_them_with_its_cpus():
    wide = replace(SERVER, cpus=tuple(replace(cpu, l3=cpu.socket) for cpu in SERVER.cpus))
    assert "├─ Socket 0 · L3 0" in tree(wide)
    crossing = replace(SERVER, cpus=tuple(replace(cpu, l3=(cpu.numa + 1) // 2 % 2) for cpu in SERVER.cpus))
    assert "└─ L3 1: CPUs 16-47,80-111" in tree(crossing).splitlines()
    assert tree(crossing).count("NUMA node") == 5


def test_the_table_has_a_row_for_each_cpu_offline_ones_too():
    machine = replace(LAPTOP, offline=CPUSet([4]), allowed=CPUSet([0, 1]), isolated=CPUSet([1]))
    rows = table(machine)
    assert rows[1] == ("1", "1", "0", "0", "0", "0", "-", "-", "online, isolated")
    assert rows[2][-1] == "not allowed"
    assert rows[4] == ("4", *["-"] * 7, "offline")
    assert all(len(row) == len(HEADINGS) for row in rows)


def test_lscpus_form_numbers_cores_sockets_and_caches_from_zero():
    machine = replace(LAPTOP, cpus=tuple(replace(cpu, socket=7, l3=9, numa=0) for cpu in LAPTOP.cpus))
    assert lscpu(machine) == "# CPU,Core,Socket,Node,L3\n0,0,0,0,0\n1,1,0,0,0\n2,0,0,0,0\n3,1,0,0,0\n"


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 4), st.integers(0))
def test_every_cpu_is_somewhere_in_tree_and_table(socket, numa, core, smt, mask):
    machine = parse_spec(f"socket:{socket} numa:{numa} core:{core} smt:{smt}").restricted(mask | 1)
    named = CPUSet()
    for line in tree(machine).splitlines():
        if "CPU" in line and ": CPU" in line:
            named |= CPUSet.parse(line.rpartition(" ")[2])
    assert named == machine.online
    assert [int(row[0]) for row in table(machine)] == list(machine.online)


def test_importing_the_views_imports_nothing_heavy():
    heavy = "('rich', 'numpy', 'h2', 'aiohttp')"
    code = f"import sys, corelane.view.topology; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_printed_table_has_headings_and_a_row_for_each_cpu():
    heading, _, *rows = FORMS["table"](parse_spec("core:2 smt:2")).strip("\n ").splitlines()
    assert heading.split("   ")[0].strip() == "CPU"
    assert [row.split()[0] for row in rows if row.strip()] == ["0", "1", "2", "3"]
