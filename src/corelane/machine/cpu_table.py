"""A machine from a table with one row for each CPU, as lscpu and hwloc can be brought into."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from corelane.cpuset import CPUSet, named, verb
from corelane.machine import model
from corelane.machine.model import CPU, Device, Machine, MachineError, NUMANode, default_distances


@dataclass(frozen=True, slots=True)
class TableRow:
    """One online CPU. Equal numbers belong together (in `core` within a socket); None is unknown."""

    cpu: int
    core: int | None
    socket: int | None
    numa: int | None
    l3: int | None = None
    core_id: int | None = None
    die: int = 0
    max_khz: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of a NUMA node besides its CPUs: bytes, pages by size in KiB, distances by node."""

    memory: int = 0
    hugepages: Mapping[int, int] | None = None
    distances: Mapping[int, int] | None = None


def assemble(
    rows: Iterable[TableRow],
    *,
    name: str,
    source: str,
    nodes: Mapping[int, NodeFacts] | None = None,
    offline: CPUSet | None = None,
    devices: Collection[Device] = (),
    notes: Collection[str] = (),
) -> Machine:
    """The machine; values that rows leave out are as in docs/machines.md.

    Raises MachineError without rows.
    """
    rows = sorted(rows, key=lambda row: row.cpu)
    if not rows:
        raise MachineError(f"{source}: it names no CPU that is online")
    cpus, notes = _cpus(rows), [*notes, *_homeless(rows)]
    online = CPUSet(row.cpu for row in rows)
    facts = dict(nodes or {})
    ids = sorted({*facts, *(cpu.numa for cpu in cpus)})
    return Machine(
        name=name,
        cpus=cpus,
        nodes=tuple(_node(node, facts.get(node, NodeFacts()), ids, cpus) for node in ids),
        online=online,
        offline=(offline or CPUSet()) - online,
        allowed=online,
        devices=tuple(devices),
        notes=(*notes, *model.crossings(cpus)),
        source=source,
    )


def _cpus(rows: list[TableRow]) -> tuple[CPU, ...]:
    first: dict[tuple[int, int], int] = {}
    for row in rows:
        first.setdefault(_core_key(row), row.cpu)
    numa = _numa(rows)
    by_value = model.core_kinds({row.cpu: row.max_khz for row in rows})
    has_l3 = any(row.l3 is not None for row in rows)
    above = 1 + max((row.l3 or 0 for row in rows), default=0)
    return tuple(
        CPU(
            id=row.cpu,
            core=(core := first[_core_key(row)]),
            core_id=_first_known(row.core_id, row.core, core),
            socket=row.socket or 0,
            die=row.die,
            cluster=core,
            l3=row.l3 if row.l3 is not None else (row.socket or 0) + above * has_l3,
            numa=numa[row.cpu],
            kind=row.kind or by_value[row.cpu],
            max_khz=row.max_khz,
            uncore=row.socket or 0 if has_l3 and row.l3 is None else None,
        )
        for row in rows
    )


def _numa(rows: list[TableRow]) -> dict[int, int]:
    """An unknown node is the lowest of the socket's, else the lowest of all."""
    placed = [(row.socket, row.numa) for row in rows if row.numa is not None]
    lowest = min((numa for _, numa in placed), default=0)
    by_socket = {socket: min(numa for other, numa in placed if other == socket) for socket, _ in placed}
    return {row.cpu: by_socket.get(row.socket, lowest) if row.numa is None else row.numa for row in rows}


def _homeless(rows: list[TableRow]) -> Iterator[str]:
    """A note about CPUs that a source with NUMA nodes puts into none."""
    numa, unknown = _numa(rows), [row.cpu for row in rows if row.numa is None]
    if unknown and len(unknown) < len(rows):
        mask = sum(1 << cpu for cpu in unknown)
        to = ",".join(str(node) for node in sorted({numa[cpu] for cpu in unknown}))
        yield f"{named(mask)} {verb(mask)} listed in no NUMA node: put into node {to}"


def _first_known(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _core_key(row: TableRow) -> tuple[int, int]:
    return (row.socket or 0, row.core) if row.core is not None else (-1, row.cpu)


def _node(node: int, facts: NodeFacts, ids: list[int], cpus: tuple[CPU, ...]) -> NUMANode:
    return NUMANode(
        node,
        CPUSet(cpu.id for cpu in cpus if cpu.numa == node),
        facts.memory,
        dict(facts.hugepages or {}),
        dict(facts.distances or default_distances(node, ids)),
    )
