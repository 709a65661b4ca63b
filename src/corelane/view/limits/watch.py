"""Running containers and what delays them, as a table and as JSON with stable keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any, Final

from corelane.kernel.cpu_time.competitors import Competition
from corelane.kernel.cpu_time.counters import CPULoad, MeasuredNode, Rates
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.measure import CostLevel, DelayCause, Measurement, ThrottlingVerdict
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

_LEVELS: Final = tuple(CostLevel)


def _title(measured: Measurement) -> str:
    pod = "/".join(filter(None, (measured.namespace, measured.pod)))
    name = measured.container or "(the pod)"
    return f"{pod}/{name}" if pod else name


def _rate(name: str) -> Callable[[Measurement], float]:
    """A rate to sort by; containers without rates come last."""

    def rate(measured: Measurement) -> float:
        return (getattr(measured.rates, name) or 0.0) if isinstance(measured.rates, Rates) else -1.0

    return rate


_throttled: Final = _rate("throttled")
SORTS: Final[Mapping[str, Callable[[Measurement], float]]] = {
    "cost": lambda measured: _LEVELS.index(measured.verdict.level) if measured.verdict else -1.0,
    "throttled": _throttled,
    "lost": _rate("lost"),
    "used": _rate("used"),
    "name": lambda measured: 0.0,
}
"""Sort keys, the largest first; equal ones by throttled time, then by name."""


def sort(measured: Iterable[Measurement], by: str) -> list[Measurement]:
    """Sort containers by a key of `SORTS`."""
    if by == "name":
        return sorted(measured, key=lambda each: (_title(each), each.node))
    return sorted(measured, key=lambda each: (-SORTS[by](each), -_throttled(each), _title(each), each.node))


HEADINGS: Final = (
    "CONTAINER",
    "LIMIT",
    "USED CPUs",
    "THROTTLED ms/s",
    "LOST",
    "STALL ms",
    "PERIODS",
    "BURST ms/s",
    "WAITS ms/s",
    "HELD BACK BY ms/s",
    "COST",
)


_DROPPABLE: Final = ("BURST ms/s", "STALL ms", "PERIODS", "WAITS ms/s", "LOST", "LIMIT", "USED CPUs")
"""Columns that a narrow terminal does without, the first one first."""
_CAUSES: Final = {
    DelayCause.LIMIT_ABOVE: "pod limit",
    DelayCause.NEIGHBOURS: "other processes",
    DelayCause.OTHERS: "other processes or own threads",
}
"""Causes in the table, where these differ from their names in JSON."""


def show(measured: Sequence[Measurement], notes: Iterable[str], seconds: float, to: Console) -> None:
    """Print the table, then the causes in words, then what could not be measured."""
    title = f"CPU time lost to throttling, over {seconds:.3g} s"
    tables.show(title, HEADINGS, rows(measured), to, _DROPPABLE)
    lost = [(_title(each), text) for each in measured if each.losses and (text := divided(each.losses))]
    if lost:
        tables.show("What held it back", ("CONTAINER", "LOST"), lost, to)
    whys = [(_title(each), why) for each in measured if (why := _why(each))]
    if whys:
        tables.show("Why", ("CONTAINER", "WHY"), whys, to)
    for note in notes:
        to.print(f"note: {tables.printable(note)}", markup=False)


def rows(measured: Iterable[Measurement]) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [_cells(each) for each in measured]


def _why(measured: Measurement) -> str:
    rates, verdict = measured.rates, measured.verdict
    if verdict is None or not isinstance(rates, Rates):
        return "; ".join(_notes(measured))
    why = "" if verdict.causes[0] is DelayCause.NOTHING else verdict.why
    return "; ".join(filter(None, [why, *_notes(measured), *rates.remarks]))


def _notes(measured: Measurement) -> list[str]:
    if isinstance(measured.rates, Rates):
        return [*measured.notes, *measured.rates.notes]
    return [measured.rates.why]


def _cells(measured: Measurement) -> tuple[str, ...]:
    rates, verdict = measured.rates, measured.verdict
    if verdict is None or not isinstance(rates, Rates):
        return (_title(measured), *("-" for _ in HEADINGS[1:]))
    limit, period = "none", rates.quota.period_us / 1000
    if rates.quota.cpus is not None:
        limit = f"{rates.quota.cpus:g}" + (f" ({period:g} ms)" if period != 100 else "")
    return (
        _title(measured),
        limit,
        _number(None if rates.used is None else rates.used / 1000, 2),
        _number(rates.throttled, 1),
        "-" if rates.lost is None else f"{rates.lost:.1%}",
        _number(rates.stall_ms, 1),
        f"{rates.throttled_periods or 0:.0f}/{rates.periods:.0f}" if rates.periods else "-",
        _number(rates.burst, 1),
        _number(rates.queued if rates.queued is not None else rates.waiting, 0),
        _causes(verdict, measured.losses),
        str(verdict.level),
    )


def _causes(verdict: ThrottlingVerdict, losses: Losses | None) -> str:
    """Causes with their parts of what was lost, in ms a second, where these were measured."""
    amounts = {} if losses is None else {cause: amount for cause, _, amount in causes_of(losses)}
    named = [(_CAUSES.get(cause, str(cause)), amounts.get(cause)) for cause in verdict.causes]
    return ", ".join(name if amount is None else f"{name} {amount:.0f}" for name, amount in named)


def causes_of(losses: Losses) -> list[tuple[DelayCause, str, float]]:
    """Every cause with its JSON key and its milliseconds a second; together they are the total."""
    return [
        (DelayCause.LIMIT, "limitMsPerSecond", losses.limit),
        (DelayCause.LIMIT_ABOVE, "limitAboveMsPerSecond", losses.above),
        (DelayCause.NEIGHBOURS, "neighboursMsPerSecond", losses.neighbours),
        (DelayCause.OWN_THREADS, "ownThreadsMsPerSecond", losses.own),
        (DelayCause.HYPERVISOR, "hypervisorMsPerSecond", losses.hypervisor),
        (DelayCause.SCHEDULING, "schedulingMsPerSecond", losses.scheduling),
    ]


def divided(losses: Losses) -> str:
    """Name losses by cause, each with its part of the whole, the largest first; "" without any."""
    if losses.total < 1:
        return ""
    ordered = sorted(causes_of(losses), key=lambda each: -each[2])
    parts = [
        f"{_CAUSES.get(cause, str(cause))} {amount:.0f} ({amount / losses.total:.0%})"
        for cause, _, amount in ordered
        if amount >= 1
    ]
    return f"threads waited {losses.total:.0f} ms/s: {', '.join(parts)}"


def plain_losses(losses: Losses | None) -> dict[str, float | None] | None:
    """JSON: what was lost, by cause, and the standard error of own threads' part."""
    if losses is None:
        return None
    parts = {key: rounded(amount) for _, key, amount in causes_of(losses)}
    return {
        "totalMsPerSecond": rounded(losses.total),
        **parts,
        "errorMsPerSecond": rounded(losses.error),
        "pausedShare": rounded(losses.paused, 4),
    }


def plain_competition(competition: Competition | None) -> dict[str, Any] | None:
    """JSON: weights in cpu.shares, and as multiples of the container's; the groups that used most.

    With `levels` and `usedMsPerSecond`, which is that of all, advice can be given from the record.
    """
    if competition is None:
        return None
    return {
        "weight": competition.weight,
        "leastShare": rounded(competition.share, 4),
        "usedMsPerSecond": rounded(competition.used),
        "levels": [
            {"group": claim.path, "weight": claim.own, "activeWeight": claim.active}
            for claim in competition.claims
        ],
        "competitors": [
            {
                "group": each.path,
                "processesBesideGroups": each.loose,
                "weight": each.weight,
                "relativeWeight": rounded(each.relative, 6),
                "idle": each.idle,
                "usedMsPerSecond": rounded(each.used),
            }
            for each in competition.noticed
        ],
    }


def plain_load(load: CPULoad | None) -> dict[str, Any] | None:
    """JSON: what all processes used of the CPUs that the container may use."""
    if load is None:
        return None
    return {
        "cpus": load.cpus,
        "busyMsPerSecond": rounded(load.busy),
        "stealMsPerSecond": rounded(load.steal),
        "idleMsPerSecond": rounded(load.idle),
    }


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plain(
    measured: Iterable[Measurement],
    notes: Iterable[str],
    seconds: float,
    at: str,
    node: MeasuredNode | None = None,
) -> dict[str, Any]:
    """JSON: times in milliseconds a second, null where they are not counted; `node` None: several."""
    return {
        "at": at,
        "seconds": round(seconds, 3),
        "nodeCPUs": node.cpus if node else None,
        "cgroupVersion": node.cgroup_version if node else None,
        "containers": [_plain(each) for each in measured],
        "notes": list(notes),
    }


def _plain(measured: Measurement) -> dict[str, Any]:
    rates = measured.rates if isinstance(measured.rates, Rates) else Rates(0.0)
    verdict = measured.verdict
    cpus = rates.quota.cpus
    return {
        "namespace": measured.namespace,
        "pod": measured.pod,
        "container": measured.container or None,
        "node": measured.node or None,
        "id": measured.id or None,
        "cpuLimitMillis": None if cpus is None else round(cpus * 1000),
        "periodMs": rates.quota.period_us / 1000,
        "burstLimitMs": rates.quota.burst_us / 1000,
        "cpus": measured.cpus or None,
        "threads": measured.threads or None,
        "threadsThatWaited": rates.waiters,
        "cpuLoad": plain_load(measured.load),
        "usedMsPerSecond": rounded(rates.used),
        "throttledMsPerSecond": rounded(rates.throttled),
        "throttledAboveMsPerSecond": rounded(rates.above),
        "lostShare": rounded(rates.lost, 5),
        "stallMs": rounded(rates.stall_ms),
        "periods": rounded(rates.periods, 1),
        "throttledPeriods": rounded(rates.throttled_periods, 1),
        "bursts": rounded(rates.bursts, 1),
        "burstMsPerSecond": rounded(rates.burst),
        "waitingMsPerSecond": rounded(rates.waiting),
        "stalledMsPerSecond": rounded(rates.stalled),
        "queuedMsPerSecond": rounded(rates.queued),
        "waitedForOthersMsPerSecond": rounded(verdict.waited) if verdict else None,
        "lostTo": plain_losses(measured.losses),
        "competition": plain_competition(measured.competition),
        "heldBackBy": [str(cause) for cause in verdict.causes] if verdict else [],
        "cost": str(verdict.level) if verdict else None,
        "why": verdict.why if verdict else None,
        "notes": _notes(measured),
        "remarks": list(rates.remarks),
    }


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Round for JSON; null where a value is unknown, or infinite."""
    return None if value is None or isinf(value) else round(value, digits)
