"""Commands whose standard streams are closed, full, broken or non-blocking: one line, and an exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = "socket:2 numa:4 core:64 smt:2"
LINT = ("limits", "lint", str(Path(__file__).parents[2] / "examples" / "latency-critical.yaml"))
JSON = ("topology", "--machine", MACHINE, "-o", "json")
COMMANDS = [("version",), ("--help",), JSON]
FULL = "Error: cannot write stdout: No space left on device; free space on its file system\n"


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


def run(redirection: str, command: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "bash"]
    return subprocess.run(
        [*shell, sys.executable, "-m", "corelane", *command], capture_output=True, text=True, env=env
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_output_that_is_lost_on_a_full_disk_is_one_line(
    command: tuple[str, ...], environment: dict[str, str]
) -> None:
    result = run(">/dev/full", command, environment)
    assert (result.returncode, result.stderr) == (2, FULL)


def test_findings_that_are_lost_have_another_status_than_findings(environment: dict[str, str]) -> None:
    assert run("", LINT, environment).returncode == 1
    result = run(">/dev/full", LINT, environment)
    assert result.returncode == 2
    assert result.stderr.endswith(FULL)
    assert run(">/dev/full 2>&1", LINT, environment).returncode == 2


def test_a_reader_that_has_ended_is_not_worth_a_word(environment: dict[str, str]) -> None:
    result = run("| true", JSON, environment)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_full_stderr_changes_neither_output_nor_status(environment: dict[str, str]) -> None:
    usual, result = (run(redirection, LINT, environment) for redirection in ("", "2>/dev/full"))
    assert (result.returncode, result.stdout) == (usual.returncode, usual.stdout)
    assert run("2>/dev/full", ("nosuch",), environment).returncode == 2


@pytest.mark.parametrize("command", [JSON, LINT, ("allocate", "-f", "-")], ids=lambda command: command[0])
def test_closed_streams_are_as_good_as_dev_null(
    command: tuple[str, ...], environment: dict[str, str]
) -> None:
    usual = run("</dev/null >/dev/null", command, environment)
    assert run("<&- >&-", command, environment).returncode == usual.returncode
    result = run("<&- >&- 2>&-", command, environment)
    assert (result.returncode, result.stdout, result.stderr) == (usual.returncode, "", "")


def test_a_slow_reader_of_a_non_blocking_pipe_gets_everything(environment: dict[str, str]) -> None:
    usual = run("", JSON, environment).stdout
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-m", "corelane", *JSON]
    with os.fdopen(reader) as pipe, subprocess.Popen(command, stdout=writer, env=environment) as process:
        os.close(writer)
        assert pipe.read() == usual
    assert process.returncode == 0
