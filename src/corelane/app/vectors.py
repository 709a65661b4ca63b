"""`corelane vectors FILE`: replay recorded answers of upstream programs and say how many we give too."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

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


def replay(path: Path, *, limit: int = 10) -> Report:
    """Replay the vectors in `path` (JSON lines, gzipped or not), whose format shows in its first line.

    `limit` is how many failed items are described. Raises `VectorsError` for a file that cannot be read or
    is of no known format.
    """
    rows = read_rows(path)
    for recognise, run in FORMATS:
        if recognise(rows[0]):
            return run(rows, limit)
    raise VectorsError(
        f"{path}: line 1 is of no known vectors format (its keys are {', '.join(sorted(rows[0]))}); "
        "expected scenarios of requests to an API server"
    )


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


def replay_kube_api(rows: list[Row], limit: int) -> Report:
    """Requests to a Kubernetes API server, replayed against a fresh embedded server for every scenario."""
    from corelane.app.kube_replay import replay_scenarios

    outcomes = asyncio.run(replay_scenarios(list(rows)))
    names = list(dict.fromkeys(outcome.category for outcome in outcomes))
    categories = []
    for name in names:
        results = [not outcome.differences for outcome in outcomes if outcome.category == name]
        categories.append(Category(name, sum(results), len(results), name in KUBE_API_APART))
    failed = [o for o in outcomes if o.differences and o.category not in KUBE_API_APART]
    shown = tuple("\n    ".join((o.where, *o.differences)) for o in failed[:limit])
    return Report("kube_api", tuple(categories), shown)


FORMATS: tuple[tuple[Callable[[Row], bool], Callable[[list[Row], int], Report]], ...] = (
    (is_kube_api, replay_kube_api),
)
