"""What CI makes of tests that fail: tried once more alone, named, counted, never passed over in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent
AGAIN = SUPPORT / "support" / "again.py"
HELPERS = """
import os
from pathlib import Path


def flaky(name, end=lambda: 1 / 0):
    if not Path(name).exists():
        Path(name).touch()
        end()
"""
STEADY = "def test_steady():\n    pass\n"
FLAKY = "def test_flaky_{0}():\n    flaky('seen-{0}')\n"
BROKEN = "def test_broken():\n    assert 0\n"
CRASHING = "def test_crashing():\n    flaky('crashed', lambda: os._exit(11))\n"
INTERRUPTED = "def test_interrupted():\n    raise KeyboardInterrupt\n"


def run(directory: Path, *tests: str, workers: int = 0, record: str = "flaky") -> tuple[int, list[str], str]:
    """Exit status, flaky tests, and the last line."""
    (directory / "conftest.py").write_text("from support.again import pytest_sessionfinish\n")
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -q\nmarkers =\n    rare: not run\n")
    (directory / "test_it.py").write_text(HELPERS + "\n\n".join(tests))
    pytest_itself = [sys.executable, "-m", "pytest", "-m", "not rare"]
    parallel = ["-n", str(workers)] if workers else ["-p", "no:xdist"]
    done = subprocess.run(
        [
            sys.executable,
            AGAIN,
            "not rare",
            record,
            "sh",
            "-c",
            '"$@" || exit 2',
            "make",
            *pytest_itself,
            *parallel,
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
    )
    lines = done.stdout.splitlines()
    names = [line.split("::")[-1] for line in lines if line.startswith("FLAKY ")]
    return done.returncode, names, lines[-1] if lines else done.stderr


def test_a_run_without_failures_runs_once(tmp_path: Path) -> None:
    status, flaky, counts = run(tmp_path, STEADY)
    assert (status, flaky) == (0, [])
    assert counts.startswith("1 passed")


def test_a_test_that_passes_alone_is_named_and_the_counts_close(tmp_path: Path) -> None:
    status, flaky, counts = run(tmp_path, STEADY, FLAKY.format(1))
    assert (status, flaky) == (0, ["test_flaky_1"])
    assert counts.startswith("1 passed")


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    status, flaky, counts = run(tmp_path, STEADY, FLAKY.format(1), BROKEN)
    assert (status, flaky) == (1, ["test_flaky_1"])
    assert counts.startswith("1 failed, 1 passed")


def test_more_than_two_flaky_tests_in_all_parts_fail_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, FLAKY.format(1), FLAKY.format(2))[0] == 0
    status, flaky, counts = run(tmp_path, FLAKY.format(3))
    assert (status, flaky) == (1, ["test_flaky_3"])
    assert counts.startswith("1 passed")


def test_a_test_whose_worker_crashed_is_tried_alone(tmp_path: Path) -> None:
    status, flaky, counts = run(tmp_path, STEADY, CRASHING, workers=2)
    assert (status, flaky) == (0, ["test_crashing"])
    assert counts.startswith("1 passed")


@pytest.mark.parametrize("tests", [(FLAKY.format(1), INTERRUPTED), (CRASHING,), ()], ids=str)
def test_a_run_that_did_not_end_by_counting_fails_and_nothing_is_tried(
    tmp_path: Path, tests: tuple[str, ...]
) -> None:
    status, flaky, _ = run(tmp_path, *tests)
    assert (status, flaky) == (2, [])


def test_failures_of_an_earlier_run_are_forgotten(tmp_path: Path) -> None:
    assert run(tmp_path, BROKEN)[0] == 1
    assert run(tmp_path, STEADY, FLAKY.format(1))[:2] == (0, ["test_flaky_1"])
