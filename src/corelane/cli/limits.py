"""`corelane limits`: CPU throttling simulated, measured and linted."""

from __future__ import annotations

import click

from corelane.cli import limits_advise, limits_calibrate, limits_lint, limits_simulate, limits_watch
from corelane.cli._errors import Group


@click.group(cls=Group)
def limits() -> None:
    """Measure, predict and remove CPU throttling."""


COMMANDS: tuple[click.Command, ...] = (
    limits_simulate.simulate,
    limits_calibrate.calibrate,
    limits_watch.watch,
    limits_advise.advise,
    limits_lint.lint,
)
for command in COMMANDS:
    limits.add_command(command)
