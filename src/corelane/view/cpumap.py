"""A machine's CPUs as a map of letters for terminals: a row for each NUMA node, a cell for each core."""

import colorsys
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from corelane.cpuset import bits, format_list
from corelane.machine.model import CPU, Machine, NUMANode

_PALETTE = (
    "#2f6db5", "#f2912f", "#3d8b4a", "#8e5ea2", "#d1495b", "#5ab8b2",
    "#e9c846", "#8c6248", "#f4a3b3", "#a3c644", "#41557e", "#8fc1ea",
)  # fmt: skip
_LETTERS = "ABCDEFGHIJKLMNOPQSTUVWXYZabcdefghijklmnopqstuvwxyz"
_NEUTRAL = {"shared": ("░", "#c3ccd6"), "reserved": ("R", "#8b949e")}


@dataclass(frozen=True, slots=True)
class Owner:
    """A container as `namespace/pod/container` with its QoS class, or a pool.

    The classes `shared` (shared pool) and `reserved` (the system's CPUs) are drawn in grey.
    """

    name: str
    qos: str = ""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line of the legend: `colour` is #rrggbb, `mask` the owner's CPUs."""

    owner: Owner
    letter: str
    colour: str
    mask: int

    @property
    def title(self) -> str:
        """Name and class; of the grey owners the name alone."""
        grey = self.owner.qos in _NEUTRAL
        return self.owner.name if grey else f"{self.owner.name}  {self.owner.qos}".rstrip()

    @property
    def text_colour(self) -> str:
        """Black or white, by relative luminance (WCAG 2.2), in doubt white."""
        red, green, blue = (_linear(int(self.colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
        return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.22 else "#ffffff"


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def legend(machine: Machine, owners: Mapping[int, Owner] | None) -> dict[Owner, LegendEntry]:
    """Return an entry for each owner of a CPU of this machine, by their lowest CPU, the grey ones last."""
    masks: dict[Owner, int] = {}
    for cpu, owner in sorted((owners or {}).items()):
        if machine.cpus_mask >> cpu & 1:
            masks[owner] = masks.get(owner, 0) | 1 << cpu
    coloured = [owner for owner in masks if owner.qos not in _NEUTRAL]
    grey = [owner for owner in masks if owner.qos in _NEUTRAL]
    entries = {}
    for index, owner in enumerate(coloured):
        letter = _LETTERS[index] if index < len(_LETTERS) else "#"
        colour = _PALETTE[index] if index < len(_PALETTE) else _further_colour(index)
        entries[owner] = LegendEntry(owner, letter, colour, masks[owner])
    return entries | {owner: LegendEntry(owner, *_NEUTRAL[owner.qos], masks[owner]) for owner in grey}


def _further_colour(index: int) -> str:
    """Return hues a golden angle apart, which never repeat; three lightnesses separate successive ones."""
    channels = colorsys.hls_to_rgb(index * 0.618034 % 1, (0.42, 0.56, 0.7)[index % 3], 0.5)
    return "#" + "".join(f"{round(channel * 255):02x}" for channel in channels)


_KINDS = ("Socket", "NUMA node", "L3")
_UNITS = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


@dataclass(frozen=True, slots=True)
class Core:
    """A core with its threads, ascending by id."""

    id: int
    cpus: tuple[CPU, ...]

    @property
    def kind(self) -> str:
        return self.cpus[0].kind


@dataclass(slots=True)
class Unit:
    """A group of CPUs. `names` has more than one where units hold the same CPUs (a socket with one node)."""

    kind: str
    names: list[str]
    mask: int
    nodes: list[NUMANode] = field(default_factory=list)
    children: list["Unit"] = field(default_factory=list)

    @property
    def title(self) -> str:
        return " · ".join(self.names)


def nest(machine: Machine) -> tuple[Unit, list[Unit]]:
    """Return the machine as a tree, and the units that cross another and so are not in it.

    An L3 shared by two sockets crosses, or a hypervisor's NUMA nodes.
    """
    root = Unit("Machine", [machine.name], machine.cpus_mask)
    tables = zip(_KINDS, (machine.socket_masks, machine.numa_masks, machine.l3_masks), strict=True)
    groups = [(kind, number, mask) for kind, table in tables for number, mask in table]
    # The largest first, and sockets before nodes before caches.
    groups.sort(key=lambda group: (-group[2].bit_count(), _KINDS.index(group[0]), group[1]))
    units = [
        Unit(kind, [f"{kind} {number}"], mask, [machine.node(number)] if kind == "NUMA node" else [])
        for kind, number, mask in groups
    ]
    crossing = [unit for unit in units if not _insert(root, unit)]
    _sort(root)
    return root, crossing


def _insert(parent: Unit, unit: Unit) -> bool:
    for child in parent.children:
        if child.mask == unit.mask:
            child.names += unit.names
            child.nodes += unit.nodes
            return True
        if child.mask & unit.mask == unit.mask:
            return _insert(child, unit)
        if child.mask & unit.mask:
            return False
    parent.children.append(unit)
    return True


def _sort(unit: Unit) -> None:
    unit.children.sort(key=lambda child: child.mask & -child.mask)
    for child in unit.children:
        _sort(child)


def cores(machine: Machine, mask: int) -> Iterator[Core]:
    """Yield the cores with CPUs in `mask`, ascending by id."""
    for number, members in machine.core_masks:
        if members & mask:
            yield Core(number, tuple(machine.cpu(cpu) for cpu in bits(members & mask)))


def counts(machine: Machine) -> str:
    """`2 sockets · 8 NUMA nodes · 16 L3 domains · 128 cores · 256 CPUs · 512 GiB`."""
    parts = [
        plural(len(machine.socket_masks), "socket"),
        plural(len(machine.nodes), "NUMA node"),
        plural(len(machine.l3_masks), "L3 domain"),
        plural(len(machine.core_masks), "core"),
        plural(len(machine.cpus), "CPU"),
    ]
    total = memory(machine)
    return " · ".join([*parts, size(total)] if total else parts)


def memory(machine: Machine) -> int:
    """Return the memory of all nodes, in bytes."""
    return sum(node.memory for node in machine.nodes)


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def size(count: int) -> str:
    """Format bytes in the largest binary unit that keeps at least one digit before the point: `62.5 GiB`."""
    for name, shift in _UNITS:
        if count >> shift:
            return f"{count / (1 << shift):.1f}".removesuffix(".0") + f" {name}"
    return f"{count} B"


_FREE, _FORBIDDEN, _GAP = "·", "✕", " | "


@dataclass(frozen=True, slots=True)
class _Cell:
    """A core: the columns that it takes, and its text, with or without markup."""

    width: int
    text: str
    l3: int


def cpumap(
    machine: Machine, owners: Mapping[int, Owner] | None = None, *, width: int = 100, markup: bool = True
) -> str:
    """Return the map and its legend in lines of at most `width` columns, in rich's markup or plain.

    A cell has a letter for each thread of a core; `|` separates L3 domains. A dot is a CPU without an owner,
    a cross one that this process may not use.
    """
    entries = legend(machine, owners)
    by_cpu = {cpu: entry for entry in entries.values() for cpu in bits(entry.mask)}
    lines: list[str] = []
    for node, mask in machine.numa_masks:
        cells = [_cell(machine, core, by_cpu, markup) for core in cores(machine, mask)]
        label = f"node {node}".ljust(max(len(f"node {node}") for node, _ in machine.numa_masks))
        domains: dict[int, list[_Cell]] = {}
        for cell in cells:
            domains.setdefault(cell.l3, []).append(cell)
        lines += _rows(label, list(domains.values()), format_list(mask), width)
    lines += _legend(machine, entries, by_cpu, width, markup)
    return "\n".join(lines) + "\n"


def _cell(machine: Machine, core: Core, by_cpu: Mapping[int, LegendEntry], markup: bool) -> _Cell:
    letters = [
        entry.letter if (entry := by_cpu.get(cpu.id)) else _FREE if cpu.id in machine.usable else _FORBIDDEN
        for cpu in core.cpus
    ]
    painted = "".join(
        _painted(letter, by_cpu.get(cpu.id), markup) for letter, cpu in zip(letters, core.cpus, strict=True)
    )
    return _Cell(len(letters), painted, core.cpus[0].l3)


def _painted(text: str, entry: LegendEntry | None, markup: bool) -> str:
    if not markup:
        return text
    return f"[{entry.text_colour} on {entry.colour}]{text}[/]" if entry else f"[dim]{text}[/]"


def _rows(label: str, domains: list[list[_Cell]], cpus: str, width: int) -> Iterator[str]:
    """Yield lines of cells, broken between L3 domains if possible; the node's CPUs last, if they fit."""
    start = len(label) + 1
    line, used = "", 0
    for domain in domains:
        whole = sum(cell.width + 1 for cell in domain) - 1
        for place, cell in enumerate(domain):
            gap = "" if not line else _GAP if place == 0 else " "
            needed = len(gap) + (whole if place == 0 and start + whole <= width else cell.width)
            if line and start + used + needed > width:
                yield f"{label} {line}"
                label, line, used, gap = " " * len(label), "", 0, ""
            line, used = line + gap + cell.text, used + len(gap) + cell.width
    yield f"{label} {line}" + (f"  {cpus}" if start + used + 2 + len(cpus) <= width else "")


def _legend(
    machine: Machine,
    entries: Mapping[Owner, LegendEntry],
    by_cpu: Mapping[int, LegendEntry],
    width: int,
    markup: bool,
) -> Iterator[str]:
    rest = machine.cpus_mask & ~sum(1 << cpu for cpu in by_cpu)
    free, forbidden = rest & machine.usable.mask, rest & ~machine.usable.mask
    yield ""
    for entry in entries.values():
        yield from _lines(entry.letter, entry, entry.title, entry.mask, width, markup)
    if free:
        yield from _lines(_FREE, None, "no owner", free, width, markup)
    if forbidden:
        yield from _lines(_FORBIDDEN, None, "not allowed to this process", forbidden, width, markup)
    if machine.offline:
        yield from _lines(" ", None, "offline", machine.offline.mask, width, markup)


def _lines(
    letter: str, entry: LegendEntry | None, title: str, mask: int, width: int, markup: bool
) -> Iterator[str]:
    """Yield one line of the legend, or several with breaks behind spaces and commas."""
    from rich.markup import escape

    count = plural(mask.bit_count(), "CPU")
    for i, line in enumerate(_wrapped(f"{title}  {format_list(mask)} ({count})", max(width - 7, 20))):
        mark = "       " if i else f"  {_painted(letter, entry, markup)}  "
        yield mark + (escape(line) if markup else line)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Break a line behind commas, spaces, or where a word is too long."""
    line = ""
    for piece in re.split(r"(?<=[, ])(?!CPUs?\))", text):
        if line and len(line) + len(piece.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece
        while len(line.rstrip()) > width:
            yield line[:width]
            line = line[width:]
    yield line
