"""`corelane completion`: the script that teaches a shell to complete corelane's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from corelane.cli._errors import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for SHELL.

    \b
    bash:  source <(corelane completion bash)
    zsh:   corelane completion zsh > "${fpath[1]}/_corelane"
    fish:  corelane completion fish > ~/.config/fish/completions/corelane.fish
    """  # noqa: D301 - click wants the character itself
    from corelane.cli._root import main

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(main, {}, "corelane", "_CORELANE_COMPLETE").source())
