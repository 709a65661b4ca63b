"""Machines from the output of lscpu: `-p`, `-e`, `-J -e`, and the summary of `-J` alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corelane.cpuset import CPUSet, CPUSetError, bits, parse_list
from corelane.machine.cpu_table import TableRow, assemble
from corelane.machine.model import Machine, MachineError

_MISSING = ("", "-", "None")
_NODE_FIELD = re.compile(r"NUMA node([0-9]{1,5}) CPU\(s\)", re.ASCII)
_INSTANCES = re.compile(r"\(([0-9]{1,4}) instances?\)", re.ASCII)
_HEADER_P = re.compile(r"^#\s*CPU\b", re.MULTILINE)
_BARE_DASH = re.compile(r":\s*-(?=\s*[,}])")
"""How lscpu writes an unknown value, which is not JSON."""
_GUESSED = (
    "lscpu's summary lists neither siblings nor sockets of CPUs: siblings i and i + N assumed, "
    "and nodes in order of sockets; use `lscpu -J -e`"
)
_BEST = "use the output of `lscpu -p` or `lscpu -J -e`"


def is_lscpu(text: str) -> bool:
    """Whether a text looks like any of lscpu's forms."""
    head = text.lstrip()[:4000]
    if head.startswith("{"):
        return '"lscpu"' in head or '"cpus"' in head
    return _HEADER_P.search(head) is not None or re.match(r"CPU +[A-Z][A-Za-z0-9:]", head) is not None


def parse_lscpu(text: str, *, name: str, source: str) -> Machine:
    """The machine; MachineError naming line or field when the text cannot be used.

    lscpu reports no memory, no distances, and sockets and cores by index rather than by the kernel's ids. The
    summary does not list siblings: they are assumed as Linux numbers them on x86.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, name, source)
    records = _from_p(text, source) if text.lstrip().startswith("#") else _from_e(text, source)
    return _from_records(list(records), name, source)


def _from_p(text: str, source: str) -> Iterator[dict[str, str]]:
    """`# CPU,Core,Socket,Node,,L1d,L1i,L2,L3`, then a line for each CPU."""
    lines = text.splitlines()
    header = next((line for line in lines if _HEADER_P.match(line)), "")
    columns = [column.strip().lower() for column in header.lstrip("# ").split(",")]
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            yield _record(columns, line.strip().split(","), number, source)


def _from_e(text: str, source: str) -> Iterator[dict[str, str]]:
    """`CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE`, then a line for each CPU."""
    header, *lines = text.strip().splitlines() or [""]
    for number, line in enumerate(lines, 2):
        yield _record(header.lower().split(), line.split(), number, source)


def _record(columns: Sequence[str], cells: Sequence[str], number: int, source: str) -> dict[str, str]:
    """Cells by column; lscpu leaves out the last ones of offline CPUs."""
    if len(cells) > len(columns):
        raise MachineError(f"{source}: line {number} has {len(cells)} columns, not {len(columns)}; {_BEST}")
    return dict(zip(columns, cells, strict=False))


def _from_json(text: str, name: str, source: str) -> Machine:
    try:
        data = json.loads(_BARE_DASH.sub(": null", text))
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{source}: not valid JSON: {error}; {_BEST}") from None
    cpus, summary = data.get("cpus"), data.get("lscpu")
    if isinstance(cpus, list) and all(isinstance(cpu, dict) for cpu in cpus):
        return _from_records([{key.lower(): _cell(cpu[key]) for key in cpu} for cpu in cpus], name, source)
    if isinstance(summary, list):
        return _from_summary(dict(_fields(summary)), name, source)
    raise MachineError(f"{source}: neither a list 'cpus' nor a list 'lscpu'; {_BEST}")


def _cell(value: Any) -> str:
    return (
        {True: "Y", False: "N", None: ""}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _from_records(records: Sequence[Mapping[str, str]], name: str, source: str) -> Machine:
    rows, offline = [], 0
    for record in records:
        cpu = _number(record, "cpu", source)
        if cpu is None:
            raise MachineError(f"{source}: a row without a CPU number; {_BEST}")
        row = _row(cpu, record, source)
        if record.get("online", "Y").upper() in ("N", "NO") or ("online" not in record and _is_blank(row)):
            offline |= 1 << cpu
        else:
            rows.append(row)
    rows = rows or [TableRow(cpu, None, None, None) for cpu in bits(offline)]
    return assemble(rows, name=name, source=source, offline=CPUSet.from_mask(offline))


def _is_blank(row: TableRow) -> bool:
    """Without a column ONLINE, offline CPUs are those with empty columns."""
    return row.core is row.socket is row.numa is None


def _row(cpu: int, record: Mapping[str, str], source: str) -> TableRow:
    return TableRow(
        cpu=cpu,
        core=_number(record, "core", source),
        socket=_number(record, "socket", source),
        numa=_number(record, "node", source),
        l3=_l3(record, source),
        max_khz=_khz(record.get("maxmhz", "")),
    )


def _l3(record: Mapping[str, str], source: str) -> int | None:
    """A column of its own, or the last part of `L1d:L1i:L2:L3`."""
    if "l3" in record:
        return _number(record, "l3", source)
    joined = next((key for key in record if key.split(":")[-1] == "l3"), None)
    if joined is None:
        return None
    parts = record[joined].split(":")
    return int(parts[-1]) if len(parts) == len(joined.split(":")) and parts[-1].isdecimal() else None


def _khz(mhz: str) -> int:
    return round(float(mhz) * 1000) if re.fullmatch(r"[0-9]{1,7}([.,][0-9]+)?", mhz.replace(",", ".")) else 0


def _number(record: Mapping[str, str], column: str, source: str) -> int | None:
    cell = record.get(column, "").strip()
    if cell in _MISSING:
        return None
    if not (cell.isascii() and cell.isdecimal() and len(cell) < 7):
        raise MachineError(f"{source}: column {column} has {cell!r}, which is not a number")
    return int(cell)


def _fields(items: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The summary's fields, flat; newer versions of lscpu nest them."""
    for item in items:
        if isinstance(item, dict):
            yield str(item.get("field", "")).rstrip(":"), str(item.get("data", ""))
            yield from _fields(item.get("children") or ())


def _from_summary(fields: Mapping[str, str], name: str, source: str) -> Machine:
    online = _cpus(fields, "On-line CPU(s) list", source)
    offline = _cpus(fields, "Off-line CPU(s) list", source) if "Off-line CPU(s) list" in fields else 0
    threads = max(_count(fields, "Thread(s) per core"), 1)
    sockets = max(_count(fields, "Socket(s)"), 1)
    nodes = _summary_nodes(fields, online, source)
    guesses = (
        _guess(node, place, mask, len(nodes), sockets, threads)
        for place, (node, mask) in enumerate(nodes.items())
    )
    caches = _INSTANCES.search(fields.get("L3", fields.get("L3 cache", "")))
    rows = _with_l3([row for guess in guesses for row in guess], int(caches[1]) if caches else 0)
    certain = threads == sockets == 1
    return assemble(
        rows,
        name=name,
        source=source,
        offline=CPUSet.from_mask(offline),
        notes=() if certain else (_GUESSED,),
    )


def _summary_nodes(fields: Mapping[str, str], online: int, source: str) -> dict[int, int]:
    """The masks of the nodes with CPUs; a CPU belongs to the first that names it, else to the lowest."""
    names = sorted((int(match[1]), field) for field in fields if (match := _NODE_FIELD.fullmatch(field)))
    nodes: dict[int, int] = {}
    left = online
    for node, field in names:
        mask = _cpus(fields, field, source) & left
        left &= ~mask
        if mask:
            nodes[node] = mask
    if left:
        lowest = min(nodes, default=0)
        nodes[lowest] = nodes.get(lowest, 0) | left
    return dict(sorted(nodes.items()))


def _guess(node: int, place: int, mask: int, nodes: int, sockets: int, threads: int) -> Iterator[TableRow]:
    """A node's CPUs: as many equal runs as there are threads a core, and nodes dealt to sockets in order."""
    cpus = list(bits(mask))
    cores = max(len(cpus) // threads, 1)
    for index, cpu in enumerate(cpus):
        first = cpus[index % cores]
        socket = place * sockets // nodes if nodes >= sockets else index % cores * sockets // cores
        yield TableRow(cpu, first, socket, node)


def _with_l3(rows: Sequence[TableRow], caches: int) -> list[TableRow]:
    """Cores dealt to so many caches in order of node and number."""
    cores = sorted({(row.socket or 0, row.numa or 0, row.core or 0) for row in rows})
    if not caches or caches > len(cores):
        return list(rows)
    cache = {core: index * caches // len(cores) for index, (_, _, core) in enumerate(cores)}
    return [TableRow(row.cpu, row.core, row.socket, row.numa, cache[row.core or 0]) for row in rows]


def _cpus(fields: Mapping[str, str], field: str, source: str) -> int:
    try:
        text = fields.get(field, "").strip()
        return 0 if text in _MISSING else parse_list(text)
    except CPUSetError as error:
        raise MachineError(f"{source}: field {field!r} is not a CPU list: {error}") from None


def _count(fields: Mapping[str, str], field: str) -> int:
    text = fields.get(field, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
