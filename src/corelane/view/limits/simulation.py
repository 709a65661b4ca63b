"""Results of simulations of CPU limits, as rows of a table and as JSON with stable keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from corelane.limits.model.bandwidth import CPUStat
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import PERCENTILES, ContainerResult, SimulationResult
from corelane.limits.model.studies import PhaseSpread
from corelane.limits.model.timeline import Timeline, TimelineSpan
from corelane.view.svg import SANS, escaped, text_element

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
                counts = _counter_cells(pod, pod["phaseSpread"])
                yield (column.label, f"{pod['path']} (pod)", *[_NONE] * (len(PERCENTILES) + 2), *counts)
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
            cells = (_shown(column.published.get(name)) for name in HEADINGS[2:8])
            yield (column.label, "(published)", *cells, "", "", "")


def as_json(columns: Sequence[StudyColumn]) -> list[dict[str, Any]]:
    """The same as objects; times in ms, rates per second, medians over the seeds."""
    return [
        {
            "label": column.label,
            "seeds": [outcome.seed for outcome in column.outcomes],
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
    latency = {
        "max" if key == 100 else f"p{key}": _median([result.latency[key] / _MS for result in results])
        for key in results[0].latency
        if key in (*PERCENTILES, 100) and all(key in result.latency for result in results)
    }
    return {
        "requestsPerSecond": _median([result.per_second for result in results]),
        "latencyMs": latency,
        **counters([result.stat for result in results], results[0].seconds),
    }


def _median(values: Sequence[float]) -> float:
    return round(median(values), 3)


def counters(stats: Sequence[CPUStat], seconds: float) -> dict[str, float]:
    """The medians of a group's counters over runs of so many seconds."""
    return {
        "cpusUsed": _median([stat.usage_ns / _MS / 1000 / seconds for stat in stats]),
        "periods": _median([stat.nr_periods for stat in stats]),
        "throttledPeriods": _median([stat.nr_throttled for stat in stats]),
        "throttledMsPerSecond": _median([stat.throttled_ns / _MS / seconds for stat in stats]),
        "bursts": _median([stat.nr_bursts for stat in stats]),
        "burstMsPerSecond": _median([stat.burst_ns / _MS / seconds for stat in stats]),
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
            **counters([outcome.pods[pod.name] for outcome in column.outcomes], first.seconds),
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


def _shown(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


# Slices as a picture: which CPU ran whom when, where the quota ended, and who was throttled.
#
# A lane for every CPU, time from left to right in marks of a slice (5 ms); a line where a period begins, the
# moment written where a group's last CPU stopped for want of quota, and throttled time hatched.


_LEFT, _RIGHT, _TOP = 76, 24, 56
_WIDTH = 1000
_TITLE, _AXIS, _GAP = 46, 34, 18
_COLOURS = ("#2f6fb7", "#b3541e", "#2e7d4f", "#8347ad", "#a8791b", "#b03060", "#1e8a8a", "#5b6470")
_STYLE = """
.bg{fill:#ffffff}.fg{fill:#1f2328}.muted{fill:#59636e}.lane{fill:#f0f3f6}.mark{stroke:#d1d9e0}
.refill{stroke:#1f2328;stroke-dasharray:3 3}.stop{fill:#b42318}.hatch{stroke:#b42318}
.back{fill:#fbe9e7}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.fg{fill:#e6edf3}.muted{fill:#9198a1}.lane{fill:#1b222c}
.mark{stroke:#3d444d}.refill{stroke:#e6edf3}.stop{fill:#ff7b72}.hatch{stroke:#ff7b72}.back{fill:#3a1d1d}}
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One case's timeline, over all CPUs of its machine."""

    title: str
    cpus: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class _Frame:
    """Place of a panel's lanes, and the scale of time."""

    top: float
    lane: float
    cpus: int
    start: int
    scale: float

    def x(self, moment: int) -> float:
        return _LEFT + (moment - self.start) * self.scale

    def y(self, cpu: int) -> float:
        return self.top + cpu * self.lane

    @property
    def bottom(self) -> float:
        return self.top + self.cpus * self.lane


def timeline_svg(title: str, panels: Sequence[Panel]) -> str:
    """The panels one below the other."""
    ran = {span.group for panel in panels for span in panel.timeline.ran}
    limited = sorted({refill.group for panel in panels for refill in panel.timeline.refills})
    colours = {group: _COLOURS[i % len(_COLOURS)] for i, group in enumerate(sorted({*ran, *limited}))}
    lines = {group: colours[group] for group in limited} if len(limited) > 1 else {}
    legend, top = _legend({group: colours[group] for group in sorted(ran)}, lines)
    body: list[str] = []
    for panel in panels:
        lane = 26 if panel.cpus <= 4 else 18 if panel.cpus <= 16 else max(480 / panel.cpus, 5)
        start, length = panel.timeline.start, panel.timeline.end - panel.timeline.start
        frame = _Frame(top + _TITLE, lane, panel.cpus, start, (_WIDTH - _LEFT - _RIGHT) / length)
        body += _panel(panel, frame, colours, lines)
        top = frame.bottom + _AXIS + _GAP
    return "\n".join([*_opening(title, round(top)), *legend, *body, "</svg>"]) + "\n"


def _opening(title: str, height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" font-family="{SANS}">'
    )
    yield f"<title>{escaped(title)}</title>"
    yield f"<style>{_STYLE}</style>"
    yield '<defs><pattern id="held" width="6" height="6" patternUnits="userSpaceOnUse" '
    yield 'patternTransform="rotate(45)"><rect class="back" width="6" height="6"/>'
    yield '<line class="hatch" y2="6" stroke-width="2" opacity=".45"/>'
    yield "</pattern></defs>"
    yield f'<rect class="bg" width="{_WIDTH}" height="{height}"/>'
    yield text_element(24, 32, title, "fg", size=16, weight=600)


def _legend(ran: dict[str, str], lines: dict[str, str]) -> tuple[list[str], float]:
    """Return the legend, in as many rows as it takes, and where the first panel begins."""
    elements, x, y = list[str](), 24.0, _TOP
    for mark, words in _marks(ran, lines):
        if x > 24 and x + 24 + 7 * len(words) > _WIDTH:
            x, y = 24.0, y + 20
        elements.append(f'<g transform="translate({x:g} {y})">{mark}</g>')
        elements.append(text_element(x + 19, y + 1, words, "fg"))
        x += 40 + 7 * len(words)
    return elements, y + 24.0


def _marks(ran: dict[str, str], lines: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Marks, drawn right of the origin, and their meaning; of several limits each has lines of its own."""
    box = '<rect y="-10" width="13" height="13" rx="2" fill="{}"/>'
    for name, colour in ran.items():
        yield box.format(colour), name
    yield box.format("url(#held)"), "throttled: wants to run, has no quota"
    yield '<path class="stop" d="M6 1l-4 -7h8z"/>', "quota used up"
    line = '<line class="refill" x1="6" x2="6" y1="-12" y2="5"{}/>'
    if not lines:
        yield line.format(""), "a period begins"
    for name, colour in lines.items():
        yield line.format(_stroke(colour)), f"a period of {name} begins"


def _stroke(colour: str) -> str:
    return f' style="stroke:{colour}"'


def _panel(panel: Panel, frame: _Frame, colours: dict[str, str], lines: dict[str, str]) -> Iterator[str]:
    line = panel.timeline
    yield text_element(24, frame.top - 26, panel.title, "fg", size=13, weight=600)
    gap = 3 if frame.lane >= 12 else 1
    every = 1 if frame.lane >= 12 else 8
    for cpu in range(panel.cpus):
        yield (
            f'<rect class="lane" x="{_LEFT}" y="{frame.y(cpu):g}" width="{_WIDTH - _LEFT - _RIGHT}" '
            f'height="{frame.lane - gap:g}"/>'
        )
        if cpu % every == 0:
            size = 11 if frame.lane >= 12 else 9
            yield text_element(
                _LEFT - 8, frame.y(cpu) + frame.lane / 2 + 3, f"CPU {cpu}", "muted", size=size, anchor="end"
            )
    for span in line.throttled:
        yield _box(frame, span, "url(#held)", f"{span.group} is throttled on CPU {span.cpu}")
    for span in line.ran:
        yield _box(frame, span, colours[span.group], f"{span.group} runs on CPU {span.cpu}")
    # Limits of a common beginning share a line, that of the innermost.
    for moment, group in sorted({refill.moment: refill.group for refill in line.refills}.items()):
        x, stroke = frame.x(moment), _stroke(lines[group]) if lines else ""
        yield (
            f'<line class="refill" x1="{x:.2f}" x2="{x:.2f}" y1="{frame.top - 6:g}" '
            f'y2="{frame.bottom:g}"{stroke}/>'
        )
    yield from _stops(line, frame)
    yield from _axis(line, frame)


def _box(frame: _Frame, span: TimelineSpan, fill: str, what: str) -> str:
    gap = 3 if frame.lane >= 12 else 1
    width = max((span.end - span.start) * frame.scale, 0.6)
    text = f"{what} from {span.start / MS:.3f} to {span.end / MS:.3f} ms"
    return (
        f'<rect x="{frame.x(span.start):.2f}" y="{frame.y(span.cpu):g}" width="{width:.2f}" '
        f'height="{frame.lane - gap:g}" fill="{fill}"><title>{escaped(text)}</title></rect>'
    )


def _stops(line: Timeline, frame: _Frame) -> Iterator[str]:
    """Mark where in each period a group's quota was used up: its last CPU to run before all are throttled."""
    groups = {refill.group for refill in line.refills}
    last_x = -100.0
    for moment in sorted({moment for group in groups for moment in _ends(line, group)}):
        x = frame.x(moment)
        yield f'<path class="stop" d="M{x:.2f} {frame.top - 2:g}l-4 -7h8z"/>'
        if x - last_x > 60:
            label = f"{(moment - line.start) / MS:.3g} ms"
            yield text_element(x, frame.top - 12, label, "stop", size=10, anchor="middle")
            last_x = x


def _ends(line: Timeline, group: str) -> Iterator[int]:
    bounds = [line.start, *(refill.moment for refill in line.refills if refill.group == group), line.end]
    ran = [span for span in line.ran if span.group == group]
    held = [span for span in line.throttled if span.group == group and span.start > line.start]
    for begin, end in pairwise(bounds):
        starts = [span.start for span in held if begin <= span.start < end]
        if starts:
            yield max([*starts, *(span.end for span in ran if begin <= span.start and span.end < end)])


_STEPS_MS = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 60_000, 600_000)
"""Of the axis; the last suffices for a window as long as the longest scenario."""


def _axis(line: Timeline, frame: _Frame) -> Iterator[str]:
    length = (line.end - line.start) / MS
    step = next(step_ms for step_ms in _STEPS_MS if length / step_ms <= 24)
    marks = 5 if length / 5 <= 80 else step
    for k in range(int(length / marks) + 1):
        x = frame.x(line.start + int(k * marks * MS))
        yield f'<path class="mark" d="M{x:.2f} {frame.bottom:g}v4"/>'
    for k in range(int(length / step) + 1):
        x = frame.x(line.start + int(k * step * MS))
        label = "0 ms" if k == 0 else f"{k * step}"
        yield text_element(x, frame.bottom + 17, label, "muted", size=11, anchor="middle")
