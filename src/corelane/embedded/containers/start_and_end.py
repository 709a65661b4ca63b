"""Start of a local container through its shim; its end: what is killed, reported and tidied up after it.

A container has ended once no process of it is left, for until then its CPUs are not free. What its main
process left behind is killed; while that does not end, the container counts as running.
"""

import asyncio
import logging
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from corelane.embedded.containers import shim
from corelane.embedded.containers.enforce import Enforcements, mark
from corelane.embedded.containers.records import ContainerRecord, RecordStore, ShimOutcome
from corelane.embedded.containers.registry import ContainerRegistry, LocalContainer
from corelane.kernel import proc
from corelane.kernel.affinity import AffinityError
from corelane.runtime.base import ContainerSpec, RuntimeFailure
from corelane.runtime.process_watch import Tasks

_TIMEOUT_SECONDS = 60.0
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR")
_OF_SHIM = ("PATH", "LD_LIBRARY_PATH")
"""What Python may need to start."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KILL_SECONDS = 30.0


class LaunchError(Exception):
    """The shim itself came to nothing."""


def environment(spec: ContainerSpec, container_id: str) -> list[tuple[str, str]]:
    """The environment of an image (here: a few variables of corelane's own), then that of the spec."""
    own = {"PATH": _DEFAULT_PATH, **_inherited(_INHERITED), "HOSTNAME": spec.pod, **dict(spec.env)}
    name, _, value = mark(container_id).partition("=")
    return [*own.items(), (name, value)]


def _inherited(names: Iterable[str]) -> dict[str, str]:
    """Nothing else of corelane's environment, with its options and secrets, reaches shim or container."""
    return {name: value for name in names if (value := os.environ.get(name)) is not None}


def launch(state: RecordStore, stored: ContainerRecord, log_bytes: int, log_files: int) -> ShimOutcome:
    """Start the container in a shim of its own, and return what the shim recorded.

    Raises LaunchError, OSError.
    """
    stored.log.parent.mkdir(parents=True, exist_ok=True)
    spec = stored.spec
    instructions = {
        "command": list(spec.command),
        "env": environment(spec, stored.id),
        "working_dir": spec.working_dir,
        "cgroups": list(stored.directories),
        "cpus": list(spec.cpus),
        "log_path": str(stored.log),
        "log_bytes": log_bytes,
        "log_files": log_files,
    }
    _run(state, stored.id, marshal.dumps(instructions))
    outcome = state.outcome(stored.id)
    if outcome is None:
        raise LaunchError(state.complaint(stored.id) or "the shim ended without a word")
    return outcome


def _run(state: RecordStore, container_id: str, instructions: bytes) -> None:
    """Start a shim that holds the container's lock, and wait until it closes its end of the report pipe."""
    lock = state.supervise(container_id)
    reader, writer = os.pipe()
    try:
        try:
            process = _spawn(state.directory(container_id), lock, writer)
        finally:
            os.close(writer)
        process.communicate(instructions)
        poller = select.poll()
        poller.register(reader)
        if not poller.poll(_TIMEOUT_SECONDS * 1000):
            # The shim has left our process tree, but is still in the process group that we gave it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise LaunchError(f"the shim did not start the container within {_TIMEOUT_SECONDS:.0f} s")
    finally:
        os.close(reader)
        os.close(lock)


def _spawn(directory: Path, lock: int, report: int) -> subprocess.Popen[bytes]:
    home = str(Path(shim.__file__).parent.parent)
    python = [sys.executable, "-I", "-S", "-c", shim.COMMAND, home]
    with (directory / "shim.err").open("wb") as complaints:
        return subprocess.Popen(
            [*python, str(directory), str(lock), str(report)],
            stdin=subprocess.PIPE,
            stdout=complaints,
            stderr=complaints,
            pass_fds=(lock, report),
            env=_inherited(_OF_SHIM),
            start_new_session=True,
        )


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
