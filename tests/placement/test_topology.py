"""A machine's units are those that a live kubelet would see on it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from corelane.kernel.archive import read_archive
from corelane.machine.model import from_rows
from corelane.machine.sources import load
from corelane.placement import topology
from support import cadvisor
from support.snapshots import SNAPSHOTS, needs_snapshots
from support.sysfs import groups

SYSTEM = re.compile(r"(^|/)sys/devices/system/(cpu|node)/")
UNITS = ("core", "socket", "numa", "uncore")
APART = {
    "16ia64-8n2s": ({"core", "socket", "uncore"}, "cores without ids: a kubelet does not see them"),
    "256ppc-8n8s4t": ({"socket", "uncore"}, "package ids of -1: a kubelet sees one socket, -1"),
    "2i386-2c-nohugepage": (set(UNITS), "no NUMA nodes: a kubelet takes each socket for one"),
    "20s390-2g6s4c": (set(UNITS), "no NUMA nodes: a kubelet takes each socket for one"),
    "4fake-4gr1nu1pu": (set(UNITS), "no topology: a kubelet sees no CPU"),
    "64amd64-4s2n4ca2co": ({"core"}, "core ids repeat in a socket: a kubelet merges cores"),
    "8em64t-2s2ca2c-buggynuma": ({"numa"}, "CPUs in several nodes: a kubelet takes the last"),
    "fakeheterocpunuma": (set(UNITS), "CPUs in no node: a kubelet does not see them"),
    "fakememinitiators-1np2c+1npp+gi": ({"core"}, "core ids are no siblings'"),
    "offline-cpu0-node0": (set(UNITS), "CPUs in no node: a kubelet does not see them"),
}
"""Where firmware lies, units that make sense are worth more than those of the kubelet."""


@needs_snapshots
@pytest.mark.parametrize("source", SNAPSHOTS)
def test_units_are_a_kubelets(source):
    path, _, root = source.partition("#")
    archive = read_archive(Path(path), lambda name: SYSTEM.search(name) is not None)
    (found,) = [d for d in archive.directories("sys/devices/system/cpu") if d.startswith(root)]
    theirs = cadvisor.rows(archive.under(found.removesuffix("/cpu")))
    machine = load(source)
    built = topology.from_machine(machine)
    ours = [(c.id, c.core, c.socket, c.numa, unit(built.uncore, c.id)) for c in machine.cpus]
    columns = enumerate(UNITS, 1)
    different = {name for column, name in columns if grouped(ours, column) != grouped(theirs, column)}
    assert different == APART.get(Path(path).name.partition(".tar")[0], (set(), ""))[0]
    if not different:
        assert [row[:4] for row in ours] == [row[:4] for row in theirs]


def grouped(rows, column):
    return groups((row[0], row[column]) for row in rows)


def unit(masks, cpu):
    return next(i for i, mask in enumerate(masks) if mask >> cpu & 1)


def caches(machine):
    return [mask.bit_count() for mask in topology.from_machine(machine).uncore]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("socket:2 numa:1 core:8 smt:2", [16, 16]),
        ("socket:2 numa:4 core:8 smt:2", [64, 64]),
        ("socket:2 numa:2 l3:2 core:4 smt:2", [8] * 8),
    ],
)
def test_an_l3_that_is_the_numa_node_is_no_uncore_cache_and_its_cores_go_by_socket(spec, expected):
    assert caches(load(spec)) == expected


def test_rows_tell_the_uncore_caches_themselves():
    rows = [(cpu, cpu, 0, cpu // 4, cpu // 4) for cpu in range(8)]
    assert caches(from_rows("rows", rows)) == [4, 4]


@pytest.mark.parametrize("core_id", [-1, 1 << 16])
def test_cores_stay_apart_where_their_numbers_would_make_one_of_them(core_id):
    machine = from_rows("odd", [(0, 0, 0, 0, 0), (1, 0, 1, 1, 1)])
    odd = (replace(machine.cpus[0], core_id=core_id), replace(machine.cpus[1], core_id=core_id % (1 << 16)))
    built = topology.from_machine(replace(machine, cpus=odd))
    assert built.cores_of(built.all) == 0b11
