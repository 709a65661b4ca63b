"""A machine from sysfs and procfs: live, or a copy of them in a directory or an archive.

Kernel ABI: ABI/stable/sysfs-devices-system-cpu and -node, admin-guide/cputopology in its Documentation.
Firmware and old kernels give wrong values or none; docs/machines.md lists the substitutes.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from corelane.cpuset import CPUSet, bits, named, verb
from corelane.kernel.files import Directory, Tree
from corelane.machine.model import CPU, Machine, core_kinds, crossings
from corelane.machine.sysfs_nodes import (
    CPU_DIR,
    RawNode,
    build_nodes,
    numbered,
    read_int,
    read_irqs,
    read_list,
    read_mask,
    read_nodes,
    read_pci,
    read_states,
)


def live() -> Machine:
    """This machine. `allowed` is this process's affinity, which the kernel keeps within our cpuset."""
    allowed = CPUSet(os.sched_getaffinity(0)).mask
    name = os.uname().nodename
    return discover(
        Directory("/sys"), Directory("/proc"), name=name, source="/sys and /proc", allowed=allowed
    )


def discover(sys: Tree, proc: Tree, *, name: str, source: str, allowed: int | None = None) -> Machine:
    """The machine that these trees describe; every CPU is `allowed` unless a mask says otherwise.

    Raises MachineError when no CPU is to be found; anything less becomes a note in the machine.
    """
    notes: list[str] = []
    state = read_states(sys, proc, source, notes, allowed or 0)
    raw_nodes = read_nodes(sys, proc, notes)
    cpus = read_cpus(sys, state.online, raw_nodes, notes)
    notes += crossings(cpus)
    return Machine(
        name=name,
        cpus=cpus,
        nodes=build_nodes(raw_nodes, cpus),
        online=CPUSet.from_mask(state.online),
        offline=CPUSet.from_mask(state.offline),
        allowed=CPUSet.from_mask(state.online if allowed is None else allowed),
        isolated=CPUSet.from_mask(state.isolated),
        nohz_full=CPUSet.from_mask(state.nohz_full),
        managed_irq=CPUSet.from_mask(state.managed_irq),
        devices=read_pci(sys, cpus),
        irqs=read_irqs(proc),
        notes=tuple(notes),
        source=source,
    )


def partition(mask: int, mates: Callable[[int], int]) -> list[int]:
    """Disjoint groups covering `mask`, each as its lowest CPU lists it.

    A CPU that is listed twice stays in the first group.
    """
    groups = []
    while mask:
        low = mask & -mask
        group = mates(low.bit_length() - 1) & mask | low
        groups.append(group)
        mask &= ~group
    return groups


def core_groups(sys: Tree, online: int) -> list[int]:
    """The masks of SMT siblings; without masks or ids every CPU is a core of its own."""
    files = ("thread_siblings_list", "thread_siblings", "core_cpus_list", "core_cpus")
    return _siblings(sys, online, files, ("physical_package_id", "core_id"), default=0)


def package_groups(sys: Tree, online: int) -> list[int]:
    """The masks of sockets; without masks or ids there is one."""
    files = ("core_siblings_list", "core_siblings", "package_cpus_list", "package_cpus")
    return _siblings(sys, online, files, ("physical_package_id",), default=online)


def _siblings(sys: Tree, online: int, files: Sequence[str], ids: Sequence[str], default: int) -> list[int]:
    same_ids: dict[tuple[int | None, ...], int] = {}

    def mates(cpu: int) -> int:
        where = f"{CPU_DIR}/cpu{cpu}/topology"
        mask = read_mask(sys, *(f"{where}/{file}" for file in files), holding=1 << cpu)
        if mask is not None:
            return mask
        if not same_ids:
            same_ids.update(_by_ids(sys, online, ids))
        return next(
            (group for key, group in same_ids.items() if group >> cpu & 1 and None not in key), default
        )

    return partition(online, mates)


def _by_ids(sys: Tree, online: int, names: Sequence[str]) -> dict[tuple[int | None, ...], int]:
    groups: dict[tuple[int | None, ...], int] = {}
    for cpu in bits(online):
        key = tuple(read_int(sys, f"{CPU_DIR}/cpu{cpu}/topology/{name}") for name in names)
        groups[key] = groups.get(key, 0) | 1 << cpu
    return groups


def numa_ids(
    nodes: Sequence[RawNode], online: int, packages: Sequence[int], notes: list[str]
) -> dict[int, int]:
    """The NUMA node of every CPU: the first that names it, else one of its socket's, else the lowest node."""
    place: dict[int, int] = {}
    contested = 0
    for node in nodes:
        for cpu in bits(node.mask & online):
            contested |= (cpu in place) << cpu
            place.setdefault(cpu, node.id)
    if contested:
        these = f"{named(contested)} {verb(contested)}"
        notes.append(f"{these} listed in several NUMA nodes: the lowest node taken")
    _place_orphans(place, online, packages, nodes[0].id, notes)
    return place


def _place_orphans(
    place: dict[int, int], online: int, packages: Sequence[int], lowest: int, notes: list[str]
) -> None:
    orphans = [cpu for cpu in bits(online) if cpu not in place]
    homes = {
        cpu: [place[mate] for mate in bits(group) if mate in place]
        for group in packages
        for cpu in bits(group)
    }
    fallback = min(place.values(), default=lowest)
    for cpu in orphans:
        place[cpu] = min(homes[cpu], default=fallback)
    if orphans:
        cpus = sum(1 << cpu for cpu in orphans)
        to = ",".join(str(node) for node in sorted({place[cpu] for cpu in orphans}))
        notes.append(f"{named(cpus)} {verb(cpus)} listed in no NUMA node: put into node {to}")


def socket_ids(
    sys: Tree, packages: Sequence[int], cores: int, numa: Mapping[int, int], notes: list[str]
) -> dict[int, int]:
    """The socket of every CPU: the physical package id where the kernel has distinct ones.

    Where it has none and takes every core for a package (POWER), a NUMA node is a socket; else packages are
    numbered in order of their lowest CPU.
    """
    ids = [read_int(sys, f"{CPU_DIR}/cpu{_lowest(group)}/topology/physical_package_id") for group in packages]
    if len(set(ids)) == len(ids) and all(socket is not None and socket >= 0 for socket in ids):
        return {cpu: socket or 0 for group, socket in zip(packages, ids, strict=True) for cpu in bits(group)}
    unknown = all(socket is None or socket < 0 for socket in ids)
    if unknown and len(packages) == cores > len(set(numa.values())):
        notes.append("physical package ids are unknown: each NUMA node taken for a socket")
        return dict(numa)
    if len(packages) > 1 or not unknown:
        notes.append("physical package ids are unknown or not distinct: sockets numbered by their lowest CPU")
    return {cpu: index for index, group in enumerate(packages) for cpu in bits(group)}


def l3_ids(sys: Tree, online: int, sockets: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """The L3 domain of every CPU: the kernel's cache id; where ids are not distinct, its lowest CPU.

    On a machine without L3 it is the socket's id, as in the kubelet; CPUs without one beside others with one
    get an id a socket, above all others. The second answer are the CPUs whose cache has another id in the
    kubelet: the kernel's own, or without one the socket's.
    """
    caches: dict[int, int | None] = {}

    def mates(cpu: int) -> int:
        where = _l3_dir(sys, cpu)
        if where is None:
            return 0
        caches[cpu] = read_int(sys, f"{where}/id")
        return read_mask(sys, f"{where}/shared_cpu_list", f"{where}/shared_cpu_map", holding=1 << cpu) or 0

    domains = partition(online, mates)
    if not caches:
        return dict(sockets), {}
    ids = _cache_ids(caches)
    above = max(ids.values()) + 1
    first = {cpu: _lowest(group) for group in domains for cpu in bits(group)}
    ours = {cpu: ids.get(lowest, above + sockets[cpu]) for cpu, lowest in first.items()}
    kernels = {cpu: caches.get(lowest) for cpu, lowest in first.items()}
    theirs = {cpu: sockets[cpu] if own is None else own for cpu, own in kernels.items()}
    return ours, {cpu: own for cpu, own in theirs.items() if own != ours[cpu]}


def _cache_ids(caches: Mapping[int, int | None]) -> dict[int, int]:
    """By a domain's lowest CPU."""
    cache_by_cpu = {cpu: cache for cpu, cache in caches.items() if cache is not None and cache >= 0}
    return cache_by_cpu if len(set(cache_by_cpu.values())) == len(caches) else {cpu: cpu for cpu in caches}


def _l3_dir(sys: Tree, cpu: int) -> str | None:
    """Almost always index3, the fourth of four caches; the others are asked only when it is not."""
    where = f"{CPU_DIR}/cpu{cpu}/cache"
    if read_int(sys, f"{where}/index3/level") == 3:
        return f"{where}/index3"
    paths = (f"{where}/index{index}" for index in numbered(sys.names(where), "index"))
    return next((path for path in paths if read_int(sys, f"{path}/level") == 3), None)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


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


def read_cpus(sys: Tree, online: int, nodes: Sequence[RawNode], notes: list[str]) -> tuple[CPU, ...]:
    """The online CPUs; what had to be assumed is added to `notes`."""
    cores = [_read_core(sys, mask) for mask in core_groups(sys, online)]
    packages = package_groups(sys, online)
    numa = numa_ids(nodes, online, packages, notes)
    sockets = socket_ids(sys, packages, len(cores), numa, notes)
    l3, uncore = l3_ids(sys, online, sockets)
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
    by_capacity = core_kinds({core.first: core.capacity for core in cores})
    return (
        by_capacity if any(by_capacity.values()) else core_kinds({core.first: core.max_khz for core in cores})
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
