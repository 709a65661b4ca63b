"""`corelane demo`: from pods to pinned processes on this machine in under a minute, with cleanup."""

from __future__ import annotations

from typing import Literal

import click

from corelane.cli import _options
from corelane.cli._errors import Command


@click.command(cls=Command)
@_options.output("table json")
@_options.choice(
    "--cgroups",
    "auto off",
    "How to confine containers: cgroups where they are writable, or CPU affinity alone.",
    "auto",
)
def demo(output: str, cgroups: Literal["auto", "off"]) -> None:
    """Run pods, allocate CPUs to them, and read the result back from the kernel.

    Starts everything on free ports in a temporary directory, creates six pods, shows the CPUs of
    each container and why, and removes everything. Exits with 0 only if the kernel confirms every pin.
    """
    from corelane.embedded import demo as app

    raise SystemExit(app.main(cgroups=cgroups, as_json=output == "json"))
