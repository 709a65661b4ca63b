"""The command `corelane` and its list of subcommands."""

from __future__ import annotations

import click

from corelane import __version__
from corelane.cli import (
    agent,
    allocate,
    completion,
    demo,
    down,
    explain,
    limits,
    scheduler,
    state,
    status,
    topology,
    up,
    vectors,
)
from corelane.cli._errors import Group


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CORELANE"},
)
@click.version_option(__version__, message="corelane %(version)s")
def main() -> None:
    """Fine-grained CPU orchestration for Kubernetes.

    Gives latency-critical containers exclusive CPUs, runs everything else on the rest, and explains every
    decision. Start with `corelane demo`.

    Every option can also be set in the environment: CORELANE_COMMAND_OPTION, such as CORELANE_UP_DATA_DIR.
    """


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"corelane {__version__}")


for command in (
    demo.demo,
    up.up,
    down.down,
    agent.agent,
    scheduler.scheduler,
    status.status,
    explain.explain,
    topology.topology,
    allocate.allocate,
    state.state,
    limits.limits,
    vectors.vectors,
    completion.completion,
):
    main.add_command(command)
main.add_command(main.commands.pop("version"))
