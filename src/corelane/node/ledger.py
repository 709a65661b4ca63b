"""The ledger of one node: which container owns which CPUs, in which phase, and what that leaves to others.

A `NodeState` is frozen; every change returns a new one whose `generation` is one higher. It is keyed by
(pod UID, container name). What is not exclusive is the shared pool, which always keeps the reserved CPUs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from corelane import reasons
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node import memory_manager as memories
from corelane.node.config import NodeConfig, amplify, check, reserve
from corelane.node.entries import (
    Entry,
    Key,
    Phase,
    PlacedPod,
    Sharing,
    bound_mask,
    exclusive_mask,
    shared_with_be_mask,
)
from corelane.node.manager_options import NodeConfigError
from corelane.placement import topology as topologies
from corelane.placement.memory_blocks import Nodes
from corelane.placement.topology import Topology
from corelane.reasons import Reason
from corelane.workload import BindPolicy
from corelane.workload.request import Amounts, ContainerKind

_K = TypeVar("_K")
_V = TypeVar("_V")


class LedgerError(ValueError):
    """A ledger that cannot be read, or a change that it does not allow; says what to do."""


_NO_ENTRIES: Mapping[Key, Entry] = MappingProxyType({})
_NO_CPUS: Mapping[str, CPUSet] = MappingProxyType({})
_NO_AMOUNTS: Mapping[int, int] = MappingProxyType({})
_NO_NUMA_AMOUNTS: Mapping[int, Amounts] = MappingProxyType({})
_NO_PODS: Mapping[str, int] = MappingProxyType({})
_NO_MEMORY: Nodes = MappingProxyType({})
_NO_TENANTS: Mapping[str, PlacedPod] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeState:
    """Everything known of one node; see `new`."""

    machine: Machine
    config: NodeConfig
    topology: Topology = field(compare=False)
    """Follows from the machine; two of one machine may be two objects."""
    reserved: CPUSet
    """CPUs that never become exclusive."""
    entries: Mapping[Key, Entry] = field(default_factory=lambda: _NO_ENTRIES)
    pods: Mapping[str, int] = field(default_factory=lambda: _NO_PODS)
    """MilliCPU that each pod (by UID) holds at once."""
    exclusive: CPUSet = field(default_factory=CPUSet)
    """CPUs allocated exclusively."""
    memory: Nodes = field(default_factory=lambda: _NO_MEMORY)
    """The memory of each NUMA node; nothing where no memory manager keeps it."""
    shared_with_be: CPUSet = field(default_factory=CPUSet)
    """Exclusive CPUs shared with BE."""
    bound: CPUSet = field(default_factory=CPUSet)
    """CPUs that some container is bound to: the exclusive ones, and those within the shared pool."""
    placed_pods: Mapping[str, PlacedPod] = field(default_factory=lambda: _NO_TENANTS)
    """Rules of each placed pod about other pods, by UID; under policy `pools` only."""
    requested: int = 0
    """MilliCPU of all pods together."""
    generation: int = 0

    @property
    def usable(self) -> CPUSet:
        """All CPUs of the machine that containers may run on."""
        return CPUSet.from_mask(self.topology.all)

    @property
    def allocatable(self) -> int:
        """MilliCPU that pods may request together; reserved CPUs count, as the shared pool uses them.

        Under policy pools, each CPU as many times as the node is amplified.
        """
        usable = self.topology.all
        if self.config.policy != "pools":
            return 1000 * usable.bit_count()
        if not self.config.pools.withheld_offered:
            usable &= ~self.config.pools.withheld.mask
        milli, ratio = 1000 * usable.bit_count(), self.config.pools.amplification
        return amplify(milli, ratio) if ratio > 1 else milli

    @property
    def withheld_memory(self) -> int:
        """Bytes of memory that settings keep from pods."""
        return self.config.pools.withheld_memory if self.config.policy == "pools" else 0

    @property
    def numa_nodes(self) -> int:
        """All NUMA nodes as a mask of ids, CPU-less ones too."""
        return sum(1 << node.id for node in self.machine.nodes)

    @property
    def shared_pool(self) -> CPUSet:
        """Where all containers without exclusive CPUs run; strictly reserved CPUs are not part of it.

        Should there be none but CPUs that settings close to it, it has these.
        """
        free = self.topology.all & ~self.exclusive.mask
        shared = free & ~self.config.closed(self.machine) or free
        if self.config.options.strict_cpu_reservation and self.config.policy == "static":
            shared &= ~self.reserved.mask
        return CPUSet.from_mask(shared)

    @property
    def free_exclusive(self) -> CPUSet:
        """CPUs that may still become exclusive."""
        if self.config.policy == "none":
            return CPUSet()
        closed = self.exclusive.mask | self.bound.mask | self.reserved.mask
        if self.config.policy == "pools":
            closed |= self.config.pools.unbindable(self.machine)
        return CPUSet.from_mask(self.topology.all & ~closed)

    @property
    def best_effort_pool(self) -> CPUSet:
        """The shared pool, and exclusive CPUs shared with BE."""
        also = self.shared_with_be.mask & ~self.config.closed(self.machine)
        return CPUSet.from_mask(self.shared_pool.mask | also)

    @property
    def system_pool(self) -> CPUSet:
        """CPUs of SYSTEM pods: those reserved for them and not allocated, else the shared pool."""
        aside = self.config.pools.system.mask & self.topology.all & ~self.bound.mask
        return CPUSet.from_mask(aside) if self.config.policy == "pools" and aside else self.shared_pool

    def pool_of(self, sharing: Sharing) -> CPUSet:
        """Return the pool in which a container without exclusive CPUs runs."""
        if sharing is Sharing.BEST_EFFORT:
            return self.best_effort_pool
        return self.system_pool if sharing is Sharing.SYSTEM else self.shared_pool

    def runs_on(self, entry: Entry) -> CPUSet:
        """The CPUs that a container may use: its own, or else those of its pool.

        One that is held to NUMA nodes where its pool has lost every CPU may use all of the pool.
        """
        if entry.cpus:
            return entry.cpus
        pool = self.pool_of(entry.sharing)
        if entry.zone is None:
            return pool
        return CPUSet.from_mask(pool.mask & self.cpus_of(entry.zone)) or pool

    def cpus_of(self, nodes: CPUSet) -> int:
        """The usable CPUs of some NUMA nodes, as a mask."""
        numa = zip(self.topology.numa_ids, self.topology.numa, strict=True)
        return sum(mask for node, mask in numa if nodes.mask >> node & 1)

    def owners(self) -> Mapping[int, Entry]:
        """CPU id to the container bound to it; an init container only until a sibling takes over."""
        init: dict[int, Entry] = {}
        lasting: dict[int, Entry] = {}
        for entry in self.entries.values():
            owners = init if entry.kind is ContainerKind.INIT else lasting
            owners.update(dict.fromkeys(entry.cpus, entry))
        return MappingProxyType(dict(sorted((init | lasting).items())))

    def of_pod(self, uid: str) -> tuple[Entry, ...]:
        """The entries of one pod, in order of admission."""
        return tuple(entry for (owner, _), entry in self.entries.items() if owner == uid)


Explanation: TypeAlias = Callable[[], Iterable[Reason]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of an admission. Its reasons and its message are made when they are read."""

    admitted: bool
    refusal: Reason | None = None
    """Reason for which the pod is rejected."""
    assignments: Mapping[str, CPUSet] = field(default_factory=lambda: _NO_CPUS)
    """Container name to the CPUs that it is bound to; containers not named run in a pool."""
    zone: CPUSet | None = None
    """NUMA nodes whose part of the shared pool the other containers run in; None is all of it."""
    zone_cpus: Mapping[int, int] = field(default_factory=lambda: _NO_AMOUNTS)
    """NUMA node to the pod's CPUs there, where these have no ids."""
    numa_amounts: Mapping[int, Amounts] = field(default_factory=lambda: _NO_NUMA_AMOUNTS)
    """As `PodRequest.numa_amounts`."""
    shared: CPUSet = field(default_factory=CPUSet)
    """The shared pool after the decision."""
    repicked: bool = False
    """CPUs were proposed, but not all of them were available, and others were allocated."""
    bind: BindPolicy | None = None
    """Bind policy of the CPUs that all containers of a pod have in common; None for other pods."""
    bind_required: bool = False
    explanation: Explanation = field(default=tuple, compare=False, repr=False)
    """Makes the reasons."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Reasons for each container's CPUs or pool."""
        return tuple(self.explanation())

    @property
    def reason(self) -> str:
        """The CamelCase word in the status of a rejected pod, "" for an admitted one."""
        return reasons.label(self.refusal) if self.refusal else ""

    @property
    def message(self) -> str:
        """The sentence about a rejection, "" for an admitted pod."""
        return reasons.sentence(self.refusal) if self.refusal else ""


def new(machine: Machine, config: NodeConfig | None = None) -> NodeState:
    """A node on which nothing runs. Raises NodeConfigError where the settings do not fit the machine."""
    config = config or NodeConfig()
    topology = usable_topology(machine)
    check(config, topology, machine)
    reserved = CPUSet.from_mask(reserve(config, topology, config.closed(machine)))
    count = config.reserved_count if config.reserved is None else len(config.reserved)
    if count not in (None, len(reserved)) and config.policy != "pools":
        raise NodeConfigError(
            "[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {reserved} did not equal {count})"
        )
    memory = frozen(memories.nodes_of(machine, config.memory))
    return NodeState(machine, config, topology, reserved, memory=memory)


def usable_topology(machine: Machine) -> Topology:
    """The machine's usable CPUs as the picker sees them. Raises NodeConfigError when there is none."""
    if not machine.usable:
        raise NodeConfigError(
            f"machine {machine.name}: none of its CPUs ({machine.online}) is allowed to this process: "
            "widen the affinity or cpuset that it is started in"
        )
    return topologies.from_machine(machine)


def frozen(values: Mapping[_K, _V]) -> Mapping[_K, _V]:
    """A read-only copy."""
    return MappingProxyType(dict(values))


def with_entries(state: NodeState, entries: Mapping[Key, Entry], pods: Mapping[str, int]) -> NodeState:
    """The next generation of a state with these entries, all that follows from them derived again."""
    placed_pods = state.placed_pods
    if placed_pods:
        placed = {entry.uid for entry in entries.values() if entry.placed}
        if not placed_pods.keys() <= placed:
            placed_pods = frozen(
                {uid: placed_pod for uid, placed_pod in placed_pods.items() if uid in placed}
            )
    return replace(
        state,
        entries=frozen(entries),
        pods=frozen(pods),
        exclusive=CPUSet.from_mask(exclusive_mask(entries.values())),
        shared_with_be=CPUSet.from_mask(shared_with_be_mask(entries.values())),
        bound=CPUSet.from_mask(bound_mask(entries.values())),
        placed_pods=placed_pods,
        requested=sum(pods.values()),
        generation=state.generation + 1,
    )


def reserve_again(state: NodeState) -> NodeState:
    """The state with its reserved CPUs topped up, where more of them can be had than before."""
    closed = state.bound.mask | state.config.closed(state.machine)
    reserved = reserve(state.config, state.topology, closed, state.reserved.mask)
    return state if reserved == state.reserved.mask else replace(state, reserved=CPUSet.from_mask(reserved))


def admits_alike(before: NodeState, after: NodeState) -> bool:
    """Whether both states answer every request alike: they differ in phases and generation at most."""
    if before is after:
        return True
    if replace(after, entries=before.entries, generation=before.generation) != before:
        return False
    entries = after.entries
    return entries.keys() == before.entries.keys() and all(
        entries[key] is entry or replace(entries[key], phase=entry.phase) == entry
        for key, entry in before.entries.items()
    )


def release(state: NodeState, uid: str, container: str | None = None) -> NodeState:
    """Forget a pod, or one container of it; its CPUs return to the pool, less those that a sibling has too.

    Reserved CPUs that were unavailable before are topped up. An unknown pod is ignored: a release may be
    repeated.
    """
    gone = {key for key in state.entries if key[0] == uid and container in (None, key[1])}
    if not gone and not (container is None and uid in state.pods):
        return state
    if state.memory:
        state = replace(state, memory=frozen(_given_back(state, gone)))
    entries = {key: entry for key, entry in state.entries.items() if key not in gone}
    pods = dict(state.pods)
    if not any(owner == uid for owner, _ in entries):
        del pods[uid]
    return reserve_again(with_entries(state, entries, pods))


def started(state: NodeState, uid: str, container: str) -> NodeState:
    """A container of a pod has started: the plain init containers before it are over, their memory is free.

    As the kubelet's memory manager does; CPUs and devices of init containers stay the pod's.
    """
    over: set[Key] = set()
    for entry in state.of_pod(uid):
        if entry.container == container:
            break
        if entry.kind is ContainerKind.INIT and entry.memory:
            over.add(entry.key)
    else:
        return state
    if not over:
        return state
    entries = {
        key: replace(entry, memory=()) if key in over else entry for key, entry in state.entries.items()
    }
    return replace(
        state,
        entries=frozen(entries),
        memory=frozen(_given_back(state, over)),
        generation=state.generation + 1,
    )


def _given_back(state: NodeState, gone: Collection[Key]) -> Nodes:
    """The memory of the nodes without these entries; a bubble's goes with the last of its pod's."""
    entries = state.entries
    leaving = [entry for key, entry in entries.items() if key in gone]
    staying = {uid for uid, name in entries if (uid, name) not in gone}
    blocks = [block for entry in leaving if not entry.bubble for block in entry.memory]
    bubbles = {entry.uid: entry.bubble for entry in leaving if entry.bubble and entry.uid not in staying}
    blocks += [block for bubble in bubbles.values() for block in bubble.memory]
    return memories.returned(state.memory, blocks)


def mark(state: NodeState, uid: str, container: str, phase: Phase) -> NodeState:
    """Move an entry to another phase. Raises LedgerError for an unknown or a terminating entry."""
    entry = state.entries.get((uid, container))
    if entry is None:
        raise LedgerError(f"container {container!r} of pod {uid!r} is not in the ledger: admit it first")
    if entry.phase is phase:
        return state
    if entry.phase is Phase.RELEASING:
        raise LedgerError(
            f"container {container!r} of pod {entry.pod} is being released: it cannot be {phase}"
        )
    entries = dict(state.entries)
    entries[entry.key] = replace(entry, phase=phase)
    return replace(state, entries=frozen(entries), generation=state.generation + 1)


def latest_pod_spans(state: NodeState) -> tuple[int, ...]:
    """Return the number of NUMA nodes of each container of the pod that was admitted last.

    A node that aligns whole pods has one number. Containers without CPUs, memory or devices of their own do
    not count.
    """
    if not state.entries:
        return ()
    *_, (uid, _) = state.entries
    masks = [mask for entry in state.of_pod(uid) if (mask := _nodes(state, entry))]
    return (_union(masks).bit_count(),) if masks and _aligns_pods(state) else tuple(map(int.bit_count, masks))


def _aligns_pods(state: NodeState) -> bool:
    return state.config.policy == "pools" or state.config.numa.scope == "pod"


def _nodes(state: NodeState, entry: Entry) -> int:
    """NUMA nodes of an entry, as a mask of ids."""
    numa = zip(state.topology.numa_ids, state.topology.numa, strict=True)
    nodes = sum(1 << node for node, cpus in numa if cpus & entry.cpus.mask)
    if entry.mems is not None:
        nodes |= entry.mems.mask
    for resource, devices in entry.devices.items():
        near = state.config.devices.get(resource, {})
        nodes |= _union(near.get(device, 0) for device in devices if near.get(device, 0).bit_count() == 1)
    return nodes


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
