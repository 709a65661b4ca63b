"""Updates of one container that overlap: what a handler writes waits for none, and none undoes a write."""

import asyncio
import threading
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel.container_paths import CgroupView
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.cri.runtime import CRIRuntime
from support import fake_cri
from support.grpc_server import Context

GROUP = "kubepods/pod1/c1"
INFO = f'{{"runtimeSpec": {{"linux": {{"cgroupsPath": "/{GROUP}"}}}}}}'


def cpus(text: str) -> ResourceUpdate:
    return ResourceUpdate(cpus=CPUSet.parse(text))


def hierarchy(home: Path) -> CgroupView:
    """Groups of version 2 as plain directories: what is set is what they show."""
    for group in ("kubepods", "kubepods/pod1", GROUP):
        (home / group).mkdir(parents=True)
        (home / group / "cpuset.cpus").write_text("0-7\n")
    return CgroupView(2, home, home)


class SlowRuntime:
    """Takes an update when `release` is set, writes to `applies`, and then fails it if `fails`."""

    def __init__(self, *, fails: bool, applies: Path | None = None) -> None:
        self.begun, self.release, self.fails = threading.Event(), threading.Event(), fails
        self.applies = applies

    def update(self, _: bytes, context: Context) -> bytes:
        first = not self.begun.is_set()
        self.begun.set()
        assert self.release.wait(50)
        if self.applies and first:
            self.applies.write_text("0-7\n")
        if self.fails:
            context.abort("UNAVAILABLE", "the runtime ends")
        return b""

    @property
    def answers(self) -> dict:
        status = {1: {1: "c1", 2: {1: "main"}, 3: 1}, 2: [{1: "info", 2: INFO}]}
        return {"ContainerStatus": status, "UpdateContainerResources": self.update}


@pytest.mark.parametrize("fails", [False, True])
def test_a_handlers_write_neither_waits_for_an_older_update_nor_is_undone_by_it(
    tmp_path: Path, fails: bool
) -> None:
    slow = SlowRuntime(fails=fails)

    async def scene(endpoint: str) -> None:
        runtime = CRIRuntime(hierarchy(tmp_path / "cgroup"), endpoint, call_seconds=60)
        try:
            older = asyncio.create_task(runtime.update("c1", cpus("0-7")))
            assert await asyncio.to_thread(slow.begun.wait, 30)
            await asyncio.wait_for(runtime.write_cgroup("c1", cpus("0-3"), recorded=True), 120)
            slow.release.set()
            await older
        finally:
            slow.release.set()
            await runtime.close()

    with fake_cri.serving(tmp_path / "cri.sock", slow.answers) as endpoint:
        asyncio.run(scene(endpoint))
    assert (tmp_path / "cgroup" / GROUP / "cpuset.cpus").read_text() == "0-3\n"


@pytest.mark.parametrize("fails", [False, True])
def test_a_change_is_made_when_no_older_update_can_undo_it(tmp_path: Path, fails: bool) -> None:
    """Else another container would get CPUs to which this one returns for a moment."""
    view = hierarchy(tmp_path / "cgroup")
    file = view.cpuset / GROUP / "cpuset.cpus"
    slow = SlowRuntime(fails=fails, applies=file)

    async def scene(endpoint: str) -> None:
        runtime = CRIRuntime(view, endpoint, call_seconds=60)
        try:
            older = asyncio.create_task(runtime.update("c1", cpus("0-7")))
            assert await asyncio.to_thread(slow.begun.wait, 30)
            with runtime.records.held():  # a handler, for whose end that update may wait
                await asyncio.wait_for(runtime.apply("c1", cpus("0-5")), 120)
            assert file.read_text() == "0-5\n"
            newer = asyncio.create_task(runtime.apply("c1", cpus("0-3")))
            await asyncio.sleep(0.1)
            assert not newer.done()
            assert file.read_text() == "0-5\n", "else it would be moved there, back, and there again"
            slow.release.set()
            await newer
            assert file.read_text() == "0-3\n"
            await older
        finally:
            slow.release.set()
            await runtime.close()

    with fake_cri.serving(tmp_path / "cri.sock", slow.answers) as endpoint:
        asyncio.run(scene(endpoint))
