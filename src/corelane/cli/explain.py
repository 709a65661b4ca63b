"""`corelane explain pod`: why a pod is where it is, or why it is pending."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from corelane.cli import _options
from corelane.cli._errors import Group


@click.group(cls=Group)
def explain() -> None:
    """Explain decisions of the scheduler."""


@explain.command()
@click.argument("name")
@click.option("-n", "--namespace", help="Namespace of the pod.  [default: default]")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cluster to read.  [default: $KUBECONFIG, that of `corelane up`, or ~/.kube/config]",
)
@_options.text(
    "--scheduler",
    "URL",
    "Address of the scheduler's debug endpoint, such as http://127.0.0.1:10251.  "
    "[default: that of `corelane up`]",
)
@_options.file(
    "--config", "The scheduler's configuration, for a decision taken again.  [default: its default profile]"
)
@_options.output("table json")
def pod(
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    scheduler: str | None,
    config: Path | None,
    output: Literal["table", "json"],
) -> None:
    """Show why pod NAME has its node and CPUs, or why it is pending and what would help.

    The scheduler's own record of its decision is shown where the scheduler can be asked; otherwise the
    decision is taken again on the cluster's present state, and the output says so.

    \b
    corelane explain pod web
    corelane explain pod web -n shop -o json
    kubectl -n corelane-system port-forward deploy/corelane-scheduler 10251 &
    corelane explain pod web --scheduler http://127.0.0.1:10251
    """  # noqa: D301 - click wants the character itself
    from corelane.app import explain as command

    query = command.PodQuery(name, namespace, kubeconfig, scheduler, config)
    raise SystemExit(command.main(query, output, click.echo))
