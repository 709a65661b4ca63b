"""What simulations of CPU limits found, as rows of a table and as JSON with stable keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from corelane.limits.model.scenario import PERCENTILES, ContainerResult, SimulationResult

HEADINGS = (
    "case",
    "container",
    "requests/s",
    *(f"p{percent} ms" for percent in PERCENTILES),
    "max ms",
    "CPUs used",
    "periods throttled",
    "throttled ms/s",
)
_MS = 1e6
_NONE = "-"


@dataclass(frozen=True, slots=True)
class StudyColumn:
    """A case, run once or with several seeds, of which medians are shown; and what was published of it."""

    label: str
    outcomes: Sequence[SimulationResult]
    published: Mapping[str, float] = field(default_factory=dict)


def rows(columns: Sequence[StudyColumn]) -> Iterator[tuple[str, ...]]:
    """A row for every container that has any use to show, and one for what was published."""
    for column in columns:
        for results in _by_container(column):
            values = numbers(results)
            if not values["cpusUsed"]:
                continue
            latency = values["latencyMs"]
            share = f"{values['throttledPeriods']:g} of {values['periods']:g}" if values["periods"] else _NONE
            yield (
                column.label,
                results[0].path,
                _shown(values["requestsPerSecond"]) if latency else _NONE,
                *(_shown(latency.get(f"p{percent}")) for percent in PERCENTILES),
                _shown(latency.get("max")),
                f"{values['cpusUsed']:.3f}",
                share,
                _shown(values["throttledMsPerSecond"]) if values["periods"] else _NONE,
            )
        if column.published:
            yield _published_row(column)


def as_json(columns: Sequence[StudyColumn]) -> list[dict[str, Any]]:
    """The same as objects; times in ms, rates per second, medians over the seeds."""
    return [
        {
            "label": column.label,
            "seeds": [one.seed for one in column.outcomes],
            "containers": [
                {"path": results[0].path, **numbers(results)} for results in _by_container(column)
            ],
            "published": dict(column.published),
        }
        for column in columns
    ]


def numbers(results: Sequence[ContainerResult]) -> dict[str, Any]:
    """The medians of runs of one container."""

    def middle(values: Sequence[float]) -> float:
        return round(median(values), 3)

    latency = {
        "max" if key == 100 else f"p{key}": middle([one.latency[key] / _MS for one in results])
        for key in results[0].latency
        if all(key in one.latency for one in results)
    }
    return {
        "requestsPerSecond": middle([one.per_second for one in results]),
        "latencyMs": latency,
        "cpusUsed": middle([one.cpus_used for one in results]),
        "periods": middle([one.stat.nr_periods for one in results]),
        "throttledPeriods": middle([one.stat.nr_throttled for one in results]),
        "throttledMsPerSecond": middle([one.stat.throttled_ns / _MS / one.seconds for one in results]),
        "bursts": middle([one.stat.nr_bursts for one in results]),
        "burstMsPerSecond": middle([one.stat.burst_ns / _MS / one.seconds for one in results]),
    }


def _by_container(column: StudyColumn) -> Iterator[list[ContainerResult]]:
    for i in range(len(column.outcomes[0].results)):
        yield [outcome.results[i] for outcome in column.outcomes]


def _published_row(column: StudyColumn) -> tuple[str, ...]:
    cells = (_shown(column.published.get(name)) for name in HEADINGS[2:8])
    return (column.label, "(published)", *cells, "", "", "")


def _shown(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
