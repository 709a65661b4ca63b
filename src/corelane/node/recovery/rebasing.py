"""A ledger after machine or settings changed: valid entries stay, the rest is named; exclusive CPUs lost."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from corelane.cpuset import CPUSet, format_list, named, verb
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig, reserve
from corelane.node.entries import (
    Bubble,
    Entry,
    Key,
    Origin,
    Sharing,
    bound_mask,
    claimed_before,
    exclusive_mask,
)
from corelane.node.invariants import Problem, problem
from corelane.node.ledger import NodeState, frozen, usable_topology, with_entries
from corelane.node.memory_manager import nodes_of
from corelane.node.pools.classes import pod_class
from corelane.placement.memory_blocks import MemoryBlock, MemoryNode, Nodes, holds, taken
from corelane.reasons import Refusal
from corelane.workload.request import PodRequest, QOSClass


def rebase(
    state: NodeState, machine: Machine, config: NodeConfig | None = None
) -> tuple[NodeState, list[Problem]]:
    """The same ledger on `machine` (and under `config`), and what could not be kept.

    A container keeps every CPU that is still there and that none admitted before it has; left with none,
    it shares the pool. CPUs that come back are the container's again that had them. Should nothing be left
    for the pool, the container with the most CPUs gives up one.
    An unchanged state comes back as it is. Raises NodeConfigError when the machine has no usable CPU.
    """
    config = config or state.config
    topology = usable_topology(machine)
    problems: list[Problem] = []
    remaining = _without_gone(state.entries.values(), topology.all, problems)
    remaining = _with_returned(remaining, topology.all)
    remaining = _without_doubled(remaining, problems)
    if not topology.all & ~exclusive_mask(remaining):
        remaining = _one_given_up(remaining, problems)
    reserved = reserve(config, topology, bound_mask(remaining) | config.closed(machine), state.reserved.mask)
    problems += _shortfall(config, reserved)
    problems += _withheld_in_use(config, bound_mask(remaining))
    remaining, memory = rebased(remaining, state.memory, nodes_of(machine, config.memory), problems)
    entries: dict[Key, Entry] = {entry.key: entry for entry in remaining}
    now = (machine, config, reserved, entries, memory)
    if now == (state.machine, state.config, state.reserved.mask, state.entries, state.memory):
        return state, problems
    ground = replace(
        state,
        machine=machine,
        config=config,
        topology=topology,
        reserved=CPUSet.from_mask(reserved),
        memory=frozen(memory),
    )
    return with_entries(ground, entries, state.pods), problems


def _without_gone(entries: Iterable[Entry], usable: int, problems: list[Problem]) -> list[Entry]:
    remaining = []
    for entry in entries:
        if gone := bound_mask([entry]) & ~usable:
            entry = _noting_loss(entry, gone)
            problems.append(
                problem("lost", entry, f"{named(gone)} no longer usable on this node; {_has(entry)}", gone)
            )
        remaining.append(entry)
    return remaining


def _noting_loss(entry: Entry, gone: int) -> Entry:
    """The entry without CPUs that may come back; those of a pod as a whole (`bubble`) do not."""
    less = _less(entry, gone)
    if entry.bubble:
        return less
    lost = CPUSet.from_mask(entry.lost.mask | entry.cpus.mask & gone)
    sharing = entry.lost_sharing if less.cpus or entry.common else entry.sharing
    return replace(less, lost=lost if less.cpus or sharing else CPUSet(), lost_sharing=sharing)


def _with_returned(entries: Iterable[Entry], usable: int) -> list[Entry]:
    """Give CPUs that came back to the containers that lost them, unless others have them."""
    entries = list(entries)
    return [_returned(entry, entries, usable) if entry.lost else entry for entry in entries]


def _returned(entry: Entry, entries: Iterable[Entry], usable: int) -> Entry:
    others = (other for other in entries if other.uid != entry.uid or not (other.common and entry.common))
    taken = bound_mask(other for other in others if other is not entry)
    back = CPUSet.from_mask(entry.lost.mask & usable & ~taken)
    if not back:
        return entry
    return replace(
        entry,
        cpus=entry.cpus | back,
        sharing=entry.lost_sharing or entry.sharing,
        lost=entry.lost - back,
        lost_sharing=None,
    )


def _without_doubled(entries: Iterable[Entry], problems: list[Problem]) -> list[Entry]:
    remaining = []
    for entry, twice in claimed_before(entries):
        if twice:
            entry = _less(entry, twice)
            text = f"{named(twice)} also allocated to another container; {_has(entry)}"
            problems.append(problem("doubled", entry, text, twice))
        remaining.append(entry)
    return remaining


def _one_given_up(entries: list[Entry], problems: list[Problem]) -> list[Entry]:
    """Take the highest CPU from the last entry with the most CPUs, and from entries that share it."""
    richest = max(reversed(entries), key=lambda entry: len(entry.cpus))
    cpu = 1 << richest.cpus.mask.bit_length() - 1
    remaining = []
    for entry in entries:
        if bound_mask([entry]) & cpu:
            entry = _less(entry, cpu)
            text = f"{named(cpu)} moved to the shared pool, which had no CPU left; {_has(entry)}"
            problems.append(problem("pool", entry, text, cpu))
        remaining.append(entry)
    return remaining


def _less(entry: Entry, mask: int) -> Entry:
    cpus = CPUSet.from_mask(entry.cpus.mask & ~mask)
    if entry.bubble:
        left = CPUSet.from_mask(entry.bubble.cpus.mask & ~mask)
        entry = replace(entry, bubble=replace(entry.bubble, cpus=left))
    if not cpus:
        return replace(entry, cpus=cpus, sharing=Sharing.POOL, common=False)
    return replace(entry, cpus=cpus)


def _has(entry: Entry) -> str:
    return f"keeps {named(entry.cpus.mask)}" if entry.cpus else "runs in the shared pool"


def _shortfall(config: NodeConfig, reserved: int) -> list[Problem]:
    wanted = config.reserved.mask if config.reserved is not None else 0
    if missing := wanted & ~reserved:
        text = (
            f"{named(missing)} should be reserved, but {verb(missing)} not free: have {format_list(reserved)}"
        )
        return [Problem("reserved", text, cpus=CPUSet.from_mask(missing))]
    count = config.reserved_count or 0
    if count > reserved.bit_count():
        what = "1 CPU is" if count == 1 else f"{count} CPUs are"
        text = f"{what} to be reserved, but only {format_list(reserved)} can be"
        return [Problem("reserved", text)]
    return []


def _withheld_in_use(config: NodeConfig, bound: int) -> list[Problem]:
    used = bound & config.pools.withheld.mask if config.policy == "pools" else 0
    if not used:
        return []
    text = (
        f"{named(used)} {verb(used)} withheld from pods, but allocated exclusively: in use until the pods end"
    )
    return [Problem("withheld", text, cpus=CPUSet.from_mask(used))]


def rebased(
    entries: Iterable[Entry], before: Nodes, idle: Mapping[int, MemoryNode], problems: list[Problem]
) -> tuple[list[Entry], Nodes]:
    """The entries that keep their memory, and the nodes with it; `idle` are the nodes as they are now.

    Where nothing changed all stays as it is. Else every container in turn keeps its memory, if its NUMA nodes
    are there and still hold it, and is otherwise no longer bound to any.
    """
    remaining = list(entries)
    if _sizes(before) == _sizes(idle):
        return remaining, before
    nodes: Nodes = idle
    bubbles: dict[str, Bubble | None] = {}
    for i, entry in enumerate(remaining):
        if entry.bubble and entry.bubble.memory:
            if entry.uid not in bubbles:
                nodes, fits = _put(nodes, entry.bubble.memory)
                bubbles[entry.uid] = entry.bubble if fits else replace(entry.bubble, memory=())
            fits = bubbles[entry.uid] == entry.bubble
        else:
            nodes, fits = _put(nodes, entry.memory)
        if not fits:
            remaining[i] = _without_memory(entry, problems)
    return remaining, nodes


def _sizes(nodes: Nodes) -> dict[int, Mapping[str, int]]:
    return {number: node.allocatable for number, node in nodes.items()}


def _put(nodes: Nodes, blocks: Iterable[MemoryBlock]) -> tuple[Nodes, bool]:
    """The nodes with these blocks, and True; as they are, and False, if one does not fit."""
    found = nodes
    for block in blocks:
        if not block.nodes or not set(block.nodes) <= found.keys():
            return nodes, False
        if not holds(found, block.nodes.mask, {block.resource: block.size}):
            return nodes, False
        found = taken(found, block.nodes.mask, block.resource, block.size)
    return found, True


def _without_memory(entry: Entry, problems: list[Problem]) -> Entry:
    mask = entry.mems.mask if entry.mems else 0
    nodes = f"NUMA node{'s' if mask & mask - 1 else ''} {format_list(mask)}"
    text = f"memory no longer reserved on {nodes}"
    problems.append(problem("memory", entry, text))
    bubble = replace(entry.bubble, memory=()) if entry.bubble else None
    return replace(entry, memory=(), mems=None, bubble=bubble)


_OF_OTHERS: Final = (Origin.ADOPTED, Origin.KUBELET)


def exclusive_shortfall(state: NodeState, request: PodRequest) -> dict[str, tuple[int, int]]:
    """Return the containers with fewer exclusive CPUs than they were admitted with, as (admitted, now).

    Pods that no admission placed, and those of a kubelet, are not judged here. Nor are those that were
    admitted under another class than the request has with the present settings.
    """
    entries = [entry for entry in state.of_pod(request.uid) if entry.origin not in _OF_OTHERS]
    if not entries:
        return {}
    qos, admitted = exclusive_counts(state, request)
    now = {entry.container: _exclusive(entry) for entry in entries if entry.cls == qos}
    return {name: (number, now[name]) for name, number in admitted.items() if number > now.get(name, number)}


def _exclusive(entry: Entry) -> int:
    return len(entry.cpus) if entry.exclusive else 0


def exclusive_counts(state: NodeState, request: PodRequest) -> tuple[str, Mapping[str, int]]:
    """Return the class of a pod and its containers' numbers of exclusive CPUs by the present settings."""
    config = state.config
    if config.policy == "static":
        gate = config.pod_level
        of_each = {each.name: request.exclusive_cpus(each, gate=gate) for each in request.containers}
        return QOSClass.GUARANTEED.value, of_each
    if config.policy != "pools":
        return "", {}
    try:
        found = pod_class(request, config.pools)
    except Refusal:
        return "", {}
    if not found.sharing.exclusive:
        return "", {}
    common = dict.fromkeys((container.name for container in request.containers), found.common)
    return found.qos.value, common if found.common else found.own
