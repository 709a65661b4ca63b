"""Parts that charts on a page have in common: the drawing, labels, grid lines, round values for an axis.

Colours are classes of `html_page`, so charts follow light and dark.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from corelane.view.html_page import text

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


def swatches(entries: Iterable[tuple[str, str]], x: float, y: float, step: float) -> list[str]:
    """A legend in one line: colours (as for `bar`) and words, `step` apart."""
    parts = list[str]()
    for i, (fill, words) in enumerate(entries):
        parts += [
            bar(x + i * step, y, 12, 12, fill, words),
            label(x + i * step + 18, y + 10, words, "c-soft"),
        ]
    return parts


def shortened(words: str) -> str:
    """Return a label that fits beside a bar."""
    return words if len(words) <= _SHORT else f"{words[: _SHORT - 1]}…"


def steps(largest: float, most: int = 5) -> list[float]:
    """Round values from 0 to at least `largest`."""
    rough = largest / most
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    return [step * i for i in range(ceil(largest / step - 1e-9) + 1)]
