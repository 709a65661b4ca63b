"""Would a kubelet start with this state file, on this machine and under these settings? If not, why.

Upstream: `validateState` in `policy_static.go` of cpumanager, and the check of the policy's name in
`state_checkpoint.go` (v1.36). Upstream exits at the first fault; all are named here, in its order and words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet, format_list
from corelane.machine.model import Machine, NUMANode
from corelane.node.config import NodeConfig, reserve
from corelane.node.invariants import Problem
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint, NodeMemory, Table
from corelane.node.ledger import usable_topology
from corelane.placement.memory_blocks import hugepages


def start_problems(checkpoint: Checkpoint, machine: Machine, config: NodeConfig) -> list[Problem]:
    """What keeps a kubelet with these settings from starting with this file; nothing when it starts.

    The first problem's text is the error with which the kubelet exits. Overlaps between containers are not
    among them, as upstream does not look for these. Raises NodeConfigError when no CPU can be used.
    """
    if checkpoint.policy != config.policy:
        text = (
            f'configured policy "{config.policy}" differs from state checkpoint policy "{checkpoint.policy}"'
        )
        return [Problem("policy", text)]
    if config.policy == "none":
        return []
    topology = usable_topology(machine)
    if not checkpoint.default:
        return _without_pool(checkpoint)
    reserved = reserve(config, topology)
    strict = config.options.strict_cpu_reservation
    return [
        *_reservation(checkpoint.default, reserved, strict),
        *_overlaps(checkpoint),
        *_total(checkpoint, topology.all & ~reserved if strict else topology.all),
    ]


def _without_pool(checkpoint: Checkpoint) -> list[Problem]:
    """An empty pool is that of a new node, unless containers have CPUs."""
    return [Problem("pool", "default cpuset cannot be empty")] if checkpoint.entries else []


def _reservation(default: CPUSet, reserved: int, strict: bool) -> Iterator[Problem]:
    inside = default.mask & reserved
    wrong = inside if strict else reserved & ~inside
    if wrong:
        which, named = ("some of strictly", inside) if strict else ("not all", reserved)
        text = f'{which} reserved cpus: "{format_list(named)}" are present in defaultCpuSet: "{default}"'
        yield Problem("reserved", text, cpus=CPUSet.from_mask(wrong))


def _overlaps(checkpoint: Checkpoint) -> Iterator[Problem]:
    default = checkpoint.default
    for uid, containers in sorted(checkpoint.entries.items()):
        for container, cpus in sorted(containers.items()):
            if cpus & default:
                text = (
                    f'pod: {uid}, container: {container} cpuset: "{cpus}" '
                    f'overlaps with default cpuset "{default}"'
                )
                yield Problem("overlap", text, uid, container, cpus & default)


def _total(checkpoint: Checkpoint, expected: int) -> Iterator[Problem]:
    """The pool and all assignments together must be every CPU, less those strictly reserved."""
    owned = [cpus for containers in checkpoint.entries.values() for cpus in containers.values()]
    total = checkpoint.default.mask
    for cpus in (*owned, *checkpoint.pods.values()):
        total |= cpus.mask
    if total != expected:
        text = (
            f'current set of available CPUs "{format_list(expected)}" '
            f'doesn\'t match with CPUs in state "{format_list(total)}"'
        )
        yield Problem("total", text, cpus=CPUSet.from_mask(total ^ expected))


POLICIES: Final = ("None", "Static", "BestEffort")
"""As the kubelet's configuration and the file name them; BestEffort is Windows'."""
Reserved: TypeAlias = Mapping[int, Mapping[str, int]]
"""By NUMA node and resource the bytes that are no pod's: the kubelet's `reservedMemory`."""

_DIFFERENT = "[memorymanager] the expected machine state is different from the real one"
_UINT64 = (1 << 64) - 1


def memory_start_problems(
    checkpoint: MemoryCheckpoint, machine: Machine, policy: str, reserved: Reserved, minor: int = 36
) -> list[Problem]:
    """What keeps a kubelet under this policy from starting with this file; nothing when it starts.

    Codes are policy, empty, blocks and machine. Before 1.32 each NUMA node of a group was compared by itself
    (kubernetes #113130), since then the sums of the group. Where the machine's state differs, every
    difference is a problem of its own; upstream says the first words of each and logs what differs.
    """
    if checkpoint.policy != policy:
        text = (
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy '
            f'"{checkpoint.policy}"'
        )
        return [Problem("policy", text)]
    if policy == "None":
        return []
    if not checkpoint.machine:
        text = "[memorymanager] machine state can not be empty when it has memory assignments"
        return [Problem("empty", text)] if checkpoint.entries else []
    expected = {node.id: _idle(node, reserved.get(node.id, {})) for node in machine.nodes}
    lost = [
        problem
        for uid, container, block in _assigned(checkpoint)
        for problem in _assign(expected, uid, container, block)
    ]
    return lost or list(_differences(checkpoint.machine, expected, grouped=minor >= 32))


def reservation_problems(reserved: Reserved, node_allocatable: int | None) -> Iterator[Problem]:
    """What keeps a Static memory manager from starting with its settings alone; texts are upstream's (1.36).

    `node_allocatable` is the memory of kubeReserved, systemReserved and the hard eviction threshold together,
    in bytes; None where it is unknown. Upstream: `validateReservedMemory` and `NewPolicyStatic`.
    """
    totals: dict[str, int] = {}
    for of_node in reserved.values():
        for name, size in of_node.items():
            totals[name] = totals.get(name, 0) + size
    if node_allocatable is not None:
        for name in sorted({"memory", *totals}):
            total, other = totals.get(name, 0), node_allocatable if name == "memory" else 0
            if total != other:
                amounts = [str(quantity.of_value(size, quantity.BINARY_SI)) for size in (total, other)]
                yield Problem(
                    "reservation",
                    f'the total amount "{amounts[0]}" of type "{name}" is not equal to the value '
                    f'"{amounts[1]}" determined by Node Allocatable feature',
                )
    if not totals.get("memory"):
        yield Problem("reservation", "[memorymanager] you should specify the system reserved memory")


def reserved_in(checkpoint: MemoryCheckpoint) -> Reserved:
    """The reservation that the file itself remembers."""
    return {
        node: {name: table.system_reserved for name, table in state.memory.items()}
        for node, state in checkpoint.machine.items()
    }


@dataclass(slots=True)
class _Amount:
    """A table under construction; numbers wrap around as Go's unsigned ones do."""

    total: int
    system_reserved: int
    allocatable: int
    free: int
    reserved: int = 0


@dataclass(slots=True)
class _Node:
    memory: dict[str, _Amount]
    group: tuple[int, ...]
    assignments: int = field(default=0)


def _idle(node: NUMANode, reserved: Mapping[str, int]) -> _Node:
    """A NUMA node on which nothing has memory; huge pages are not part of what `memory` may hand out."""
    pages = {hugepages(kib): count * kib * 1024 for kib, count in node.hugepages.items()}
    memory = {name: _amount(size, reserved.get(name, 0), 0) for name, size in pages.items()}
    memory["memory"] = _amount(node.memory, reserved.get("memory", 0), sum(pages.values()))
    return _Node(memory, (node.id,))


def _amount(total: int, reserved: int, elsewhere: int) -> _Amount:
    allocatable = total - reserved - elsewhere & _UINT64
    return _Amount(total, reserved, allocatable, allocatable)


def _assigned(checkpoint: MemoryCheckpoint) -> Iterator[tuple[str, str, Block]]:
    """Every block that counts: a pod's own where it has some, else those of its containers."""
    for uid, containers in sorted(checkpoint.entries.items()):
        if of_pod := checkpoint.pods.get(uid):
            yield from ((uid, "", block) for block in of_pod)
        else:
            for name, blocks in sorted(containers.items()):
                yield from ((uid, name, block) for block in blocks)


def _assign(expected: Mapping[int, _Node], uid: str, container: str, block: Block) -> Iterator[Problem]:
    """Take a block from its nodes, the first ones first."""
    size = block.size
    for node in block.nodes:
        state = expected.get(node)
        amount = state.memory.get(block.resource) if state else None
        if state is None or amount is None:
            uses = "the NUMA that does not exist" if state is None else "memory resource that does not exist"
            text = f"[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses {uses}"
            missing = f"NUMA node {node}" if state is None else f"{block.resource} on NUMA node {node}"
            yield Problem("blocks", f"{text}: {missing}", uid, container)
            return
        state.assignments += 1
        state.group = block.nodes
        taken = min(size, amount.free)
        amount.reserved += taken
        amount.free -= taken
        size -= taken


def _differences(
    found: Mapping[int, NodeMemory], expected: Mapping[int, _Node], *, grouped: bool
) -> Iterator[Problem]:
    for node in sorted({*found, *expected}):
        if node not in expected:
            yield _differs(f"NUMA node {node} is in the file, not in the machine")
        elif node not in found:
            yield _differs(f"NUMA node {node} is in the machine, not in the file")
        else:
            yield from _of_node(node, found, expected, grouped=grouped)


def _of_node(
    node: int, found: Mapping[int, NodeMemory], expected: Mapping[int, _Node], *, grouped: bool
) -> Iterator[Problem]:
    before, now = found[node], expected[node]
    if before.assignments != now.assignments:
        yield _differs(
            f"NUMA node {node}: the file counts {before.assignments} assignments and holds {now.assignments}"
        )
    if sorted(before.group) != sorted(now.group):
        groups = [" ".join(map(str, sorted(group))) or "none" for group in (before.group, now.group)]
        yield _differs(f"NUMA node {node}: its group is {groups[0]} in the file, by its blocks {groups[1]}")
    for name in sorted({*before.memory, *now.memory}):
        where = f"NUMA node {node}: {name}"
        if name not in now.memory:
            yield _differs(f"{where} is in the file, not in the machine")
        elif name not in before.memory:
            yield _differs(f"{where} is in the machine, not in the file")
        else:
            yield from _of_table(where, before.memory[name], now.memory[name])
            yield from _of_group(where, name, now.group if grouped else (node,), found, expected)


def _of_table(where: str, before: Table, now: _Amount) -> Iterator[Problem]:
    for what, old, new in (
        ("total", before.total, now.total),
        ("reserved for the system", before.system_reserved, now.system_reserved),
        ("allocatable", before.allocatable, now.allocatable),
    ):
        if old != new:
            yield _differs(f"{where}: {what} is {old} bytes in the file, {new} now")


def _of_group(
    where: str,
    name: str,
    group: tuple[int, ...],
    found: Mapping[int, NodeMemory],
    expected: Mapping[int, _Node],
) -> Iterator[Problem]:
    """How a block is spread over its group depends on what came first, so only the group's sums count."""
    before = [found[node].memory[name] for node in group if node in found and name in found[node].memory]
    now = [
        expected[node].memory[name] for node in group if node in expected and name in expected[node].memory
    ]
    for what, old, new in (
        ("free", sum(one.free for one in before), sum(one.free for one in now)),
        ("reserved", sum(one.reserved for one in before), sum(one.reserved for one in now)),
    ):
        if old & _UINT64 != new & _UINT64:
            yield _differs(f"{where}: {what} is {old} bytes in the file, {new} by its blocks")


def _differs(text: str) -> Problem:
    return Problem("machine", f"{_DIFFERENT}: {text}")
