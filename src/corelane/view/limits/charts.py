"""Charts for a page: delay by percentile, ranges before and after, and measurements round by round.

Colours are classes of `html_page`, so charts follow light and dark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final

from corelane.view.html_page import text

# Parts that charts on a page have in common: the drawing, labels, grid lines, round values for an axis.

COLOURS = ("#2f6fb7", "#c2571b", "#2e8b57", "#8e5bc4", "#a8791b", "#c23b6f", "#1e8a8a", "#77818c")
"""Readable on light and dark."""
WIDTH, LEFT, RIGHT = 1000, 76, 24
_SHORT = 43


def drawing(title: str, height: float, body: Sequence[str]) -> str:
    """Return the whole drawing, `WIDTH` wide."""
    return "\n".join(
        [
            f'<svg width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{text(title)}</title>",
            *body,
            "</svg>",
        ]
    )


def label(
    x: float, y: float, words: str, css: str, anchor: str = "start", *, size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{text(words)}</text>'
    )


def grid_row(y: float, words: str) -> str:
    line = f'<path class="c-grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
    return line + label(LEFT - 8, y + 4, words, "c-soft", "end")


def grid_column(x: float, bottom: float, words: str, top: float = 16) -> str:
    return (
        f'<path class="c-grid" d="M{x:.1f} {top}V{bottom:.1f}"/>'
        f"{label(x, bottom + 17, words, 'c-soft', 'middle')}"
    )


def bar(x: float, y: float, width: float, height: float, fill: str, hint: str) -> str:
    """A bar with a hint; `fill` is a class, or a colour with a leading #."""
    paint = f'fill="{fill}"' if fill.startswith("#") else f'class="{fill}"'
    return (
        f'<rect {paint} x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:g}" rx="2">'
        f"<title>{text(hint)}</title></rect>"
    )


def shortened(words: str) -> str:
    """Return a label that fits beside a bar."""
    return words if len(words) <= _SHORT else f"{words[: _SHORT - 1]}…"


def steps(largest: float, most: int = 5) -> list[float]:
    """Round values from 0 to at least `largest`."""
    rough = largest / most
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    return [step * i for i in range(ceil(largest / step - 1e-9) + 1)]


_PERCENTS = (0.0, 50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class DelayCurve:
    """Delays in ms at percentiles, both ascending."""

    label: str
    points: Sequence[tuple[float, float]]


def delays(curves: Sequence[DelayCurve], unit: str = "ms") -> str:
    """Delay over the percentile, whose axis gives every nine as much room as the one before."""
    values = [delay for curve in curves for _, delay in curve.points]
    largest, smallest = max([*values, 0.001]), min(values, default=1.0)
    logarithmic = largest > 30 * max(smallest, 0.001)
    ticks = _decades(max(smallest, 0.001), largest) if logarithmic else steps(largest)
    top, height = 16, 260

    def y(value: float) -> float:
        if logarithmic:
            low, high = log10(ticks[0]), log10(ticks[-1])
            return top + height * (1 - (log10(max(value, ticks[0])) - low) / (high - low))
        return top + height * (1 - value / ticks[-1])

    def x(percent: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(-log10(1 - min(percent, 99.9) / 100), 3) / 3

    bottom = top + height
    body = [
        *(grid_row(y(tick), f"{tick:,.4g}{f' {unit}' if tick == ticks[-1] else ''}") for tick in ticks),
        *(grid_column(x(percent), bottom, f"{percent:g} %") for percent in _PERCENTS),
    ]
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{x(percent):.1f} {y(delay):.1f}" for percent, delay in curve.points)
        dash = ' stroke-dasharray="7 4"' if number % 2 else ""
        body.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"'
            f"{dash}><title>{text(curve.label)}</title></path>"
        )
    body.append(label(LEFT, bottom + 38, "percentile of requests", "c-soft"))
    legend = _legend([curve.label for curve in curves], bottom + 62)
    return drawing("Delay by percentile", bottom + 50 + 22 * len(curves), [*body, *legend])


@dataclass(frozen=True, slots=True)
class RangeBar:
    """A forecast: least and greatest; None where it is unknown."""

    label: str
    low: float | None
    high: float | None
    best: bool = False


def ranges(title: str, now: float, bars: Sequence[RangeBar], unit: str) -> str:
    """Forecasts as bars below what is measured now."""
    ticks = steps(max([now, *(bar.high or 0.0 for bar in bars), 0.001]))
    left, lane = 330, 28
    height = lane * (len(bars) + 1)

    def x(value: float) -> float:
        return left + (WIDTH - left - 90) * value / ticks[-1]

    body = [label(0, 14, title, "c-text", weight=600)]
    body += [grid_column(x(tick), 26 + height, f"{tick:,.4g}", 26) for tick in ticks]
    rows = [RangeBar("now (measured)", now, now), *bars]
    for i, bar in enumerate(rows):
        y = 26 + i * lane
        body.append(label(0, y + 18, shortened(bar.label), "c-text", weight=600 if bar.best else 400))
        if bar.low is None or bar.high is None:
            body.append(label(left + 6, y + 18, "unknown", "c-soft"))
            continue
        css = "c-bad" if i == 0 else "c-good" if bar.best else "c-accent"
        start = 0.0 if i == 0 else bar.low
        width = max(x(bar.high) - x(start), 3)
        shown = f"{bar.low:,.0f}" if bar.low == bar.high else f"{bar.low:,.0f} to {bar.high:,.0f}"
        body.append(
            f'<rect class="{css}" x="{x(start):.1f}" y="{y + 6}" width="{width:.1f}" height="16" rx="2">'
            f"<title>{text(bar.label)}</title></rect>"
        )
        body.append(label(x(start) + width + 6, y + 18, shown, "c-text"))
    body.append(f'<path class="c-now" d="M{x(now):.1f} 26V{26 + height}" stroke-dasharray="3 3"/>')
    body.append(label(WIDTH, 26 + height + 17, unit, "c-soft", "end"))
    return drawing(title, 26 + height + 26, body)


@dataclass(frozen=True, slots=True)
class RoundSample:
    """Measurement of a round that lasted `seconds`: CPU time used and throttled, in ms a second."""

    seconds: float
    used: float | None
    throttled: float | None


def rounds(title: str, samples: Sequence[RoundSample]) -> str:
    """Used and throttled time, round by round, from left to right."""
    largest = max([(sample.used or 0) + (sample.throttled or 0) for sample in samples], default=0.0)
    ticks, top, height = steps(max(largest, 1.0), 3), 30, 90
    total = sum(sample.seconds for sample in samples) or 1.0
    scale, bottom = (WIDTH - LEFT - RIGHT) / total, top + height
    body = [label(0, 14, title, "c-text", weight=600)]
    body += [grid_row(bottom - height * tick / ticks[-1], f"{tick:,.4g}") for tick in ticks]
    at = 0.0
    for sample in samples:
        x, width = LEFT + at * scale, max(sample.seconds * scale - 1, 0.8)
        used, throttled = (height * (value or 0) / ticks[-1] for value in (sample.used, sample.throttled))
        hint = f"{at:.3g} s: used {sample.used or 0:.0f}, throttled {sample.throttled or 0:.0f} ms/s"
        body.append(
            f'<g><title>{text(hint)}</title><rect class="c-accent" x="{x:.1f}" y="{bottom - used:.1f}" '
            f'width="{width:.1f}" height="{used:.1f}"/><rect class="c-bad" x="{x:.1f}" '
            f'y="{bottom - used - throttled:.1f}" width="{width:.1f}" height="{throttled:.1f}"/></g>'
        )
        at += sample.seconds
    body += [
        label(LEFT, bottom + 18, "0 s", "c-soft"),
        label(WIDTH - RIGHT, bottom + 18, f"{total:.3g} s", "c-soft", "end"),
    ]
    for x, css, words in ((LEFT + 320, "c-accent", "used, ms/s"), (LEFT + 440, "c-bad", "throttled, ms/s")):
        body += [f'<rect class="{css}" x="{x}" y="{bottom + 8}" width="12" height="12" rx="2"/>']
        body += [label(x + 18, bottom + 18, words, "c-soft")]
    return drawing(title, bottom + 28, body)


def _legend(labels: Sequence[str], top: float) -> Iterator[str]:
    for i, words in enumerate(labels):
        dash = ' stroke-dasharray="7 4"' if i % 2 else ""
        yield (
            f'<path d="M{LEFT} {top + 22 * i - 4}h26" stroke="{COLOURS[i % len(COLOURS)]}" '
            f'stroke-width="2.5"{dash}/>'
        )
        yield label(LEFT + 34, top + 22 * i, words, "c-text")


def _decades(smallest: float, largest: float) -> list[float]:
    """1, 2, 5, 10, … around both, or only the tens where these are many."""
    low, high = floor(log10(smallest)), ceil(log10(largest))
    factors = (1, 2, 5) if high - low <= 3 else (1,)
    every = [k * 10.0**i for i in range(low, max(high, low + 1) + 1) for k in factors]
    within = [tick for tick, after in pairwise(every) if after > smallest and tick < largest]
    return [*within, every[every.index(within[-1]) + 1]]


# Charts of what held containers back, and of what a larger request changes.
#
# Times are milliseconds a second, the same as milliCPU.


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
    for i, cause in enumerate(present):
        body.append(bar(150 * i, _TOP + height + 34, 12, 12, _FILLS[cause], CAUSES[cause]))
        body.append(label(150 * i + 18, _TOP + height + 44, CAUSES[cause], "c-soft"))
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
    """Use of another group now, and with the larger request."""

    name: str
    now: float
    after: float


def request(title: str, bars: Sequence[UseBar], others: Sequence[GivesWay]) -> str:
    """Draw what a container gets now and with a larger request, and what must give way, on one scale."""
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
