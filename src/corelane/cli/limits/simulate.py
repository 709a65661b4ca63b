"""`corelane limits simulate`: the effect of a limit on a workload, for any machine and kernel."""

from __future__ import annotations

import click

from corelane.cli import _options
from corelane.cli._errors import Command


@click.command(cls=Command)
@click.argument("scenario", required=False)
@click.option(
    "--variant",
    "changes",
    metavar="CHANGE[,CHANGE…]",
    multiple=True,
    help="Add a case with limit=500m, no-limit, burst=50ms, period=20ms, threads=2, exclusive=2, kernel=5.4 "
    "or cpus=4; may be repeated.",
)
@click.option(
    "--seconds", type=_options.Seconds(0.1, 3600), help="Simulated time.  [default: the scenario's]"
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Runs; the table shows medians.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The first run's seed.")
@_options.output("table json svg html")
def simulate(
    scenario: str | None, changes: tuple[str, ...], seconds: float | None, seeds: int, seed: int, output: str
) -> None:
    """Simulate CPU limits: latency, throughput and the counters of cpu.stat.

    SCENARIO is built in (nginx, neighbours, pytorch) or a YAML file; without it the built-in ones are
    listed. SVG shows the slices, HTML is one self-contained file with tables, delays and slices; both go to
    standard output: corelane limits simulate nginx -o html > nginx.html
    """
    from corelane.app.limits import simulate as app

    if scenario is None:
        for name, title in app.names():
            click.echo(f"{name:<12} {title}")
        return
    text = app.render(scenario, output, changes=changes, seconds=seconds, seeds=seeds, seed=seed)
    click.echo(text, nl=False)
