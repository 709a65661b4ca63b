"""Running containers and what throttles them, as a table and as JSON with stable keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corelane.limits.measure import Level, Rates, Verdict
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SORTS", "Row", "plain", "show", "sort"]

_LEVELS: Final = tuple(Level)


@dataclass(frozen=True, slots=True)
class Row:
    """A container (a pod as a whole has no `container`); without rates `note` says why there are none."""

    namespace: str
    pod: str
    container: str
    node: str = ""
    rates: Rates | None = None
    verdict: Verdict | None = None
    note: str = ""

    @property
    def title(self) -> str:
        where = "/".join(filter(None, (self.namespace, self.pod)))
        name = self.container or "(the pod)"
        return f"{where}/{name}" if where else name


def _throttled(row: Row) -> float:
    return (row.rates.throttled or 0.0) if row.rates else -1.0


def _lost(row: Row) -> float:
    return (row.rates.lost or 0.0) if row.rates else -1.0


def _used(row: Row) -> float:
    return (row.rates.used or 0.0) if row.rates else -1.0


def _level(row: Row) -> float:
    return _LEVELS.index(row.verdict.level) if row.verdict else -1.0


SORTS: Final[Mapping[str, Callable[[Row], float]]] = {
    "cost": _level,
    "throttled": _throttled,
    "lost": _lost,
    "used": _used,
    "name": lambda row: 0.0,
}
"""By what rows can be sorted, the largest first; equal ones by throttled time, then by name."""


def sort(rows: Iterable[Row], by: str) -> list[Row]:
    """The rows in order."""
    if by == "name":
        return sorted(rows, key=lambda row: (row.title, row.node))
    return sorted(rows, key=lambda row: (-SORTS[by](row), -_throttled(row), row.title, row.node))


_HEADINGS: Final = (
    "CONTAINER",
    "LIMIT",
    "USED CPUs",
    "THROTTLED ms/s",
    "LOST",
    "STALL ms",
    "PERIODS",
    "BURST ms/s",
    "WAITS ms/s",
    "HELD BACK BY",
    "COST",
)


def show(rows: Sequence[Row], notes: Iterable[str], seconds: float, to: Console) -> None:
    """The table, then why, then what could not be measured."""
    title = f"CPU time lost to throttling, over {seconds:.3g} s"
    tables.show(title, _HEADINGS, [_cells(row) for row in rows], to)
    whys = [(row.title, why) for row in rows if (why := _why(row))]
    if whys:
        tables.show("Why", ("CONTAINER", "WHY"), whys, to)
    for note in notes:
        to.print(f"note: {tables.printable(note)}", markup=False)


def _why(row: Row) -> str:
    parts = [row.note]
    if row.verdict and (row.verdict.level > Level.NONE or row.verdict.causes[0] != "nothing"):
        parts.insert(0, row.verdict.why if row.verdict.causes[0] != "nothing" else "")
    parts += (*row.rates.notes, *row.rates.remarks) if row.rates else ()
    return "; ".join(filter(None, parts))


def _cells(row: Row) -> tuple[str, ...]:
    if row.rates is None or row.verdict is None:
        return (row.title, *("-" for _ in _HEADINGS[1:]))
    rates = row.rates
    return (
        row.title,
        _limit(rates),
        _number(None if rates.used is None else rates.used / 1000, 2),
        _number(rates.throttled, 1),
        "-" if rates.lost is None else f"{rates.lost:.1%}",
        _number(rates.stall_ms, 1),
        _periods(rates),
        _number(rates.burst, 1),
        _number(rates.waiting if rates.waiting is not None else rates.queued, 0),
        ", ".join(row.verdict.causes),
        str(row.verdict.level),
    )


def _limit(rates: Rates) -> str:
    if rates.quota.cpus is None:
        return "none"
    period = rates.quota.period_us / 1000
    return f"{rates.quota.cpus:g}" + (f" ({period:g} ms)" if period != 100 else "")


def _periods(rates: Rates) -> str:
    """How many read as throttled: for comparison only, no cost can be told from it."""
    if not rates.periods:
        return "-"
    return f"{rates.throttled_periods or 0:.0f}/{rates.periods:.0f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plain(rows: Iterable[Row], notes: Iterable[str], seconds: float, at: str) -> dict[str, Any]:
    """JSON: times in milliseconds a second, null where nobody counts them."""
    return {
        "at": at,
        "seconds": round(seconds, 3),
        "containers": [_plain(row) for row in rows],
        "notes": list(notes),
    }


def _plain(row: Row) -> dict[str, Any]:
    rates = row.rates or Rates(0.0)
    cpus = rates.quota.cpus
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container or None,
        "node": row.node or None,
        "cpuLimitMillis": None if cpus is None else round(cpus * 1000),
        "periodMs": rates.quota.period_us / 1000,
        "burstLimitMs": rates.quota.burst_us / 1000,
        "usedMsPerSecond": _rounded(rates.used),
        "throttledMsPerSecond": _rounded(rates.throttled),
        "throttledAboveMsPerSecond": _rounded(rates.above),
        "lostShare": _rounded(rates.lost, 5),
        "stallMs": _rounded(rates.stall_ms),
        "periods": _rounded(rates.periods, 1),
        "throttledPeriods": _rounded(rates.throttled_periods, 1),
        "bursts": _rounded(rates.bursts, 1),
        "burstMsPerSecond": _rounded(rates.burst),
        "waitingMsPerSecond": _rounded(rates.waiting),
        "stalledMsPerSecond": _rounded(rates.stalled),
        "queuedMsPerSecond": _rounded(rates.queued),
        "waitedForOthersMsPerSecond": _rounded(row.verdict.waited) if row.verdict else None,
        "heldBackBy": [str(cause) for cause in row.verdict.causes] if row.verdict else [],
        "cost": str(row.verdict.level) if row.verdict else None,
        "why": row.verdict.why if row.verdict else None,
        "notes": [*filter(None, [row.note]), *rates.notes],
        "remarks": list(rates.remarks),
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
