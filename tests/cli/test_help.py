"""Every command explains itself, at once: no heavy library is loaded for it."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from corelane.cli import main

HEAVY = (
    "numpy",
    "h2",
    "aiohttp",
    "rich",
    "msgspec",
    "yaml",
    "structlog",
    "cryptography",
    "asyncio",
)
PROBE = """
import sys, json
from click.testing import CliRunner
from corelane.cli import main
loaded = {}
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, [*command.split(), "--help"])
    assert result.exit_code == 0 and "Usage: " in result.output, result.output
    loaded[command] = sorted(sys.modules)
print(json.dumps(loaded))
"""
"""Prints the modules that a new process has loaded after the help of each command, in this order."""


def loaded_by_help(*commands: str) -> dict[str, set[str]]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    return {command: set(modules) for command, modules in json.loads(run.stdout).items()}


def test_help_loads_nothing_heavy() -> None:
    for command, modules in loaded_by_help("", *main.commands).items():
        assert not set(HEAVY) & modules, command


@pytest.mark.parametrize("name", list(main.commands))
def test_every_command_says_what_it_does_and_every_option_too(name: str) -> None:
    command = main.commands[name]
    assert command.help
    assert command.get_short_help_str()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "output":
            assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("up", "  kubectl get pods -o wide"),
        ("completion", "  bash:  source <(corelane completion bash)"),
    ],
)
def test_example_lines_keep_to_themselves(command: str, line: str) -> None:
    context = click.Context(main.commands[command], info_name=command)
    assert line in main.commands[command].get_help(context).splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_names_the_command(shell: str) -> None:
    assert "_CORELANE_COMPLETE" in CliRunner().invoke(main, ["completion", shell]).stdout


def test_a_command_loads_no_other_command() -> None:
    loaded = loaded_by_help("status")["status"]
    others = {f"corelane.cli.{name}" for name in main.commands} - {"corelane.cli.status"}
    assert "corelane.cli.status" in loaded
    assert not loaded & others
