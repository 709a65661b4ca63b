"""Machines from the output of lscpu: `-p`, `-e`, `-J -e`, and the summary of `-J` alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corelane.cpuset import CPUSet, bits
from corelane.machine.cpu_table import TableRow, assemble
from corelane.machine.lscpu_summary import parse_summary
from corelane.machine.model import Machine, MachineError

_MISSING = ("", "-", "None")
_HEADER_P = re.compile(r"^#\s*CPU\b", re.MULTILINE)
_BARE_DASH = re.compile(r":\s*-(?=\s*[,}])")
"""How lscpu writes an unknown value, which is not JSON."""
_DECIMAL_COMMA = re.compile(r"(:\s*[0-9]{1,7}),([0-9]{4})(?=\s*[,}])", re.ASCII)
"""How lscpu writes a frequency under many locales, which is not JSON either."""
_ONLINE = {"Y": True, "YES": True, "N": False, "NO": False, "": True, "-": True}
_BEST = "use the output of `LC_ALL=C lscpu -p` or `LC_ALL=C lscpu -J -e`"


def is_lscpu(text: str) -> bool:
    """Whether a text looks like any of lscpu's forms."""
    head = text.lstrip()[:4000]
    if head.startswith("{"):
        return '"lscpu"' in head or '"cpus"' in head
    return _HEADER_P.search(head) is not None or re.match(r"CPU +[A-Z][A-Za-z0-9:]", head) is not None


def parse_lscpu(text: str, *, name: str, source: str) -> Machine:
    """The machine; MachineError naming line or field when the text cannot be used.

    lscpu reports no memory, no distances, and sockets and cores by index rather than by the kernel's ids. The
    summary does not list siblings: they are assumed as the architecture's kernel numbers them.
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
        data = json.loads(_DECIMAL_COMMA.sub(r"\1.\2", _BARE_DASH.sub(": null", text)))
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{source}: not valid JSON: {error}; {_BEST}") from None
    cpus, summary = data.get("cpus"), data.get("lscpu")
    if isinstance(cpus, list) and all(isinstance(cpu, dict) for cpu in cpus):
        return _from_records([{key.lower(): _cell(cpu[key]) for key in cpu} for cpu in cpus], name, source)
    if isinstance(summary, list):
        return parse_summary(summary, name=name, source=source)
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
        if not _is_online(record, cpu, source) or ("online" not in record and _is_blank(row)):
            offline |= 1 << cpu
        else:
            rows.append(row)
    rows = rows or [TableRow(cpu, None, None, None) for cpu in bits(offline)]
    return assemble(rows, name=name, source=source, offline=CPUSet.from_mask(offline))


def _is_online(record: Mapping[str, str], cpu: int, source: str) -> bool:
    text = record.get("online", "")
    if text.upper() not in _ONLINE:
        raise MachineError(f"{source}: column online has {text!r} for CPU {cpu}, not yes or no; {_BEST}")
    return _ONLINE[text.upper()]


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
