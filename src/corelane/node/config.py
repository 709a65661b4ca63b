"""Settings of one node, the CPUs that they keep for the shared pool, and CPU amplification."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from corelane.cpuset import CPUSet, format_list, lowest, named, verb
from corelane.machine.model import Machine
from corelane.node.manager_options import MemoryOptions, NodeConfigError, StaticOptions, TopologyOptions
from corelane.placement import families
from corelane.placement.kubelet import picker
from corelane.placement.memory_blocks import MEMORY, hugepages, in_words
from corelane.placement.topology import Topology
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PodQOS
from corelane.workload.request import Amounts

_ONCE: Final = Fraction(1)
_NO_ZONES: Final[Mapping[int, Amounts]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KoordinatorOptions:
    """Settings of a node that is judged as by Koordinator's scheduler. CPU in milliCPU, others in units."""

    zones: Mapping[int, Amounts] = field(default_factory=lambda: _NO_ZONES)
    """NUMA node to what its zone offers: allocatable, less reserved CPUs, amplified. Empty where no zone is
    published."""
    amplification: Fraction = _ONCE
    """Of CPUs in `zones`."""
    allocatable: int = 0
    """MilliCPU allocatable on the node, where CPUs are amplified."""


Policy: TypeAlias = Literal["none", "static", "pools"]

Level: TypeAlias = Literal["node", "socket", "l3", "core"]
"""Parts of a machine that can be zones of its NodeResourceTopology."""

Inventory: TypeAlias = Mapping[str, Mapping[str, int]]
"""Extended resource to device ids to the NUMA nodes (a mask of ids) that each is near; 0 is unknown."""

_NO_DEVICES: Final[Inventory] = MappingProxyType({})


AllocatorName: TypeAlias = Literal["optimal", "koordinator"]
IsolatedCPUs: TypeAlias = Literal["ignore", "exclude", "exclusive-only"]


_BINDS: Final = (None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Settings of one node that count under policy `pools` alone."""

    allocator: AllocatorName = "optimal"
    guaranteed_default: PodQOS = PodQOS.LSR
    """Class of a Guaranteed pod without Koordinator's label: LSR, as users of the kubelet expect, or LS."""
    strict_requests: bool = False
    """LSE and LSR must have limits equal to their requests (the proposal's rule), not only a whole number of
    CPUs in all their containers together (upstream's)."""
    be_minimum: int = 1
    """Minimum CPUs of the BE pool: pods that would leave fewer are rejected."""
    isolated_cpus: IsolatedCPUs = "ignore"
    """Use of the kernel's isolated CPUs: as any other, none, or for exclusive CPUs only."""
    bind: BindPolicy | None = BindPolicy.FULL_PCPUS
    """For pods that do not say; None leaves those that do not on the shared pool, as upstream."""
    node_bind: BindPolicy | None = None
    """Bind policy that the node requires of all pods: FullPCPUs (FullPCPUsOnly) or SpreadByPCPUs."""
    strategy: NUMAStrategy | None = None
    """Which NUMA nodes come first. None: LeastAllocated for `koordinator`, no matter for `optimal`."""
    as_proposed: bool = False
    """`koordinator` distributes evenly, and falls back from NUMANodeLevel, as the proposal says and its code
    does not."""
    numa: NUMAPolicy | None = None
    """NUMAPolicy.NONE aligns nothing, whatever a scheduler's profile says; None leaves it to the profile."""
    withheld: CPUSet = field(default_factory=CPUSet)
    """CPUs that no pod uses (annotation `node.koordinator.sh/reservation`)."""
    withheld_offered: bool = False
    """Whether they count all the same in what pods may request (its applyPolicy ReservedCPUsOnly)."""
    withheld_memory: int = 0
    """Bytes of memory that pods may not request (its `resources`)."""
    system: CPUSet = field(default_factory=CPUSet)
    """Where SYSTEM pods run (annotation `node.koordinator.sh/system-qos-resource`); never bound by others."""
    system_exclusive: bool = True
    """Whether only SYSTEM pods run there."""
    amplification: Fraction = _ONCE
    """How many times a CPU counts in what the node offers; one that a pod is bound to is real and takes as
    much of it (annotation `node.koordinator.sh/resource-amplification-ratio`)."""
    profile: tuple[int, ...] = (2, 4, 8, 16)
    """The sizes of requests to come, for which `optimal` leaves room."""

    def closed(self, machine: Machine) -> int:
        """The CPUs that neither the shared pool nor best effort uses, as a mask."""
        mask = self.withheld.mask | (self.system.mask if self.system_exclusive else 0)
        return mask | (machine.isolated.mask if self.isolated_cpus != "ignore" else 0)

    def unbindable(self, machine: Machine) -> int:
        """The CPUs, beside reserved ones, that are never a container's own, as a mask."""
        mask = self.withheld.mask | self.system.mask
        return mask | (machine.isolated.mask if self.isolated_cpus == "exclude" else 0)

    def check(self, machine: Machine) -> None:
        """Raises NodeConfigError where the settings, each of which is valid, leave this machine no pool."""
        usable = machine.usable.mask
        if self.be_minimum > usable.bit_count():
            raise NodeConfigError(
                f"{self.be_minimum} is not between 0 and {usable.bit_count()}, the CPUs of this machine",
                "be_minimum",
            )
        if not usable & ~self.closed(machine):
            raise NodeConfigError(
                f"withheld {str(self.withheld)!r}, system {str(self.system)!r} and isolated_cpus "
                f"{self.isolated_cpus} leave none of {named(usable)} to the shared pool: "
                "leave it one"
            )

    def check_values(self) -> None:
        """Raises NodeConfigError where a setting makes no sense on any machine."""
        _word("allocator", self.allocator, get_args(AllocatorName))
        _word("guaranteed_default", self.guaranteed_default, (PodQOS.LSR, PodQOS.LS))
        _word("isolated_cpus", self.isolated_cpus, get_args(IsolatedCPUs))
        _word("bind", self.bind, _BINDS)
        _word("node_bind", self.node_bind, _BINDS)
        if self.be_minimum < 0:
            raise NodeConfigError(f"{self.be_minimum} is less than 0", "be_minimum")
        if self.amplification < 1:
            raise NodeConfigError(f"{self.amplification} is less than 1: leave it out", "amplification")
        if not self.profile or min(self.profile) < 1:
            sizes = ", ".join(map(str, self.profile)) or "nothing"
            raise NodeConfigError(f"{sizes}: name sizes of requests, each at least 1 CPU", "profile")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    `reserved` are the CPUs that never become exclusive. Without it, `reserved_count` of them are picked as
    the kubelet would; without that, max(1, ceil(5 %)).
    """

    policy: Policy = "static"
    reserved: CPUSet | None = None
    reserved_count: int | None = None
    options: StaticOptions = field(default_factory=StaticOptions)
    numa: TopologyOptions = field(default_factory=TopologyOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    devices: Inventory = field(default_factory=lambda: _NO_DEVICES)
    pod_level: bool = False
    """Gate PodLevelResourceManagers (KEP-5526, off by default): Guaranteed pods with resources as a whole
    get CPUs and memory of their own too, in pod scope as one piece that their containers share out."""
    pools: PoolOptions = field(default_factory=PoolOptions)
    zones: frozenset[Level] = frozenset({"node", "socket", "l3"})
    """Zones as the node publishes them; nothing is decided by it."""
    koordinator: KoordinatorOptions | None = None
    """Where Koordinator's scheduler decides, and no agent of corelane's."""
    exact: bool = False
    """Answer as the kubelet or Koordinator even where that empties the shared pool or, on hybrid machines,
    hands out a CPU twice; and leave the check of a node's capacity to others, as its CPU manager does."""

    def closed(self, machine: Machine) -> int:
        """Return the CPUs that are in no pool, though not allocated exclusively, as a mask."""
        return self.pools.closed(machine) if self.policy == "pools" else 0


def default_reserved_count(cpus: int) -> int:
    """max(1, ceil(5 %)) of a machine's CPUs."""
    return max(1, -(-cpus // 20))


def check(config: NodeConfig, topology: Topology, machine: Machine) -> None:
    """Raises NodeConfigError where the settings make no sense, or not on this machine."""
    if config.policy not in get_args(Policy):
        raise NodeConfigError(f"{config.policy!r} is unknown: use {' or '.join(get_args(Policy))}", "policy")
    config.numa.check(len(machine.nodes))
    config.options.check(topology, config.numa.policy)
    config.memory.check(machine)
    if not config.exact:
        _check_reserved_memory(config.memory, machine)
    check_devices(config.devices, config.numa, machine)
    cpus, count = topology.all.bit_count(), config.reserved_count
    if count is not None and not 1 <= count <= cpus:
        raise NodeConfigError(
            f"{count} is not between 1 and {cpus}, the CPUs of this machine", "reserved_count"
        )
    if config.reserved is not None:
        _check_reserved(config.reserved, count, topology.all)
    config.pools.check_values()
    if config.policy == "pools":
        config.pools.check(machine)
    elif config.options.strict_cpu_reservation and not config.exact:
        _check_strict(config, topology)


def _check_reserved_memory(options: MemoryOptions, machine: Machine) -> None:
    """Raises NodeConfigError where more is reserved than there is; memory of unknown size has room."""
    for node in machine.nodes if options.policy == "Static" else ():
        there = {MEMORY: node.memory} | {hugepages(kib): 1024 * kib * n for kib, n in node.hugepages.items()}
        for name, size in options.reserved.get(node.id, {}).items():
            if node.memory and size > there.get(name, 0):
                raise NodeConfigError(
                    f"NUMA node {node.id} has {in_words(there.get(name, 0))} of {name}, "
                    f"of which {in_words(size)} cannot be reserved",
                    "reserved_memory",
                )


def check_devices(inventory: Inventory, numa: TopologyOptions, machine: Machine) -> None:
    """Raises NodeConfigError for a device near a NUMA node that is not there, or where nodes are too many."""
    nodes = sum(1 << node.id for node in machine.nodes)
    for resource, devices in inventory.items():
        for device, near in devices.items():
            if gone := near & ~nodes:
                raise NodeConfigError(
                    f"{resource}: {device} is near NUMA node {format_list(gone)}, "
                    f"but this machine has {format_list(nodes)}",
                    "devices",
                )
    if inventory and numa.policy != "none" and nodes.bit_count() > families.MOST_NODES:
        raise NodeConfigError(
            f"{nodes.bit_count()} NUMA nodes are more than {families.MOST_NODES}, whose sets are "
            "too many to align devices over: use topology manager policy none",
            "devices",
        )


def _check_reserved(reserved: CPUSet, count: int | None, usable: int) -> None:
    if not reserved:
        raise NodeConfigError(
            "names no CPU, but the shared pool needs one: name one, or leave it out", "reserved"
        )
    if missing := reserved.mask & ~usable:
        raise NodeConfigError(
            f"{reserved}: {named(missing)} {verb(missing)} unavailable: choose from {format_list(usable)}",
            "reserved",
        )
    if count not in (None, len(reserved)):
        raise NodeConfigError(
            f"{count} contradicts reserved: {reserved}: leave one of them out", "reserved_count"
        )


def _check_strict(config: NodeConfig, topology: Topology) -> None:
    if _count(config, topology) >= topology.all.bit_count():
        raise NodeConfigError(
            f"strict-cpu-reservation: all CPUs ({format_list(topology.all)}) are reserved, which leaves none "
            "for containers: reserve fewer, or leave the option out"
        )


def pick(config: NodeConfig, topology: Topology, available: int, n: int, *, hinted: int = 0) -> int:
    """N of the `available` CPUs by the options' strategy, as a mask; `hinted` as in `kubelet.take`.

    Unless settings are exact, an answer of the kubelet's that would not do (see `NodeConfig.exact`) is
    replaced by that of the first release without the fault. Raises NotEnoughCPUs; with `exact`,
    AccountingError too.
    """
    strategy = config.options.strategy(topology)
    if config.exact:
        return picker.take(topology, available, n, strategy, hinted=hinted)
    return picker.take_valid(topology, available, n, strategy, hinted=hinted)


def reserve(config: NodeConfig, topology: Topology, exclusive: int = 0, current: int = 0) -> int:
    """The mask of CPUs to reserve while `exclusive` are in use: what settings ask for, as far as it is free.

    CPUs reserved already (`current`) stay so, unless the settings name others. Where reserved CPUs are not
    part of the shared pool, one CPU is left to it.
    """
    free = topology.all & ~exclusive
    strict = config.options.strict_cpu_reservation and config.policy != "pools"
    most = free.bit_count() - (strict and not config.exact)
    if config.reserved is not None and (named := config.reserved.mask & free):
        return lowest(named, most)
    count = min(_count(config, topology), most)
    current &= free
    missing = count - current.bit_count()
    if missing > 0:
        return current | pick(config, topology, free & ~current, missing)
    return pick(config, topology, current, count) if missing else current


def _count(config: NodeConfig, topology: Topology) -> int:
    if config.reserved is not None:
        return len(config.reserved)
    if config.reserved_count is not None:
        return config.reserved_count
    return default_reserved_count(topology.all.bit_count())


def _word(name: str, value: str | None, words: tuple[str | None, ...]) -> None:
    if value not in words:
        raise NodeConfigError(
            f"{str(value)!r} is unknown: use {' or '.join(str(word) for word in words if word)}", name
        )


# CPU amplification: a node offers more CPUs than it has, since each counts as several slower ones. As in
# Koordinator's scheduler, what a pod is bound to is real, so it counts for more of what is offered.


def amplify(amount: int, ratio: Fraction) -> int:
    """The amount, rounded up, that so much comes to; a ratio up to 1 changes nothing."""
    return -(-amount * ratio.numerator // ratio.denominator) if ratio > 1 else amount


def requested(milli: int, bound: int, ratio: Fraction) -> int:
    """MilliCPU that all pods of a node take of what it offers, when `bound` CPUs of theirs are in cpusets."""
    real = 1000 * bound
    if not 0 < real <= milli:
        return milli
    return milli - real + amplify(real, ratio)


def fits(offered: int, taken: int, request: int, ratio: Fraction, *, binds: bool) -> bool:
    """Whether a request fits; all in milliCPU, `offered` amplified, and the request if it binds CPUs."""
    return (amplify(request, ratio) if binds else request) <= offered - taken
