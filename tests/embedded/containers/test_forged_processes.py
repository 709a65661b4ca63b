"""What a process of another user shows (name, command line, environment, open files) is never acted upon."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.embedded.containers import container_search, instances
from corelane.embedded.containers.container_search import MARK
from corelane.embedded.containers.instances import OtherContainers
from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import cgroup, proc
from support.containers import HIGH, LOW, alive, both_ways, eventually, opened, shell, status

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")
NOBODY = 65534
ID = "deadbeef" * 4

FORGED = """# from shim.supervise import main
import ctypes, os, sys, time
_, home, directory, log, cpus, user = sys.argv
if user:
    os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
if log:
    os.makedirs(os.path.dirname(log), exist_ok=True)
    kept = open(log, "ab")
ctypes.CDLL(None).prctl(15, b"corelane-shim", 0, 0, 0)  # PR_SET_NAME
started, running = os.pipe()  # closed by exec: until then the child looks like a second shim
if (child := os.fork()) == 0:
    os.setsid()
    os.sched_setaffinity(0, set(map(int, cpus.split(","))))
    os.execve("/bin/sleep", ["sleep", "60"], {"CORELANE_CONTAINER_ID": os.path.basename(directory)})
os.close(running)
os.read(started, 1)
print(child, flush=True)
time.sleep(60)
"""


@contextmanager
def forged(directory: Path, log: Path | str = "", cpus: str = "0", user: int | None = None) -> Iterator[int]:
    """Run what looks like a shim with this record directory and log; yield the pid of its container."""
    arguments = ["/home", str(directory), str(log), cpus, str(user or "")]
    command = [sys.executable, "-c", FORGED, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        main = int(process.stdout.readline())
        yield main
    finally:
        for pid in [*proc.descendants(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of another user, who may not enter those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="corelane-"))
    os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


def run(main):
    asyncio.run(asyncio.wait_for(main, 60))


@needs_root
@both_ways
async def test_shim_of_another_user_is_listed_as_a_claim_and_not_adopted(tmp_path, theirs, mode):
    record, log = tmp_path / "containers" / ID, theirs / "default_evil_u-1" / "c" / "0.log"
    with forged(record, log, user=NOBODY) as pid:
        traces = container_search.traces()
        assert record not in [shim.directory for shim in traces.shims]
        assert ID not in traces.marked
        assert [(one.directory, one.user) for one in traces.claims if one.id == ID] == [(record, NOBODY)]
        async with opened(tmp_path, mode) as runtime:
            assert await runtime.containers() == []
            assert runtime.problems == ()
            (claim,) = [one for one in await runtime.others() if one.title == f"process {pid}"]
            assert (claim.owner, claim.kind) == (f"user {NOBODY}", "claim")
        assert alive(pid)


def test_process_of_our_user_that_looks_like_a_shim_but_holds_no_record_is_none(tmp_path):
    with forged(tmp_path / "containers" / ID, tmp_path / "default_p_u-1" / "c" / "0.log"):
        assert tmp_path / "containers" / ID not in [shim.directory for shim in container_search.shims()]


@pytest.mark.parametrize("damage", ["deleted", "replaced"])
async def test_shim_proves_itself_by_the_lock_that_it_holds_of_a_record_that_is_gone(tmp_path, damage):
    runtime = await LocalRuntime.open(tmp_path)
    begun = await runtime.start(shell("sleep 60"))
    await runtime.close()
    record = tmp_path / "containers" / begun.id
    shutil.rmtree(record)
    if damage == "replaced":
        record.mkdir()
        (record / "lock").touch(mode=0o600)
    assert record in [shim.directory for shim in container_search.shims()]
    async with opened(tmp_path) as again:
        assert (await status(again, begun.id)).pid == begun.pid


@needs_root
@both_ways
async def test_command_of_a_process_that_left_its_user_is_not_recorded(tmp_path, mode):
    """Its memory, where command line and environment are, is another user's: a restart would run that."""
    runtime = await LocalRuntime.open(tmp_path, cgroups=mode)
    begun = await runtime.start(
        shell("exec setpriv --reuid=65534 --regid=65534 --clear-groups sleep 1000", env=(("A", "b"),))
    )
    await eventually(lambda: proc.owner(begun.pid) == NOBODY)
    await runtime.close()
    (tmp_path / "containers" / begun.id / "spec.json").unlink()
    async with opened(tmp_path, mode) as again:
        assert (await status(again, begun.id)).pid == begun.pid
        ((spec, live),) = again.recorded()
        assert (spec.command, spec.env, spec.working_dir, live) == (("unknown",), (), "", True)
        assert "command, and environment are unknown" in again.problems[0]


@needs_root
async def test_container_ends_although_a_process_of_another_user_bears_its_mark(tmp_path):
    runtime = await LocalRuntime.open(tmp_path, cgroups="off")
    begun = await runtime.start(shell("sleep 1000"))
    os.kill(proc.stat(begun.pid).ppid, signal.SIGKILL)
    with subprocess.Popen(
        ["sleep", "60"], env={MARK: begun.id}, user=NOBODY, group=NOBODY, extra_groups=[]
    ) as marked:
        await runtime.stop(begun.id, 0)
        assert (await status(runtime, begun.id)).state == "exited"
        assert marked.poll() is None
        marked.kill()
    await runtime.destroy(0)


def test_cgroup_of_the_same_name_elsewhere_is_none_of_a_container(tmp_path):
    """As an ordinary user makes it in what systemd delegates."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cgroup").write_text("0::/user.slice/user-1000.slice/corelane/i/u/c\n")
    groups = instances.groups_here()
    assert container_search.group_of(1, groups, tmp_path) == ""


@needs_root
def test_claim_of_another_user_takes_no_cpu_from_root_and_is_not_ended(tmp_path, theirs):
    with forged(theirs / "nodes/x/containers/containers" / ID, cpus=str(HIGH), user=NOBODY) as pid:
        (claim,) = [one for one in instances.running(None) if one.main.pid == pid]
        assert not claim.is_own
        assert claim.data_dir is None
        with pytest.raises(AssertionError):
            instances.end([claim], None, 0)
        found = {one.title: one for one in OtherContainers(tmp_path, "i", None).find((), ())}
        assert (found[f"process {pid}"].cpus, found[f"process {pid}"].kind) == (HIGH, "claim")
        assert alive(pid)


def test_process_that_keeps_to_some_cpus_is_listed_and_one_that_may_use_all_is_not(tmp_path):
    others = OtherContainers(tmp_path, "i", None)
    with subprocess.Popen(["sleep", "60"]) as process:
        everywhere = os.sched_getaffinity(process.pid)
        os.sched_setaffinity(process.pid, HIGH)
        found = {one.title: one for one in others.find((), ())}
        mine = found.get(f"process {process.pid}")
        os.sched_setaffinity(process.pid, everywhere)
        after = {one.title for one in others.find((), ())}
        process.kill()
    if set(HIGH) < everywhere:
        assert mine is not None
        assert (mine.cpus, mine.kind) == (HIGH, "process")
        if everywhere >= container_search._online():
            assert f"process {process.pid}" not in after


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_process_below_one_that_only_bears_the_name_of_a_shim_is_listed(tmp_path, monkeypatch):
    """As are containers whose shim, and environment, may not be read from another user namespace."""
    monkeypatch.setattr(container_search, "environment", lambda *_: {})
    with forged(tmp_path / "containers" / ID, cpus=str(HIGH)) as pid:
        found = {one.title: one for one in OtherContainers(tmp_path, "i", None).find((), ())}
    assert (found[f"process {pid}"].cpus, found[f"process {pid}"].kind) == (HIGH, "process")


@pytest.mark.parametrize(
    ("number", "listed", "inner", "seen"),
    [(2, "0\n0\n", True, True), (1, "", True, True), (1, "", False, False), (2, "", True, False)],
)
def test_group_whose_processes_cannot_be_seen_holds_its_cpus(
    tmp_path, monkeypatch, number, listed, inner, seen
):
    """As of an instance in another PID namespace: version 2 lists its processes as 0, version 1 none."""
    monkeypatch.setattr(proc, "in_inner_namespace", lambda: inner)

    class Groups(cgroup.Groups):
        version = number
        _create = set_request = None

        def read(self, group):
            return cgroup.GroupSettings(LOW, LOW, LOW, None, None, None, 100_000)

    Groups.__abstractmethods__ = frozenset()
    group = tmp_path / "corelane" / "other" / "u-1" / "c"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(listed)
    groups = Groups({"cpuset": tmp_path})
    if not seen:
        assert [one for one in instances.running(groups) if one.instance == "other"] == []
        return
    (one,) = [one for one in instances.running(groups) if one.instance == "other"]
    assert (one.main, one.is_own) == (instances.UNSEEN, False)
    found = OtherContainers(tmp_path, "i", groups).find((), ())
    assert [(other.cpus, other.kind) for other in found if other.owner == "other"] == [(LOW, "container")]
    if number == 2:
        assert instances.remove_groups(groups, ["other"]) == []
