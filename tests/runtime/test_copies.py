"""A copy of a state directory takes neither the original's containers nor its instance name."""

import os
import shutil
import subprocess
import sys

import pytest

from corelane.kernel import proc
from corelane.runtime import container_search, copies, rebuilding
from corelane.runtime.container_search import Shim
from corelane.runtime.records import RecordStore, StateInUse

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
    copies.check(original)
    shutil.copytree(original.root, tmp_path / "my copy")
    copy = opened(tmp_path / "my copy")
    with pytest.raises(StateInUse) as refused:
        copies.check(copy)
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
    copies.check(opened(other))


def test_an_instance_name_has_one_owner(original, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "LOCK_SECONDS", 0.1)
    copies.claim_name(original)
    shutil.copytree(original.root, tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    with pytest.raises(StateInUse, match=f"the instance name {original.instance} is in use by another"):
        copies.claim_name(copy)
    original.close()
    copies.claim_name(copy)


def test_the_holder_of_a_name_is_named_and_a_killed_one_lets_go(original, monkeypatch):
    monkeypatch.setattr(copies, "LOCK_SECONDS", 0.1)
    script = (
        "import socket, time; one = socket.socket(socket.AF_UNIX); "
        f"one.bind('\\0corelane-instance-{original.instance}'); one.listen(); print(flush=True); "
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        with pytest.raises(StateInUse, match=rf"\(process {holder.pid}\)"):
            copies.claim_name(original)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    copies.claim_name(original)
