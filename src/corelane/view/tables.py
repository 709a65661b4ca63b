"""Plain rows to tables on a terminal, or to text of full width in a pipe."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Columns where the output is no terminal and $COLUMNS is not set: wide enough that nothing is cut."""


def console(stream: TextIO | None = None) -> Console:
    """A console of the terminal's width, or of $COLUMNS or `PIPE_WIDTH` where there is none.

    Printing raises BrokenPipeError once nobody reads any more: rich's SystemExit would end an event loop.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            with suppress(SystemExit):
                super().on_broken_pipe()
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    out = stream or sys.stdout or io.StringIO()  # there is no stdout where the caller closed it
    return Piped(file=out, highlight=False, soft_wrap=False, width=None if out.isatty() else _pipe_width())


def _pipe_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) >= 40 else PIPE_WIDTH


def show(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], to: Console) -> None:
    """Print one table. Cells are plain text: no markup and no terminal sequence in them is ever obeyed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # A heavy caption line over ASCII-safe columns reads the same on a terminal, in a log and in a README.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell), style=_style(cell)) for cell in row))
    if title:  # not the table's own, which is broken where the table is narrower
        to.print(Text(title, style="bold"))
    to.print(table)


def printable(text: str) -> str:
    """Text of strangers, such as a pod's annotation, made harmless: what moves or colours comes escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


_STYLES = {
    "confirmed": "green",
    "Running": "green",
    "Pending": "yellow",
    "simulated": "cyan",
    "Failed": "red",
    "DIFFERS": "bold red",
}


def _style(cell: str) -> str:
    return _STYLES.get(cell.split(" ")[0], "")
