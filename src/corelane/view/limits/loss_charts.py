"""Charts of what held containers back, and of what a larger request changes.

Times are milliseconds a second, the same as milliCPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corelane.view.chart_parts import (
    COLOURS,
    WIDTH,
    bar,
    drawing,
    grid_column,
    label,
    shortened,
    steps,
    swatches,
)

CAUSES: Final[Mapping[str, str]] = {
    "limit": "limit",
    "limitAbove": "limit above",
    "neighbours": "other processes",
    "ownThreads": "own threads",
    "hypervisor": "hypervisor",
    "scheduling": "scheduling",
}
"""Causes by their key in JSON, as they are named on the page, always with the same colour."""
_FILLS: Final = dict(
    zip(CAUSES, ("c-bad", COLOURS[5], COLOURS[1], "c-accent", COLOURS[3], COLOURS[7]), strict=True)
)
_NAMES, _AMOUNTS, _LANE, _TOP = 330, 90, 28, 26


@dataclass(frozen=True, slots=True)
class LossBar:
    """A container's waits by cause (keys of `CAUSES`)."""

    name: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def losses(bars: Sequence[LossBar]) -> str:
    """For each container a bar of what its threads waited, divided by cause."""
    ticks = steps(max([*(each.total for each in bars), 1.0]))
    height = _LANE * len(bars)
    scale = (WIDTH - _NAMES - _AMOUNTS) / ticks[-1]
    body = [grid_column(_NAMES + tick * scale, _TOP + height, f"{tick:,.4g}", _TOP) for tick in ticks]
    body.append(label(WIDTH, _TOP + height + 17, "ms/s", "c-soft", "end"))
    for i, each in enumerate(bars):
        y, x = _TOP + i * _LANE, float(_NAMES)
        body.append(label(0, y + 18, shortened(each.name), "c-text"))
        for cause, amount in each.parts.items():
            if amount >= ticks[-1] / 2000:
                hint = f"{each.name}: {CAUSES[cause]} {amount:,.0f} ms/s ({amount / each.total:.0%})"
                body.append(bar(x, y + 6, amount * scale, 16, _FILLS[cause], hint))
                x += amount * scale
        body.append(label(x + 6, y + 18, f"{each.total:,.0f}", "c-text"))
    present = [cause for cause in CAUSES if any(each.parts.get(cause, 0.0) >= 1 for each in bars)]
    legend = [(_FILLS[cause], CAUSES[cause]) for cause in present]
    body += swatches(legend, 0, _TOP + height + 34, 150)
    return drawing("Waits of all threads by cause", _TOP + height + 52, body)


@dataclass(frozen=True, slots=True)
class UseBar:
    """CPU time in milliCPU: an amount, or a range from `low` on."""

    name: str
    amount: float
    fill: str
    low: float | None = None


@dataclass(frozen=True, slots=True)
class GivesWay:
    """What another group uses now, and with the larger request."""

    name: str
    now: float
    after: float


def request(title: str, bars: Sequence[UseBar], others: Sequence[GivesWay]) -> str:
    """What a container gets now and with a larger request, and what must give way, on one scale."""
    largest = max([1.0, *(each.amount for each in bars), *(each.now for each in others)])
    ticks = steps(largest)
    height = _LANE * (len(bars) + len(others) + bool(others))
    scale = (WIDTH - _NAMES - _AMOUNTS) / ticks[-1]
    body = [label(0, 14, title, "c-text", weight=600)]
    body += [grid_column(_NAMES + tick * scale, _TOP + height, f"{tick:,.4g}", _TOP) for tick in ticks]
    body.append(label(WIDTH, _TOP + height + 17, "mCPU", "c-soft", "end"))
    y = _TOP
    for each in bars:
        shown, width = f"{each.amount:,.0f}", each.amount * scale
        body.append(
            label(0, y + 18, shortened(each.name), "c-text", weight=600 if each.fill == "c-good" else 400)
        )
        if each.low is not None and f"{each.low:,.0f}" != shown:
            shown = f"{each.low:,.0f} to {shown}"
            start = each.low * scale
            body.append(
                bar(_NAMES + start, y + 6, max(width - start, 3), 16, each.fill, f"{each.name}: {shown}")
            )
        else:
            body.append(bar(_NAMES, y + 6, width, 16, each.fill, f"{each.name}: {shown}"))
        body.append(label(_NAMES + width + 6, y + 18, shown, "c-text"))
        y += _LANE
    if others:
        body.append(label(0, y + 18, "must give way (above: now, below: then)", "c-soft"))
        y += _LANE
    for other in others:
        hint = f"{other.name}: {other.now:,.0f} now, {other.after:,.0f} then"
        body += [
            label(0, y + 18, shortened(other.name), "c-text"),
            bar(_NAMES, y + 5, other.now * scale, 8, "c-soft", hint),
            bar(_NAMES, y + 14, other.after * scale, 8, "c-good", hint),
            label(
                _NAMES + other.now * scale + 6, y + 18, f"{other.now:,.0f} to {other.after:,.0f}", "c-text"
            ),
        ]
        y += _LANE
    return drawing(title, _TOP + height + 26, body)
