"""Plain rows to tables on a terminal, or to text of full width in a pipe."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Columns where the output is not a terminal and $COLUMNS is not set: wide enough that nothing is cut."""

_GAP = 3
_BREAKS = re.compile(r"(?<=[ ,/])(?=\S)")
_BREAKS_IN_NAME = re.compile(r"(?<=[,/])(?=\S)|(?<=[a-z]-)(?=[a-z])")


def console(stream: TextIO | None = None) -> Console:
    """A console of the terminal's width, or of $COLUMNS or `PIPE_WIDTH` where there is none.

    Printing raises BrokenPipeError once the reader is gone: rich's SystemExit would end an event loop.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            with suppress(SystemExit):
                super().on_broken_pipe()
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    out = stream or sys.stdout or io.StringIO()  # there is no stdout where the caller closed it
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) >= 40 else PIPE_WIDTH
    return Piped(file=out, highlight=False, soft_wrap=False, width=None if out.isatty() else width)


def show(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    to: Console,
    droppable: Sequence[str] = (),
) -> None:
    """Print one table. Cells are plain text: no markup and no terminal sequence in them is ever obeyed.

    Columns with a heading in `droppable` are left out, in that order, where the table is too wide.

    Lines break at spaces, behind `,` and `/`, and in names behind `-`, not inside words; where even that is
    too wide, each row is printed as a list of its cells.
    """
    from rich.text import Text

    if title:  # not the table's own, which is broken where the table is narrower
        to.print(Text(title, style="bold"))
    cells = [[printable(cell) for cell in row] for row in rows]
    for dropped in range(len(droppable) + 1):
        shown = [index for index, heading in enumerate(headings) if heading not in droppable[:dropped]]
        names = [headings[index] for index in shown]
        lines = [[row[index] for index in shown] for row in cells]
        columns = [list(column) for column in zip(names, *lines, strict=True)]
        for gap in (_GAP, _GAP - 1):
            widths = _widths(columns, to.width - 2 - gap * (len(columns) - 1))
            if widths is not None:
                _show_table(names, lines, widths, gap, to)
                if dropped:
                    left_out = ", ".join(heading for heading in headings if heading in droppable[:dropped])
                    to.print(f"left out at {to.width} columns: {left_out} (see -o json)", markup=False)
                return
    _show_lists(headings, cells, to)


def _show_table(
    headings: Sequence[str], cells: list[list[str]], widths: list[int], gap: int, to: Console
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # A heavy caption line over ASCII-safe columns reads the same on a terminal, in a log and in a README.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for heading, width in zip(headings, widths, strict=True):
        table.add_column("\n".join(wrapped(heading, width)), width=width, overflow="fold")
    for row in cells:
        texts = ("\n".join(wrapped(cell, width)) for cell, width in zip(row, widths, strict=True))
        table.add_row(*(Text(text, style=_style(text)) for text in texts))
    for line in to.render_lines(table, pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()
        to.print(text, no_wrap=True, crop=False)


def pairs(title: str, rows: Iterable[tuple[str, str]], to: Console) -> None:
    """Print a title, and below it names with their texts, which are wrapped; "" continues the row above."""
    from rich.text import Text

    cells = [(printable(name), printable(text)) for name, text in rows]
    indent = max((len(name) for name, _ in cells), default=0) + _GAP + 1
    to.print(Text(title, style="bold"))
    for name, text in cells:
        lines = filled(text, max(to.width - indent, 20))
        for number, line in enumerate(lines):
            to.print(Text(f" {'' if number else name:<{indent - 1}}{line}"))
    to.print()


def _show_lists(headings: Sequence[str], cells: list[list[str]], to: Console) -> None:
    from rich.text import Text

    label = max(map(len, headings)) + 2
    for row in cells:
        to.print()
        for heading, cell in zip(headings, row, strict=True):
            lines = wrapped(cell, max(to.width - label - 1, 20)) or [""]
            to.print(Text.assemble(f" {heading:<{label}}", (lines[0], _style(cell))))
            for line in lines[1:]:
                to.print(Text(f" {'':<{label}}{line}", style=_style(cell)))
    to.print()


def _widths(columns: list[list[str]], room: int) -> list[int] | None:
    """Divide `room` among columns: each gets its longest word, what is left goes where lines are longest.

    None where the longest words alone need more.
    """
    least = [
        max((len(word.rstrip()) for cell in column for word in _words(cell)), default=1) for column in columns
    ]
    most = [max((len(line) for cell in column for line in cell.split("\n")), default=1) for column in columns]
    left = room - sum(least)
    if left < 0:
        return None
    widths = least
    for column in sorted(range(len(columns)), key=lambda i: most[i] - least[i]):
        wanting = sum(most[i] > widths[i] for i in range(len(columns)))
        more = min(most[column] - widths[column], left // max(wanting, 1))
        widths[column] += more
        left -= more
    return widths


def _words(text: str) -> list[str]:
    """Split text where a line may break; a name, which has no space, also behind `-`."""
    return (_BREAKS if " " in text else _BREAKS_IN_NAME).split(text)


def wrapped(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` columns, at spaces, behind `,` and `/`, in names also `-`."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _words(paragraph):
            if line and len(line) + len(word.rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            line += word
        lines.append(line.rstrip())
    return lines


def filled(text: str, width: int) -> list[str]:
    """Break sentences at spaces; inside words, behind `,` and `/`, only those that are longer than a line."""
    lines = [""]
    for word in text.split():
        room = width - len(lines[-1]) - 1
        if not lines[-1]:
            lines.pop()
        elif len(word) <= room:
            lines[-1] += f" {word}"
            continue
        lines += wrapped(word, width)
    return lines


def printable(text: str) -> str:
    """Escape what moves or colours a terminal in untrusted text, such as a pod's annotation."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


_STYLES = {
    "confirmed": "green",
    "Running": "green",
    "Pending": "yellow",
    "simulated": "cyan",
    "Failed": "red",
    "DIFFERS:": "bold red",
}


def _style(cell: str) -> str:
    return _STYLES.get(cell.split(" ")[0], "")
