"""A data directory whose containers run in another PID namespace: their pids name other processes here."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.embedded.containers import container_search
from corelane.embedded.containers.local import LocalRuntime
from corelane.kernel import proc
from support.containers import alive, both_ways, eventually, opened, shell, status

INNER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def _can_unshare() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*INNER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not _can_unshare(), reason="needs root and unshare(1), to make PID namespaces"
)


def corelane(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call corelane in a PID namespace of its own."""
    command = [*INNER, sys.executable, "-m", "corelane", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def run(main):
    asyncio.run(asyncio.wait_for(main, 60))


@both_ways
async def test_containers_outside_are_neither_adopted_nor_purged(tmp_path, mode):
    """Also where nothing but the lock of a record shows that they run."""
    state = tmp_path / "nodes" / "n" / "containers"
    runtime = await LocalRuntime.open(state, cgroups=mode)
    begun = await runtime.start(shell("sleep 1000"))
    await runtime.close()
    (tmp_path / "apiserver.db").touch()
    ended = corelane("down", "--data-dir", str(tmp_path), "--purge", "--grace-seconds", "1")
    assert ended.returncode == 1, ended.stderr
    assert "its processes are in another PID or user namespace" in ended.stdout
    assert "nothing was purged" in ended.stdout
    started = corelane("up", "--data-dir", str(tmp_path), "--node-name", "n", "--port", "0")
    assert started.returncode != 0
    assert "1 of its containers run in another PID or user namespace" in started.stderr
    async with opened(state, mode) as again:
        assert (await status(again, begun.id)).pid == begun.pid
        assert alive(begun.pid)


START = """
import asyncio, sys
from pathlib import Path
from corelane.embedded.containers.local import LocalRuntime
from support.containers import shell

async def main():
    runtime = await LocalRuntime.open(Path(sys.argv[1]), cgroups=sys.argv[2])
    begun = await runtime.start(shell("sleep 1000"))
    await runtime.close()
    print(begun.id, begun.pid, flush=True)

asyncio.run(main())
sys.stdin.read()
"""


@both_ways
async def test_containers_of_an_inner_namespace_are_adopted_with_the_pids_that_they_have_here(tmp_path, mode):
    paths = os.pathsep.join(map(str, [Path(__file__).parents[2], *filter(None, sys.path)]))
    inner = await asyncio.create_subprocess_exec(
        *INNER,
        *(sys.executable, "-c", START, str(tmp_path), mode),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert inner.stdin is not None
    assert inner.stdout is not None
    container_id, pid = (await inner.stdout.readline()).decode().split()
    async with opened(tmp_path, mode) as runtime:
        found = await status(runtime, container_id)
        (shim,) = [one for one in container_search.shims() if one.id == container_id]
        assert proc.Identity(found.pid, proc.stat(found.pid).start_ticks) == container_search.main_process(
            shim
        )
        assert found.pid != int(pid)
        assert "not that of the running process" in runtime.problems[0]
        await runtime.stop(container_id, 0)
        await eventually(lambda: not alive(found.pid))
        assert (await status(runtime, container_id)).state == "exited"
    inner.stdin.close()
    await inner.wait()


async def test_record_of_a_shim_that_can_be_read_is_not_among_the_unreadable_ones(tmp_path):
    async with opened(tmp_path) as runtime:
        begun = await runtime.start(shell("sleep 1000"))
        assert container_search.unreadable(tmp_path / "containers") == []
        await runtime.stop(begun.id, 0)
        assert container_search.unreadable(tmp_path / "containers") == []
