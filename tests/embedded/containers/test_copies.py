"""A copy of a state directory takes neither the original's containers nor its instance name."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from corelane.embedded.containers import container_search, rebuilding
from corelane.embedded.containers.container_search import Shim
from corelane.embedded.containers.records import RecordStore, StateInUse
from corelane.kernel import proc

ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def opened():
    """Opens stores, and closes them at the end."""
    stores = []

    def open_store(path):
        stores.append(RecordStore(path))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def original(tmp_path, opened):
    store = opened(tmp_path / "data" / "nodes" / "n" / "containers")
    rebuilding.name_instance(store)
    store.make_directory(ID)
    return store


def of_shim(monkeypatch, directory):
    shim = Shim(proc.identity(os.getpid()), directory)
    monkeypatch.setattr(container_search, "shims", lambda: [shim])


def test_a_copy_of_a_directory_whose_containers_run_is_refused(original, opened, tmp_path, monkeypatch):
    of_shim(monkeypatch, original.directory(ID))
    rebuilding.check_no_copy(original)
    shutil.copytree(original.root, tmp_path / "my copy")
    copy = opened(tmp_path / "my copy")
    with pytest.raises(StateInUse) as refused:
        rebuilding.check_no_copy(copy)
    assert str(refused.value) == (
        f"{copy.root}: a copy of {original.root}, of which 1 container still runs; use the original, or end "
        f"it (corelane down --data-dir {tmp_path / 'data'}), or start the copy without it: "
        f"rm -r '{copy.root}'"
    )


@pytest.mark.parametrize("how", ["moved", "by a link", "other containers"])
def test_other_directories_are_not_copies(original, opened, tmp_path, monkeypatch, how):
    of_shim(monkeypatch, original.directory(ID))
    other = tmp_path / "other"
    original.close()
    if how == "moved":
        original.root.rename(other)
    elif how == "by a link":
        other.symlink_to(original.root)
    else:
        (other / "containers" / ("f" * 32)).mkdir(parents=True)
    rebuilding.check_no_copy(opened(other))


def test_an_instance_name_has_one_owner(original, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(rebuilding, "LOCK_SECONDS", 0.1)
    rebuilding.check_name(original)
    shutil.copytree(original.root, tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    with pytest.raises(StateInUse, match=f"the instance name {original.instance} is in use by another"):
        rebuilding.check_name(copy)
    original.close()
    rebuilding.check_name(copy)


HOLD = """
import sys, time
from pathlib import Path
from corelane.embedded.containers.records import RecordStore
store = RecordStore(Path(sys.argv[1]))
print(flush=True)
time.sleep(60)
"""


def test_the_holder_of_a_name_is_named_and_a_killed_one_lets_go(original, tmp_path, monkeypatch):
    monkeypatch.setattr(rebuilding, "LOCK_SECONDS", 0.1)
    shutil.copytree(original.root, tmp_path / "copy")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "copy")], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        with pytest.raises(
            StateInUse, match=rf"\(process {holder.pid}\) with {tmp_path / 'copy'}"
        ) as refused:
            rebuilding.check_name(original)
        assert f"if this is the copy: rm -r {original.root}" in str(refused.value)
        running = original.supervise(ID)
        with pytest.raises(StateInUse) as refused:
            rebuilding.check_name(original)
        os.close(running)
        assert "rm -r" not in str(refused.value), "records of running containers are not to be deleted"
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    rebuilding.check_name(original)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_socket_or_a_directory_of_another_user_with_an_instances_name_is_no_owner(original):
    """Both names are in /proc/PID/cgroup of every container, for everyone to read."""
    theirs = Path(tempfile.mkdtemp(prefix="corelane-"))
    os.chown(theirs, 65534, 65534)
    script = (
        "import fcntl, os, socket, sys, time; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        f"one = socket.socket(socket.AF_UNIX); one.bind('\\0corelane-instance-{original.instance}'); "
        f"open(sys.argv[1] + '/instance', 'w').write('{original.instance}'); "
        "lock = open(sys.argv[1] + '/lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); "
        "time.sleep(60)"
    )
    squatter = subprocess.Popen([sys.executable, "-c", script, str(theirs)], stdout=subprocess.PIPE)
    try:
        squatter.stdout.readline()
        rebuilding.check_name(original)
    finally:
        squatter.kill()
        squatter.wait()
        squatter.stdout.close()
        shutil.rmtree(theirs)
