"""A machine as an SVG: sockets, NUMA nodes, L3 domains, cores and threads, coloured by owner.

Boxes are measured from the inside out and then placed from the outside in. The colours are classes with a
second set for dark backgrounds, so that one file serves both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from math import ceil, log

from corelane.cpuset import bits, format_list
from corelane.machine.model import CPU, Machine
from corelane.view import cpumap
from corelane.view.cpumap import LegendEntry, Owner, legend

_CORE_PAD, _CORE_GAP = 3, 6
_PAD, _GAP, _MARGIN = 10, 10, 24
_HEADER = {"Socket": 30, "NUMA node": 28, "L3": 24}
_PLAIN = ("Machine", "cores")
"""Boxes without frame and title, which only contain others."""
_CLASS = {"Socket": "socket", "NUMA node": "numa", "L3": "l3"}
_GROUP_ASPECT, _CORES_ASPECT = 1.7, 3.2
_MIN_WIDTH = 620
_LEGEND_W, _LEGEND_H, _LETTER_W, _CAPTION_H = 310, 24, 7, 18
_SWATCH = 14
SANS = "ui-sans-serif,system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif"
_MONOSPACE = "ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,monospace"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_LIGHT = {
    "bg": "fill:#ffffff",
    "fg": "fill:#1f2328",
    "muted": "fill:#59636e",
    "socket": "fill:#f6f8fa;stroke:#d1d9e0",
    "numa": "fill:#ffffff;stroke:#afb8c1",
    "l3": "fill:#eef4fb;stroke:#b6d0ee",
    "core": "fill:#ffffff;stroke:#8c959f",
    "free": "fill:#e4e9ee",
    "free-text": "fill:#1f2328",
    "p": "fill:#d3e5fb",
    "m": "fill:#f6e7c1",
    "e": "fill:#d6efdb",
    "shared": "fill:#c3ccd6",
    "shared-text": "fill:#1f2328",
    "reserved": "fill:#8b949e",
    "reserved-text": "fill:#000000",
}
_DARK = {
    "bg": "fill:#0d1117",
    "fg": "fill:#e6edf3",
    "muted": "fill:#9198a1",
    "socket": "fill:#151b23;stroke:#3d444d",
    "numa": "fill:#0d1117;stroke:#57606a",
    "l3": "fill:#111d30;stroke:#2b4c77",
    "core": "fill:#0d1117;stroke:#656c76",
    "free": "fill:#2a313c",
    "free-text": "fill:#e6edf3",
    "p": "fill:#1d3b63",
    "m": "fill:#574a1f",
    "e": "fill:#1e4a2b",
    "shared": "fill:#454e59",
    "shared-text": "fill:#e6edf3",
    "reserved": "fill:#727a84",
}


@dataclass(slots=True)
class _Box:
    """A unit to be drawn: `width` and `height` once measured, `offsets` of its parts from its corner."""

    kind: str
    title: str
    detail: str = ""
    parts: list["_Box"] = field(default_factory=list)
    core: cpumap.Core | None = None
    width: int = 0
    height: int = 0
    offsets: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Size of a thread and of its number, in SVG units; larger on machines with fewer CPUs."""

    width: int
    height: int
    font: int


@dataclass(frozen=True, slots=True)
class _Style:
    """Values that all threads of a drawing share."""

    scale: _Scale

    machine: Machine
    by_cpu: Mapping[int, LegendEntry]
    classes: Mapping[Owner, str]
    owned: bool


def svg(machine: Machine, owners: Mapping[int, Owner] | None = None, *, captions: Sequence[str] = ()) -> str:
    """Return the drawing. Without `owners` threads are tinted by the kind of their core; names are escaped.

    `captions` are lines of text below it.
    """
    entries = legend(machine, owners)
    by_cpu = {cpu: entry for entry in entries.values() for cpu in bits(entry.mask)}
    grey = ("shared", "reserved")
    classes = {owner: owner.qos if owner.qos in grey else f"o{i}" for i, owner in enumerate(entries)}
    style = _Style(_scale(machine), machine, by_cpu, classes, owners is not None)
    root = _measured(_box(machine, cpumap.nest(machine)[0]), style.scale)
    longest = max(map(len, captions), default=0) * _LETTER_W
    width, top = max(root.width + 2 * _MARGIN, _MIN_WIDTH, longest + 2 * _MARGIN), _MARGIN + 52
    keys = list(_keys(machine, entries, style))
    key_lines, key_height = _legend(keys, width - 2 * _MARGIN, top + root.height + 20)
    below = top + root.height + 20 + key_height + _MARGIN // 2
    height = below + len(captions) * _CAPTION_H
    texts = (text_element(_MARGIN, below + i * _CAPTION_H, text, "fg") for i, text in enumerate(captions))
    body = [
        text_element(_MARGIN, _MARGIN + 14, machine.name, "fg", size=18, weight=600),
        text_element(_MARGIN, _MARGIN + 36, cpumap.counts(machine), "muted", size=13),
        *_draw(root, _MARGIN, top, style),
        *key_lines,
        *texts,
    ]
    return "\n".join([*_opening(machine, width, height, entries, style), *body, "</svg>"]) + "\n"


def _scale(machine: Machine) -> _Scale:
    wide = len(str(machine.cpus_mask.bit_length() - 1)) - 3
    if len(machine.cpus) <= 8:
        return _Scale(56, 34, 15)
    return _Scale(42, 26, 13) if len(machine.cpus) <= 32 else _Scale(30 + 7 * max(wide, 0), 20, 11)


def _opening(
    machine: Machine, width: int, height: int, entries: Mapping[Owner, LegendEntry], style: _Style
) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'font-family="{SANS}">'
    )
    yield f"<title>{escaped(machine.name)}</title>"
    yield f"<desc>{escaped(cpumap.counts(machine))}</desc>"
    yield "<style>"
    yield from (f".{name}{{{rule}}}" for name, rule in _LIGHT.items())
    for owner, entry in entries.items():
        if (name := style.classes[owner]) not in _LIGHT:
            yield f".{name}{{fill:{entry.colour}}}.{name}-text{{fill:{entry.text_colour}}}"
    yield f".id{{font:{style.scale.font}px {_MONOSPACE};text-anchor:middle}}"
    yield ".isolated{stroke:#d1242f;stroke-width:1.5;stroke-dasharray:3 2}.barred{opacity:.35}"
    yield "@media (prefers-color-scheme:dark){"
    yield from (f".{name}{{{rule}}}" for name, rule in _DARK.items())
    yield "}</style>"
    yield f'<rect class="bg" width="{width}" height="{height}"/>'


def escaped(text: str) -> str:
    """Return text for XML; characters that XML cannot have are replaced."""
    return escape(_NOT_XML.sub("\ufffd", text))


def text_element(
    x: float, y: float, text: str, css: str, *, size: int = 12, weight: int = 400, anchor: str = "start"
) -> str:
    """Return a line of text; names in it are escaped."""
    return (
        f'<text class="{css}" x="{x:.5g}" y="{y:.5g}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escaped(text)}</text>'
    )


def _box(machine: Machine, unit: cpumap.Unit) -> _Box:
    memory = sum(node.memory for node in unit.nodes)
    parts = [_box(machine, child) for child in unit.children]
    loose = unit.mask & ~sum(child.mask for child in unit.children)
    parts += _core_boxes(list(cpumap.cores(machine, loose)), bool(parts))
    if unit.kind == "Machine":
        parts += [
            _Box("NUMA node", f"NUMA node {node.id}", f"{cpumap.size(node.memory)}, no CPUs")
            for node in machine.nodes
            if not node.cpus
        ]
    return _Box(unit.kind, unit.title, cpumap.size(memory) if memory else "", parts)


def _core_boxes(cores: list[cpumap.Core], beside_units: bool) -> list[_Box]:
    """Group the cores: by kind, and apart from units beside them."""
    kinds: dict[str, list[_Box]] = {}
    for core in cores:
        kinds.setdefault(core.kind, []).append(_Box("core", "", core=core))
    if len(kinds) > 1 or beside_units:
        return [_Box("cores", "", parts=boxes) for boxes in kinds.values()]
    return [box for boxes in kinds.values() for box in boxes]


def _measured(box: _Box, scale: _Scale) -> _Box:
    """Set sizes and offsets of a box and its parts, and return it."""
    if box.core:
        columns, rows = _thread_grid(len(box.core.cpus))
        box.width = columns * scale.width + 2 * _CORE_PAD
        box.height = rows * scale.height + 2 * _CORE_PAD
        return box
    parts = [_measured(part, scale) for part in box.parts]
    gap, aspect = (_CORE_GAP, _CORES_ASPECT) if all(part.core for part in parts) else (_GAP, _GROUP_ASPECT)
    grid = _grid([(part.width, part.height) for part in parts], gap, aspect)
    pad, header = (0, 0) if box.kind in _PLAIN else (_PAD, _HEADER[box.kind])
    box.offsets = [(x + pad, y + header) for x, y in grid.offsets]
    title = _LETTER_W * (len(box.title) + len(box.detail)) + 2 * _PAD + (24 if box.detail else 0)
    box.width = max(grid.width + 2 * pad, 0 if box.kind in _PLAIN else title)
    box.height = header + grid.height + (pad if parts else 4)
    spare = box.width - grid.width - 2 * pad if grid.columns == 1 else 0
    for part, width in zip(parts, grid.widths, strict=True):
        part.width = part.width if part.core or part.kind in _PLAIN else width + spare
    return box


def _thread_grid(threads: int) -> tuple[int, int]:
    columns = threads if threads <= 2 else ceil(threads / 2)
    return columns, ceil(threads / columns)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Return places for parts: `widths` are those of the parts' columns."""

    columns: int
    width: int
    height: int
    offsets: Sequence[tuple[int, int]]
    widths: Sequence[int]


def _grid(sizes: Sequence[tuple[int, int]], gap: int, aspect: float) -> _Grid:
    """Return the grid closest to an aspect ratio with few empty places, over all numbers of columns."""
    grids = (_grid_of(sizes, columns, gap) for columns in range(1, len(sizes) + 1))
    return min(grids, key=lambda grid: _ugliness(grid, aspect), default=_Grid(0, 0, 0, (), ()))


def _grid_of(sizes: Sequence[tuple[int, int]], columns: int, gap: int) -> _Grid:
    widths = [max(width for width, _ in sizes[column::columns]) for column in range(columns)]
    heights = [
        max(height for _, height in sizes[row : row + columns]) for row in range(0, len(sizes), columns)
    ]
    xs = [0, *accumulate(width + gap for width in widths)]
    ys = [0, *accumulate(height + gap for height in heights)]
    return _Grid(
        columns,
        xs[-1] - gap,
        ys[-1] - gap,
        [(xs[i % columns], ys[i // columns]) for i in range(len(sizes))],
        [widths[i % columns] for i in range(len(sizes))],
    )


def _ugliness(grid: _Grid, aspect: float) -> float:
    rows = ceil(len(grid.offsets) / grid.columns)
    empty = 1 - len(grid.offsets) / (grid.columns * rows)
    return abs(log(grid.width / grid.height / aspect)) + 8 * empty


def _draw(box: _Box, x: int, y: int, style: _Style) -> Iterator[str]:
    if box.core:
        core = box.core
        yield (
            f'<rect class="core" x="{x + 0.5}" y="{y + 0.5}" width="{box.width - 1}" '
            f'height="{box.height - 1}" rx="5"/>'
        )
        columns, _ = _thread_grid(len(core.cpus))
        for index, cpu in enumerate(core.cpus):
            left = x + _CORE_PAD + index % columns * style.scale.width
            top = y + _CORE_PAD + index // columns * style.scale.height
            yield _draw_thread(cpu, left, top, style)
        return
    if box.kind not in _PLAIN:
        radius, weight = (8, 600) if box.kind == "Socket" else (6, 500)
        yield (
            f'<rect class="{_CLASS[box.kind]}" x="{x + 0.5}" y="{y + 0.5}" '
            f'width="{box.width - 1}" height="{box.height - 1}" rx="{radius}"/>'
        )
        baseline = y + _HEADER[box.kind] - 10 + (box.kind == "L3") * 2
        yield text_element(
            x + _PAD, baseline, box.title, "fg", weight=weight, size=11 if box.kind == "L3" else 13
        )
        if box.detail:
            yield text_element(x + box.width - _PAD, baseline, box.detail, "muted", anchor="end")
    for part, (dx, dy) in zip(box.parts, box.offsets, strict=True):
        yield from _draw(part, x + dx, y + dy, style)


def _draw_thread(cpu: CPU, x: int, y: int, style: _Style) -> str:
    entry, scale = style.by_cpu.get(cpu.id), style.scale
    fill, text = (cpu.kind.lower() if cpu.kind and not style.owned else "free"), "free-text"
    if entry:
        fill = style.classes[entry.owner]
        text = f"{fill}-text"
    state = " isolated" if cpu.id in style.machine.isolated else ""
    barred = "" if cpu.id in style.machine.allowed else ' class="barred"'
    place = f"CPU {cpu.id}, core {cpu.core}, L3 {cpu.l3}, NUMA node {cpu.numa}, socket {cpu.socket}"
    kind = f", {cpu.kind}-core" if cpu.kind else ""
    owner = f": {entry.owner.name} {entry.owner.qos}".rstrip() if entry else ""
    return (
        f"<g{barred}><title>{escaped(place + kind + owner)}</title>"
        f'<rect class="{fill}{state}" x="{x + 1}" y="{y + 1}" '
        f'width="{scale.width - 2}" height="{scale.height - 2}" rx="3"/>'
        f'<text class="id {text}" x="{x + scale.width / 2:g}" '
        f'y="{y + scale.height / 2 + scale.font * 0.36:g}">{cpu.id}</text></g>'
    )


@dataclass(frozen=True, slots=True)
class _Key:
    """A line of the legend: a swatch's class, a name, and a remark."""

    css: str
    name: str
    detail: str

    @property
    def width(self) -> int:
        return _SWATCH + 48 + _LETTER_W * (len(self.name) + len(self.detail))


def _keys(machine: Machine, entries: Mapping[Owner, LegendEntry], style: _Style) -> Iterator[_Key]:
    for owner, entry in entries.items():
        qos = "" if style.classes[owner] in _LIGHT else owner.qos
        count = cpumap.plural(entry.mask.bit_count(), "CPU")
        yield _Key(style.classes[owner], owner.name, " · ".join(filter(None, (qos, count))))
    free = machine.cpus_mask & ~sum(1 << cpu for cpu in style.by_cpu)
    if style.owned and free:
        yield _Key("free", "no owner", cpumap.plural(free.bit_count(), "CPU"))
    if not style.owned:
        yield from _kind_keys(machine)
    if machine.isolated:
        yield _Key("free isolated", "isolated", format_list(machine.isolated.mask))
    if forbidden := machine.cpus_mask & ~machine.allowed.mask:
        yield _Key("free barred", "not allowed to this process", cpumap.plural(forbidden.bit_count(), "CPU"))
    if machine.offline:
        yield _Key("core", "offline, not drawn", format_list(machine.offline.mask))


def _kind_keys(machine: Machine) -> Iterator[_Key]:
    kinds = {kind: [cpu for cpu in machine.cpus if cpu.kind == kind] for kind in ("P", "M", "E")}
    for kind, cpus in kinds.items():
        if cpus:
            mhz = max(cpu.max_khz for cpu in cpus) // 1000
            cores = cpumap.plural(len({cpu.core for cpu in cpus}), "core")
            yield _Key(kind.lower(), f"{kind}-core", cores + (f" · up to {mhz} MHz" if mhz else ""))


def _legend(keys: Sequence[_Key], room: int, top: int) -> tuple[list[str], int]:
    """Return the legend's lines in columns, from `top` down, and their height."""
    columns = max(room // min(max((key.width for key in keys), default=room), _LEGEND_W), 1)
    width, lines = room // columns, []
    for i, key in enumerate(keys):
        x, y = _MARGIN + i % columns * width, top + i // columns * _LEGEND_H
        # A name is cut where the line would run into the next column.
        excess = -((width - key.width) // _LETTER_W)
        name = key.name if excess <= 0 else f"{key.name[: max(len(key.name) - excess - 1, 8)]}…"
        lines.append(
            f"<g><title>{escaped(key.name)} {escaped(key.detail)}</title>"
            f'<rect class="{key.css}" x="{x + 0.5}" y="{y + 0.5}" width="{_SWATCH}" '
            f'height="{_SWATCH}" rx="3"/>'
            f'<text class="fg" x="{x + _SWATCH + 8}" y="{y + 12}" font-size="12">{escaped(name)}'
            f'<tspan class="muted" dx="8">{escaped(key.detail)}</tspan></text></g>'
        )
    return lines, ceil(len(keys) / columns) * _LEGEND_H
