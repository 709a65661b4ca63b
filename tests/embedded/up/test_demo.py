"""`corelane demo`: everything it shows is true, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

CPUS = len(os.sched_getaffinity(0))


def demo(tmp: Path, *args: str, cpus: set[int] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "corelane", "demo", *args],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp)},
        preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,
    )


@pytest.mark.parametrize("cgroups", ["auto", "off"])
@pytest.mark.skipif(CPUS < 2, reason="one CPU: nothing can be exclusive")
def test_demo_has_every_pin_confirmed_and_cleans_up(tmp_path: Path, cgroups: str) -> None:
    run = demo(tmp_path, "-o", "json", "--cgroups", cgroups)
    assert run.returncode == 0, run.stdout + run.stderr
    shown = json.loads(run.stdout)
    assert shown["ok"]
    assert shown["left"] == []
    assert {check["container"] for check in shown["checks"] if check["exclusive"]} == {
        "latency-critical/server"
    }
    assert all(check["allowed"] == [check["wanted"]] for check in shown["checks"])
    pools = [step["shared"] for step in shown["sharedPool"]]
    assert pools[0] == pools[1] == pools[3] != pools[2]
    assert [one["pod"] for one in shown["pending"]] == ["too-big"]
    assert "Insufficient cpu" in shown["pending"][0]["why"]
    assert not list(tmp_path.iterdir())


def test_demo_on_one_cpu_says_what_it_cannot_show(tmp_path: Path) -> None:
    run = demo(tmp_path, cpus={min(os.sched_getaffinity(0))})
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no CPU can be exclusive here" in run.stdout
    assert "latency-critical" in run.stdout.split("Pending")[1]


def pids_below(directory: Path) -> list[int]:
    """The main processes of the containers that are on record."""
    records = directory.glob("corelane-demo-*/data/nodes/*/containers/containers/*/status.json")
    pids = []
    for record in records:
        with suppress(FileNotFoundError):  # a container that is being removed
            pids.append(json.loads(record.read_text()).get("pid", 0))
    return pids


@pytest.mark.parametrize(
    ("number", "insisting"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)]
)
def test_a_demo_that_is_interrupted_cleans_up_all_the_same(
    tmp_path: Path, number: signal.Signals, insisting: bool
) -> None:
    command = [sys.executable, "-m", "corelane", "demo"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (pids := pids_below(tmp_path)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        while insisting and process.poll() is None:
            time.sleep(0.01)
            process.send_signal(number)
        _, said = process.communicate(timeout=180)
    assert pids
    assert process.returncode not in (0, None)
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
    assert not any(map(marked, pids))


def marked(pid: int) -> bool:
    """Whether it is a container's process, and not another that has its number by now."""
    try:
        return b"CORELANE_CONTAINER_ID=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_demo_that_nobody_reads_any_more_ends_quietly_and_cleans_up(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        run = subprocess.run(
            [sys.executable, "-m", "corelane", "demo"],
            stdout=unread,
            stderr=subprocess.PIPE,
            text=True,
            timeout=180,
            check=False,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
    assert (run.returncode, run.stderr) == (1, "")
    assert not list(tmp_path.iterdir())


def test_a_demo_without_stdout_runs_all_the_same(tmp_path: Path) -> None:
    run = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m corelane demo >&-"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
