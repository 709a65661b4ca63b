"""`corelane demo`: the main job on this machine, shown and cleaned up, in under a minute."""

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
    "How to hold containers: cgroups where they can be written, or CPU affinity alone.",
    "auto",
)
def demo(output: str, cgroups: Literal["auto", "off"]) -> None:
    """Show the main job: pods come in, get their CPUs, and the kernel confirms it.

    Starts everything on free ports in a temporary directory, applies a handful of pods, shows who got which
    CPUs and why, and removes all of it again. Exits with 0 only if the kernel confirmed every pin.
    """
    from corelane.app import demo as app

    raise SystemExit(app.main(cgroups=cgroups, as_json=output == "json"))
