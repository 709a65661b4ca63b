"""`corelane limits calibrate`: whether the model of CPU limits agrees with this machine's kernel."""

from __future__ import annotations

import click

from corelane.cli._errors import Command


@click.command(cls=Command)
@click.option("--only", default="", help="Only experiments with this text in their name, such as 'spin 2'.")
@click.option("--runs", type=click.IntRange(1, 50), default=1, show_default=True, help="Runs of each.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    help="How often a run that others' load has disturbed is tried.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def calibrate(only: str, runs: int, attempts: int, output: str) -> None:
    """Measure throttling in cgroups of our own, beside what the model says of the same.

    Takes about two minutes, and needs root, as a rule, and a quiet machine: while others use the CPUs, or the
    hypervisor takes them, runs are discarded. Exits with 1 if the model is off by more than it should be,
    with 3 if no run counts.
    """
    from corelane.app.limits import calibrate as app

    def progress(text: str) -> None:
        click.echo(text, err=True)

    raise SystemExit(app.calibrate(only, runs, attempts, output, say=click.echo, progress=progress))
