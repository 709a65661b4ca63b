"""`corelane limits calibrate`: compare the model of CPU limits with this machine's kernel."""

from __future__ import annotations

import click

from corelane.cli import _options
from corelane.cli._errors import Command


@click.command(cls=Command)
@click.option("--only", default="", help="Only experiments with this text in their name, such as 'spin 2'.")
@click.option("--runs", type=click.IntRange(1, 50), default=1, show_default=True, help="Runs of each.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    help="Attempts for a run that other load disturbs.",
)
@_options.output("table json")
def calibrate(only: str, runs: int, attempts: int, output: str) -> None:
    """Measure throttling in new cgroups, and compare it with the model.

    Threads spin, sleep and work in bursts, alone, beside others of another weight, and under nested limits.
    Takes 4 to 5 minutes for each of --runs, and up to --attempts times as long on a busy machine: runs
    disturbed by other load or the hypervisor are discarded and repeated. Usually requires root. Exits with 1
    if the model's error exceeds a tolerance, with 3 if no run counts.
    """
    from corelane.app.limits import calibrate as app

    def progress(text: str) -> None:
        click.echo(text, err=True)

    raise SystemExit(app.calibrate(only, runs, attempts, output, say=click.echo, progress=progress))
