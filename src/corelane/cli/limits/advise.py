"""`corelane limits advise`: options against throttling, each with effect, risk and patch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corelane.cli._errors import Command, Fault
from corelane.cli._options import FILE, Seconds, file, output
from corelane.cli.limits import _sources
from corelane.cli.limits._sources import SourceOptions

if TYPE_CHECKING:
    from corelane.app.limits.sites import Selection


@click.command(cls=Command)
@click.argument("record", required=False, type=FILE, metavar="[FILE]")
@output("table json html")
@click.option(
    "--all", "everything", is_flag=True, help="Print the patches of all options, not only of the best."
)
@_sources.selection
@click.option("--container", metavar="NAME", default="", help="Only this container.")
@file(
    "--pods",
    "Pods, nodes and autoscalers: output of kubectl get pods,nodes,hpa,replicasets -A -o json.",
)
@file(
    "--kubeconfig",
    "Read them from this cluster instead.  [default: corelane up's own, on its node]",
)
@click.option(
    "--seconds",
    type=Seconds(min=0.5, max=3600),
    default=10.0,
    show_default=True,
    help="How long to measure on this node.",
)
@click.option(
    "--latency",
    metavar="FILE|QUERY",
    default="",
    help="A file with a line for each request (seconds when sent, milliseconds) or with p99: MILLISECONDS; "
    "or a Prometheus query for a histogram's buckets.",
)
@_sources.source
@_sources.policy
@click.option("--node-cpus", type=click.IntRange(min=1), help="CPUs of nodes that are not in --pods.")
def advise(
    record: Path | None,
    output: str,
    selected: Selection,
    container: str,
    pods: Path | None,
    kubeconfig: Path | None,
    seconds: float,
    latency: str,
    source: SourceOptions,
    policy: Path | None,
    *,
    everything: bool,
    **flags: Any,
) -> None:
    """Advise on throttled containers: drop or raise the limit, burst, fewer threads, exclusive CPUs.

    Measures what `limits watch` finds on this node, or reads FILE, written by `limits watch -o json`, or
    Prometheus. Every option has the effect that the fitted model forecasts, the risk to other pods, and a
    patch. Exits with 0 if there is an answer, 2 for bad input, 3 if no measurement can carry one.

    \b
    corelane limits advise --pods objects.json
    corelane limits watch --interval 0.1 --count 600 -o json > web.json
    corelane limits advise web.json
    corelane limits advise --pods objects.json -o html > advice.html
    corelane limits advise --prometheus http://prometheus:9090 --window 1h
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import advise as app
    from corelane.app.limits import lint

    if sum(map(bool, (record, source.prometheus, source.cgroups))) > 1:
        raise Fault("FILE, --prometheus and --cgroup are different sources: give one of them")
    if pods and kubeconfig:
        raise Fault("--pods and --kubeconfig both list the pods: give one of them")
    settings = lint.policy(policy, _sources.named(flags), (), app.STATIC)
    options = app.AdviseOptions(output, selected, container, pods, kubeconfig, latency, settings, everything)
    measurements: app.MeasurementSource
    if record:
        measurements = app.RecordSource(record)
    elif source.prometheus:
        measurements = app.PrometheusSource(*source.server())
    else:
        measurements = app.NodeSource(source.groups(), seconds)
    raise SystemExit(app.main(measurements, options, click.echo))
