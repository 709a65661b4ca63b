"""CPUs and their place: core, cluster, die, socket, L3 domain and NUMA node.

Sibling masks decide who belongs together, as in lscpu; ids only name the groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.cpuset import bits
from corelane.kernel.files import Tree
from corelane.machine import kinds
from corelane.machine.model import CPU
from corelane.machine.sysfs import groups
from corelane.machine.sysfs.nodes import RawNode
from corelane.machine.sysfs.states import CPU_DIR
from corelane.machine.sysfs.values import read_int, read_list, read_mask

__all__ = ["read"]

_NO_DIE = (None, -1, 0xFFFF)
_HYBRID_PMUS = (("P", "cpu_core"), ("E", "cpu_atom"), ("E", "cpu_lowpower"))


@dataclass(frozen=True, slots=True)
class _Core:
    """A core's own facts, read from its first CPU."""

    mask: int
    first: int
    core_id: int
    die: int
    cluster: int
    max_khz: int
    capacity: int


def read(sys: Tree, online: int, nodes: Sequence[RawNode], notes: list[str]) -> tuple[CPU, ...]:
    """The online CPUs; what had to be assumed is added to `notes`."""
    cores = [_read_core(sys, mask) for mask in groups.cores(sys, online)]
    packages = groups.packages(sys, online)
    numa = groups.numa(nodes, online, packages, notes)
    sockets = groups.sockets(sys, packages, len(cores), numa, notes)
    l3, uncore = groups.l3(sys, online, sockets)
    kind = _kinds(sys, cores, online)
    cpus = [_cpu(cpu, core, sockets, l3, uncore, numa, kind) for core in cores for cpu in bits(core.mask)]
    _note_split_cores(cores, sockets, numa, notes)
    return tuple(sorted(cpus, key=lambda cpu: cpu.id))


def _read_core(sys: Tree, mask: int) -> _Core:
    first = (mask & -mask).bit_length() - 1
    where = f"{CPU_DIR}/cpu{first}"
    core_id = read_int(sys, f"{where}/topology/core_id")
    die = read_int(sys, f"{where}/topology/die_id")
    cluster = read_mask(
        sys, f"{where}/topology/cluster_cpus_list", f"{where}/topology/cluster_cpus", holding=mask
    )
    return _Core(
        mask,
        first,
        first if core_id is None else core_id,
        0 if die is None or die in _NO_DIE else die,
        (cluster & -cluster).bit_length() - 1 if cluster else first,
        read_int(sys, f"{where}/cpufreq/cpuinfo_max_freq") or 0,
        read_int(sys, f"{where}/cpu_capacity") or 0,
    )


def _kinds(sys: Tree, cores: Sequence[_Core], online: int) -> Mapping[int, str]:
    """By core: as the kernel's hybrid PMUs say (Intel), else by capacity (Arm), else by maximum frequency."""
    pmus = [(kind, (read_list(sys, f"devices/{pmu}/cpus") or 0) & online) for kind, pmu in _HYBRID_PMUS]
    if len({kind for kind, mask in pmus if mask}) > 1 and sum(mask for _, mask in pmus) == online:
        return {core.first: kind for core in cores for kind, mask in pmus if mask >> core.first & 1}
    by_capacity = kinds.by_value({core.first: core.capacity for core in cores})
    return (
        by_capacity
        if any(by_capacity.values())
        else kinds.by_value({core.first: core.max_khz for core in cores})
    )


def _cpu(
    cpu: int,
    core: _Core,
    sockets: Mapping[int, int],
    l3: Mapping[int, int],
    uncore: Mapping[int, int],
    numa: Mapping[int, int],
    kind: Mapping[int, str],
) -> CPU:
    """A CPU has the place of its core's first CPU, so that a core never lies in two places."""
    first = core.first
    return CPU(
        id=cpu,
        core=first,
        core_id=core.core_id,
        socket=sockets[first],
        die=core.die,
        cluster=core.cluster,
        l3=l3[first],
        numa=numa[first],
        kind=kind[first],
        max_khz=core.max_khz,
        capacity=core.capacity,
        uncore=uncore.get(first),
    )


def _note_split_cores(
    cores: Sequence[_Core], sockets: Mapping[int, int], numa: Mapping[int, int], notes: list[str]
) -> None:
    for unit, place in (("sockets", sockets), ("NUMA nodes", numa)):
        split = [core.first for core in cores if len({place[cpu] for cpu in bits(core.mask)}) > 1]
        if split:
            notes.append(
                f"SMT siblings lie in different {unit}, first at CPU {split[0]}: each core kept whole"
            )
