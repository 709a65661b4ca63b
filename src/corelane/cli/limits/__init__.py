"""`corelane limits`: CPU throttling simulated, measured and linted."""

from __future__ import annotations

import click

from corelane.cli._errors import Group
from corelane.cli.limits.advise import advise
from corelane.cli.limits.calibrate import calibrate
from corelane.cli.limits.lint import lint
from corelane.cli.limits.simulate import simulate
from corelane.cli.limits.watch import watch


@click.group(cls=Group)
def limits() -> None:
    """Measure, predict and remove CPU throttling."""


COMMANDS: tuple[click.Command, ...] = (
    simulate,
    calibrate,
    watch,
    advise,
    lint,
)
for command in COMMANDS:
    limits.add_command(command)
