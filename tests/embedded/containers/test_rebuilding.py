"""Records that are lost or unreadable: the process goes on, and what the kernel shows is recorded again."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from corelane.embedded.containers import rebuilding
from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import proc
from corelane.runtime.base import ResourceUpdate
from support.containers import (
    HIGH,
    LOW,
    alive,
    both_ways,
    ended,
    eventually,
    have_cgroups,
    needs_two_cpus,
    opened,
    shell,
    status,
)

SLEEP = "while :; do sleep 0.1; done"


async def start(state: Path, mode: str, **more: object) -> tuple[str, int]:
    """Start a container, and leave it to the next owner of the directory."""
    runtime = await LocalRuntime.open(state, cgroups=mode)
    begun = await runtime.start(shell(SLEEP, env=(("A", "b c"),), **more))
    await runtime.close()
    return begun.id, begun.pid


def shim(pid: int) -> int:
    found = proc.stat(pid)
    assert found is not None
    return found.ppid


async def without_shim(pid: int) -> None:
    supervisor = shim(pid)
    os.kill(supervisor, signal.SIGKILL)
    await eventually(lambda: not alive(supervisor))


DAMAGES = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00 not JSON"),
    "empty": lambda path: path.write_bytes(b""),
    "another type": lambda path: path.write_text('{"id": 3}'),
    "invalid values": lambda path: path.write_text(re.sub(r'":\s*\d', '":x', path.read_text())),
    "directory": lambda path: (path.unlink(), path.mkdir()),
    "missing": lambda path: path.unlink(),
    "link to nothing": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


BOTH_RECORDS = ("spec.json", "status.json")


@both_ways
@pytest.mark.parametrize("shim_lives", [True, False], ids=["shim", "no shim"])
@pytest.mark.parametrize(
    ("names", "damage"),
    [
        *((BOTH_RECORDS, damage) for damage in DAMAGES),
        *(((name,), damage) for name in BOTH_RECORDS for damage in ("garbage", "missing")),
    ],
    ids=str,
)
async def test_running_container_with_unreadable_records_goes_on(
    tmp_path, monkeypatch, mode, names, damage, shim_lives
):
    if damage == "missing" and "status.json" in names:
        monkeypatch.setattr(
            rebuilding, "_SETTLED_SECONDS", 0.0
        )  # until then its shim may just be starting it
    container_id, pid = await start(
        tmp_path, mode, namespace="team", pod="web", uid="u-1", name="app", attempt=2
    )
    if not shim_lives:
        await without_shim(pid)
    directory = tmp_path / "containers" / container_id
    for name in names:
        DAMAGES[damage](directory / name)
    again = await LocalRuntime.open(tmp_path, cgroups=mode)
    try:
        (found,) = await again.containers()
        assert (found.state, found.pid, found.pod) == ("running", pid, "web")
        assert alive(pid)
        ((spec, live),) = again.recorded()
        assert live
        assert dict(spec.env)["A"] == "b c"
        assert spec.command == ("sh", "-c", SLEEP)
        assert spec.cpus == LOW
        assert len(again.problems) == 1
        assert str(pid) in again.problems[0]
        if shim_lives or names == ("status.json",):
            assert (found.namespace, found.attempt) == ("team", 2)
            assert (found.pod_uid, found.name) == ("u-1", "app")
        elif mode == "required":
            assert (found.pod_uid, found.name) == ("u-1", "app")
        else:  # neither log nor cgroup names the pod
            assert found.pod_uid == container_id
        await again.update(found.id, ResourceUpdate(cpus=HIGH))
        assert proc.allowed(pid) == HIGH
        await again.stop(found.id, 0)
        assert not alive(pid)
    finally:
        await again.destroy(0)


FALSEHOODS = {
    "ended": {"state": "exited", "wait_status": 0, "finished_at": 1.0},
    "never started": {"state": "failed", "stage": "exec", "errno": 2, "pid": 0, "ticks": 0},
    "another boot": {"boot_id": "00000000-0000-0000-0000-000000000000"},
    "an earlier process": {"ticks": 1},
}


@both_ways
@pytest.mark.parametrize("shim_lives", [True, False], ids=["shim", "no shim"])
@pytest.mark.parametrize("falsehood", FALSEHOODS)
async def test_running_container_with_the_record_of_an_end_goes_on(tmp_path, mode, falsehood, shim_lives):
    """A status that was restored from elsewhere is doubt: the process shows that the container runs."""
    if falsehood == "never started" and not shim_lives:
        pytest.skip("nothing but the shim shows which process is the main one")
    container_id, pid = await start(tmp_path, mode)
    if not shim_lives:
        await without_shim(pid)
    path = tmp_path / "containers" / container_id / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | FALSEHOODS[falsehood]))
    async with opened(tmp_path, mode) as again:
        found = await status(again, container_id)
        assert (found.state, found.pid) == ("running", pid)
        assert alive(pid)
        assert "status.json not that of the running process" in again.problems[0]
        assert str(pid) in again.problems[0]


@both_ways
@pytest.mark.parametrize("link", [True, False], ids=["link", "renamed"])
async def test_containers_of_a_directory_with_another_name_are_its_own(tmp_path, mode, link):
    """Their shims name the directory by which it was opened first; they are not another instance's."""
    first, second = tmp_path / "first", tmp_path / "second"
    container_id, pid = await start(first, mode)
    second.symlink_to(first) if link else first.rename(second)
    async with opened(second, mode) as again:
        found = await status(again, container_id)
        assert (found.state, found.pid) == ("running", pid)
        assert [one for one in await again.others() if str(tmp_path) in one.owner] == []


@both_ways
@pytest.mark.parametrize("name", ["logs", "containers", "lock"])
async def test_file_of_another_type_in_the_state_directory_is_kept_and_made_again(tmp_path, mode, name):
    container_id, pid = await start(tmp_path, mode)
    path = tmp_path / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("x")
    else:
        path.unlink()
        path.mkdir()
    async with opened(tmp_path, mode) as again:
        found = await status(again, container_id)
        assert (found.state, found.pid) == ("running", pid)
        assert f"{path}: of another file type, renamed to {name}.damaged-1" in again.problems[0]
        assert (tmp_path / f"{name}.damaged-1").exists()


@both_ways
async def test_containers_with_each_others_records_go_on(tmp_path, mode):
    first, first_pid = await start(tmp_path, mode, uid="u-1", pod="one")
    second, second_pid = await start(tmp_path, mode, uid="u-2", pod="two")
    paths = [tmp_path / "containers" / one / "spec.json" for one in (first, second)]
    texts = [path.read_bytes() for path in paths]
    for path, text in zip(paths, reversed(texts), strict=True):
        path.write_bytes(text)
    async with opened(tmp_path, mode) as again:
        found = {one.pod: (one.id, one.pid) for one in await again.containers()}
        assert found == {"one": (first, first_pid), "two": (second, second_pid)}
        assert len(again.problems) == 2


@both_ways
async def test_container_with_a_deleted_record_directory_goes_on(tmp_path, mode):
    container_id, pid = await start(tmp_path, mode)
    shutil.rmtree(tmp_path / "containers" / container_id)
    async with opened(tmp_path, mode) as again:
        found = await status(again, container_id)
        assert (found.state, found.pid) == ("running", pid)
        assert "record missing" in again.problems[0]


@pytest.mark.skipif(not have_cgroups(), reason="needs cgroups that can be written")
async def test_process_without_shim_record_and_mark_is_kept_by_its_cgroup(tmp_path):
    runtime = await LocalRuntime.open(tmp_path, cgroups="required")
    begun = await runtime.start(shell("exec env -i sleep 1000", uid="u-9", name="bare"))
    await eventually(lambda: b"CORELANE" not in Path(f"/proc/{begun.pid}/environ").read_bytes())
    await runtime.close()
    await without_shim(begun.pid)
    shutil.rmtree(tmp_path / "containers" / begun.id)
    async with opened(tmp_path, "required") as again:
        (found,) = await again.containers()
        assert (found.pid, found.pod_uid, found.name, found.state) == (begun.pid, "u-9", "bare", "running")


@both_ways
async def test_ended_container_with_an_unreadable_status_has_ended(tmp_path, mode):
    runtime = await LocalRuntime.open(tmp_path, cgroups=mode)
    begun = await runtime.start(shell("exit 3"))
    await ended(runtime, begun.id)
    await runtime.close()
    (tmp_path / "containers" / begun.id / "status.json").write_text("{")
    async with opened(tmp_path, mode) as again:
        found = await ended(again, begun.id)  # its shim may not have ended yet
        assert found.exit_code == 255
        assert "exit code unknown" in again.problems[0]


@both_ways
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"../../etc", b"another"])
async def test_lost_name_of_the_instance_is_read_from_its_cgroups(tmp_path, mode, content):
    runtime = await LocalRuntime.open(tmp_path, cgroups=mode)
    name = runtime.instance
    begun = await runtime.start(shell(SLEEP))
    await runtime.close()
    file = tmp_path / "instance"
    file.unlink() if content is None else file.write_bytes(content)
    async with opened(tmp_path, mode) as again:
        assert (await status(again, begun.id)).state == "running"
        if mode == "required":
            assert again.instance == name
            assert name in again.problems[0]


@needs_two_cpus
async def test_intact_records_are_not_touched(tmp_path):
    container_id, _ = await start(tmp_path, "auto")
    files = list((tmp_path / "containers" / container_id).glob("*.json"))
    before = [file.read_bytes() for file in files]
    async with opened(tmp_path) as again:
        assert again.problems == ()
        assert [file.read_bytes() for file in files] == before
