"""`corelane status`: the CPUs of every container, and whether the kernel confirms them."""

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
    help="Cluster to read.  [default: $KUBECONFIG, that of `corelane up`, or ~/.kube/config]",
)
@click.option("--node", help="Only this node and its containers.")
@_options.output("table json svg")
def status(kubeconfig: Path | None, node: str | None, output: Literal["table", "json", "svg"]) -> None:
    """Show nodes with CPU maps, every container's CPUs and why, and pending pods.

    An SVG shows one node: corelane status --node NAME -o svg > node.svg
    """
    from corelane.app import status as app

    app.main(kubeconfig, node, output)
