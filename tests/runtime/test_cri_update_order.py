"""Updates of one container that overlap: what a handler writes waits for none, and none undoes a write."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
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
    """Applies the first update, to CPUs 0-7, when `release` is set, and then fails it if `fails`."""

    def __init__(self, home: Path, *, fails: bool) -> None:
        self.view = hierarchy(home / "cgroup")
        self.file = self.view.cpuset / GROUP / "cpuset.cpus"
        self.begun, self.release, self.fails = threading.Event(), threading.Event(), fails

    def update(self, _: bytes, context: Context) -> bytes:
        first = not self.begun.is_set()
        self.begun.set()
        assert self.release.wait(50)
        if first:
            self.file.write_text("0-7\n")
        if self.fails:
            context.abort("UNAVAILABLE", "the runtime ends")
        return b""

    @property
    def answers(self) -> dict:
        status = {1: {1: "c1", 2: {1: "main"}, 3: 1}, 2: [{1: "info", 2: INFO}]}
        return {"ContainerStatus": status, "UpdateContainerResources": self.update}


Scene = Callable[[CRIRuntime, SlowRuntime], Awaitable[None]]


@pytest.fixture(params=[False, True], ids=["taken", "failed"])
def during_an_update(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], Path]:
    """Play a scene while the runtime has an older update, which ends after it; return the cpuset file."""
    slow = SlowRuntime(tmp_path, fails=request.param)

    async def main(endpoint: str, scene: Scene) -> None:
        runtime = CRIRuntime(slow.view, endpoint, call_seconds=60)
        try:
            older = asyncio.create_task(runtime.update("c1", cpus("0-7")))
            assert await asyncio.to_thread(slow.begun.wait, 30)
            await scene(runtime, slow)
            slow.release.set()
            await older
        finally:
            slow.release.set()
            await runtime.close()

    def play(scene: Scene) -> Path:
        with fake_cri.serving(tmp_path / "cri.sock", slow.answers) as endpoint:
            asyncio.run(main(endpoint, scene))
        return slow.file

    return play


def test_a_handlers_write_neither_waits_for_an_older_update_nor_is_undone_by_it(during_an_update) -> None:
    async def scene(runtime: CRIRuntime, slow: SlowRuntime) -> None:
        with runtime.records.held():  # that update may wait for the handler's end
            await asyncio.wait_for(runtime.apply("c1", cpus("0-3")), 120)
        assert slow.file.read_text() == "0-3\n"
        assert not slow.release.is_set()

    assert during_an_update(scene).read_text() == "0-3\n"


def test_a_change_is_made_when_no_older_update_can_undo_it(during_an_update) -> None:
    """Else another container would get CPUs to which this one returns for a moment."""

    async def scene(runtime: CRIRuntime, slow: SlowRuntime) -> None:
        newer = asyncio.create_task(runtime.apply("c1", cpus("0-3")))
        await asyncio.sleep(0.1)
        assert not newer.done()
        assert slow.file.read_text() == "0-7\n", "else it would be moved there, back, and there again"
        slow.release.set()
        await newer
        assert slow.file.read_text() == "0-3\n"

    assert during_an_update(scene).read_text() == "0-3\n"
