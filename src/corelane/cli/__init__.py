"""The command line: parses, calls one function, prints through `view`.

Nothing heavy is imported here or at the top of a command's module, so that `--help` and completion
answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import click

from corelane import __version__
from corelane.cli import _streams
from corelane.cli._errors import Group

__all__ = ["main"]


class Root(Group):
    """The command `corelane`, which ends in order whatever its standard streams take."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _streams.prepare()
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ended:
            sys.exit(_streams.status_after(ended.code))


@click.group(
    cls=Root,
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


class _Commands(dict[str, click.Command]):
    """Commands by name; `corelane.cli.NAME` is imported when its command is first asked for."""

    def __init__(self, names: Iterable[str], own: dict[str, click.Command]) -> None:
        super().__init__(dict.fromkeys(names) | own)  # type: ignore[arg-type]  # None until then

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command | None = super().__getitem__(name)
        if command is None:
            command = getattr(import_module(f"corelane.cli.{name}"), name)
            self[name] = command
        return command

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


_NAMES: Final = "demo up down agent scheduler status explain topology allocate state limits completion"
main.commands = _Commands(_NAMES.split(), dict(main.commands))
