"""`corelane limits watch`: the cost of throttling for running containers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from corelane.cli import _limits
from corelane.cli._errors import Command, Fault


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="One round: two readings with an interval between.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds between readings.  [default: 2; with --prometheus 15]",
)
@click.option(
    "--count", type=click.IntRange(min=1), help="Stop after this number of rounds.  [default: on Ctrl-C]"
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--sort",
    type=click.Choice(["cost", "throttled", "lost", "used", "name"]),
    default="cost",
    show_default=True,
    help="The order of rows.",
)
@_limits.selection
@click.option(
    "--pods",
    type=_limits.FILE,
    help="Names of the node's pods: output of `kubectl get pods -A -o json`.",
)
@_limits.source
def watch(
    interval: float | None,
    count: int | None,
    output: str,
    sort: str,
    namespace: str,
    pod: str,
    pods: Path | None,
    root: Path,
    data_dir: Path | None,
    cgroups: tuple[Path, ...],
    prometheus: str | None,
    window: str,
    bearer_token_file: Path | None,
    *,
    once: bool,
) -> None:
    """Show the cost of throttling for running containers, and whether other processes delay them, too.

    Reads this node's cgroups: the kubelet's pods, and those of `corelane up`. Cost is the time lost per
    second of work and how long a stop lasts, not how many periods count as throttled.

    \b
    corelane limits watch
    corelane limits watch --once -o json --sort lost
    corelane limits watch --prometheus http://prometheus:9090 --window 15m -n shop --once
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import prometheus as server
    from corelane.app.limits import watch as app
    from corelane.app.limits.sites import CgroupSource, Selection

    if prometheus and cgroups:
        raise Fault("--prometheus and --cgroup are different sources: give one of them")
    rounds = 1 if once else count or 0
    seconds = interval or (15.0 if prometheus else 2.0)
    options = app.WatchOptions(seconds, rounds, output, sort, Selection(namespace, pod))
    watched: app.Watched
    if prometheus:
        token = server.bearer(bearer_token_file)
        watched = app.PrometheusWatch(server.PrometheusServer(prometheus, token), _limits.window(window))
    else:
        watched = app.NodeWatch(CgroupSource(root, pods, data_dir, cgroups))
    live = sys.stdout.isatty() and rounds != 1
    raise SystemExit(app.main(watched, options, click.echo, live=live))
