"""Machines from a short text, `socket:2 numa:4 core:16 smt:2`.

As in hwloc's synthetic topologies every count is per parent. CPUs are numbered as Linux numbers them on x86:
the first threads of all cores, then all second threads, and so on. `isolated:LIST` names some of these.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from corelane.cpuset import CPUSet, CPUSetError, named, verb
from corelane.machine.model import CPU, MAX_CPUS, MAX_NODE, Machine, MachineError, NUMANode, default_distances

_LEVELS = ("socket", "numa", "l3", "core", "smt")
_ISOLATED = "isolated"
_WORDS = {
    "socket": "socket",
    "package": "socket",
    "pack": "socket",
    "numa": "numa",
    "numanode": "numa",
    "node": "numa",
    "l3": "l3",
    "l3cache": "l3",
    "core": "core",
    "smt": "smt",
    "thread": "smt",
    "pu": "smt",
    "mem": "mem",
    "memory": "mem",
    _ISOLATED: _ISOLATED,
}
_BETWEEN = re.compile(r"[\s,]+(?![\s,0-9])")
"""Between words; blanks and commas before a digit are within a list of CPUs."""
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"([0-9]+)([kmgt]?)i?b?", re.ASCII)
_DEFAULT_MEMORY = 4 * 1024**3
_HELP = (
    "write it like 'socket:2 numa:4 core:16 smt:2', each count per parent; "
    "l3:N (before core), mem:SIZE (per NUMA node) and isolated:LIST (CPUs) are optional"
)


@dataclass(frozen=True, slots=True)
class _Shape:
    socket: int = 1
    numa: int = 1
    l3: int = 1
    core: int = 1
    smt: int = 1
    mem: int | None = None
    isolated: CPUSet = field(default_factory=CPUSet)

    @property
    def cores(self) -> int:
        return self.socket * self.numa * self.l3 * self.core


def parse_spec(text: str, *, name: str = "", file: str = "") -> Machine:
    """The machine that a spec describes; MachineError, which names `file` if it is from one, when it is none.

    `mem:` takes bytes or a binary unit (`mem:64G`); without it a NUMA node gets 4 GiB for each of its CPUs.
    """
    shape = _parse(text, f"{file}: machine spec" if file else f"machine spec {text!r}")
    cpus = tuple(_cpu(shape, cpu) for cpu in range(shape.cores * shape.smt))
    nodes = tuple(_node(shape, node) for node in range(shape.socket * shape.numa))
    online = CPUSet(range(len(cpus)))
    spec = " ".join(text.split())
    return Machine(name or spec, cpus, nodes, online, allowed=online, isolated=shape.isolated, source=spec)


def _parse(text: str, where: str) -> _Shape:
    values: dict[str, Any] = {}
    for token in filter(None, _BETWEEN.split(text.strip(" \t\r\n,"))):
        word, colon, value = token.partition(":")
        level = _WORDS.get(word.lower())
        if level is None or not colon:
            raise MachineError(f"{where}: {token!r} is none of its words; {_HELP}")
        if level in values:
            raise MachineError(f"{where}: {level} is given twice; {_HELP}")
        values[level] = _value(where, level, token, value)
    _check_order(where, [level for level in values if level in _LEVELS])
    shape = _Shape(**values)
    if (cpus := shape.cores * shape.smt) > MAX_CPUS:
        raise MachineError(f"{where}: {cpus} CPUs are more than Linux' {MAX_CPUS}; lower a count")
    if (nodes := shape.socket * shape.numa) > MAX_NODE + 1:
        raise MachineError(f"{where}: {nodes} NUMA nodes are more than Linux' {MAX_NODE + 1}; lower a count")
    if missing := shape.isolated - CPUSet(range(cpus)):
        these = f"{named(missing.mask)} {verb(missing.mask)}"
        raise MachineError(f"{where}: isolated {these} not on it: it has 0-{cpus - 1}")
    return shape


def _value(where: str, level: str, token: str, value: str) -> int | CPUSet:
    if level == _ISOLATED:
        return _cpus(where, token, value)
    return _size(where, value) if level == "mem" else _count(where, token, value)


def _cpus(where: str, token: str, value: str) -> CPUSet:
    try:
        return CPUSet.parse(",".join(value.replace(",", " ").split()) or "none")
    except CPUSetError:
        raise MachineError(f"{where}: {token!r} is not a list of CPUs such as isolated:2-3,10") from None


def _count(where: str, token: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", value, re.ASCII) or int(value) == 0:
        raise MachineError(f"{where}: {token!r} needs a count from 1 to {MAX_CPUS}; {_HELP}")
    return int(value)


def _size(where: str, value: str) -> int:
    match = _SIZE.fullmatch(value.lower())
    if not match or len(match[1]) > 18:
        raise MachineError(f"{where}: mem:{value} is not a size; write it like mem:64G")
    return int(match[1]) << _SHIFTS[match[2]]


def _check_order(where: str, levels: list[str]) -> None:
    if not levels:
        raise MachineError(f"{where} names no level; {_HELP}")
    if levels != sorted(levels, key=_LEVELS.index):
        raise MachineError(f"{where}: levels go from the outside in: {' '.join(_LEVELS)}")


def _cpu(shape: _Shape, cpu: int) -> CPU:
    core = cpu % shape.cores
    l3 = core // shape.core
    numa = l3 // shape.l3
    socket = numa // shape.numa
    per_socket = shape.cores // shape.socket
    return CPU(cpu, core, core % per_socket, socket, 0, core, l3, numa)


def _node(shape: _Shape, node: int) -> NUMANode:
    per_node = shape.l3 * shape.core
    first = [node * per_node + core for core in range(per_node)]
    cpus = CPUSet(core + thread * shape.cores for core in first for thread in range(shape.smt))
    memory = _DEFAULT_MEMORY * len(cpus) if shape.mem is None else shape.mem
    return NUMANode(node, cpus, memory, {}, _distances(shape, node))


def _distances(shape: _Shape, node: int) -> dict[int, int]:
    """10 to itself, 12 within the socket (as EPYC reports), else 20 or, beside such neighbours, 32."""
    nodes = range(shape.socket * shape.numa)
    if shape.numa == 1:
        return default_distances(node, nodes)
    near, far = 12, 32
    return {
        other: 10 if other == node else near if other // shape.numa == node // shape.numa else far
        for other in nodes
    }
