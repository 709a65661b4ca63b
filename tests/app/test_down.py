"""`corelane down` ends what an instance left running, and nothing else."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.app.up.down import DownOptions, DownReport, select
from corelane.kernel.proc import Identity
from corelane.runtime.instances import InstanceContainer
from support.up import FOREVER, Up, clear, container, is_alive, pod
from support.up_pods import pids, ready

DEAF = "trap '' TERM; sleep 1000 & wait"
STUBBORN = pod("stubborn", container("c", "trap '' TERM; while :; do sleep 0.1; done"))
STUBBORN["spec"]["terminationGracePeriodSeconds"] = 60


def down(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corelane", "down", *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )


def started(data: Path, mode: str, *args: str, manifest: dict[str, Any] | None = None) -> Up:
    running = Up(data, "--node-name", "here", "--cgroups", mode, *args)
    manifest = manifest or pod("web", container("a", FOREVER), container("b", DEAF))

    async def create(client: Any) -> None:
        await client.create(manifest)

    running.call(create)
    ready(running, manifest["metadata"]["name"])
    return running


@pytest.fixture(params=["auto", "off"])
def left(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Up, dict[str, int]]]:
    data = tmp_path / "data"
    running = started(data, request.param)
    try:
        yield data, running, pids(data)
    finally:
        running.kill()
        down("--data-dir", str(data), "--grace-seconds", "0")
        clear(data)


def ended(found: dict[str, int]) -> bool:
    return not any(map(is_alive, found.values()))


def test_running_up_is_stopped_and_its_containers_end(left: tuple[Path, Up, dict[str, int]]) -> None:
    data, running, before = left
    answer = down("--data-dir", str(data), "--grace-seconds", "0.5", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout)
    assert report["stopped"] == [running.process.pid]
    assert {f"{one['pod']}/{one['container']}": one["pid"] for one in report["ended"]} == before
    assert ended(before)
    assert running.process.wait(10) == 0
    assert "to end: corelane down --data-dir" in running.output
    for path in report["cgroups"]:
        assert not list(Path("/sys/fs/cgroup").glob(f"*/{path}"))
    assert (data / "apiserver.db").exists()


def test_containers_end_without_server_and_data_directory(
    left: tuple[Path, Up, dict[str, int]],
) -> None:
    data, running, before = left
    running.kill()
    shutil.rmtree(data)
    answer = down("--data-dir", str(data), "--grace-seconds", "0")
    assert answer.returncode == 0, answer.stderr
    assert "ended default/web/a" in answer.stdout
    assert ended(before)


def test_purge_removes_the_directory_but_no_file_of_others(left: tuple[Path, Up, dict[str, int]]) -> None:
    data, running, before = left
    running.kill()
    (data / "notes.txt").write_text("mine")
    (data / "corelane.log").write_text("of --detach")
    answer = down("--data-dir", str(data), "--grace-seconds", "0", "--purge")
    assert ended(before)
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    assert "notes.txt" in answer.stdout
    (data / "notes.txt").unlink()


def test_other_instances_are_named_and_left(left: tuple[Path, Up, dict[str, int]], tmp_path: Path) -> None:
    data, running, before = left
    running.kill()
    answer = down("--data-dir", str(tmp_path / "other"), "--grace-seconds", "0")
    assert answer.returncode == 0
    assert f"of {data}; to end: corelane down --data-dir {data}" in answer.stdout
    assert all(map(is_alive, before.values()))
    refused = down("--data-dir", str(tmp_path / "other"), "--all")
    assert refused.returncode == 2
    assert "confirm with --yes" in refused.stderr
    assert all(map(is_alive, before.values()))


def test_instance_is_selected_by_directory_or_name() -> None:
    def one(name: str, instance: str, data: str) -> InstanceContainer:
        state = Path(data) / "nodes/here/containers" if data else None
        return InstanceContainer(name, Identity(1, 1), instance=instance, state=state)

    mine, renamed, orphan, other = (
        one("a", "i1", "/d"),
        one("b", "i9", "/d"),
        one("c", "i1", ""),
        one("d", "i2", "/e"),
    )
    everything = [mine, renamed, orphan, other]
    options = DownOptions(data_dir=Path("/d"))
    assert select(everything, options, {"i1"}) == ([mine, renamed, orphan], [other])
    assert select(everything, options, set()) == ([mine, renamed], [orphan, other])
    by_name = DownOptions(data_dir=Path("/d"), instance="i2")
    assert select(everything, by_name, {"i2"}) == ([other], [mine, renamed, orphan])
    lines = DownReport(options, others=[orphan, other]).lines()
    assert any("corelane down --instance i1" in line for line in lines)


def test_deleted_data_directory_ends_corelane_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = started(data, "auto")
    before = pids(data)
    try:
        shutil.rmtree(data, ignore_errors=True)  # the agent still writes there
        assert running.process.wait(30) == 1
        assert "Traceback" not in running.output
        assert "deleted or replaced while corelane runs" in running.output
        assert "2 containers still running: default/web/a, default/web/b" in running.output
        assert all(map(is_alive, before.values()))
    finally:
        running.kill()
        assert down("--data-dir", str(data), "--grace-seconds", "0").returncode == 0
    assert ended(before)


def test_second_interrupt_names_the_pods_that_are_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = started(data, "auto", "--stop-pods", manifest=STUBBORN)
    before = pids(data)
    try:
        running.process.send_signal(signal.SIGINT)
        running.until(lambda _: _is(running, "stopping"), "corelane stops")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(30) == 130
        assert "1 container still running: default/stubborn/c; to end: corelane down" in running.output
        assert "Traceback" not in running.output
        assert "Unclosed" not in running.output
    finally:
        running.kill()
        down("--data-dir", str(data), "--grace-seconds", "0")
    assert ended(before)


async def _is(running: Up, text: str) -> bool:
    return text in running.output
