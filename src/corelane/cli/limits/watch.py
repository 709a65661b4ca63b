"""`corelane limits watch`: the cost of throttling for running containers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from corelane.cli._errors import Command, Fault
from corelane.cli._options import Seconds, choice, file, output
from corelane.cli.limits import _sources
from corelane.cli.limits._sources import SourceOptions

if TYPE_CHECKING:
    from corelane.app.limits.sites import Selection


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="One round: two readings with an interval between.")
@click.option(
    "--interval",
    type=Seconds(min=0.1, max=3600),
    help="Seconds between readings.  [default: 2; with --prometheus 15]",
)
@click.option(
    "--count", type=click.IntRange(min=1), help="Stop after this number of rounds.  [default: on Ctrl-C]"
)
@output("table json html")
@choice("--sort", "cost throttled lost used name", "The order of rows.", "cost")
@_sources.selection
@file("--pods", "Names of the node's pods: output of `kubectl get pods -A -o json`.")
@_sources.source
def watch(
    interval: float | None,
    count: int | None,
    output: str,
    sort: str,
    selected: Selection,
    pods: Path | None,
    source: SourceOptions,
    *,
    once: bool,
) -> None:
    """Show the cost of throttling for running containers, and whether other processes delay them, too.

    Reads this node's cgroups: the kubelet's pods and those of `corelane up`; containers of Docker, Podman and
    containerd (-n docker); systemd units with a CPU limit (-n systemd). Cost is the time lost per second of
    work and how long a stop lasts, not how many periods count as throttled. Exits with 3 if nothing was
    measured.

    \b
    corelane limits watch
    corelane limits watch --once -o json --sort lost
    corelane limits watch --interval 0.5 --count 60 -o html > throttling.html
    corelane limits watch --prometheus http://prometheus:9090 --window 15m --once
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import watch as app

    if output == "html" and not once and count is None:
        raise Fault("-o html is one file: give --once, or --count for several rounds")
    if source.prometheus and source.cgroups:
        raise Fault("--prometheus and --cgroup are different sources: give one of them")
    rounds = 1 if once else count or 0
    seconds = interval or (15.0 if source.prometheus else 2.0)
    options = app.WatchOptions(seconds, rounds, output, sort, selected)
    watched: app.Watched
    if source.prometheus:
        watched = app.PrometheusWatch(*source.server())
    else:
        watched = app.NodeWatch(source.groups(pods))
    live = sys.stdout.isatty() and rounds != 1
    raise SystemExit(app.main(watched, options, click.echo, live=live))
