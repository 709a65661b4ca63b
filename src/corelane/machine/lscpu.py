"""Machines from the output of lscpu: `-p`, `-e`, `-J -e`, and the summary of `-J` alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, prod
from typing import Any

from corelane.cpuset import CPUSet, CPUSetError, bits, named, parse_list, verb
from corelane.machine.cpu_table import NodeFacts, TableRow, assemble
from corelane.machine.model import Machine, MachineError

# The summary (`lscpu -J` alone) has counts of cores, sockets and caches, without siblings. Every count is
# used, or a note names the contradiction. lscpu counts threads, cores and sockets of each CPU model apart,
# and on s390 sockets by books and drawers (util-linux, sys-utils/lscpu.c, print_summary).


_NODE_FIELD = re.compile(r"NUMA node([0-9]{1,5}) CPU\(s\)", re.ASCII)
_INSTANCES = re.compile(r"\(([0-9]{1,4}) instances?\)", re.ASCII)
_ONLINE, _OFFLINE = "On-line CPU(s) list", "Off-line CPU(s) list"
_THREADS = "Thread(s) per core"
_CORES = ("Core(s) per socket", "Core(s) per cluster")
_SOCKETS = ("Socket(s) per book", "Book(s) per drawer", "Drawer(s)", "Book(s)")
_ADJACENT = re.compile(r"(ppc|powerpc|s390)")
"""Architectures whose kernel numbers the threads of a core one after another."""
_BETTER = "use `lscpu -J -e`, which lists each CPU"
_CONTRADICTION = "lscpu's summary contradicts itself"
_GUESSED = (
    "lscpu's summary lists neither siblings nor sockets of CPUs: {siblings} assumed, "
    "and nodes in order of sockets; " + _BETTER
)
_ABSENT = ("", "-", "None", "null")

Field = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of one CPU model, 0 where the summary has none; `groups` are sockets or clusters of cores."""

    threads: int
    per_group: int
    groups: int
    sockets: int

    @property
    def cores(self) -> int:
        return self.per_group * max(self.groups, 1)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Cores as tuples of their online CPUs, in order of node; `notes` say what was assumed."""

    cores: Sequence[tuple[int, ...]]
    sockets: int
    notes: tuple[str, ...]


def parse_summary(items: Sequence[Any], *, name: str, source: str) -> Machine:
    """Return the machine; MachineError where the list of online CPUs is missing or malformed."""
    pairs = list(_fields(items))
    fields = dict(reversed(pairs))
    if pairs and _ONLINE not in fields:
        raise MachineError(
            f"{source}: no field {_ONLINE!r}; where the output is translated, write it again with "
            "`LC_ALL=C lscpu -J -e`"
        )
    online, offline = _cpus(fields, _ONLINE, source), _cpus(fields, _OFFLINE, source)
    nodes, notes = _nodes(fields, online, source)
    layout = _layout(fields.get("Architecture", ""), _models(pairs), nodes, online, offline)
    rows, cache_notes = _with_l3(_rows(layout, nodes), _instances(fields, "L3"))
    notes += [*_total(fields, online, offline), *layout.notes, *cache_notes, *_l1(fields, layout)]
    return assemble(
        rows,
        name=name,
        source=source,
        nodes={node: NodeFacts() for node in nodes},
        offline=CPUSet.from_mask(offline),
        notes=notes,
    )


def _fields(items: Sequence[Any]) -> Iterator[Field]:
    """The summary's fields, flat; newer versions of lscpu nest them."""
    for item in items:
        if isinstance(item, dict):
            data = item.get("data")
            yield str(item.get("field", "")).rstrip(": "), "" if data is None else str(data).strip()
            children = item.get("children")
            yield from _fields(children if isinstance(children, list) else ())


def _cpus(fields: Mapping[str, str], field: str, source: str) -> int:
    text = fields.get(field, "")
    try:
        return 0 if text in _ABSENT else parse_list(text)
    except CPUSetError as error:
        raise MachineError(f"{source}: field {field!r} is not a CPU list: {error}") from None


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def _models(pairs: Sequence[Field]) -> list[_Counts]:
    """The counts of each CPU model: one model more wherever a field comes again."""
    models: list[dict[str, int]] = [{}]
    for field, text in pairs:
        if field in (_THREADS, *_CORES, *_SOCKETS, "Socket(s)", "Cluster(s)"):
            if field in models[-1]:
                models.append({})
            models[-1][field] = _count(text)
    return [_counts(model) for model in models]


def _counts(model: Mapping[str, int]) -> _Counts:
    """Books and drawers multiply the sockets (s390)."""
    sockets = model.get("Socket(s)", 0)
    if any(field in model for field in _SOCKETS):
        sockets = prod(model.get(field, 1) for field in _SOCKETS)
    groups = _first(model, ("Cluster(s)",)) if _CORES[1] in model else 0
    return _Counts(model.get(_THREADS, 0), _first(model, _CORES), groups or sockets, sockets)


def _first(model: Mapping[str, int], fields: Sequence[str]) -> int:
    return next((count for field in fields if (count := model.get(field, 0))), 0)


def _nodes(fields: Mapping[str, str], online: int, source: str) -> tuple[dict[int, int], list[str]]:
    """The masks of all nodes; a CPU belongs to the first that names it, else to the lowest with CPUs."""
    names = sorted((int(match[1]), field) for field in fields if (match := _NODE_FIELD.fullmatch(field)))
    nodes, left, notes = dict[int, int](), online, list[str]()
    for node, field in names:
        listed = _cpus(fields, field, source) & online
        if listed & ~left:
            twice = listed & ~left
            notes.append(f"{named(twice)} {verb(twice)} listed in several NUMA nodes: the lowest node taken")
        nodes[node] = listed & left
        left &= ~listed
    count = _count(fields.get("NUMA node(s)", ""))
    if count and names and count != len(names):
        notes.append(f"NUMA node(s): {count}, but {len(names)} are listed with CPUs: the listed ones taken")
    if left or not nodes:
        lowest = next((node for node in nodes if nodes[node]), min(nodes, default=0))
        nodes[lowest] = nodes.get(lowest, 0) | left
        if names:
            notes.append(f"{named(left)} {verb(left)} listed in no NUMA node: put into node {lowest}")
        elif count > 1:
            notes.append(f"NUMA node(s): {count}, but none is listed: all CPUs put into node 0; {_BETTER}")
    return nodes, notes


def _layout(
    architecture: str, models: Sequence[_Counts], nodes: Mapping[int, int], online: int, offline: int
) -> _Layout:
    """Cores of as many threads as the counts allow; the first note says what was assumed."""
    cpus, present = online.bit_count(), (online | offline).bit_count()
    if len(models) > 1:
        return _layout_of_models(models, nodes, cpus)
    (counts,) = models
    cores, sockets = counts.cores, max(counts.sockets, 1)
    threads, notes = _threads(counts, cpus)
    if not counts.per_group or threads * cores in (cpus, present):
        groups, order = _uniform(architecture, threads, nodes, 0 if threads * cores == cpus else offline)
        guess = [] if threads == sockets == 1 else [_GUESSED.format(siblings=order)]
        if threads * cores == cpus and len(groups) != cores:
            guess.append(
                f"{_CONTRADICTION}: NUMA nodes hold {len(groups)} cores, not {cores} of {threads} threads"
            )
        return _Layout(groups, sockets, (*notes, *guess))
    counted = (
        f"{threads} (threads) x {counts.per_group} (cores) x {max(counts.groups, 1)} (sockets or clusters)"
    )
    contradiction = f"{_CONTRADICTION}: {cpus} CPUs are online, not {counted}; "
    extra = cpus - cores
    if threads > 1 and 0 < extra < cores * (threads - 1) and extra % (threads - 1) == 0:
        full = extra // (threads - 1)
        says = f"{full} of {cores} cores of {threads} threads assumed, the first ones; {_BETTER}"
        sizes = [threads] * full + [1] * (cores - full)
        return _Layout(_mixed(nodes, sizes), sockets, (*notes, contradiction + says))
    groups, order = _uniform(architecture, threads, nodes, 0)
    filled = min(max(ceil(len(groups) / counts.per_group), 1), sockets)
    says = f"{order} and sockets of at most {counts.per_group} cores assumed; {_BETTER}"
    return _Layout(groups, filled, (*notes, contradiction + says))


def _layout_of_models(models: Sequence[_Counts], nodes: Mapping[int, int], cpus: int) -> _Layout:
    """Several models (big.LITTLE): lscpu does not say which CPUs are of which, so they follow one another."""
    sizes = [max(model.threads, 1) for model in models for _ in range(min(model.cores, cpus))][: cpus + 1]
    note = (
        f"lscpu's summary does not list the CPUs of its {len(models)} CPU models: one after another assumed; "
    )
    if sum(sizes) != cpus:
        counted = " + ".join(f"{max(model.threads, 1)} x {model.cores}" for model in models[:4])
        note = f"{_CONTRADICTION}: {cpus} CPUs are online, not {counted} (threads x cores); no SMT assumed; "
        sizes = [1] * cpus
    sockets = max(1, *(model.sockets for model in models))
    return _Layout(_mixed(nodes, sizes), sockets, (note + _BETTER,))


def _threads(counts: _Counts, cpus: int) -> tuple[int, tuple[str, ...]]:
    """Threads of a core; where the summary has none, as many as cores and sockets leave."""
    if counts.threads:
        return counts.threads, ()
    threads = cpus // counts.cores if counts.cores and cpus % counts.cores == 0 else 1
    threads = threads or 1
    return threads, (f"lscpu's summary has no count {_THREADS!r}: {threads} assumed; {_BETTER}",)


def _uniform(
    architecture: str, threads: int, nodes: Mapping[int, int], offline: int
) -> tuple[list[tuple[int, ...]], str]:
    """Cores of equal size, numbered as the architecture's kernel does, and that in words.

    `offline` CPUs count where the cores are those of all CPUs that are present.
    """
    masks = [list(bits(mask)) for mask in nodes.values() if mask]
    adjacent = _ADJACENT.match(architecture) is not None
    numbered = _by_runs if adjacent else _by_halves
    present = numbered(list(bits(offline | sum(nodes.values()))), threads) if offline else {}
    cores = [core for cpus in masks for core in _cores(cpus, present or numbered(cpus, threads))]
    order = "one after another" if adjacent else "i and i + N"
    return cores, "no SMT siblings" if threads == 1 else f"siblings {order}"


def _by_runs(cpus: Sequence[int], threads: int) -> dict[int, int]:
    """The number of each CPU's core where the threads of a core follow one another."""
    return {cpu: index // threads for index, cpu in enumerate(cpus)}


def _by_halves(cpus: Sequence[int], threads: int) -> dict[int, int]:
    """The number of each CPU's core where all first threads come before the second ones."""
    cores = max(ceil(len(cpus) / threads), 1)
    return {cpu: index % cores for index, cpu in enumerate(cpus)}


def _cores(cpus: Sequence[int], core: Mapping[int, int]) -> list[tuple[int, ...]]:
    members: dict[int, list[int]] = {}
    for cpu in cpus:
        members.setdefault(core[cpu], []).append(cpu)
    return [tuple(group) for group in members.values()]


def _mixed(nodes: Mapping[int, int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Cores of these sizes one after another, in order of nodes; none reaches into another node."""
    node = {cpu: number for number, mask in nodes.items() for cpu in bits(mask)}
    cpus, groups = iter(node), list[tuple[int, ...]]()
    for size in sizes:
        core = [cpu for _, cpu in zip(range(size), cpus, strict=False)]
        groups += [tuple(group) for _, group in groupby(core, node.__getitem__)]
    return groups


def _rows(layout: _Layout, nodes: Mapping[int, int]) -> list[TableRow]:
    """Cores dealt to sockets in order of nodes: whole nodes where there are as many as sockets."""
    node = {cpu: number for number, mask in nodes.items() for cpu in bits(mask)}
    place = {number: index for index, number in enumerate(number for number in nodes if nodes[number])}
    rows = []
    for index, core in enumerate(layout.cores):
        number = node[core[0]]
        if len(place) >= layout.sockets:
            socket = place[number] * layout.sockets // len(place)
        else:
            socket = index * layout.sockets // len(layout.cores)
        rows += [TableRow(cpu, core[0], socket, number) for cpu in core]
    return rows


def _instances(fields: Mapping[str, str], level: str) -> int:
    match = _INSTANCES.search(fields.get(level, "") or fields.get(f"{level} cache", ""))
    return int(match[1]) if match else 0


def _with_l3(rows: Sequence[TableRow], caches: int) -> tuple[list[TableRow], list[str]]:
    """Cores dealt to so many caches in order of node and number."""
    cores = sorted({(row.socket or 0, row.numa or 0, row.core or 0) for row in rows})
    if caches > len(cores):
        return list(rows), [
            f"L3: {caches} instances, more than the {len(cores)} cores: one L3 a socket assumed"
        ]
    if not caches:
        return list(rows), []
    cache = {core: index * caches // len(cores) for index, (_, _, core) in enumerate(cores)}
    return [replace(row, l3=cache[row.core or 0]) for row in rows], []


def _l1(fields: Mapping[str, str], layout: _Layout) -> Iterator[str]:
    """A core has a level 1 data cache of its own, so their number is that of the cores."""
    caches = _instances(fields, "L1d")
    if caches and caches != len(layout.cores):
        yield f"L1d: {caches} instances, but {len(layout.cores)} cores by the other counts; {_BETTER}"


def _total(fields: Mapping[str, str], online: int, offline: int) -> Iterator[str]:
    total, listed = _count(fields.get("CPU(s)", "")), (online | offline).bit_count()
    if total and total not in (listed, online.bit_count()):
        yield f"CPU(s): {total}, but {listed} are listed as on-line or off-line: the lists taken"


_MISSING = ("", "-", "None")
_HEADER_P = re.compile(r"^#\s*CPU\b", re.MULTILINE)
_BARE_DASH = re.compile(r":\s*-(?=\s*[,}])")
"""Unknown value as lscpu writes it, which is not JSON."""
_DECIMAL_COMMA = re.compile(r"(:\s*[0-9]{1,7}),([0-9]{4})(?=\s*[,}])", re.ASCII)
"""Frequency as lscpu writes it under many locales, which is not JSON either."""
_ONLINE_COLUMN = {"Y": True, "YES": True, "N": False, "NO": False, "": True, "-": True}
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
    if text.upper() not in _ONLINE_COLUMN:
        raise MachineError(f"{source}: column online has {text!r} for CPU {cpu}, not yes or no; {_BEST}")
    return _ONLINE_COLUMN[text.upper()]


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
