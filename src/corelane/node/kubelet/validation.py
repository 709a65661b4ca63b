"""Would a kubelet start with this state file, on this machine and under these settings? If not, why.

Upstream: `validateState` in `policy_static.go` of cpumanager, and the check of the policy's name in
`state_checkpoint.go` (v1.36). Upstream exits at the first fault; all are named here, in its order and words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet, format_list, named, verb
from corelane.machine.model import Machine, NUMANode
from corelane.node.config import NodeConfig, reserve
from corelane.node.invariants import Problem
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint, NodeMemory, Table
from corelane.node.ledger import NodeState, usable_topology
from corelane.placement.memory_blocks import hugepages
from corelane.reasons import Code, Reason
from corelane.workload.request import summed


def start_problems(checkpoint: Checkpoint, machine: Machine, config: NodeConfig) -> list[Problem]:
    """Yield what keeps a kubelet with these settings from starting with this file; nothing if it starts.

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
        return [Problem("pool", "default cpuset cannot be empty")] if checkpoint.entries else []
    reserved = reserve(config, topology)
    strict = config.options.strict_cpu_reservation
    return [
        *_reservation(checkpoint.default, reserved, strict),
        *_overlaps(checkpoint),
        *_total(checkpoint, topology.all & ~reserved if strict else topology.all),
    ]


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
    """Yield what keeps a kubelet under this policy from starting with this file; nothing if it starts.

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
    """Yield what keeps a Static memory manager from starting by its settings alone; upstream's texts (1.36).

    `node_allocatable` is the memory of kubeReserved, systemReserved and the hard eviction threshold together,
    in bytes; None where it is unknown. Upstream: `validateReservedMemory` and `NewPolicyStatic`.
    """
    totals = summed(reserved.values())
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
    stored: Mapping[int, NodeMemory], expected: Mapping[int, _Node], *, grouped: bool
) -> Iterator[Problem]:
    for node in sorted({*stored, *expected}):
        if node not in expected:
            yield _differs(f"NUMA node {node} is in the file, not in the machine")
        elif node not in stored:
            yield _differs(f"NUMA node {node} is in the machine, not in the file")
        else:
            yield from _of_node(node, stored, expected, grouped=grouped)


def _of_node(
    node: int, stored: Mapping[int, NodeMemory], expected: Mapping[int, _Node], *, grouped: bool
) -> Iterator[Problem]:
    before, now = stored[node], expected[node]
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
            yield from _of_group(where, name, now.group if grouped else (node,), stored, expected)


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
    stored: Mapping[int, NodeMemory],
    expected: Mapping[int, _Node],
) -> Iterator[Problem]:
    """Compare a group's sums only: how a block is spread over its group depends on what came first."""
    before = [stored[node].memory[name] for node in group if node in stored and name in stored[node].memory]
    now = [
        expected[node].memory[name] for node in group if node in expected and name in expected[node].memory
    ]
    for what, old, new in (
        ("free", sum(table.free for table in before), sum(table.free for table in now)),
        ("reserved", sum(table.reserved for table in before), sum(table.reserved for table in now)),
    ):
        if old & _UINT64 != new & _UINT64:
            yield _differs(f"{where}: {what} is {old} bytes in the file, {new} by its blocks")


def _differs(text: str) -> Problem:
    return Problem("machine", f"{_DIFFERENT}: {text}")


# Each rule of the start in turn, and a remedy where one fails; before them, which release reads which
# version.


Verdict: TypeAlias = Literal["ok", "warning", "fails"]

_REPAIR: Final = Reason(Code.REMEDY_REPAIR)
_CONVERT: Final = Reason(Code.REMEDY_CONVERT)
_DRAIN_POD_LEVEL: Final = Reason(Code.REMEDY_DRAIN_POD_LEVEL)
_RESERVE_MEMORY: Final = Reason(Code.REMEDY_RESERVE_MEMORY)
_CODES: Final = ("policy", "pool", "reserved", "overlap", "total")
_MEMORY_RULES: Final = {
    "policy": "policy {policy} is the configured one",
    "empty": "the file has this machine's memory",
    "blocks": "every container's memory is on an existing NUMA node",
    "machine": "sizes, reservations and assignments match the machine",
}


@dataclass(frozen=True, slots=True)
class StartRule:
    """One rule of the kubelet's start: `text` is upstream's where it fails."""

    name: str
    verdict: Verdict
    text: str
    remedy: Reason | None = None


def broken(rules: list[StartRule]) -> list[StartRule]:
    """Return the rules with which the kubelet would not start."""
    return [rule for rule in rules if rule.verdict == "fails"]


def check(
    content: Checkpoint, state: NodeState, minor: int = 36, visible: Checkpoint | None = None
) -> list[StartRule]:
    """Check every rule in the order of the start of a kubelet 1.`minor`; `state` is the empty node.

    `visible` is what this kubelet reads in the file, where that is less than `content`.
    """
    rules = [_version(content, minor)]
    content = visible or content
    problems = start_problems(content, state.machine, state.config)
    for code in _codes(content, problems):
        failing = [problem for problem in problems if problem.code == code]
        rules += [
            StartRule(problem.code, "fails", problem.text, _remedy(problem, content, state))
            for problem in failing
        ] or [_passed(code, content, state)]
    return rules + [StartRule("twice", "warning", text, _REPAIR) for text in _shared_by_pods(content)]


def _codes(content: Checkpoint, problems: list[Problem]) -> tuple[str, ...]:
    """The rules that are checked: another policy, none, or an empty pool end the list."""
    if content.policy == "none" or any(problem.code == "policy" for problem in problems):
        return ("policy",)
    return _CODES if content.default else ("policy", "pool")


def _version(content: Checkpoint, minor: int) -> StartRule:
    name, version = "version", content.version
    if version == 1 and minor >= 37:
        return StartRule(name, "fails", f"kubelet 1.{minor} does not read version 1", _REPAIR)
    if version == 1:
        text = "version 1: to migrate it, the kubelet must find every container id among its containers"
        return StartRule(name, "warning", text, _REPAIR)
    if version == 3 and minor < 36:
        text = f"kubelet 1.{minor} does not read version 3: checkpoint is corrupted"
        return StartRule(name, "fails", text, _CONVERT)
    if version == 3 and minor == 36:
        text = "version 3 is read only with feature gate PodLevelResourceManagers"
        return StartRule(name, "warning", text, Reason(Code.REMEDY_CONVERT_WITHOUT_GATE))
    if version == 4 and minor < 37 and content.pods:
        text = f"kubelet 1.{minor} reads version 4 as version 2, without pod-level CPUs"
        return StartRule(name, "warning", text, _DRAIN_POD_LEVEL)
    return StartRule(name, "ok", f"kubelet 1.{minor} reads version {version}")


def _passed(code: str, content: Checkpoint, state: NodeState) -> StartRule:
    reserved = state.reserved.mask
    place = "not in" if state.config.options.strict_cpu_reservation else "in"
    texts = {
        "policy": f"policy {content.policy} is the configured one",
        "pool": f"shared pool is {content.default}" if content.default else "no CPUs allocated yet",
        "reserved": f"reserved {named(reserved)} {verb(reserved)} {place} the shared pool",
        "overlap": "no container has CPUs of the shared pool",
        "total": "shared pool and containers make up all CPUs",
    }
    return StartRule(code, "ok", texts[code])


def _remedy(problem: Problem, content: Checkpoint, state: NodeState) -> Reason:
    if problem.code == "pool":
        return Reason(Code.REMEDY_FREE_CPUS)
    if problem.code == "reserved" and state.config.options.strict_cpu_reservation:
        return Reason(Code.REMEDY_REMOVE_STRICT)
    if problem.code == "reserved":
        return Reason(Code.REMEDY_RESERVE_OTHERS, (str(content.default),))
    if problem.code == "total":
        missing, gone = problem.cpus & state.usable, problem.cpus - state.usable
        return Reason(Code.REMEDY_REPAIR_TOTAL, (missing.mask, gone.mask))
    return _REPAIR


def _shared_by_pods(content: Checkpoint) -> Iterator[str]:
    """CPUs of two pods, which the kubelet does not check."""
    earlier = 0
    for uid, containers in content.entries.items():
        mask = content.pods.get(uid, CPUSet()).mask
        for cpus in containers.values():
            mask |= cpus.mask
        if both := mask & earlier:
            owned = verb(both, "belongs", "belong")
            yield f"{named(both)} of pod {uid} also {owned} to another pod, which the kubelet accepts"
        earlier |= mask


def check_memory(
    content: MemoryCheckpoint,
    machine: Machine,
    policy: str,
    reserved: Reserved,
    minor: int = 36,
    node_allocatable: int | None = None,
) -> list[StartRule]:
    """Check the rules of a memory manager's start in upstream's order; the first failure ends the list.

    `node_allocatable` is as in `validation.reservation_problems`.
    """
    rules = [_memory_version(content, minor)]
    if policy == "Static":
        problem = next(reservation_problems(reserved, node_allocatable), None)
        if problem:
            return [*rules, StartRule("reservation", "fails", problem.text, _RESERVE_MEMORY)]
    problems = memory_start_problems(content, machine, policy, reserved, minor)
    for code, passed in _MEMORY_RULES.items():
        if texts := [problem.text for problem in problems if problem.code == code]:
            remedy = _memory_remedy(code, content)
            if (
                code == "machine"
                and minor < 32
                and not memory_start_problems(content, machine, policy, reserved)
            ):
                remedy = Reason(Code.REMEDY_MEMORY_GROUP)
            return [*rules, StartRule(code, "fails", _joined(texts), remedy)]
        rules.append(StartRule(code, "ok", passed.format(policy=policy)))
        if policy == "None":
            break
    return rules


def _memory_version(content: MemoryCheckpoint, minor: int) -> StartRule:
    version = content.version
    if version == 2 and minor < 36:
        text = f"kubelet 1.{minor} does not read version 2: checkpoint is corrupted"
        return StartRule("version", "fails", text, Reason(Code.REMEDY_REMOVE))
    if version == 2 and minor == 36:
        text = "version 2 is read only with feature gate PodLevelResourceManagers"
        return StartRule("version", "warning", text, Reason(Code.REMEDY_REMOVE_WITHOUT_GATE))
    if version == 3 and minor < 37 and content.pods:
        text = f"kubelet 1.{minor} reads version 3 as version 1, without pod-level memory"
        return StartRule("version", "warning", text, _DRAIN_POD_LEVEL)
    return StartRule("version", "ok", f"kubelet 1.{minor} reads version {version}")


def _joined(texts: list[str]) -> str:
    """A line for each problem; words that all begin with, up to a colon, only once."""
    words, _, _ = texts[0].partition(": ")
    if len(texts) == 1 or words.count("(") > words.count(")"):
        return "\n".join(texts)
    return "\n".join([f"{words}:", *(text.removeprefix(f"{words}: ") for text in texts)])


def _memory_remedy(code: str, content: MemoryCheckpoint) -> Reason:
    if code == "policy":
        return Reason(Code.REMEDY_MEMORY_POLICY, (content.policy or "None",))
    if not content.entries:
        return Reason(Code.REMEDY_REMOVE_UNUSED)
    return Reason(Code.REMEDY_RESERVED_MEMORY if code == "machine" else Code.REMEDY_REMOVE)
