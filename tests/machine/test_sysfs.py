"""Discovery from made-up copies of /sys: what is told truly comes back, all else has its stand-in."""

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kernel.files import Directory
from corelane.machine import MachineError
from corelane.machine.spec import parse_spec
from corelane.machine.sysfs import discover, live
from support import sysfs
from support.sysfs import CPU, NODE

SPEC = "socket:2 numa:2 l3:2 core:2 smt:2"


class Files:
    """A tree in memory; discovery takes any."""

    def __init__(self, files, modes=()):
        self.files, self.modes = files, dict(modes)

    def read(self, path):
        return self.files.get(path)

    def names(self, path):
        return sorted(
            {name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")}
        )

    def target(self, path):
        return None

    def mode(self, path):
        return self.modes.get(path, 0o644 if path in self.files else 0)


def found(files, allowed=None, **modes):
    split = {
        top: {p.removeprefix(top): t for p, t in files.items() if p.startswith(top)}
        for top in ("sys/", "proc/")
    }
    return discover(
        Files(split["sys/"]),
        Files(split["proc/"], modes.get("modes", ())),
        name="m",
        source="here",
        allowed=allowed,
    )


def same_but_names(machine, other):
    return replace(machine, name="", source="", notes=()) == replace(other, name="", source="", notes=())


@settings(deadline=None, max_examples=40)
@given(st.tuples(*[st.integers(1, 3)] * 4, st.integers(1, 4)))
def test_a_machine_written_as_sysfs_is_discovered_as_itself(counts):
    machine = parse_spec("socket:{} numa:{} l3:{} core:{} smt:{}".format(*counts))
    assert same_but_names(found(sysfs.files(machine)), machine)
    assert found(sysfs.files(machine)).notes == ()


def test_masks_without_lists_do():
    machine = parse_spec(SPEC)
    files = sysfs.without(
        sysfs.files(machine), "_list", "cpulist", f"{CPU}/online", f"{CPU}/present", "possible"
    )
    assert same_but_names(found(files), machine)


def test_ids_without_masks_do():
    machine = parse_spec(SPEC)
    files = sysfs.without(sysfs.files(machine), "_siblings", "cluster_cpus")
    assert same_but_names(found(files), machine)


def test_a_list_that_leaves_out_its_own_cpu_gives_way_to_the_mask():
    machine = parse_spec(SPEC)
    files = sysfs.files(machine)
    files |= {path: "0\n" for path in files if path.endswith("shared_cpu_list") and "cpu0/" not in path}
    assert found(files).l3_masks == machine.l3_masks


def test_a_trailing_nul_as_early_kernels_wrote_is_no_matter():
    files = {path: f"{text}\0" for path, text in sysfs.files(parse_spec(SPEC)).items()}
    assert same_but_names(found(files), parse_spec(SPEC))


def test_without_topology_every_cpu_is_a_core_of_one_socket():
    files = sysfs.without(sysfs.files(parse_spec("core:4 smt:2")), "/topology/", "/cache/")
    machine = found(files | {f"{CPU}/cpu{cpu}/uevent": "" for cpu in range(8)})
    assert len(machine.core_masks) == 8
    assert machine.socket_masks == machine.l3_masks == ((0, 0xFF),)


def test_offline_cpus_are_counted_but_have_no_place():
    machine = replace(parse_spec("core:4").restricted(0b1011), offline=CPUSet([2]))
    seen = found(sysfs.files(machine))
    assert (seen.online, seen.offline, seen.usable) == (CPUSet([0, 1, 3]), CPUSet([2]), CPUSet([0, 1, 3]))
    assert [cpu.id for cpu in seen.cpus] == [0, 1, 3]


def test_without_a_list_each_cpus_own_switch_tells_who_is_online():
    files = sysfs.without(sysfs.files(parse_spec("core:4")), f"{CPU}/online")
    assert found({**files, f"{CPU}/cpu2/online": "0\n"}).online == CPUSet([0, 1, 3])


def test_a_renumbered_list_of_online_cpus_gives_way_to_each_cpus_own_file():
    files = sysfs.files(parse_spec("core:4"))
    files[f"{CPU}/online"] = "0-1"
    files |= {f"{CPU}/cpu{cpu}/online": "1" for cpu in (1, 2)} | {f"{CPU}/cpu3/online": "0"}
    machine = found(files, allowed=0b0110)
    assert (machine.online, machine.usable) == (CPUSet([0, 1, 2]), CPUSet([1, 2]))
    assert (
        "lists CPUs 0-1, but this process may run on CPU 2: the file is not the kernel's" in machine.notes[0]
    )
    assert not found(files, allowed=0b0011).notes, "nothing contradicts the list"
    assert str(found(files, allowed=0b1001).usable) == "0", "a CPU that goes off-line meanwhile"


def test_a_list_of_cpus_that_are_not_there_is_cut_and_noted():
    seen = found({**sysfs.files(parse_spec("core:2")), f"{CPU}/online": "0-9\n"})
    assert seen.online == CPUSet([0, 1])
    assert seen.notes == ("CPUs 2-9 are listed as online but are not there: left out",)


def test_package_ids_of_minus_one_are_numbered_by_lowest_cpu():
    files = sysfs.files(parse_spec("socket:2 core:2"))
    files |= {path: "-1\n" for path in files if path.endswith("physical_package_id")}
    seen = found(files)
    assert seen.socket_masks == ((0, 0b0011), (1, 0b1100))
    assert "sockets numbered by their lowest CPU" in seen.notes[0]


def test_unknown_packages_of_a_core_each_become_the_numa_nodes():
    """POWER: package id -1, and core_siblings no larger than a core."""
    files = sysfs.files(parse_spec("socket:2 core:2 smt:2"))
    files |= {path: "-1\n" for path in files if path.endswith("physical_package_id")}
    files |= {p: files[p.replace("core_siblings", "thread_siblings")] for p in files if "core_siblings" in p}
    seen = found(files)
    assert seen.socket_masks == seen.numa_masks == ((0, 0b00110011), (1, 0b11001100))
    assert "each NUMA node taken for a socket" in seen.notes[0]


def test_a_package_for_every_cpu_is_believed():
    """As a loongarch guest has it: nothing contradicts it."""
    seen = found(sysfs.files(parse_spec("socket:32")))
    assert len(seen.socket_masks) == 32
    assert seen.notes == ()


def test_equal_package_ids_in_different_packages_are_numbered():
    files = sysfs.files(parse_spec("socket:2 core:2"))
    files |= {path: "0\n" for path in files if path.endswith("physical_package_id")}
    assert found(files).socket_masks == ((0, 0b0011), (1, 0b1100))


def test_without_numa_there_is_one_node_with_all_memory():
    files = sysfs.without(sysfs.files(parse_spec("socket:2 core:2 mem:1G")), NODE)
    files["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "7\n"
    (node,) = found(files).nodes
    assert (node.id, str(node.cpus), node.memory, node.hugepages) == (0, "0-3", 2 << 30, {2048: 7})


def test_a_missing_node_directory_sends_its_cpus_to_their_sockets_other_node():
    files = sysfs.without(sysfs.files(parse_spec("socket:2 numa:2 core:1")), f"{NODE}/node3/")
    seen = found(files)
    assert seen.cpu(3).numa == 2
    assert [node.id for node in seen.nodes] == [0, 1, 2]
    assert "CPU 3 is listed in no NUMA node: put into node 2" in seen.notes
    assert seen.node(0).distances == {0: 10, 1: 20, 2: 20}, "a row of four cannot be told apart"


def test_cpus_in_several_nodes_belong_to_the_lowest():
    files = sysfs.files(parse_spec("socket:2 core:2"))
    files |= {
        f"{NODE}/node{n}/{name}": text
        for n in (0, 1)
        for name, text in (("cpulist", "0-3\n"), ("cpumap", "f\n"))
    }
    seen = found(files)
    assert seen.numa_masks == ((0, 0b1111),)
    assert seen.node(1).cpus == CPUSet()
    assert "CPUs 0-3 are listed in several NUMA nodes" in seen.notes[0]


def test_nodes_without_cpus_keep_memory_hugepages_and_distances():
    machine = parse_spec("core:2 mem:1G")
    extra = replace(machine.node(0), id=4, cpus=CPUSet(), hugepages={1048576: 3}, distances={0: 17, 4: 10})
    machine = replace(machine, nodes=(replace(machine.node(0), distances={0: 10, 4: 17}), extra))
    seen = found(sysfs.files(machine))
    assert seen.nodes == machine.nodes
    assert seen.numa_masks == ((0, 0b11),), "only nodes with CPUs"


def test_siblings_in_different_places_stay_one_core():
    files = sysfs.files(parse_spec("numa:2 core:2"))
    files |= {path: "0-3\n" for path in files if path.endswith("thread_siblings_list")}
    seen = found(files)
    assert seen.core_masks == ((0, 0b1111),)
    assert {cpu.numa for cpu in seen.cpus} == {0}
    assert "SMT siblings lie in different NUMA nodes" in seen.notes[0]


def test_l3_ids_that_repeat_give_way_to_the_lowest_cpu():
    files = sysfs.files(parse_spec("l3:2 core:2"))
    files |= {path: "0\n" for path in files if path.endswith("index3/id")}
    assert found(files).l3_masks == ((0, 0b0011), (2, 0b1100))


def test_cpus_without_l3_beside_others_get_a_domain_of_their_own():
    files = sysfs.without(sysfs.files(parse_spec("l3:2 core:2")), "cpu2/cache/index3", "cpu3/cache/index3")
    assert found(files).l3_masks == ((0, 0b0011), (1, 0b1100))


def test_the_l3_need_not_be_index3():
    files = {path.replace("index3", "index7"): text for path, text in sysfs.files(parse_spec(SPEC)).items()}
    assert found(files).l3_masks == parse_spec(SPEC).l3_masks


@pytest.mark.parametrize(
    ("attribute", "values", "kinds"),
    [
        ("max_khz", (5200000, 5000000, 3900000, 3900000), "PPEE"),
        ("max_khz", (5700000, 5450000, 5200000, 5000000), ["", "", "", ""]),
        ("capacity", (1024, 760, 250, 250), "PMEE"),
        ("max_khz", (5200000, 5000000, 3900000, 0), ["", "", "", ""]),
    ],
)
def test_kinds_of_cores_follow_capacity_or_frequency(attribute, values, kinds):
    machine = parse_spec("core:4")
    cpus = tuple(replace(cpu, **{attribute: values[cpu.id]}) for cpu in machine.cpus)
    assert [cpu.kind for cpu in found(sysfs.files(replace(machine, cpus=cpus))).cpus] == list(kinds)


def test_intels_hybrid_units_decide_the_kind():
    files = sysfs.files(parse_spec("core:4"))
    files |= {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"}
    assert [cpu.kind for cpu in found(files).cpus] == ["P", "P", "E", "E"]


@pytest.mark.parametrize(
    ("cmdline", "isolated", "nohz_full", "managed"),
    [
        ("quiet isolcpus=2-3 nohz_full=3", "2-3", "3", ""),
        ("isolcpus=managed_irq,domain,1-3", "1-3", "", "1-3"),
        ("isolcpus=managed_irq,2", "", "", "2"),
        ("isolcpus=nohz,2 nohz_full=0-N:1/2", "", "0,2", ""),
        ("isolcpus=1,3-9 nohz_full=all", "1,3", "0-3", ""),
        ("isolcpus=bogus-list nohz_full=", "", "", ""),
    ],
)
def test_the_command_line_tells_what_old_kernels_do_not(cmdline, isolated, nohz_full, managed):
    seen = found({**sysfs.files(parse_spec("core:4")), "proc/cmdline": f"{cmdline}\n"})
    assert [str(s) for s in (seen.isolated, seen.nohz_full, seen.managed_irq)] == [
        isolated,
        nohz_full,
        managed,
    ]


def test_the_kernels_lists_come_before_its_command_line():
    files = {**sysfs.files(parse_spec("core:4")), "proc/cmdline": "isolcpus=1 nohz_full=1"}
    files |= {f"{CPU}/isolated": "2-3\n", f"{CPU}/nohz_full": "  (null)\n"}
    assert (str(found(files).isolated), str(found(files).nohz_full)) == ("2-3", "1")


def test_devices_have_a_kind_a_node_and_near_cpus_and_the_chipset_is_left_out():
    files = sysfs.files(parse_spec("socket:2 core:2"))
    for address, pci_class, node, cpus in (
        ("0000:00:00.0", "0x060000", "0", "0-3"),
        ("0000:3b:00.0", "0x020000", "1", "2-3"),
        ("0000:5e:00.0", "0x010802", "-1", "0-1"),
        ("0000:af:00.0", "0x020700", "-1", "0-3"),
        ("0000:b0:00.0", "garbage", "0", "0-3"),
    ):
        where = f"sys/bus/pci/devices/{address}"
        files |= {f"{where}/class": pci_class, f"{where}/numa_node": node, f"{where}/local_cpulist": cpus}
    seen = {
        device.address: (device.kind, device.numa, str(device.local_cpus)) for device in found(files).devices
    }
    assert seen == {
        "0000:3b:00.0": ("network", 1, "2-3"),
        "0000:5e:00.0": ("storage", 0, "0-1"),
        "0000:af:00.0": ("infiniband", None, "0-3"),
    }


def test_interrupts_that_nobody_may_move_are_the_managed_ones():
    files = sysfs.files(parse_spec("core:4"))
    files |= {
        "proc/irq/40/smp_affinity_list": "0-3\n",
        "proc/irq/41/smp_affinity_list": "2-3\n",
        "proc/irq/41/effective_affinity_list": "2\n",
        "proc/irq/41/nvme0q2/x": "",
        "proc/irq/default_smp_affinity": "f\n",
    }
    (irq,) = found(files, modes={"irq/41/smp_affinity_list": 0o444}).irqs
    assert (irq.number, str(irq.cpus), irq.name) == (41, "2", "nvme0q2")


def test_no_cpu_at_all_is_an_error_that_says_what_to_give():
    with pytest.raises(MachineError, match="here: no CPUs under devices/system/cpu; give a directory"):
        found({"sys/devices/system/cpu/online": "0-3"})


NASTY = st.sampled_from(
    ["", "\0", "(null)", "-1", "65535", "0-", "x", "99999999999999999999", "0-1048575", "ffffffff", "3-1"]
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_files_say_there_is_a_machine_and_never_a_traceback(data):
    """Any file may be missing or hold nonsense; what comes out must still be consistent."""
    files = sysfs.files(parse_spec("socket:2 numa:1 core:2 smt:2"))
    for path in data.draw(st.sets(st.sampled_from(sorted(files)), max_size=30)):
        files[path] = data.draw(NASTY)
    for path in data.draw(st.sets(st.sampled_from(sorted(files)), max_size=30)):
        del files[path]
    try:
        seen = found(files)
    except MachineError:
        return
    assert seen.cpus_mask == seen.online.mask
    nodes = CPUSet()
    for node in seen.nodes:
        assert nodes.isdisjoint(node.cpus)
        nodes |= node.cpus
    assert nodes == seen.online
    for _, mask in seen.core_masks:
        places = {(cpu.socket, cpu.numa, cpu.l3) for cpu in seen.cpus if mask >> cpu.id & 1}
        assert len(places) == 1


def test_this_machine_is_discovered_with_what_we_may_use():
    machine = live()
    assert machine.usable == CPUSet(os.sched_getaffinity(0)) & machine.online
    assert machine.usable
    assert machine.nodes[0].memory > 0
    assert sum(mask.bit_count() for _, mask in machine.core_masks) == len(machine.online)


def test_a_machine_of_256_cpus_is_read_from_a_directory(tmp_path):
    machine = parse_spec("socket:2 numa:4 core:16 smt:2")
    root = sysfs.write(tmp_path, sysfs.files(machine))
    seen = discover(Directory(f"{root}/sys"), Directory(f"{root}/proc"), name="m", source="here")
    assert same_but_names(seen, machine)


@pytest.mark.parametrize(("spec", "memory"), [("core:2", [24 << 30]), ("numa:2 core:2", [3 << 30, 3 << 30])])
def test_memory_that_no_numa_node_counts_is_noted_and_a_single_node_has_it(spec, memory):
    machine = parse_spec(spec)
    share = (6 << 30) // len(machine.nodes)
    nodes = tuple(replace(node, memory=share) for node in machine.nodes)
    files = sysfs.files(replace(machine, nodes=nodes)) | {"proc/meminfo": f"MemTotal: {24 << 20} kB\n"}
    seen = found(files)
    assert [node.memory for node in seen.nodes] == memory
    assert "/proc/meminfo reports 24576 MiB of memory, the NUMA nodes 6144 MiB" in seen.notes[0]
    smaller = found(files | {"proc/meminfo": f"MemTotal: {1 << 20} kB\n"})
    assert ([node.memory for node in smaller.nodes], smaller.notes) == ([share] * len(nodes), ())
