"""Replay recorded answers of upstream programs, and count equal answers."""

import asyncio
import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Topologies = Mapping[str, Sequence[Sequence[int]]]

_GZIP = b"\x1f\x8b"


class VectorsError(ValueError):
    """A file that is not a known vectors file; the text names file, line and fault."""


@dataclass(frozen=True, slots=True)
class Category:
    """How many items of one kind passed."""

    name: str
    passed: int
    total: int


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a replay: a `Category` each, and the first differences as text."""

    format: str
    categories: tuple[Category, ...]
    differences: tuple[str, ...]

    @property
    def passed(self) -> int:
        return sum(c.passed for c in self.categories)

    @property
    def total(self) -> int:
        return sum(c.total for c in self.categories)

    def lines(self) -> list[str]:
        """What the command prints: the first differences, a line a category, and last the overall figures."""
        width = max((len(c.name) for c in self.categories), default=0)
        rows = [f"{c.name:<{width}}  {c.passed} of {c.total}" for c in self.categories]
        return [*self.differences, *rows, f"passed {self.passed} of {self.total}"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from; `topologies` is the file that describes their machines."""

    path: Path
    topologies: Path
    limit: int = 10
    """How many failed items are described."""


def replay(path: Path, *, topologies: Path | None = None, limit: int = 10) -> Report:
    """Replay the vectors in `path` (JSON lines, gzipped or not), whose format shows in its first line.

    `topologies` is by default `topologies.json` beside it; only placement vectors need it. `limit` is how
    many failed items are described. Raises `VectorsError` for a file that cannot be read or is of an unknown
    format.
    """
    rows = read_rows(path)
    source = Source(path, topologies or path.with_name("topologies.json"), limit)
    for keys, run in FORMATS:
        if keys <= rows[0].keys():
            return run(rows, source)
    raise VectorsError(
        f"{path}: line 1: unknown vectors format, keys {', '.join(sorted(rows[0]))}; expected one of "
        "kube_api, kubelet_take, koordinator_take, kubelet_node, kubelet_memory, kubelet_state_files"
    )


def read_topologies(path: Path) -> Topologies:
    """Topology name to rows [cpu, core, socket, NUMA node, uncore]; raises `VectorsError`."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise VectorsError(
            f"{path}: cannot be read: {error}; name the file that describes the machines with --topologies"
        ) from error
    if not isinstance(found, dict):
        raise VectorsError(f"{path}: is a JSON {type(found).__name__}, not an object of topologies")
    for name, rows in found.items():
        if not isinstance(rows, list) or not all(map(_is_cpu, rows)):
            raise VectorsError(
                f"{path}: topology {name!r} is not a list of [cpu, core, socket, NUMA node, uncore]"
            )
    return found


def _is_cpu(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 5 and all(type(value) is int for value in row)


def read_rows(path: Path) -> list[Row]:
    """The file's objects, one a line; raises `VectorsError` naming a line that is not an object."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise VectorsError(f"{path}: cannot be read: {error}") from error
    rows = [_row(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not rows:
        raise VectorsError(f"{path}: the file is empty; expected one JSON object a line")
    return rows


def _row(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise VectorsError(f"{path}: line {number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise VectorsError(f"{path}: line {number} is not a JSON object but {type(row).__name__}")
    return row


def _kube_api(rows: list[Row], source: Source) -> Report:
    """Requests to a Kubernetes API server, replayed against a fresh embedded server for every scenario."""
    from conformance.api_replay import MalformedStepError, replay_scenarios

    try:
        outcomes = asyncio.run(replay_scenarios(list(rows)))
    except MalformedStepError as error:
        raise VectorsError(f"{source.path}: {error}") from error
    categories = []
    for name in dict.fromkeys(outcome.category for outcome in outcomes):
        results = [not outcome.differences for outcome in outcomes if outcome.category == name]
        categories.append(Category(name, sum(results), len(results)))
    failed = [one for one in outcomes if one.differences]
    shown = tuple("\n    ".join((one.where, *one.differences)) for one in failed[: source.limit])
    return Report("kube_api", tuple(categories), shown)


def _kubelet_take(rows: list[Row], source: Source) -> Report:
    """Single picks of the kubelet's CPU manager."""
    from conformance.picks import replay_take

    return _by_topology("kubelet_take", rows, source, replay_take)


def _koordinator_take(rows: list[Row], source: Source) -> Report:
    """Single picks of Koordinator's scheduler."""
    from conformance.picks import replay_koordinator

    return _by_topology("koordinator_take", rows, source, replay_koordinator)


def _kubelet_node(rows: list[Row], source: Source) -> Report:
    """Whole nodes: admissions, refusals, ends of pods, and the checkpoint that is left."""
    from conformance.nodes import replay_node

    return _by_topology("kubelet_node", rows, source, replay_node)


def _kubelet_memory(rows: list[Row], source: Source) -> Report:
    """Whole nodes with memory and device managers."""
    from conformance.nodes import replay_memory

    return _by_topology("kubelet_memory", rows, source, replay_memory)


def _kubelet_state_files(rows: list[Row], source: Source) -> Report:
    """Files of the CPU and memory managers."""
    from conformance.state_files import replay_files

    return _by_group("kubelet_state_files", rows, "kind", source, replay_files)


def _by_topology(name: str, rows: list[Row], source: Source, run: Callable[..., Any]) -> Report:
    topologies = read_topologies(source.topologies)
    for number, row in enumerate(rows, 1):
        if row.get("topo") not in topologies:
            raise VectorsError(
                f"{source.path}: row {number}: topology {row.get('topo')!r} is not in {source.topologies}"
            )
    return _by_group(name, rows, "topo", source, lambda group: run(group, topologies))


def _by_group(name: str, rows: list[Row], key: str, source: Source, run: Callable[..., Any]) -> Report:
    """A category for each value of `key`, in the order of their first rows."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row.get(key))].append(row)
    categories, differences = [], []
    for value, group in groups.items():
        try:
            outcome = run(group)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise VectorsError(
                f"{source.path}: a {name} row ({key} {value}) is malformed: {type(error).__name__}: {error}"
            ) from error
        categories.append(Category(value, outcome.passed, outcome.total))
        differences += [str(difference) for difference in outcome.differences]
    return Report(name, tuple(categories), tuple(differences[: source.limit]))


FORMATS: tuple[tuple[frozenset[str], Callable[[list[Row], Source], Report]], ...] = (
    (frozenset({"scenario", "category", "steps"}), _kube_api),
    (frozenset({"topo", "avail", "n", "mode", "strategy", "group", "expect"}), _kubelet_take),
    (frozenset({"topo", "ops", "memoryPolicy", "nodes", "devices", "expect"}), _kubelet_memory),
    (frozenset({"topo", "options", "ops", "topologyPolicy", "expect"}), _kubelet_node),
    (
        frozenset({"topo", "avail", "n", "bind", "exclusive", "maxRef", "allocated", "expect"}),
        _koordinator_take,
    ),
    (frozenset({"kind", "gate", "text"}), _kubelet_state_files),
)
"""Keys of a first row by which a format is recognised, the more specific format first, and its replay."""
