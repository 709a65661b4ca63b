"""The process that uses a data directory is the one that holds its lock, whatever the lock's text says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.embedded.up import command as up_command
from corelane.embedded.up import datadir, down
from corelane.embedded.up.datadir import DataDir, DataDirError
from corelane.kernel import proc

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")
NOBODY = 65534

HOLD = """
import fcntl, os, sys, time
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
if sys.argv[2]:
    os.setuid(int(sys.argv[2]))
print(flush=True)
time.sleep(60)
"""


@contextmanager
def held(root: Path, user: str = "") -> Iterator[int]:
    """Hold the lock of a data directory in another process; yield its id."""
    command = [sys.executable, "-c", HOLD, str(root / "lock"), user]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("text", ["", "1", "{victim}", "999999999", "-1", "x\n1"])
def test_holder_is_the_process_with_the_lock(tmp_path: Path, text: str) -> None:
    with held(tmp_path) as pid:
        (tmp_path / "lock").write_text(text.format(victim=os.getpid()))
        assert datadir.holder(tmp_path) == proc.identity(pid)
        with pytest.raises(DataDirError, match=rf"in use by another corelane \(process {pid}\)"):
            DataDir(tmp_path)
    assert datadir.holder(tmp_path) is None


@needs_root
def test_process_of_another_user_that_holds_the_lock_is_named_and_not_signalled(tmp_path: Path) -> None:
    with held(tmp_path, str(NOBODY)) as pid:
        with pytest.raises(down.DownError, match=rf"process {pid} of another user \({NOBODY}\)"):
            down.stop_up(tmp_path)
        assert proc.identity(pid)


def test_lock_of_a_process_that_cannot_be_seen_is_named_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(tmp_path):
        (tmp_path / "lock").write_text("1\n")
        monkeypatch.setattr(proc, "holds", lambda *_: False)
        with pytest.raises(DataDirError, match="in another PID or user namespace; it recorded the id 1"):
            datadir.holder(tmp_path)


def test_lock_can_be_opened_by_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(mode=0o666)
    directory = DataDir(tmp_path)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    directory.close()


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_lock_of_another_file_type_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
    with pytest.raises(DataDirError, match="not a regular file"):
        DataDir(tmp_path)


@needs_root
def test_down_leaves_the_directory_of_another_user_to_that_user(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, NOBODY, NOBODY)
    with pytest.raises(down.DownError, match=f"belongs to user {NOBODY}; call corelane down as that user"):
        down.down(down.DownOptions(data_dir=data), lambda _: True)


def test_data_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(DataDirError, match="may be written by other users"):
        DataDir(tmp_path)
    tmp_path.chmod(0o700)


def test_background_process_loads_no_module_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may be in a directory of another user."""
    package = tmp_path / "here" / "corelane"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('not corelane')")
    (package / "__main__.py").write_text("")
    monkeypatch.chdir(package.parent)
    said: list[str] = []
    up_command.start_in_background(["--version"], tmp_path / "data", said.append)
    assert "not corelane" not in said[0]
    assert "corelane" in said[0]
