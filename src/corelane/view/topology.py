"""A machine as a tree, a table, lscpu's text, JSON, or an SVG."""

import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from corelane.cpuset import format_list
from corelane.machine import jsonform
from corelane.machine.model import CPU, Machine, NUMANode
from corelane.view import cpumap, svg, tables

HEADINGS = ("CPU", "CORE", "SOCKET", "DIE", "L3", "NUMA", "KIND", "MAX MHZ", "STATE")
_CORES_IN_FULL = 32
"""On larger machines the tree names runs of cores rather than each one."""


def tree(machine: Machine) -> str:
    """Return the machine as indented text, sockets outermost, with devices, special CPUs and notes below."""
    lines = [f"{machine.name}: {cpumap.counts(machine)}"]
    root, crossing = cpumap.nest(machine)
    # Units that share CPUs with units of the tree, but lie in none of them; then memory without CPUs.
    outside = [
        (
            f"{_title(unit)}: CPUs {format_list(unit.mask)}",
            _device_items(machine, {node.id for node in unit.nodes}),
        )
        for unit in crossing
    ]
    outside += [
        ("  ".join([f"NUMA node {node.id}", *_memory(node), "no CPUs"]), _device_items(machine, {node.id}))
        for node in machine.nodes
        if not node.cpus
    ]
    lines += _branches([*_unit_items(machine, root), *outside], "")
    return "\n".join([*lines, *_footer(machine)]) + "\n"


_Item = tuple[str, list["_Item"]]


def _branches(items: list[_Item], indent: str) -> Iterator[str]:
    for index, (title, children) in enumerate(items):
        last = index == len(items) - 1
        yield f"{indent}{'└─ ' if last else '├─ '}{title}"
        yield from _branches(children, indent + ("   " if last else "│  "))


def _unit_items(machine: Machine, unit: cpumap.Unit) -> list[_Item]:
    loose = unit.mask & ~sum(child.mask for child in unit.children)
    return [*(_unit_item(machine, child) for child in unit.children), *_core_items(machine, loose)]


def _unit_item(machine: Machine, unit: cpumap.Unit) -> _Item:
    """Return a unit and its parts; on a large machine a unit with one run of cores is a single line."""
    inside = _unit_items(machine, unit)
    devices = _device_items(machine, {node.id for node in unit.nodes})
    if len(inside) == 1 and not unit.children and len(machine.core_masks) > _CORES_IN_FULL:
        return f"{_title(unit)}  {inside[0][0]}", devices
    return _title(unit), [*inside, *devices]


def _title(unit: cpumap.Unit) -> str:
    facts = [size for node in unit.nodes for size in _memory(node)]
    pages = [(kib, count) for node in unit.nodes for kib, count in node.hugepages.items() if count]
    facts += [f"{count} x {cpumap.size(kib * 1024)} pages" for kib, count in pages]
    return "  ".join([unit.title, *facts])


def _memory(node: NUMANode) -> list[str]:
    return [cpumap.size(node.memory)] if node.memory else []


def _core_items(machine: Machine, mask: int) -> list[_Item]:
    """Return a line for each core, or on a large machine for each kind of cores."""
    lines, kinds = [], dict[tuple[str, int], list[cpumap.Core]]()
    for core in cpumap.cores(machine, mask):
        kinds.setdefault((core.kind, len(core.cpus)), []).append(core)
        word = "CPU" if len(core.cpus) == 1 else "CPUs"
        kind = f"  {core.kind}-core" if core.kind else ""
        mhz = f"  {core.cpus[0].max_khz // 1000} MHz" if core.kind and core.cpus[0].max_khz else ""
        lines.append(f"Core {core.id}: {word} {','.join(str(cpu.id) for cpu in core.cpus)}{kind}{mhz}")
    if len(machine.core_masks) > _CORES_IN_FULL:
        lines = []
        for (name, threads), cores in kinds.items():
            count = cpumap.plural(len(cores), f"{name}-core" if name else "core")
            cpus = format_list(sum(1 << cpu.id for core in cores for cpu in core.cpus))
            lines.append(f"{count} x {cpumap.plural(threads, 'thread')}: CPUs {cpus}")
    return [(line, []) for line in lines]


def _device_items(machine: Machine, nodes: Collection[int | None]) -> list[_Item]:
    """Return a line for each kind of the devices on these NUMA nodes."""
    kinds: dict[str, list[str]] = {}
    for device in machine.devices:
        if device.numa in nodes:
            driver = f" {device.driver}" if device.driver else ""
            kinds.setdefault(device.kind, []).append(device.address + driver)
    return [(f"{kind}: {', '.join(names)}", []) for kind, names in sorted(kinds.items())]


def _footer(machine: Machine) -> Iterator[str]:
    if loose := _device_items(machine, {None}):
        yield from ("near no node:", *_branches(loose, ""))
    ids = [node.id for node in machine.nodes]
    if len(ids) > 1:
        width = (
            max(len(str(cell)) for node in machine.nodes for cell in (node.id, *node.distances.values())) + 1
        )
        yield "distances  " + "".join(str(other).rjust(width) for other in ids)
        for node in machine.nodes:
            row = (str(node.distances.get(other, "?")).rjust(width) for other in ids)
            yield f"  node {node.id}".ljust(11) + "".join(row)
    sets = {
        "offline": machine.offline,
        "not allowed to this process": machine.online - machine.allowed,
        "isolated": machine.isolated,
        "nohz_full": machine.nohz_full,
        "no managed interrupts": machine.managed_irq,
    }
    yield from (f"{name}: {special}" for name, special in sets.items() if special)
    for irq in machine.irqs:
        name = f" ({irq.name})" if irq.name else ""
        cpus = f"CPU{'s' if len(irq.cpus) > 1 else ''} {irq.cpus}" if irq.cpus else "no CPU"
        yield f"managed interrupt {irq.number}{name}: {cpus}"
    yield from (f"note: {note}" for note in machine.notes)


def table(machine: Machine) -> list[tuple[str, ...]]:
    """Yield a row for each CPU, offline ones too, with cells under `HEADINGS`."""
    rows = {cpu.id: _row(machine, cpu) for cpu in machine.cpus}
    rows |= {cpu: (str(cpu), *["-"] * (len(HEADINGS) - 2), "offline") for cpu in machine.offline}
    return [rows[cpu] for cpu in sorted(rows)]


def _row(machine: Machine, cpu: CPU) -> tuple[str, ...]:
    numbers = (cpu.id, cpu.core, cpu.socket, cpu.die, cpu.l3, cpu.numa)
    mhz = str(cpu.max_khz // 1000) if cpu.max_khz else "-"
    states = ["online" if cpu.id in machine.allowed else "not allowed"]
    special = {"isolated": machine.isolated, "nohz_full": machine.nohz_full}
    states += [name for name, cpus in special.items() if cpu.id in cpus]
    return (*(str(number) for number in numbers), cpu.kind or "-", mhz, ", ".join(states))


def lscpu(machine: Machine) -> str:
    """Return the form of `lscpu -p` with the columns CPU, Core, Socket, Node and L3.

    As in lscpu, cores, sockets and caches count from 0 in order of their lowest CPU; nodes keep their id.
    """
    core, socket, l3 = (
        {place: i for i, place in enumerate(dict.fromkeys(getattr(cpu, kind) for cpu in machine.cpus))}
        for kind in ("core", "socket", "l3")
    )
    lines = (
        f"{cpu.id},{core[cpu.core]},{socket[cpu.socket]},{cpu.numa},{l3[cpu.l3]}" for cpu in machine.cpus
    )
    return "\n".join(["# CPU,Core,Socket,Node,L3", *lines]) + "\n"


def _aligned(machine: Machine) -> str:
    out = io.StringIO()
    tables.show("", HEADINGS, table(machine), tables.console(out))
    return out.getvalue()


FORMS: Final[Mapping[str, Callable[[Machine], str]]] = {
    "tree": tree,
    "table": _aligned,
    "lscpu": lscpu,
    "json": lambda machine: json.dumps(jsonform.to_dict(machine), indent=2) + "\n",
    "svg": svg.svg,
}
"""The text of a machine by its form, with a newline at the end."""
