"""`corelane down` ends what an instance left running, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.embedded.containers.instances import InstanceContainer
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.up.datadir import purge
from corelane.embedded.up.down import DownOptions, DownReport, command_for, how, select
from corelane.kernel import proc
from corelane.kernel.proc import Identity
from support.containers import shell
from support.up import FOREVER, Up, clear, container, is_alive, pod
from support.up_pods import pids, ready

DEAF = "trap '' TERM; sleep 1000 & wait"
STUBBORN = pod("stubborn", container("c", "trap '' TERM; while :; do sleep 0.1; done"))
STUBBORN["spec"]["terminationGracePeriodSeconds"] = 60


def down(*args: str) -> Result:
    return CliRunner().invoke(main, ["down", *args])


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


def test_running_up_is_stopped_its_containers_end_and_purge_removes_its_files_only(
    left: tuple[Path, Up, dict[str, int]],
) -> None:
    data, running, before = left
    answer = down("--data-dir", str(data), "--grace-seconds", "0.5", "-o", "json")
    assert answer.exit_code == 0, answer.stderr
    report = json.loads(answer.stdout)
    assert report["stopped"] == [running.process.pid]
    assert {f"{one['pod']}/{one['container']}": one["pid"] for one in report["ended"]} == before
    assert ended(before)
    assert running.process.wait(10) == 0
    assert "to end: corelane down --data-dir" in running.output
    for path in report["cgroups"]:
        assert not list(Path("/sys/fs/cgroup").glob(f"*/{path}"))
    assert (data / "apiserver.db").exists()
    (data / "notes.txt").write_text("mine")
    (data / "corelane.log").write_text("of --detach")
    answer = down("--data-dir", str(data), "--purge")
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    assert "notes.txt" in answer.stdout


def test_containers_are_named_by_down_of_another_directory_and_end_without_server_and_data(
    left: tuple[Path, Up, dict[str, int]], tmp_path: Path
) -> None:
    data, running, before = left
    running.kill()
    answer = down("--data-dir", str(tmp_path / "other"), "--grace-seconds", "0")
    assert answer.exit_code == 0
    assert f"of {data}; to end: corelane down --data-dir {data}" in answer.stdout
    refused = down("--data-dir", str(tmp_path / "other"), "--all")
    assert refused.exit_code == 2
    assert "confirm with --yes" in refused.stderr
    assert all(map(is_alive, before.values()))
    shutil.rmtree(data)
    answer = down("--data-dir", str(data), "--grace-seconds", "0")
    assert answer.exit_code == 0, answer.stderr
    assert "ended default/web/a" in answer.stdout
    assert ended(before)


@pytest.mark.parametrize(("left", "before_down"), [("auto", True), ("off", False)], indirect=["left"])
def test_a_stopped_shim_is_named_and_keeps_its_record(
    left: tuple[Path, Up, dict[str, int]], *, before_down: bool
) -> None:
    """Its container ends before, so that only the shim is left, or by `down`."""
    data, running, before = left
    shims = {name: proc.stat(pid).ppid for name, pid in before.items()}  # type: ignore[union-attr]
    shim = shims["web/a"]
    os.kill(shim, signal.SIGSTOP)
    try:
        running.kill()
        if before_down:
            os.kill(before["web/a"], signal.SIGKILL)
        answer = down("--data-dir", str(data), "--grace-seconds", "0", "--purge")
        assert answer.exit_code == 1
        assert ended(before)
        (line,) = [line for line in answer.stdout.splitlines() if "default/web/a" in line and "shim" in line]
        assert f"process {shim}," in line
        assert f"kill -CONT {shim}" in line
        assert "nothing was purged" in answer.stdout
        record = Path(line.split("with its record ")[1].split(":")[0])
        assert (record / "spec.json").exists()
    finally:
        os.kill(shim, signal.SIGCONT)
    again = down("--data-dir", str(data), "--grace-seconds", "0", "--purge")
    assert again.exit_code == 0, again.stdout
    assert not is_alive(shim)
    assert not data.exists()


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
        assert down("--data-dir", str(data), "--grace-seconds", "0").exit_code == 0
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


def test_purge_leaves_a_directory_that_is_none_of_corelane(tmp_path: Path) -> None:
    """A wrong --data-dir, such as a project with a directory `nodes`, loses nothing."""
    (tmp_path / "nodes" / "a").mkdir(parents=True)
    (tmp_path / "nodes" / "a" / "main.tf").write_text("mine")
    for name in ("lock", "kubeconfig", "ca.crt", "server.pem"):
        (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    answer = down("--data-dir", str(tmp_path), "--purge")
    assert sorted(tmp_path.rglob("*")) == before
    assert answer.exit_code == 1
    assert f"{tmp_path}: nothing removed: it has no file of a data directory" in answer.stdout


def test_purge_removes_only_directories_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "apiserver.db").write_text("")
    for node, name in (("here", "ledger.json"), ("sim-1", "simulated.json"), ("foreign", "main.tf")):
        (tmp_path / "nodes" / node).mkdir(parents=True)
        (tmp_path / "nodes" / node / name).write_text("")
    (tmp_path / "nodes" / "empty").mkdir()
    report = purge(tmp_path)
    assert report.is_data_dir
    assert report.foreign == [tmp_path / "nodes" / "foreign"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["foreign", "main.tf", "nodes"]


def test_purge_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (real / "apiserver.db").write_text("")
    answer = down("--data-dir", str(link), "--purge")
    assert answer.exit_code == 0, answer.stderr
    assert link.is_symlink()
    assert not list(real.iterdir())
    again = down("--data-dir", str(link), "--purge")
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, f"nothing runs for {link}")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".", "x y"])
def test_instance_that_cannot_be_a_name_is_refused(name: str) -> None:
    """An unset variable in a script does not end the default instance."""
    answer = CliRunner().invoke(main, ["down", "--instance", name])
    assert answer.exit_code == 2
    assert f"--instance {name!r}: not the name of an instance" in answer.output


def test_a_copy_does_not_select_the_containers_of_its_original(tmp_path: Path) -> None:
    """It has their records, and the name of their cgroups."""
    original, copy = tmp_path / "data", tmp_path / "copy"
    for path in (original, copy):
        (path / "nodes/here/containers").mkdir(parents=True)
    state = original / "nodes/here/containers"
    theirs = InstanceContainer("a", Identity(1, 1), instance="i1", state=state)
    killed_shim = InstanceContainer("b", Identity(2, 2), instance="i1")
    options = DownOptions(data_dir=copy)
    assert select([theirs, killed_shim], options, {"i1"}, {"a"}) == ([killed_shim], [theirs])
    shutil.rmtree(original)
    assert select([theirs, killed_shim], options, {"i1"}, {"a"}) == ([theirs, killed_shim], [])


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_purge_of_a_copy_leaves_the_original(tmp_path: Path, mode: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    running = started(data, mode)
    try:
        before = pids(data)
        shutil.copytree(data, copy, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
        answer = down("--data-dir", str(copy), "--grace-seconds", "0", "--purge")
        assert answer.exit_code == 0, answer.stderr
        assert f"of {data}; to end: corelane down --data-dir {data}" in answer.stdout
        assert all(map(is_alive, before.values()))
        assert (data / "apiserver.db").exists() and not copy.exists()
    finally:
        running.kill()
        down("--data-dir", str(data), "--grace-seconds", "0")
        clear(data)


@pytest.mark.parametrize("how_moved", ["renamed", "by a link", "copied"])
def test_containers_are_those_of_their_records_where_the_directory_has_another_name(
    tmp_path: Path, how_moved: str
) -> None:
    """Affinity alone: there is no cgroup with the instance's name."""
    data, other = tmp_path / "data", tmp_path / "other"

    async def start() -> int:
        runtime = await LocalRuntime.open(data / "nodes/here/containers", cgroups="off")
        begun = await runtime.start(shell("while :; do sleep 0.1; done"))
        await runtime.close()
        return begun.pid

    pid = asyncio.run(start())
    try:
        if how_moved == "renamed":
            data.rename(other)
        elif how_moved == "by a link":
            other.symlink_to(data)
        else:
            shutil.copytree(data, other)
        answer = down("--data-dir", str(other), "--grace-seconds", "0")
        assert answer.exit_code == 0, answer.stderr
        assert is_alive(pid) == (how_moved == "copied")
    finally:
        down("--data-dir", str(data), "--grace-seconds", "0")
    assert not is_alive(pid)


def test_commands_that_are_shown_can_be_pasted() -> None:
    one = InstanceContainer("a", Identity(1, 1), state=Path("/my data/nodes/here/containers"))
    assert how([one], "/my data") == "corelane down --data-dir '/my data'"
    assert command_for(Path("/my data")) == "corelane down --data-dir '/my data'"
