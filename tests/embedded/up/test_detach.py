"""`corelane up --detach`, and the log for people."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from corelane.embedded.up import command as up_command
from corelane.embedded.up import datadir
from corelane.structured_log import plain


def detached(
    directory: Path, *arguments: str, flag: str = "--detach", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corelane", "up", *flag.split(), "--data-dir", str(directory)]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        cwd=directory.parent if directory.parent.exists() else None,
        env=os.environ | (env or {}),
    )


def marked(mark: str) -> list[int]:
    """Processes with this text in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_detach_in_the_environment_starts_one_process_in_the_background(tmp_path: Path) -> None:
    mark = f"CORELANE_TEST_MARK={tmp_path}"
    env = {"CORELANE_UP_DETACH": "1", "CORELANE_READY_FD": "1", **dict([mark.split("=")])}
    try:
        result = detached(tmp_path / "data", "--cgroups", "off", flag="", env=env)
        assert result.returncode == 0, result.stdout + result.stderr
        assert marked(mark) == [int(result.stdout.split("pid ")[1].split(",")[0])]
    finally:
        while pids := marked(mark):  # each could have started another one
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_refused_start_in_the_background_says_why_and_leaves_no_directory(tmp_path: Path) -> None:
    result = detached(tmp_path / "a" / "b", "--cgroups", "off", "--reserved-cpus", "4000")
    assert result.returncode == 2
    (line,) = (result.stdout + result.stderr).splitlines()
    assert line.startswith("Error: --")
    assert list(tmp_path.iterdir()) == []


def test_up_detached_returns_when_it_is_ready_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    log = tmp_path / "data" / "corelane.log"
    log.write_bytes(b"of an earlier run\n" * (datadir.LIMIT // 18 + 1))
    result = detached(tmp_path / "data", "--cgroups", "off", "--log-format", "json")
    assert result.returncode == 0, result.stdout + result.stderr
    *_, ready, last = result.stdout.splitlines()
    assert ready == f"ready: export KUBECONFIG={tmp_path / 'data' / 'kubeconfig'}"
    pid = int(last.split("pid ")[1].split(",")[0])
    stopping = f"  kill {pid} stops corelane and leaves the pods' processes running"
    try:
        assert str(tmp_path / "data" / "corelane.log") in last
        assert stopping in result.stdout.splitlines()
        again = detached(tmp_path / "data", "--cgroups", "off")
        assert again.returncode != 0
        assert str(pid) in again.stdout or "in use" in again.stdout
    finally:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 120
    while "stopped" not in (tmp_path / "data" / "corelane.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "of an earlier run" not in log.read_text()
    assert datadir.old_log(log).stat().st_size >= datadir.LIMIT
    down = [sys.executable, "-m", "corelane", "down", "--data-dir", str(tmp_path / "data"), "--purge"]
    subprocess.run(down, check=True, capture_output=True, timeout=180)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import logging, os, sys
from pathlib import Path
from corelane.embedded.up.datadir import BoundedLog
path, limit = Path(sys.argv[1]), int(sys.argv[2])
log = logging.getLogger("x")
log.addHandler(BoundedLog(path, limit))
for number in range(int(sys.argv[3])):
    log.warning("line %06d", number)
    if number == 500:
        os.write(1, b"printed\\n" * (limit // 4))
    if number == 700 and sys.argv[4] == "deleted":
        path.unlink()
    if number == 700 and sys.argv[4] == "directory gone":
        path.parent.rename(path.parent.with_name("elsewhere"))
print("the end")
"""


@pytest.mark.parametrize("accident", ["none", "deleted", "directory gone"])
def test_log_of_the_background_process_is_bounded_and_keeps_the_last_lines(
    tmp_path: Path, accident: str
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    path, limit, lines = directory / "corelane.log", 4096, 2000
    with path.open("ab") as log:
        arguments = [str(path), str(limit), str(lines), accident]
        subprocess.run(
            [sys.executable, "-c", WRITER, *arguments], stdout=log, stderr=log, check=True, timeout=180
        )
    if accident == "directory gone":  # no place for another file: the present one takes everything
        assert (tmp_path / "elsewhere" / "corelane.log").read_text().endswith("line 001999\nthe end\n")
        assert not directory.exists()
        return
    assert sorted(file.name for file in directory.iterdir()) == ["corelane.log", "corelane.log.1"]
    assert path.stat().st_size < limit + 100
    assert datadir.old_log(path).stat().st_size < 2 * limit + 100
    *kept, last = (datadir.old_log(path).read_text() + path.read_text()).splitlines()
    assert last == "the end"
    assert kept == [f"line {number:06}" for number in range(lines - len(kept), lines)]
    assert len(kept) > limit / 20


def test_a_line_for_people_has_time_pod_and_event() -> None:
    event = {
        "timestamp": "2026-01-02T03:04:05.678Z",
        "level": "warning",
        "node": "n1",
        "pod": "default/web",
        "event": "container start failed",
        "container": "c",
        "why": "no such file",
        "reasons": [],
    }
    line = plain(None, "", event)
    assert line[8:] == " WARNING n1 default/web: container start failed (container=c, why=no such file)"
    assert plain(None, "", {"level": "info", "event": "started"})[8:] == " started"
    admitted = {"event": "pod admitted", "cpus": {"a": "0-1", "b": "3"}, "reallocated": True, "attempt": 0}
    assert plain(None, "", admitted)[8:] == " pod admitted (cpus=a 0-1; b 3, reallocated=True, attempt=0)"
    admitted |= {"cpus": {}, "reallocated": False, "message": ""}
    assert plain(None, "", admitted)[8:] == " pod admitted (attempt=0)"


def test_line_of_the_log_stays_one_line_whatever_a_pod_is_given_as_command() -> None:
    """Commands and names are other people's: they forge no line and reach no terminal as control codes."""
    why = 'exec: "\x1b[31mnosuch\n18:00:00 forged\r\x9b\u2028é": executable file not found'
    line = plain(None, "", {"event": "container start failed", "why": why, "exception": "Traceback\n  line"})
    assert line.removesuffix("\nTraceback\n  line").isprintable()
    assert line[8:].startswith(
        r""" container start failed (why=exec: "\x1b[31mnosuch\n18:00:00 forged\r\x9b\u2028é": executable"""
    )


def test_a_crash_leaves_a_trace_in_the_log_and_the_next_start_names_it(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "data" / "corelane.log"
    started = detached(data, "--cgroups", "off")
    os.kill(int(started.stdout.split("pid ")[1].split(",")[0]), signal.SIGSEGV)
    try:
        deadline = time.monotonic() + 60
        while "<module>" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "Fatal Python error: Segmentation fault\n" in log.read_text()
        assert "in run_forever" in log.read_text()
    finally:
        again = detached(data, "--cgroups", "off")
        subprocess.run([sys.executable, "-m", "corelane", "down", "--data-dir", str(data)], check=False)
        os.kill(int(again.stdout.split("pid ")[1].split(",")[0]), signal.SIGTERM)
    assert "note: the run before crashed (Segmentation fault); its trace is in the log" in again.stdout
    assert up_command.last_crash(log) == "", "what runs now has written more"


def test_a_crash_after_the_log_was_renamed_leaves_its_trace_in_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "corelane.log"
    crash = "import faulthandler\nfaulthandler.enable(2)\n" + WRITER + "\nos.kill(os.getpid(), 11)\n"
    with path.open("ab") as log:
        command = [sys.executable, "-c", crash, str(path), "4096", "2000", "none"]
        ended = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=180)
    assert ended.returncode == -signal.SIGSEGV
    assert datadir.old_log(path).exists()
    assert up_command.last_crash(path) == "Segmentation fault"
    assert up_command.last_crash(datadir.old_log(path)) == ""
