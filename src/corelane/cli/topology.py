"""`corelane topology`: a machine as tree, table, lscpu text, JSON or SVG."""

from __future__ import annotations

from pathlib import Path

import click

from corelane.cli import _options
from corelane.cli._errors import Command, Fault


@click.command(cls=Command)
@click.option(
    "--sysfs",
    type=click.Path(exists=True, path_type=Path),
    help="A snapshot of /sys and /proc: a directory or a tarball.",
)
@_options.text(
    "--machine",
    "SOURCE",
    "A spec such as 'socket:2 core:8 smt:2', a snapshot, lscpu output (-J or -p), hwloc XML, "
    "or a NodeResourceTopology in YAML or JSON.",
)
@_options.output("tree table lscpu json svg")
def topology(sysfs: Path | None, machine: str | None, output: str) -> None:
    """Show a machine: sockets, NUMA nodes, L3 domains, cores and their threads.

    Without options, this machine. SVG goes to standard output: corelane topology -o svg > machine.svg
    """
    if sysfs is not None and machine is not None:
        raise Fault("--sysfs and --machine are mutually exclusive; give one of them")
    from corelane.app import machines
    from corelane.view.topology import FORMS

    click.echo(FORMS[output](machines.load(str(sysfs) if sysfs else machine)), nl=False)
