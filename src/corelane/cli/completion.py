"""`corelane completion`: a shell's completion script for corelane's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from corelane.cli._errors import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for SHELL.

    \b
    bash:  source <(corelane completion bash)
    zsh:   corelane completion zsh > "${fpath[1]}/_corelane"
    fish:  corelane completion fish > ~/.config/fish/completions/corelane.fish
    """  # noqa: D301 - click requires the character itself
    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(context.find_root().command, {}, "corelane", "_CORELANE_COMPLETE").source())
