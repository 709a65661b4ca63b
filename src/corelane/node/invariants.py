"""Invariants of every ledger, checked in full; violations are plain values."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from corelane.cpuset import CPUSet, bits, format_list, named, verb
from corelane.node import memory_manager
from corelane.node.entries import Entry, bound_mask, claimed_before, exclusive_mask, shared_with_be_mask
from corelane.node.ledger import NodeState
from corelane.placement.memory_blocks import MemoryBlock
from corelane.workload.request import ContainerKind


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a ledger: `code` is a short stable key, `text` says what and what follows."""

    code: str
    text: str
    uid: str = ""
    container: str = ""
    cpus: CPUSet = field(default_factory=CPUSet)


def problem(code: str, entry: Entry, text: str, cpus: int = 0) -> Problem:
    """A problem of one container, whose name is put in front of the text."""
    text = f"{entry.pod}/{entry.container}: {text}"
    return Problem(code, text, entry.uid, entry.container, CPUSet.from_mask(cpus))


def validate(state: NodeState) -> list[Problem]:
    """Every invariant that does not hold; empty for every state that this package hands out.

    No CPU has two owners (but for init containers, whose CPUs are reusable within the pod, and a pod's common
    CPUs), exclusive CPUs are usable and never reserved, the shared pool is not empty, best effort has all of
    it and no CPU that is exclusive to others, memory and devices have one owner, and what is derived agrees
    with the entries.
    """
    return [
        *_entries(state),
        *_owners(state),
        *_common(state),
        *_pool(state),
        *_best(state),
        *_derived(state),
        *_belongings(state),
    ]


def _owners(state: NodeState) -> Iterator[Problem]:
    for entry, twice in claimed_before(state.entries.values()):
        if twice:
            text = f"{named(twice)} also {verb(twice, 'belongs', 'belong')} to another"
            yield problem("doubled", entry, text, twice)


def _common(state: NodeState) -> Iterator[Problem]:
    sets: dict[str, int] = {}
    for entry in state.entries.values():
        if entry.common and sets.setdefault(entry.uid, entry.cpus.mask) != entry.cpus.mask:
            text = f"has {entry.cpus}, not the pod's common {named(sets[entry.uid])}"
            yield problem("common", entry, text, entry.cpus.mask)


def _best(state: NodeState) -> Iterator[Problem]:
    pool, alone = state.best_effort_pool, state.exclusive - state.shared_with_be
    if met := pool & alone:
        text = f"the BE pool has {named(met.mask)}, allocated exclusively to other pods"
        yield Problem("best-effort", text, cpus=met)
    if missing := state.shared_pool - pool:
        text = f"the BE pool lacks {named(missing.mask)} of the shared pool"
        yield Problem("best-effort", text, cpus=missing)


def _entries(state: NodeState) -> Iterator[Problem]:
    for key, entry in state.entries.items():
        if key != entry.key:
            yield problem("key", entry, f"is filed under {key}")
        if entry.exclusive and not entry.cpus:
            yield problem("exclusive", entry, f"shares {entry.sharing}, but has no CPUs")
        if missing := entry.cpus.mask & ~state.topology.all:
            yield problem("lost", entry, f"{named(missing)} cannot be used here", missing)
        if reserved := entry.cpus.mask & state.reserved.mask:
            yield problem("reserved", entry, f"has reserved {named(reserved)}", reserved)
        if entry.uid not in state.pods:
            yield problem("pod", entry, "its pod is not in the ledger")


def _pool(state: NodeState) -> Iterator[Problem]:
    strict = state.config.options.strict_cpu_reservation and state.config.policy != "pools"
    possible = state.topology.all & ~state.bound.mask & ~state.config.closed(state.machine)
    if not state.reserved and not strict and (possible or state.config.policy != "pools"):
        yield Problem("reserved", "no CPU is reserved for the shared pool")
    if gone := state.reserved - state.usable:
        yield Problem("reserved", f"reserved {named(gone.mask)} cannot be used here", cpus=gone)
    if not state.shared_pool:
        yield Problem("pool", "the shared pool is empty")
    elif not strict and not state.reserved <= state.shared_pool:
        yield Problem("pool", f"the shared pool {state.shared_pool} lacks reserved CPUs of {state.reserved}")


def _belongings(state: NodeState) -> Iterator[Problem]:
    for text in wrong_memory(state):
        yield Problem("memory", text)
    for entry in state.entries.values():
        if loose(entry):
            yield problem(
                "memory",
                entry,
                f"bound to {entry.mems}, but has memory not on these NUMA nodes",
            )
    for entry, text in doubled_devices(state):
        yield problem("devices", entry, text)


def _derived(state: NodeState) -> Iterator[Problem]:
    entries = state.entries.values()
    derived = {
        "exclusive": (state.exclusive, exclusive_mask(entries)),
        "shared_with_be": (state.shared_with_be, shared_with_be_mask(entries)),
        "bound": (state.bound, bound_mask(entries)),
    }
    for name, (cpus, mask) in derived.items():
        if cpus.mask != mask:
            yield Problem("derived", f"{name} is '{cpus}', its entries say '{format_list(mask)}'")
    for uid in state.placed_pods.keys() - {entry.uid for entry in entries if entry.placed}:
        yield Problem("tenant", f"pod {uid}: placed pod without CPUs or zone", uid)
    if state.requested != sum(state.pods.values()):
        yield Problem("derived", f"requested is {state.requested}m, its pods say {sum(state.pods.values())}m")


def blocks(state: NodeState) -> Iterator[MemoryBlock]:
    """Every block that counts: a bubble's once, and those of containers that are in none."""
    bubbles = {entry.uid: entry.bubble for entry in state.entries.values() if entry.bubble}
    for bubble in bubbles.values():
        yield from bubble.memory
    for entry in state.entries.values():
        if not entry.bubble:
            yield from entry.memory


def wrong_memory(state: NodeState) -> Iterator[str]:
    """Where the memory of the nodes and the blocks of the containers disagree, in words."""
    assignments: Counter[int] = Counter()
    held: Counter[str] = Counter()
    for block in blocks(state):
        held[block.resource] += block.size
        assignments.update(block.nodes)
    for number, node in state.memory.items():
        for resource, allocatable in node.allocatable.items():
            if not 0 <= node.free.get(resource, 0) <= allocatable:
                free = node.free.get(resource, 0)
                yield f"NUMA node {number} has {free} bytes of {resource} free of {allocatable}"
        if node.assignments != assignments[number]:
            yield f"NUMA node {number} has {node.assignments} assignments, containers {assignments[number]}"
        if gone := [node_id for node_id in bits(node.group) if node_id not in state.memory]:
            yield f"NUMA node {number} is in a group with {gone}, which are not there"
    resources = {name for node in state.memory.values() for name in node.allocatable} | held.keys()
    for resource in sorted(resources):
        reserved = sum(node.reserved(resource) for node in state.memory.values())
        if reserved != held[resource]:
            yield f"nodes reserve {reserved} bytes of {resource} for containers, which have {held[resource]}"


def doubled_devices(state: NodeState) -> Iterator[tuple[Entry, str]]:
    """Entries with a device that another has too, less those that an init container of the pod lends."""
    owners: dict[tuple[str, str], Entry] = {}
    for entry in state.entries.values():
        for resource, ids in entry.devices.items():
            for each in ids:
                before = owners.get((resource, each))
                if before and (before.uid != entry.uid or before.kind is not ContainerKind.INIT):
                    yield entry, f"{resource} {each} belongs to {before.pod}/{before.container} as well"
                owners[resource, each] = entry


def loose(entry: Entry) -> bool:
    """Whether memory is kept for an entry on other nodes than it is bound to."""
    return bool(entry.memory) and entry.mems != memory_manager.mems(entry.memory)
