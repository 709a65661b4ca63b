"""`corelane down`: end what `corelane up` left running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from corelane.cli import _options
from corelane.cli._errors import Command, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corelane.embedded.containers.instances import InstanceContainer


@click.command(cls=Command)
@click.option(
    "--data-dir",
    type=_options.DIRECTORY,
    help="Data directory of the `corelane up`; it may be deleted.  "
    "[default: /var/lib/corelane for root, else ~/.local/state/corelane]",
)
@_options.text("--instance", "NAME", "Instance by the name of its cgroups, instead of a data directory.")
@click.option("--all", "everything", is_flag=True, help="End the containers of all instances here.")
@click.option("--purge", is_flag=True, help="Remove the data directory's files, too.")
@click.option(
    "--grace-seconds",
    type=_options.Seconds(0, 3600),
    default=30.0,
    show_default=True,
    help="Time between SIGTERM and SIGKILL.",
)
@click.option("--yes", is_flag=True, help="Do not ask before other instances' containers are ended.")
@_options.output("text json")
def down(
    data_dir: Path | None,
    instance: str | None,
    grace_seconds: float,
    output: Literal["text", "json"],
    *,
    everything: bool,
    purge: bool,
    yes: bool,
) -> None:
    """End what `corelane up` left running on this machine: the pods' processes, and their cgroups.

    Works without a server, and without the data directory: containers are found by their shims and cgroups.
    A `corelane up` that still runs is stopped first. Without --purge the objects stay: the next
    `corelane up` starts the pods again. Exit status 1 if a process is left, or a file that --purge was to
    remove.
    """
    from corelane.app import local_instance
    from corelane.embedded.up import down as app

    if instance is not None and data_dir is not None:
        raise Fault("--instance and --data-dir exclude each other: give one of them")
    options = app.DownOptions(
        data_dir=(data_dir or local_instance.data_dir()).absolute(),
        instance=instance,
        everything=everything,
        purge=purge,
        grace_seconds=grace_seconds,
    )
    report = app.down(options, (lambda _: True) if yes else _confirmed)
    if output == "json":
        import json

        click.echo(json.dumps(report.plain(), indent=2))
    else:
        click.echo("\n".join(report.lines()))
    raise SystemExit(0 if report.complete else 1)


def _confirmed(others: Sequence[InstanceContainer]) -> bool:
    """Ask before containers of other instances are ended. Raises Fault where no one can answer."""
    import sys

    for one in others:
        click.echo(f"  {one.title}, process {one.main.pid}, of {one.owner}", err=True)
    if not sys.stdin.isatty():
        raise Fault("--all ends the containers of other instances that are listed above; confirm with --yes")
    them = "this container" if len(others) == 1 else f"these {len(others)} containers"
    return click.confirm(f"End {them} of other instances?", err=True)
