"""Replays recorded answers of upstream programs against corelane, from a checkout.

python -m tests.conformance FILE [--topologies FILE] [--limit N]
"""

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

from conformance import replay

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=FILE)
@click.option(
    "--topologies", type=FILE, help="Machines of placement vectors; default: topologies.json beside FILE."
)
@click.option("--limit", default=10, show_default=True, help="Number of differences to print in full.")
def main(file: Path, topologies: Path | None, limit: int) -> None:
    """Replay requests and pods with the recorded answers of upstream programs.

    FILE is JSON lines, plain or gzipped. Prints the first differences, one line per category, and finally
    `passed N of M`. Exits with 1 if any answer differs, with 2 for a file that cannot be read.
    """
    try:
        report = replay.replay(file, topologies=topologies, limit=limit)
    except replay.VectorsError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from error
    for line in report.lines():
        click.echo(line)
    raise SystemExit(0 if report.passed == report.total else 1)


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance")
