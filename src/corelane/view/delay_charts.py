"""Charts for a page: delay by percentile, ranges before and after, and measurements round by round.

Colours are classes of `html_page`, so charts follow light and dark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from corelane.view.html_page import text

COLOURS = ("#2f6fb7", "#c2571b", "#2e8b57", "#8e5bc4", "#a8791b", "#c23b6f", "#1e8a8a", "#77818c")
"""Readable on light and dark."""
_WIDTH, _LEFT, _RIGHT = 1000, 76, 24
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
    ticks = _decades(max(smallest, 0.001), largest) if logarithmic else _steps(largest)
    top, height = 16, 260

    def y(value: float) -> float:
        if logarithmic:
            low, high = log10(ticks[0]), log10(ticks[-1])
            return top + height * (1 - (log10(max(value, ticks[0])) - low) / (high - low))
        return top + height * (1 - value / ticks[-1])

    def x(percent: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(-log10(1 - min(percent, 99.9) / 100), 3) / 3

    bottom = top + height
    body = [
        *(_row(y(tick), f"{tick:,.4g}{f' {unit}' if tick == ticks[-1] else ''}") for tick in ticks),
        *(_column(x(percent), bottom, f"{percent:g} %") for percent in _PERCENTS),
    ]
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{x(percent):.1f} {y(delay):.1f}" for percent, delay in curve.points)
        dash = ' stroke-dasharray="7 4"' if number % 2 else ""
        body.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"'
            f"{dash}><title>{text(curve.label)}</title></path>"
        )
    body.append(_text(_LEFT, bottom + 38, "percentile of requests", "c-soft"))
    legend = _legend([curve.label for curve in curves], bottom + 62)
    return _svg("Delay by percentile", bottom + 50 + 22 * len(curves), [*body, *legend])


@dataclass(frozen=True, slots=True)
class RangeBar:
    """A forecast: least and greatest; None where it is unknown."""

    label: str
    low: float | None
    high: float | None
    best: bool = False


def ranges(title: str, now: float, bars: Sequence[RangeBar], unit: str) -> str:
    """Forecasts as bars below what is measured now."""
    ticks = _steps(max([now, *(bar.high or 0.0 for bar in bars), 0.001]))
    left, lane = 330, 28
    height = lane * (len(bars) + 1)

    def x(value: float) -> float:
        return left + (_WIDTH - left - 90) * value / ticks[-1]

    body = [_text(0, 14, title, "c-text", weight=600)]
    body += [_column(x(tick), 26 + height, f"{tick:,.4g}", 26) for tick in ticks]
    rows = [RangeBar("now (measured)", now, now), *bars]
    for i, bar in enumerate(rows):
        y = 26 + i * lane
        body.append(_text(0, y + 18, _short(bar.label), "c-text", weight=600 if bar.best else 400))
        if bar.low is None or bar.high is None:
            body.append(_text(left + 6, y + 18, "unknown", "c-soft"))
            continue
        css = "c-bad" if i == 0 else "c-good" if bar.best else "c-accent"
        start = 0.0 if i == 0 else bar.low
        width = max(x(bar.high) - x(start), 3)
        shown = f"{bar.low:,.0f}" if bar.low == bar.high else f"{bar.low:,.0f} to {bar.high:,.0f}"
        body.append(
            f'<rect class="{css}" x="{x(start):.1f}" y="{y + 6}" width="{width:.1f}" height="16" rx="2">'
            f"<title>{text(bar.label)}</title></rect>"
        )
        body.append(_text(x(start) + width + 6, y + 18, shown, "c-text"))
    body.append(f'<path class="c-now" d="M{x(now):.1f} 26V{26 + height}" stroke-dasharray="3 3"/>')
    body.append(_text(_WIDTH, 26 + height + 17, unit, "c-soft", "end"))
    return _svg(title, 26 + height + 26, body)


def _short(label: str) -> str:
    return label if len(label) <= 43 else f"{label[:42]}…"


@dataclass(frozen=True, slots=True)
class RoundSample:
    """What was measured in a round that lasted `seconds`: CPU time used and throttled, in ms a second."""

    seconds: float
    used: float | None
    throttled: float | None


def rounds(title: str, samples: Sequence[RoundSample]) -> str:
    """Used and throttled time, round by round, from left to right."""
    largest = max([(one.used or 0) + (one.throttled or 0) for one in samples], default=0.0)
    ticks, top, height = _steps(max(largest, 1.0), 3), 30, 90
    total = sum(one.seconds for one in samples) or 1.0
    scale, bottom = (_WIDTH - _LEFT - _RIGHT) / total, top + height
    body = [_text(0, 14, title, "c-text", weight=600)]
    body += [_row(bottom - height * tick / ticks[-1], f"{tick:,.4g}") for tick in ticks]
    at = 0.0
    for one in samples:
        x, width = _LEFT + at * scale, max(one.seconds * scale - 1, 0.8)
        used, throttled = (height * (value or 0) / ticks[-1] for value in (one.used, one.throttled))
        hint = f"{at:.3g} s: used {one.used or 0:.0f}, throttled {one.throttled or 0:.0f} ms/s"
        body.append(
            f'<g><title>{text(hint)}</title><rect class="c-accent" x="{x:.1f}" y="{bottom - used:.1f}" '
            f'width="{width:.1f}" height="{used:.1f}"/><rect class="c-bad" x="{x:.1f}" '
            f'y="{bottom - used - throttled:.1f}" width="{width:.1f}" height="{throttled:.1f}"/></g>'
        )
        at += one.seconds
    body += [
        _text(_LEFT, bottom + 18, "0 s", "c-soft"),
        _text(_WIDTH - _RIGHT, bottom + 18, f"{total:.3g} s", "c-soft", "end"),
    ]
    for x, css, words in ((_LEFT + 320, "c-accent", "used, ms/s"), (_LEFT + 440, "c-bad", "throttled, ms/s")):
        body += [f'<rect class="{css}" x="{x}" y="{bottom + 8}" width="12" height="12" rx="2"/>']
        body += [_text(x + 18, bottom + 18, words, "c-soft")]
    return _svg(title, bottom + 28, body)


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg width="{_WIDTH}" height="{height:g}" viewBox="0 0 {_WIDTH} {height:g}" role="img">',
            f"<title>{text(title)}</title>",
            *body,
            "</svg>",
        ]
    )


def _text(
    x: float, y: float, words: str, css: str, anchor: str = "start", *, size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{text(words)}</text>'
    )


def _row(y: float, label: str) -> str:
    line = f'<path class="c-grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
    return line + _text(_LEFT - 8, y + 4, label, "c-soft", "end")


def _column(x: float, bottom: float, label: str, top: float = 16) -> str:
    return (
        f'<path class="c-grid" d="M{x:.1f} {top}V{bottom:.1f}"/>'
        f"{_text(x, bottom + 17, label, 'c-soft', 'middle')}"
    )


def _legend(labels: Sequence[str], top: float) -> Iterator[str]:
    for i, label in enumerate(labels):
        dash = ' stroke-dasharray="7 4"' if i % 2 else ""
        yield (
            f'<path d="M{_LEFT} {top + 22 * i - 4}h26" stroke="{COLOURS[i % len(COLOURS)]}" '
            f'stroke-width="2.5"{dash}/>'
        )
        yield _text(_LEFT + 34, top + 22 * i, label, "c-text")


def _steps(largest: float, most: int = 5) -> list[float]:
    """Round values from 0 to at least `largest`."""
    rough = largest / most
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    return [step * i for i in range(ceil(largest / step - 1e-9) + 1)]


def _decades(smallest: float, largest: float) -> list[float]:
    """1, 2, 5, 10, … around both, or only the tens where these are many."""
    low, high = floor(log10(smallest)), ceil(log10(largest))
    factors = (1, 2, 5) if high - low <= 3 else (1,)
    every = [k * 10.0**i for i in range(low, max(high, low + 1) + 1) for k in factors]
    within = [one for one, after in pairwise(every) if after > smallest and one < largest]
    return [*within, every[every.index(within[-1]) + 1]]
