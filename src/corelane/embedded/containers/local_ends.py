"""Ends of local containers: what is killed, when an end is reported, and what is tidied up after it.

A container has ended once no process of it is left, for until then its CPUs are not free. What its main
process left behind is killed; while that does not end, the container counts as running.
"""

import asyncio
import logging
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace

from corelane.embedded.containers.enforce import Enforcements
from corelane.embedded.containers.launch import LaunchError
from corelane.embedded.containers.records import RecordStore
from corelane.embedded.containers.registry import ContainerRegistry, LocalContainer
from corelane.kernel import proc
from corelane.kernel.affinity import AffinityError
from corelane.runtime.base import RuntimeFailure
from corelane.runtime.process_watch import Tasks

KILL_SECONDS = 30.0
REFUSED = (AffinityError, LaunchError, OSError, ValueError)
"""Errors of an enforcement (CgroupError is an OSError), and of a shim's start."""

_log = logging.getLogger(__name__)


class ContainerEnds:
    """Ends the containers of a registry; `on_end` is called with each whose main process has ended."""

    def __init__(self, state: RecordStore, enforcements: Enforcements, tasks: Tasks) -> None:
        self.known = ContainerRegistry(state, self.on_end)
        self._state = state
        self._enforcements = enforcements
        self._tasks = tasks

    def on_end(self, container: LocalContainer) -> None:
        """See to the end of a container whose main process has ended, unless that is under way."""
        if container.release is None or container.release.done():
            container.release = self._tasks.spawn(self._release(container))

    async def _release(self, container: LocalContainer) -> None:
        """Report an end once no process is left, and tidy up; else the next sweep tries again.

        The next run of the same container may have taken over its cgroup already.
        """
        async with container.pod:
            if not self._has_successor(container) and (left := await self._left(container)):
                if left != container.status.message:
                    _log.warning("container %s: %s", container.stored.id, left)
                self.known.linger(container, left)
                return
            await self._note_oom_kills(container)
            self.known.ended(container)
            try:
                if not self._has_successor(container):
                    await asyncio.to_thread(self._enforcements.of(container.stored).release, container.stored)
                await self.weigh(container)
            except REFUSED as error:
                _log.warning("container %s has ended, but its cgroup is left: %s", container.stored.id, error)

    async def _left(self, container: LocalContainer) -> str:
        """Kill what an ended container left; return a sentence about what is still there, or ""."""
        try:
            left = await asyncio.to_thread(
                self._enforcements.of(container.stored).end, container.stored, container.outcome
            )
        except REFUSED as error:
            return f"main process ended; whether other processes are left is unknown: {error}"
        names = ", ".join(map(str, left))
        return f"main process ended; SIGKILL did not end processes {names}" if left else ""

    async def _note_oom_kills(self, container: LocalContainer) -> None:
        """Record what a killed shim could not, before the cgroup is gone."""
        outcome, final = container.outcome, container.final
        if outcome is None or final is None or outcome.state != "running" or self._has_successor(container):
            return
        enforcement = self._enforcements.of(container.stored)
        if kills := await asyncio.to_thread(enforcement.oom_kills, container.stored):
            container.outcome = replace(outcome, oom_kills=kills)
            container.final = replace(final, oom_killed=True)
            with suppress(OSError):
                await asyncio.to_thread(self._state.save_outcome, container.stored.id, container.outcome)

    def _has_successor(self, container: LocalContainer) -> bool:
        """Whether a later run of the same container has its cgroup now."""
        spec = container.stored.spec
        return any(
            other.stored.spec.name == spec.name
            and other.stored.spec.attempt > spec.attempt
            and not other.ended.is_set()
            for other in self.known.of_pod(spec.pod_uid)
        )

    async def weigh(self, container: LocalContainer) -> None:
        """Give the pod's cgroup the weight of what runs in it; called with the pod's lock held."""
        uid = container.stored.spec.pod_uid
        live = (other.stored.spec for other in self.known.of_pod(uid) if not other.ended.is_set())
        await asyncio.to_thread(
            self._enforcements.default.weigh, uid, sum(spec.cpu_shares_milli for spec in live)
        )

    def send(self, container: LocalContainer, number: int) -> None:
        """Send a signal to the main process, if it lives. Raises PermissionError."""
        if container.outcome and not container.ended.is_set():
            proc.send(container.outcome.main, number)

    async def kill(self, container: LocalContainer) -> None:
        """SIGKILL to the main process and all others, again until the container has ended."""
        deadline = time.monotonic() + KILL_SECONDS
        while not container.ended.is_set():
            left = await asyncio.to_thread(self._kill_once, container)
            await within(0.5, container.ended)
            if container.watch is None:
                self.known.refresh(container)
            if time.monotonic() > deadline:
                names = ", ".join(map(str, left)) or "none that can be seen"
                raise RuntimeFailure("KillContainerError", f"SIGKILL did not end it; its processes: {names}")

    def _kill_once(self, container: LocalContainer) -> list[int]:
        with suppress(PermissionError):
            self.send(container, signal.SIGKILL)
        return proc.kill_all(lambda: self.processes(container))

    def processes(self, container: LocalContainer) -> list[int]:
        """Return the pids of the container's processes. Blocks. Raises CgroupError."""
        if container.outcome is None or container.ended.is_set():
            return []
        return self._enforcements.of(container.stored).processes(container.stored, container.outcome)

    async def discard(self, container: LocalContainer) -> None:
        """Forget a container of which nothing runs, and its pod's cgroup if it was the last."""
        container.ended.set()
        async with container.pod:
            if not self.known.forget(container):
                return
            last = not self.known.of_pod(container.stored.spec.pod_uid)
            await asyncio.to_thread(self._clear, container, last=last)

    def _clear(self, container: LocalContainer, *, last: bool) -> None:
        stored = container.stored
        with suppress(*REFUSED):
            if container.final is None and not self._has_successor(container):  # its start failed
                self._enforcements.of(container.stored).end(stored, container.outcome)
                self._enforcements.of(container.stored).release(stored)
            if last:
                self._enforcements.default.forget_pod(stored.spec.pod_uid)
        shutil.rmtree(self._state.directory(stored.id), ignore_errors=True)


async def released(container: LocalContainer) -> None:
    """Wait until an attempt to tidy up after the container's end is done."""
    if container.release is not None:
        await asyncio.wait([container.release])


async def within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
