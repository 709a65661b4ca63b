"""The right to act: one process at a time, released however a process ends."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.runtime.nri.acting_lock import ActingLock, socket_lock, state_lock


def test_a_second_copy_learns_which_process_holds_the_file(tmp_path: Path) -> None:
    first, second = state_lock(tmp_path), state_lock(tmp_path)
    assert first.try_acquire() == first.try_acquire() == ""
    assert first.held
    assert second.try_acquire() == f"{tmp_path / 'agent.lock'} is locked by process {os.getpid()}"
    assert not second.held
    first.release()
    assert second.try_acquire() == ""
    second.release()


def test_the_lock_of_a_socket_is_a_file_beside_it(tmp_path: Path) -> None:
    lock = socket_lock(tmp_path / "nri.sock")
    assert lock.try_acquire() == ""
    assert lock.path == tmp_path / "nri.sock.corelane.lock"
    lock.release()


def test_a_lock_file_that_was_replaced_is_not_trusted(tmp_path: Path) -> None:
    first = ActingLock(tmp_path / "a.lock")
    assert first.try_acquire() == ""
    (tmp_path / "a.lock").unlink()
    second = ActingLock(tmp_path / "a.lock")
    assert second.try_acquire() == ""
    first.release()
    assert "is locked" in ActingLock(tmp_path / "a.lock").try_acquire()
    second.release()


def test_a_symbolic_link_is_neither_locked_nor_written(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("content")
    (tmp_path / "agent.lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "agent.lock"))):
        state_lock(tmp_path).try_acquire()
    assert (tmp_path / "other").read_text() == "content"


def test_a_missing_directory_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ActingLock(tmp_path / "no" / "a.lock").try_acquire()
    assert caught.value.filename == str(tmp_path / "no" / "a.lock") or str(caught.value.filename).endswith(
        "a.lock"
    )


def test_a_file_that_can_only_be_read_locks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.lock").touch()
    really = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(30, "Read-only file system", str(path))
        return really(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    first, second = (ActingLock(tmp_path / "a.lock") for _ in range(2))
    assert first.try_acquire() == ""
    assert second.try_acquire() == f"{tmp_path / 'a.lock'} is locked by another process"
    first.release()


HOLD = "import sys, time; from pathlib import Path; from corelane.runtime.nri.acting_lock import ActingLock; \
lock = ActingLock(Path(sys.argv[1])); print(lock.try_acquire() or 'held', flush=True); time.sleep(600)"


def test_a_waiting_copy_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        assert asyncio.run(take_over(path, holder)) == [f"{path} is locked by process {holder.pid}"]
    finally:
        holder.kill()
        holder.communicate()


async def take_over(path: Path, holder: subprocess.Popen) -> list[str]:
    lock, seen = ActingLock(path), []
    waiting = asyncio.create_task(lock.acquire(seen.append))
    await asyncio.sleep(0.6)
    assert not waiting.done()
    holder.send_signal(signal.SIGKILL)
    await asyncio.wait_for(waiting, 120)
    lock.release()
    return seen
