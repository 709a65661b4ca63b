"""A machine's CPUs as a map of letters for terminals: a row for each NUMA node, a cell for each core."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from corelane.cpuset import bits, format_list
from corelane.machine.model import Machine
from corelane.view import units
from corelane.view.owners import Entry, Owner, legend

__all__ = ["cpumap"]

_FREE, _FORBIDDEN, _GAP = "·", "✕", " | "


@dataclass(frozen=True, slots=True)
class _Cell:
    """A core: how many columns it takes, and its text, painted or not."""

    width: int
    text: str
    l3: int


def cpumap(
    machine: Machine, owners: Mapping[int, Owner] | None = None, *, width: int = 100, markup: bool = True
) -> str:
    """The map and its legend in lines of at most `width` columns, in rich's markup or plain.

    A cell has a letter for each thread of a core, and `|` parts L3 domains. CPUs without an owner are dots,
    those not allowed to this process crosses.
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


def _cell(machine: Machine, core: units.Core, by_cpu: Mapping[int, Entry], markup: bool) -> _Cell:
    letters = [_letter(machine, cpu.id, by_cpu.get(cpu.id)) for cpu in core.cpus]
    painted = "".join(
        _painted(letter, by_cpu.get(cpu.id), markup) for letter, cpu in zip(letters, core.cpus, strict=True)
    )
    return _Cell(len(letters), painted, core.cpus[0].l3)


def _letter(machine: Machine, cpu: int, entry: Entry | None) -> str:
    if entry:
        return entry.letter
    return _FREE if cpu in machine.usable else _FORBIDDEN


def _painted(text: str, entry: Entry | None, markup: bool) -> str:
    if not markup:
        return text
    return f"[{entry.text_colour} on {entry.colour}]{text}[/]" if entry else f"[dim]{text}[/]"


def _by_l3(cells: list[_Cell]) -> list[list[_Cell]]:
    domains: dict[int, list[_Cell]] = {}
    for cell in cells:
        domains.setdefault(cell.l3, []).append(cell)
    return list(domains.values())


def _rows(label: str, domains: list[list[_Cell]], cpus: str, width: int) -> Iterator[str]:
    """The cells in lines, broken between L3 domains if possible; the node's CPUs last, if they fit."""
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
    machine: Machine, entries: Mapping[Owner, Entry], by_cpu: Mapping[int, Entry], width: int, markup: bool
) -> Iterator[str]:
    rest = machine.cpus_mask & ~sum(1 << cpu for cpu in by_cpu)
    free, forbidden = rest & machine.usable.mask, rest & ~machine.usable.mask
    yield ""
    for entry in entries.values():
        yield _line(
            entry.letter, entry, f"{entry.owner.name}  {entry.owner.qos}".rstrip(), entry.mask, width, markup
        )
    if free:
        yield _line(_FREE, None, "no owner", free, width, markup)
    if forbidden:
        yield _line(_FORBIDDEN, None, "not allowed to this process", forbidden, width, markup)
    if machine.offline:
        yield _line(" ", None, "offline", machine.offline.mask, width, markup)


def _line(letter: str, entry: Entry | None, name: str, mask: int, width: int, markup: bool) -> str:
    text = f"{name}  {format_list(mask)} ({units.plural(mask.bit_count(), 'CPU')})"
    room = max(width - 5, 20)
    text = text if len(text) <= room else f"{text[: room - 1]}…"
    return f"  {_painted(letter, entry, markup)}  {_escaped(text) if markup else text}"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
