"""A user's mistake is one line on stderr and exit status 2; never a traceback."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.cli._errors import text_for_users


def corelane(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "corelane", *args], capture_output=True, text=True, check=False, timeout=180
    )


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
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    for word in words:
        assert word in last


def test_two_machines_at_once_are_refused(tmp_path: Path) -> None:
    run = corelane("topology", "--sysfs", str(tmp_path), "--machine", "socket:1")
    assert run.returncode == 2
    assert "give one of them" in run.stderr


def test_bad_reserved_cpus_are_refused_and_leave_nothing_running(tmp_path: Path) -> None:
    run = corelane("up", "--data-dir", str(tmp_path / "d"), "--reserved-cpus", "0-x", "--cgroups", "off")
    assert run.returncode == 2
    assert "0-x" in run.stderr
    assert "Traceback" not in run.stderr


WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from corelane.cli import main
main(prog_name="corelane")
"""


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("structlog", "up"),
        ("aiohttp", "up"),
        ("cryptography", "up"),
        ("aiohttp", "demo"),
        ("structlog", "demo"),
        ("aiohttp", "status"),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(missing: str, command: str) -> None:
    args = [sys.executable, "-c", WITHOUT, missing, command]
    run = subprocess.run(args, capture_output=True, text=True, check=False, timeout=180)
    assert run.returncode == 2
    what = f"this command requires {missing}, an optional dependency"
    assert run.stderr == f"Error: {what}: pip install 'corelane[all]'\n"


def test_version_is_printed() -> None:
    assert corelane("version").stdout.startswith("corelane 0.")
    assert corelane("--version").stdout == corelane("version").stdout


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
