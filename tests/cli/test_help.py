"""Every command explains itself, at once: no heavy library is loaded for it."""

import json
import subprocess
import sys

import click
import pytest

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
from corelane.cli import main
try:
    main(sys.argv[1:], prog_name="corelane")
except SystemExit as e:
    code = e.code
print()
print(json.dumps([code, sorted(m for m in sys.modules if "." not in m)]))
"""


def commands() -> list[str]:
    return ["", *main.commands]


@pytest.mark.parametrize("command", commands())
def test_help_loads_nothing_heavy(command: str) -> None:
    args = [*command.split(), "--help"]
    run = subprocess.run([sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True)
    code, modules = json.loads(run.stdout.splitlines()[-1])
    assert code == 0
    assert not set(HEAVY) & set(modules)
    assert "Usage: corelane" in run.stdout


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
    run = subprocess.run(
        [sys.executable, "-m", "corelane", "completion", shell], capture_output=True, text=True, check=True
    )
    assert "_CORELANE_COMPLETE" in run.stdout


def test_a_command_loads_no_other_command() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROBE.replace('"." not in m', '"corelane.cli." in m'), "status", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(run.stdout.splitlines()[-1])[1])
    others = {f"corelane.cli.{name}" for name in main.commands} - {"corelane.cli.status"}
    assert "corelane.cli.status" in loaded
    assert not loaded & others
