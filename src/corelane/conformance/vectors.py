"""`corelane vectors FILE`: replay recorded answers of upstream programs and say how many we give too."""

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
KUBE_API_APART = frozenset({"ssa"})


class VectorsError(ValueError):
    """The file is no vectors file that corelane knows; the text names the file, the line and the fault."""


@dataclass(frozen=True, slots=True)
class Category:
    """How many items of one kind passed; `apart` means that they do not count in the overall figures."""

    name: str
    passed: int
    total: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a replay: a `Category` each, and the first differences as text."""

    format: str
    categories: tuple[Category, ...]
    differences: tuple[str, ...]

    @property
    def passed(self) -> int:
        return sum(c.passed for c in self.categories if not c.apart)

    @property
    def total(self) -> int:
        return sum(c.total for c in self.categories if not c.apart)

    def lines(self) -> list[str]:
        """What the command prints: the first differences, a line a category, and last the overall figures."""
        width = max((len(c.name) for c in self.categories), default=0)
        rows = [
            f"{c.name:<{width}}  {c.passed} of {c.total}{'  (apart)' if c.apart else ''}"
            for c in self.categories
        ]
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
    many failed items are described. Raises `VectorsError` for a file that cannot be read or is of no known
    format.
    """
    rows = read_rows(path)
    source = Source(path, topologies or path.with_name("topologies.json"), limit)
    for recognise, run in FORMATS:
        if recognise(rows[0]):
            return run(rows, source)
    raise VectorsError(
        f"{path}: line 1 is of no known vectors format (its keys are {', '.join(sorted(rows[0]))}); "
        "expected scenarios of requests to an API server, picks of CPUs (kubelet_take, koordinator_take), "
        "or nodes with pods that come and go (kubelet_node)"
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
            raise VectorsError(f"{path}: topology {name!r} is no list of [cpu, core, socket, node, uncore]")
    return found


def _is_cpu(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 5 and all(type(value) is int for value in row)


def read_rows(path: Path) -> list[Row]:
    """The file's objects, one a line; raises `VectorsError` naming the line that is none."""
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


def is_kube_api(row: Row) -> bool:
    return {"scenario", "category", "steps"} <= row.keys()


def replay_kube_api(rows: list[Row], source: Source) -> Report:
    """Requests to a Kubernetes API server, replayed against a fresh embedded server for every scenario."""
    from corelane.conformance.api_replay import replay_scenarios

    outcomes = asyncio.run(replay_scenarios(list(rows)))
    names = list(dict.fromkeys(outcome.category for outcome in outcomes))
    categories = []
    for name in names:
        results = [not outcome.differences for outcome in outcomes if outcome.category == name]
        categories.append(Category(name, sum(results), len(results), name in KUBE_API_APART))
    failed = [o for o in outcomes if o.differences and o.category not in KUBE_API_APART]
    shown = tuple("\n    ".join((o.where, *o.differences)) for o in failed[: source.limit])
    return Report("kube_api", tuple(categories), shown)


def is_kubelet_take(row: Row) -> bool:
    return {"topo", "avail", "n", "mode", "strategy", "group", "expect"} <= row.keys()


def replay_kubelet_take(rows: list[Row], source: Source) -> Report:
    """Single picks of the kubelet's CPU manager."""
    from corelane.conformance.placement import replay_take

    return _by_topology("kubelet_take", rows, source, replay_take)


def is_koordinator_take(row: Row) -> bool:
    return {"topo", "avail", "n", "bind", "exclusive", "maxRef", "allocated", "expect"} <= row.keys()


def replay_koordinator_take(rows: list[Row], source: Source) -> Report:
    """Single picks of Koordinator's scheduler."""
    from corelane.conformance.placement import replay_koordinator

    return _by_topology("koordinator_take", rows, source, replay_koordinator)


def is_kubelet_node(row: Row) -> bool:
    return {"topo", "options", "ops", "topologyPolicy", "expect"} <= row.keys()


def replay_kubelet_node(rows: list[Row], source: Source) -> Report:
    """Whole nodes: admissions, refusals, ends of pods, and the checkpoint that is left."""
    from corelane.conformance.placement import replay_node

    return _by_topology("kubelet_node", rows, source, replay_node)


def _by_topology(name: str, rows: list[Row], source: Source, run: Callable[..., Any]) -> Report:
    """A category for each topology, in the order of their first rows."""
    topologies = read_topologies(source.topologies)
    groups: dict[str, list[Row]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        if row.get("topo") not in topologies:
            raise VectorsError(
                f"{source.path}: row {number}: topology {row.get('topo')!r} is not in {source.topologies}"
            )
        groups[row["topo"]].append(row)
    categories, differences = [], []
    for topo, group in groups.items():
        try:
            outcome = run(group, topologies)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise VectorsError(
                f"{source.path}: a {name} row on {topo} is malformed: {type(error).__name__}: {error}"
            ) from error
        categories.append(Category(topo, outcome.passed, outcome.total))
        differences += [str(difference) for difference in outcome.differences]
    return Report(name, tuple(categories), tuple(differences[: source.limit]))


FORMATS: tuple[tuple[Callable[[Row], bool], Callable[[list[Row], Source], Report]], ...] = (
    (is_kube_api, replay_kube_api),
    (is_kubelet_take, replay_kubelet_take),
    (is_kubelet_node, replay_kubelet_node),
    (is_koordinator_take, replay_koordinator_take),
)
