"""`corelane vectors`: recorded answers of upstream programs, replayed against corelane."""

from __future__ import annotations

from pathlib import Path

import click

from corelane.cli import _options
from corelane.cli._errors import Command


@click.command(cls=Command)
@click.argument("file", type=_options.FILE)
@_options.file("--topologies", "Machines of placement vectors; default: topologies.json beside FILE.")
@click.option("--limit", default=10, show_default=True, help="Number of differences to print in full.")
def vectors(file: Path, topologies: Path | None, limit: int) -> None:
    """Replay conformance vectors: requests and pods with the recorded answers of upstream programs.

    FILE is JSON lines, plain or gzipped. Prints the first differences, one line per category, and finally
    `passed N of M`. Exits with 1 if any answer differs.
    """
    from corelane.conformance import replay as replayer

    report = replayer.replay(file, topologies=topologies, limit=limit)
    for line in report.lines():
        click.echo(line)
    raise SystemExit(0 if report.passed == report.total else 1)
