"""`corelane status`: who has which CPUs, and whether the kernel agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from corelane.cli import _options
from corelane.cli._errors import Command


@click.command(cls=Command)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Which cluster.  [default: $KUBECONFIG, the one of `corelane up`, or ~/.kube/config]",
)
@click.option("--node", help="Only this node and its containers.")
@_options.output("table json svg")
def status(kubeconfig: Path | None, node: str | None, output: Literal["table", "json", "svg"]) -> None:
    """Show nodes, their CPU maps, every container's CPUs and why, and what is pending.

    A drawing is of one node: corelane status --node NAME -o svg > node.svg
    """
    from corelane.app import status as app

    app.main(kubeconfig, node, output)
