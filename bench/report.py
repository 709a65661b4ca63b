"""What all benchmarks share: a figure, the shortest of some runs, and how figures are printed and kept."""

# ruff: noqa: T201
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, as the design asks for it: what it is compared with is named by `reference`."""

    name: str
    value: float
    unit: str
    target: float | None
    better: str = "lower"
    reference: str = ""
    reference_value: float | None = None

    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


def best(call: Callable[[], object], clock: Callable[[], int] = perf_counter_ns, times: int = 5) -> int:
    """The shortest of some runs, in ns."""
    shortest = sys.maxsize
    for _ in range(times):
        start = clock()
        call()
        shortest = min(shortest, clock() - start)
    return shortest


def show(rows: Sequence[Row], *notes: str) -> None:
    """A table on stdout, with the machine it was measured on."""
    where = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    print(f"{where}, load {os.getloadavg()[0]:.1f}", *notes, sep="\n")
    width = max(len(row.name) for row in rows)
    compared = any(row.reference for row in rows)
    print(f"{'':<{width}} {'value':>10} {'target':>9}{'  reference' if compared else ''}")
    for row in rows:
        verdict = "" if row.met() else "  missed"
        reference = f" {_bound(row.reference_value):>10}" if compared else ""
        value, target = _figure(row.value), _bound(row.target)
        print(f"{row.name:<{width}} {value:>10} {target:>9}{reference} {row.unit}{verdict}")


def keep(name: str, rows: Sequence[Row]) -> None:
    """All of them into build/bench/NAME.json; says how many, and how many missed their target."""
    out = ROOT / "build" / "bench" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    missed = sum(not row.met() for row in rows)
    print(f"{len(rows)} rows in {out.relative_to(ROOT)}, {missed} missed")


def _figure(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
