"""`corelane up` where nothing more can be written: one clear line, and pods that are stopped as promised."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corelane.cli._errors import text_for_users
from corelane.kube.client import KubeClient
from support.up import PATIENCE, Up, clear, container, is_alive, pod


def start(directory: Path, *arguments: str, limit: int) -> subprocess.CompletedProcess[str]:
    """Run `corelane up` where no file may grow beyond `limit` bytes."""
    return subprocess.run(
        [sys.executable, "-m", "corelane", "up", "--data-dir", str(directory), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


def test_start_without_space_names_the_file(tmp_path: Path) -> None:
    result = start(tmp_path / "data", limit=0)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line == (
        f"Error: cannot write {tmp_path / 'data' / 'lock'}: File too large; free space on its file system"
    )


def test_detached_start_that_cannot_write_its_log_is_not_silent(tmp_path: Path) -> None:
    result = start(tmp_path / "data", "--detach", limit=0)
    assert result.returncode == 2
    assert "ended before it was ready, with status 2 and without output" in result.stdout


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_message_about_a_full_disk_has_file_and_remedy(number: int) -> None:
    text = text_for_users(OSError(number, os.strerror(number), "/data/kubeconfig"))
    assert text == f"cannot write /data/kubeconfig: {os.strerror(number)}; free space on its file system"


class UpWithoutOutput(Up):
    """A `corelane up` with a stdout that takes nothing: every write fails as on a full disk."""

    def __init__(self, data_dir: Path, *args: str) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "corelane", "up", "--data-dir", str(data_dir), *args]
        self.errors = data_dir.with_name("stderr")
        with Path("/dev/full").open("wb") as full, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=full, stderr=errors, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not self.kubeconfig.exists():
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_pods_are_stopped_though_the_log_takes_nothing_more(tmp_path: Path) -> None:
    instance = UpWithoutOutput(tmp_path / "data", "--stop-pods", "--cgroups", "off")
    pid_file = tmp_path / "pid"
    try:

        async def create(client: KubeClient) -> bool:
            script = f"echo $$$$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 1000"
            await client.create(pod("web", container("app", script)))
            return True

        instance.until(create)
        deadline = time.monotonic() + PATIENCE
        while not pid_file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pid = int(pid_file.read_text())
        assert is_alive(pid)
        instance.stop(signal.SIGTERM)
        assert instance.process.returncode == 0
        assert not is_alive(pid)
        assert "Traceback" not in instance.errors.read_text()
    finally:
        instance.kill()
        clear(tmp_path / "data")
