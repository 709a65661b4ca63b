"""A machine's CPUs as a map of letters for terminals: a row for each NUMA node, a cell for each core."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from corelane.cpuset import bits, format_list
from corelane.machine.model import Machine
from corelane.view import units
from corelane.view.owners import LegendEntry, Owner, legend

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
        cells = [_cell(machine, core, by_cpu, markup) for core in units.cores(machine, mask)]
        label = f"node {node}".ljust(_label_width(machine))
        lines += _rows(label, _by_l3(cells), format_list(mask), width)
    lines += _legend(machine, entries, by_cpu, width, markup)
    return "\n".join(lines) + "\n"


def _label_width(machine: Machine) -> int:
    return max(len(f"node {node}") for node, _ in machine.numa_masks)


def _cell(machine: Machine, core: units.Core, by_cpu: Mapping[int, LegendEntry], markup: bool) -> _Cell:
    letters = [_letter(machine, cpu.id, by_cpu.get(cpu.id)) for cpu in core.cpus]
    painted = "".join(
        _painted(letter, by_cpu.get(cpu.id), markup) for letter, cpu in zip(letters, core.cpus, strict=True)
    )
    return _Cell(len(letters), painted, core.cpus[0].l3)


def _letter(machine: Machine, cpu: int, entry: LegendEntry | None) -> str:
    if entry:
        return entry.letter
    return _FREE if cpu in machine.usable else _FORBIDDEN


def _painted(text: str, entry: LegendEntry | None, markup: bool) -> str:
    if not markup:
        return text
    return f"[{entry.text_colour} on {entry.colour}]{text}[/]" if entry else f"[dim]{text}[/]"


def _by_l3(cells: list[_Cell]) -> list[list[_Cell]]:
    domains: dict[int, list[_Cell]] = {}
    for cell in cells:
        domains.setdefault(cell.l3, []).append(cell)
    return list(domains.values())


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
    count = units.plural(mask.bit_count(), "CPU")
    for i, line in enumerate(_wrapped(f"{title}  {format_list(mask)} ({count})", max(width - 7, 20))):
        mark = "       " if i else f"  {_painted(letter, entry, markup)}  "
        yield mark + (_escaped(line) if markup else line)


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


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
