"""`corelane up --detach`, and the log for people."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from corelane.app.up.logging import plain


def detached(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corelane", "up", "--detach", "--data-dir", str(directory)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=90, cwd=directory.parent
    )


def test_up_detached_returns_when_it_is_ready_and_goes_on(tmp_path: Path) -> None:
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
    deadline = time.monotonic() + 30
    while "stopped" not in (tmp_path / "data" / "corelane.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
