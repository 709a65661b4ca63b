"""Every snapshot of a real machine is grouped as `lscpu --sysroot` groups it, but where that is not sane."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from corelane.kernel.archive import read_archive
from corelane.machine import MachineError
from corelane.machine.sources import load
from support.snapshots import DATA, NO_MACHINE, SNAPSHOTS, needs_snapshots
from support.sysfs import groups

NEEDED = re.compile(
    r"(^|/)(sys/devices/system/(cpu/([a-z]+|cpu[0-9]+/topology/.*)|node/node[0-9]+/cpu(map|list))|proc/cpuinfo)$"
)

KEPT_APART = {
    "256ppc-8n8s4t": {"socket": "package ids of -1 and a core a package: the NUMA nodes are the sockets"},
    "40intel64-4n10c+pci-conflicts": {"socket": "CPU 3's core_siblings contradicts its core_siblings_list"},
    "4fake-4gr1nu1pu": {"core": "no topology at all: lscpu names no core"},
    "fakeheterocpunuma": {"numa": "CPUs 4-7 in no node: lscpu leaves them out"},
    "fakememinitiators-1np2c+1npp+gi": {
        "core": "only core_cpus, which lscpu 2.38 does not read",
        "socket": "only package_cpus, which lscpu 2.38 does not read",
    },
    "offline-cpu0-node0": {"numa": "node 0 is offline: its CPUs are in no node"},
}


@needs_snapshots
@pytest.mark.skipif(not shutil.which("lscpu"), reason="needs lscpu (util-linux)")
@pytest.mark.parametrize("source", SNAPSHOTS)
def test_grouping_is_that_of_lscpu(source, tmp_path):
    machine = load(source)
    path, _, root = source.partition("#")
    told = lscpu(unpack(path, root, tmp_path), machine)
    accepted = KEPT_APART.get(Path(path).name.partition(".tar")[0], {})
    for column, unit in enumerate(("core", "socket", "numa"), 1):
        theirs = groups((row[0], row[column]) for row in told)
        ours = groups((cpu.id, getattr(cpu, unit)) for cpu in machine.cpus)
        assert (ours != theirs) == (unit in accepted), f"{unit}: {accepted.get(unit)}"


def unpack(path, root, to):
    """What lscpu needs of a snapshot."""
    archive = read_archive(path, lambda name: NEEDED.search(name) is not None)
    (found,) = [d for d in archive.directories("sys/devices/system/cpu") if d.startswith(root)]
    prefix = found.removesuffix("sys/devices/system/cpu")
    for name, data in archive.contents.files.items():
        if name.startswith(prefix):
            file = to / name.removeprefix(prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return to


def lscpu(root, machine):
    """What it says, with the files made up that it insists on and the snapshot lacks."""
    cpu_dir, cpuinfo = root / "sys/devices/system/cpu", root / "proc/cpuinfo"
    known = machine.online | machine.offline
    for name, text in (
        (cpu_dir / "possible", f"0-{max(known)}"),
        (cpu_dir / "present", str(known)),
        (cpu_dir / "online", str(machine.online)),
        (cpuinfo, "".join(f"processor\t: {cpu}\nvendor_id\t: x\n\n" for cpu in known)),
    ):
        if not name.exists():
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(f"{text}\n")
    columns = ["lscpu", "--sysroot", root, "-p=CPU,CORE,SOCKET,NODE"]
    told = subprocess.run(columns, capture_output=True, text=True, check=True, timeout=180).stdout
    return [[int(cell or -1) for cell in line.split(",")] for line in told.splitlines() if line[0] != "#"]


@needs_snapshots
@pytest.mark.parametrize(
    ("name", "cpus", "cores", "sockets", "nodes", "l3", "kinds"),
    [
        ("hwloc-sysfs/128arm-2pa2n8cluster4co.tar.bz2", 128, 128, 2, 4, 4, ""),
        ("hwloc-sysfs/256ppc-8n8s4t.tar.bz2", 256, 64, 8, 8, 64, ""),
        ("hwloc-sysfs/256ia64-64n2s2c.tar.bz2", 256, 256, 128, 64, 128, ""),
        ("hwloc-sysfs/96em64t-4no4pa3ca2co.tar.bz2", 96, 96, 16, 4, 16, ""),
        ("hwloc-sysfs/memorysidecaches.tar.bz2", 80, 40, 2, 4, 2, ""),
        ("hwloc-sysfs/fakememinitiators-1np2c+1npp+gi.tar.bz2", 8, 8, 2, 11, 2, ""),
        ("hwloc-sysfs/nvidiagpunumanodes.tar.bz2", 32, 8, 2, 8, 4, ""),
        ("hwloc-sysfs/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2", 20, 14, 1, 1, 1, "PE"),
        ("hwloc-sysfs/20s390-2g6s4c.tar.bz2", 20, 20, 8, 1, 8, ""),
        ("hwloc-sysfs/2i386-2c-nohugepage.tar.bz2", 2, 2, 1, 1, 1, ""),
        ("nri-plugins-sysfs/pkg_sysfs_test-data-sample2.tar.xz", 112, 56, 2, 8, 2, ""),
        ("nri-plugins-sysfs/pkg_sysfs_test-data-sample1.tar.xz", 16, 12, 1, 1, 1, "PE"),
        ("ghw-snapshots/linux-amd64-61797caf7c0b6bca1725ad7975ed4773.tar.gz", 12, 6, 1, 1, 2, ""),
    ],
)
def test_known_machines_have_their_known_shape(name, cpus, cores, sockets, nodes, l3, kinds):
    machine = load(str(DATA / name))
    tables = (machine.cpus, machine.core_masks, machine.socket_masks, machine.nodes, machine.l3_masks)
    assert [len(table) for table in tables] == [cpus, cores, sockets, nodes, l3]
    assert {cpu.kind for cpu in machine.cpus} == (set(kinds) or {""})
    assert sum(node.memory for node in machine.nodes) > 1 << 30 or name.startswith("ghw")


@needs_snapshots
def test_offline_isolated_clusters_and_devices_are_found_in_snapshots():
    assert str(load(str(DATA / "ghw-snapshots/linux-amd64-offlineCPUs.tar.gz")).offline) == "2-3"
    server = load(str(DATA / "nri-plugins-sysfs/pkg_sysfs_test-data-sample2.tar.xz"))
    assert str(server.isolated) == "4-7,60-63"
    arm = load(str(DATA / "hwloc-sysfs/128arm-2pa2n8cluster4co.tar.bz2"))
    assert len({cpu.cluster for cpu in arm.cpus}) == 32
    xeon = load(str(DATA / "hwloc-sysfs/32intel64-2p8co2t+8ve.tar.bz2"))
    assert {(d.kind, d.numa) for d in xeon.devices} >= {("infiniband", 0), ("co-processor", 0)}


@needs_snapshots
def test_an_archive_without_a_machine_says_what_a_machine_is():
    with pytest.raises(MachineError, match="no sys/devices/system/cpu in it; a machine is a spec"):
        load(str(DATA / "nri-plugins-sysfs" / NO_MACHINE))
