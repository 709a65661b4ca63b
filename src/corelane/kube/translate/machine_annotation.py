"""A machine as an annotation, and back: for every level of the hardware, unit to CPU list.

`{"core": {"0": "0,64", …}, "socket": {"0": "0-31,64-95", …}, "numa": …, "l3": …}`: a few kilobytes for
hundreds of CPUs. Levels with the usual value on all CPUs are left out. Memory and distances of the NUMA nodes
are in the zones; devices are not published.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from corelane.cpuset import MAX_CPU, CPUSet, CPUSetError
from corelane.kube.keys import CPU_TOPOLOGY, MACHINE
from corelane.kube.translate.fields import TranslationError
from corelane.machine.model import CPU, MAX_NODE, Machine, MachineError, NUMANode, from_rows

_LEVELS: Final = tuple(field.name for field in fields(CPU) if field.name != "id")
_REQUIRED: Final = {"core", "socket", "numa", "l3"}
_SETS: Final = ("isolated", "nohz_full", "managed_irq")
_TEXT: Final = {"kind"}
_SOME: Final = {"uncore"}
"""Levels that may leave CPUs out."""


_INT32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


@dataclass(frozen=True, slots=True)
class CPUDetail:
    """A row of Koordinator's `cpu-topology`; `core` is unique within the socket."""

    id: Annotated[int, msgspec.Meta(ge=0, le=MAX_CPU)]
    core: _INT32
    socket: _INT32
    node: Annotated[int, msgspec.Meta(ge=0, le=MAX_NODE)]


class _Detail(msgspec.Struct):
    detail: list[CPUDetail]


@lru_cache(maxsize=16)
def dump(machine: Machine) -> str:
    """Return the machine's usable CPUs as text. Cached: it is published with every change of the ledger."""
    cpus = [cpu for cpu in machine.cpus if cpu.id in machine.usable]
    levels = {}
    for name in _LEVELS:
        if name in _REQUIRED or any(getattr(cpu, name) != _usual(name, cpu.core) for cpu in cpus):
            members: dict[Any, int] = {}
            for cpu in cpus:
                if (unit := getattr(cpu, name)) is not None:
                    members[unit] = members.get(unit, 0) | 1 << cpu.id
            levels[name] = {str(unit): str(CPUSet.from_mask(members[unit])) for unit in sorted(members)}
    sets = {name: str(value) for name in _SETS if (value := getattr(machine, name) & machine.usable)}
    return msgspec.json.encode({**levels, **sets}).decode()


def _usual(level: str, core: int) -> int | str | None:
    if level in _SOME:
        return None
    if level in {"core_id", "cluster"}:
        return core
    return "" if level in _TEXT else 0


def load(text: str, name: str, nodes: Mapping[int, NUMANode]) -> Machine:
    """Return the machine that `dump` wrote, with `nodes`' memory and distances. Raises TranslationError."""
    cpus, sets = _read(text)
    online = CPUSet(cpu.id for cpu in cpus)
    numa = _with_cpus(nodes, cpus)
    try:
        return Machine(name, cpus, numa, online, allowed=online, source="NodeResourceTopology", **sets)
    except MachineError as error:
        raise _broken(MACHINE, text, str(error)) from error


@lru_cache(maxsize=16)
def _read(text: str) -> tuple[tuple[CPU, ...], Mapping[str, Any]]:
    """CPUs, and sets of CPUs by name. Cached: equal machines publish equal texts."""
    tree = _decoded(MACHINE, text, dict[str, dict[str, str] | str])
    levels: dict[str, dict[int, Any]] = {}
    for level in _LEVELS:
        if isinstance(units := tree.get(level, {}), str):
            raise _broken(MACHINE, text, f"{level} is not an object")
        if level in tree:
            sets = [(_unit(text, level, unit), _cpus(text, level, cpus)) for unit, cpus in units.items()]
            levels[level] = {cpu: unit for unit, cpus in sets for cpu in cpus}
    if missing := _REQUIRED - levels.keys():
        raise _broken(MACHINE, text, f"lacks {', '.join(sorted(missing))}")
    cpus = tuple(_cpu(text, cpu, levels) for cpu in sorted(levels["core"]))
    if not cpus:
        raise _broken(MACHINE, text, "names no CPU")
    return cpus, {key: _cpus(text, key, tree.get(key, "")) for key in _SETS}


def _unit(text: str, level: str, unit: str) -> int | str:
    if level in _TEXT:
        return unit
    if not unit.isascii() or not unit.removeprefix("-").isdecimal() or len(unit) > 18:
        raise _broken(MACHINE, text, f"{level} has the unit {unit!r}, which is not a number")
    if level == "numa" and not 0 <= int(unit) <= MAX_NODE:
        raise _broken(MACHINE, text, f"numa has the unit {unit!r}, which is not between 0 and {MAX_NODE}")
    return int(unit)


def _cpu(text: str, cpu: int, levels: Mapping[str, Mapping[int, Any]]) -> CPU:
    core = levels["core"][cpu]
    try:
        given = {name: units for name, units in levels.items() if name not in _SOME or cpu in units}
        values: dict[str, Any] = {n: given[n][cpu] if n in given else _usual(n, core) for n in _LEVELS}
    except KeyError:
        lacking = ", ".join(name for name in given if cpu not in given[name])
        raise _broken(MACHINE, text, f"CPU {cpu} is missing from {lacking}") from None
    return CPU(cpu, **values)


def _cpus(text: str, key: str, value: object) -> CPUSet:
    try:
        return CPUSet.parse(value if isinstance(value, str) else "?")
    except CPUSetError as error:
        raise _broken(MACHINE, text, f"{key}: {value!r} is not a CPU list: {error}") from error


def _with_cpus(nodes: Mapping[int, NUMANode], cpus: Iterable[CPU]) -> tuple[NUMANode, ...]:
    members: dict[int, int] = dict.fromkeys(nodes, 0)
    for cpu in cpus:
        members[cpu.numa] = members.get(cpu.numa, 0) | 1 << cpu.id
    return tuple(
        NUMANode(id_, CPUSet.from_mask(mask), known.memory, known.hugepages, known.distances)
        if (known := nodes.get(id_))
        else NUMANode(id_, CPUSet.from_mask(mask))
        for id_, mask in sorted(members.items())
    )


@lru_cache(maxsize=16)
def detail(machine: Machine) -> str:
    """Return Koordinator's `cpu-topology` of the usable CPUs. Cached, as `dump`."""
    # The kernel's core ids where they are unique on each socket, else the lowest CPU ids.
    pairs = {(cpu.core, cpu.socket, cpu.core_id) for cpu in machine.cpus}
    unique = len(pairs) == len(machine.core_masks) == len({pair[1:] for pair in pairs})
    rows = [
        CPUDetail(cpu.id, cpu.core_id if unique else cpu.core, cpu.socket, cpu.numa)
        for cpu in machine.cpus
        if cpu.id in machine.usable
    ]
    return msgspec.json.encode(_Detail(rows)).decode()


def load_detail(text: str, name: str, nodes: Mapping[int, NUMANode]) -> Machine:
    """Return the machine in Koordinator's `cpu-topology`, which has no caches: each socket counts as one."""
    rows = _decoded(CPU_TOPOLOGY, text, _Detail).detail
    if not rows:
        raise _broken(CPU_TOPOLOGY, text, "names no CPU")
    try:
        places = ((row.id, row.core, row.socket, row.node, row.socket) for row in rows)
        machine = from_rows(name, places, source="NodeResourceTopology")
    except ValueError as error:
        raise _broken(CPU_TOPOLOGY, text, str(error)) from error
    numa = _with_cpus({node.id: node for node in machine.nodes} | dict(nodes), machine.cpus)
    return replace(machine, nodes=numa)


def _decoded(key: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise _broken(key, text, str(error)) from error


def _broken(key: str, text: str, why: str) -> TranslationError:
    return TranslationError(f"metadata.annotations[{key}]", text, why)
