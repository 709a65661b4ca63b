"""A user's mistake is one line on stderr and exit status 2; never a traceback."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.cli._errors import text_for_users


def corelane(*args: str) -> Result:
    return CliRunner().invoke(main, args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("topology", "--machine", "socket:2 sockets:4"), ["socket", "sockets:4"]),
        (("topology", "--machine", "socket:0"), ["socket:0"]),
        (("topology", "--machine", "/nowhere/at-all"), ["/nowhere/at-all"]),
        (("topology", "--sysfs", "/nowhere/at-all"), ["/nowhere/at-all"]),
        (("status", "--kubeconfig", "/nowhere/kubeconfig"), ["/nowhere/kubeconfig", "`corelane up`"]),
        (("up", "--nodes", "-1"), ["--nodes"]),
        (("up", "--data-dir", ""), ["--data-dir"]),
        (("down", "--data-dir", ""), ["--data-dir"]),
        (("up", "--port", "70000"), ["--port"]),
        (("up", "--machine", "socket:1"), ["--machine", "--nodes N"]),
        (("nonsense",), ["nonsense"]),
    ],
)
def test_bad_input_is_one_line_that_names_it(args: tuple[str, ...], words: list[str]) -> None:
    run = corelane(*args)
    assert run.exit_code == 2
    assert "Traceback" not in run.stderr
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    for word in words:
        assert word in last


def test_two_machines_at_once_are_refused(tmp_path: Path) -> None:
    run = corelane("topology", "--sysfs", str(tmp_path), "--machine", "socket:1")
    assert run.exit_code == 2
    assert "give one of them" in run.stderr


def test_bad_reserved_cpus_are_refused_and_leave_nothing_running(tmp_path: Path) -> None:
    run = corelane("up", "--data-dir", str(tmp_path / "d"), "--reserved-cpus", "0-x", "--cgroups", "off")
    assert run.exit_code == 2
    assert "0-x" in run.stderr
    assert "Traceback" not in run.stderr


WITHOUT = """
import json, sys
from click.testing import CliRunner
from corelane.cli import main
sys.modules[sys.argv[1]] = None
results = [CliRunner().invoke(main, [command]) for command in sys.argv[2:]]
print(json.dumps([(result.exit_code, result.stderr) for result in results]))
"""


@pytest.mark.parametrize(
    ("missing", "commands"),
    [
        ("structlog", ("up", "demo")),
        ("aiohttp", ("up", "demo", "status")),
        ("cryptography", ("up",)),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    missing: str, commands: tuple[str, ...]
) -> None:
    args = [sys.executable, "-c", WITHOUT, missing, *commands]
    run = subprocess.run(args, capture_output=True, text=True, check=True, timeout=180)
    what = f"this command requires {missing}, an optional dependency"
    line = f"Error: {what}: pip install 'corelane[all]'\n"
    assert json.loads(run.stdout) == [[2, line]] * len(commands)


def test_the_process_prints_its_version() -> None:
    args = [sys.executable, "-m", "corelane", "--version"]
    run = subprocess.run(args, capture_output=True, text=True, check=True, timeout=180)
    assert run.stdout.startswith("corelane 0.")
    assert run.stdout == corelane("version").stdout


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x y"), "/x y: Permission denied"),
        (
            OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b"),
            "/a -> /b: Invalid cross-device link",
        ),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("connection closed"), "connection closed"),
    ],
)
def test_system_error_is_file_and_cause_without_its_number(error: OSError, line: str) -> None:
    assert text_for_users(error) == line
