"""What simulations of CPU limits found, as rows of a table and as JSON with stable keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from corelane.limits.model.bandwidth import CPUStat
from corelane.limits.model.scenario import PERCENTILES, ContainerResult, SimulationResult
from corelane.limits.model.studies import PhaseSpread

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
    spread: PhaseSpread | None = None


def rows(columns: Sequence[StudyColumn]) -> Iterator[tuple[str, ...]]:
    """A row per container that used CPU time, after its limited pod's, and one for what was published."""
    for column in columns:
        limited = _limited_pods(column)
        for results in _by_container(column):
            values = numbers(results)
            if not values["cpusUsed"]:
                continue
            if pod := limited.pop(results[0].path.partition("/")[0], None):
                yield _pod_row(column, pod)
            latency = values["latencyMs"]
            yield (
                column.label,
                results[0].path,
                _shown(values["requestsPerSecond"]) if latency else _NONE,
                *(_shown(latency.get(f"p{percent}")) for percent in PERCENTILES),
                _shown(latency.get("max")),
                *_counter_cells(values, _spread(column, results[0].path)),
            )
        if column.published:
            yield _published_row(column)


def as_json(columns: Sequence[StudyColumn]) -> list[dict[str, Any]]:
    """The same as objects; times in ms, rates per second, medians over the seeds."""
    return [
        {
            "label": column.label,
            "seeds": [one.seed for one in column.outcomes],
            "pods": list(_limited_pods(column).values()),
            "containers": [
                {
                    "path": results[0].path,
                    **numbers(results),
                    "phaseSpread": _spread(column, results[0].path),
                }
                for results in _by_container(column)
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
        if key in (*PERCENTILES, 100) and all(key in one.latency for one in results)
    }
    return {
        "requestsPerSecond": middle([one.per_second for one in results]),
        "latencyMs": latency,
        **counters([one.stat for one in results], results[0].seconds),
    }


def counters(stats: Sequence[CPUStat], seconds: float) -> dict[str, float]:
    """The medians of a group's counters over runs of so many seconds."""

    def middle(values: Sequence[float]) -> float:
        return round(median(values), 3)

    return {
        "cpusUsed": middle([one.usage_ns / _MS / 1000 / seconds for one in stats]),
        "periods": middle([one.nr_periods for one in stats]),
        "throttledPeriods": middle([one.nr_throttled for one in stats]),
        "throttledMsPerSecond": middle([one.throttled_ns / _MS / seconds for one in stats]),
        "bursts": middle([one.nr_bursts for one in stats]),
        "burstMsPerSecond": middle([one.burst_ns / _MS / seconds for one in stats]),
    }


def spread_note(columns: Sequence[StudyColumn]) -> str:
    """A line that explains the ranges in the table; empty where there are none."""
    spread = next((column.spread for column in columns if column.spread), None)
    if spread is None:
        return ""
    return (
        f"throttled ms/s in parentheses: least to greatest over {spread.phases} equally likely phases "
        f"of pod and container periods (seed {spread.seed}, {spread.seconds:g} s each), and the row itself"
    )


def _limited_pods(column: StudyColumn) -> dict[str, dict[str, Any]]:
    """The counters of the pods that have a limit, by name."""
    first = column.outcomes[0].scenario
    return {
        pod.name: {
            "path": pod.name,
            **counters([one.pods[pod.name] for one in column.outcomes], first.seconds),
            "phaseSpread": _spread(column, pod.name),
        }
        for pod in first.pods
        if pod.limit
    }


def _spread(column: StudyColumn, path: str) -> dict[str, Any] | None:
    spread = column.spread
    if spread is None or path not in spread.throttled_ms_per_second:
        return None
    return {
        "phases": spread.phases,
        "seconds": spread.seconds,
        "seed": spread.seed,
        "throttledMsPerSecond": [round(value, 3) for value in spread.throttled_ms_per_second[path]],
        "cpusUsed": [round(value, 3) for value in spread.cpus_used[path]],
    }


def _pod_row(column: StudyColumn, pod: Mapping[str, Any]) -> tuple[str, ...]:
    no_latency = (_NONE,) * (len(PERCENTILES) + 2)
    return (column.label, f"{pod['path']} (pod)", *no_latency, *_counter_cells(pod, pod["phaseSpread"]))


def _counter_cells(values: Mapping[str, Any], spread: Mapping[str, Any] | None) -> tuple[str, str, str]:
    used = f"{values['cpusUsed']:.3f}"
    if not values["periods"]:
        return used, _NONE, _NONE
    throttled = _shown(values["throttledMsPerSecond"])
    if spread:
        least, greatest = spread["throttledMsPerSecond"]
        throttled += f" ({_shown(least)} to {_shown(greatest)})"
    return used, f"{values['throttledPeriods']:g} of {values['periods']:g}", throttled


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
