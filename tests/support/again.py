"""Run tests for CI, and what fails once more, alone: a line `FLAKY` names each test that passes then.

    python tests/support/again.py MARKS FILE COMMAND...

COMMAND runs pytest here with these MARKS, perhaps through make; FILE collects the flaky tests of all parts of
a run. Fails if a test fails again, if FILE names more than two, and if pytest ended otherwise than by
counting: interrupted, crashed, or without a test.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MOST_FLAKY = 2
MOST_FAILED = 20
"""More failures have one cause, which is not worth an hour."""
STATUS = "corelane/status"
CACHE = Path(".pytest_cache/v")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record how pytest ended, which make does not report."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(STATUS, int(exitstatus))


def main(marks: str, record: Path, command: list[str]) -> int:
    _forget()
    status = subprocess.run(command, check=False).returncode
    failed = _failed()
    if status == 0:
        return 0
    if _ending() != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST_FAILED:
        return status
    (CACHE / STATUS).unlink()
    alone = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        marks,
        "--last-failed",
        "--last-failed-no-failures",
        "none",
    ]
    output = subprocess.run(alone, stdout=subprocess.PIPE, text=True, check=False).stdout
    ending, again = _ending(), _failed()
    flaky = sorted(failed - again) if ending in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} else []
    with record.open("a") as file:
        file.writelines(f"{name}\n" for name in flaky)
    total = len(record.read_text().splitlines())
    lines = output.splitlines() or [""]
    print(*lines[:-1], *(f"FLAKY {name}" for name in flaky), sep="\n")
    if total > MOST_FLAKY:
        print(f"{total} tests of this run are flaky; {MOST_FLAKY} are allowed")
    print(lines[-1], flush=True)  # pytest's counts
    return int(ending != pytest.ExitCode.OK or total > MOST_FLAKY)


def _forget() -> None:
    for name in (STATUS, "cache/lastfailed"):
        (CACHE / name).unlink(missing_ok=True)


def _ending() -> int | None:
    return _cached(STATUS)


def _failed() -> set[str]:
    return set(_cached("cache/lastfailed") or ())


def _cached(name: str) -> Any:
    path = CACHE / name
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
