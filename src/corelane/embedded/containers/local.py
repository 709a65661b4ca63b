"""Containers as local processes, each under a shim of its own that outlives corelane.

The records (see `records`) are the truth: a shim's status file holds its container's state, the lock that
it holds shows that it lives, and a restarted runtime reads both to adopt what runs and to learn what ended
meanwhile. An end is noticed through a pidfd, or else by the sweep, which also brings back tasks that left
their CPUs where affinity alone holds them.
"""

import asyncio
import logging
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from corelane.cpuset import CPUSet, named
from corelane.embedded.containers import enforce, instances, logs, rebuilding, registry
from corelane.embedded.containers import records as outcomes
from corelane.embedded.containers.instances import OtherContainers
from corelane.embedded.containers.records import ContainerRecord, RecordStore, ShimOutcome
from corelane.embedded.containers.registry import DeletedRecords, LocalContainer
from corelane.embedded.containers.start_and_end import REFUSED, ContainerEnds, launch, released, within
from corelane.kernel import proc
from corelane.kernel.cgroup import CgroupError
from corelane.kernel.files import Directory, Tree
from corelane.kernel.proc import TaskAffinity
from corelane.node.recovery.unplaced import OtherContainer
from corelane.runtime.base import (
    CPUS_OFFLINE,
    WHOLE_LOG,
    Capabilities,
    ContainerSpec,
    LogSelection,
    Observation,
    ObservedResources,
    ResourceUpdate,
    RuntimeFailure,
    RuntimeStatus,
)
from corelane.runtime.process_watch import Tasks

LOG_BYTES, LOG_FILES = 10 << 20, 5  # the kubelet's containerLogMaxSize and containerLogMaxFiles
_REPAIRS = 5
"""Containers of which the tasks' affinities are read in one sweep."""

_log = logging.getLogger(__name__)


class LocalRuntime:
    """The `LifecycleRuntime` of local processes; made by `open`."""

    name = "corelane"

    def __init__(
        self, state: RecordStore, enforcement: enforce.Enforcement, notice: str, sweep_seconds: float
    ) -> None:
        self.notice = notice
        self.capabilities = Capabilities(plain_processes=True, memory_limits=enforcement.limits_memory)
        self.problems: tuple[str, ...] = ()
        """Records that could not be read at the start, and what became of them, a sentence each."""
        self.log_bytes, self.log_files = LOG_BYTES, LOG_FILES
        self.sys: Tree = Directory("/sys")
        self._state = state
        self._enforcements = enforce.Enforcements(enforcement)
        groups = enforcement.groups if isinstance(enforcement, enforce.ByCgroup) else None
        self._others = OtherContainers(state.root, state.instance, groups)
        self._tasks = Tasks()
        self._ends = ContainerEnds(state, self._enforcements, self._tasks)
        self._known = self._ends.known
        self._deleted = DeletedRecords(state)
        self._closed = False
        self._repaired = 0
        self._sweeper = asyncio.create_task(self._sweep(sweep_seconds))

    @classmethod
    async def open(
        cls,
        state: Path,
        *,
        cgroups: enforce.Mode = "auto",
        sweep_seconds: float = 1.0,
        root: Path = Path("/"),
    ) -> "LocalRuntime":
        """Take a state directory, and adopt the containers of its former owner.

        `cgroups`: "auto" uses them where they can be written, "off" never, "required" raises
        CgroupsUnavailable without them. `root` is where /proc/self/mountinfo and the mounts are looked for.
        Raises StateInUse, OSError.
        """
        opening = asyncio.ensure_future(cls._open(state, cgroups, sweep_seconds, root))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # a thread ends what it began, so what it took has to be released
            with suppress(Exception):
                await (await opening).close()
            raise

    @classmethod
    async def _open(
        cls, state: Path, cgroups: enforce.Mode, sweep_seconds: float, root: Path
    ) -> "LocalRuntime":
        held = await asyncio.to_thread(RecordStore, state)
        try:
            await asyncio.to_thread(rebuilding.check_no_copy, held)
            groups = None if cgroups == "off" else await asyncio.to_thread(instances.groups_here)
            problems = held.replaced + await asyncio.to_thread(rebuilding.name_instance, held, groups)
            await asyncio.to_thread(rebuilding.check_name, held)
            enforcement, notice = await asyncio.to_thread(enforce.choose, cgroups, held.instance, root)
            groups = enforcement.groups if isinstance(enforcement, enforce.ByCgroup) else None
            problems += await asyncio.to_thread(rebuilding.rebuild, held, groups)
        except BaseException:
            held.close()
            raise
        _log.log(
            logging.WARNING if notice else logging.INFO,
            "containers are pinned by %s",
            notice or enforcement.name,
        )
        runtime = cls(held, enforcement, notice, sweep_seconds)
        runtime.problems = tuple(problems)
        try:
            await runtime._adopt()
        except BaseException:
            await runtime.close()
            raise
        return runtime

    @property
    def enforcement(self) -> str:
        return self._enforcements.default.name

    @property
    def instance(self) -> str:
        """The name of this state directory's owner; its cgroups are `corelane/<instance>`."""
        return self._state.instance

    # What is asked of it.

    async def start(self, spec: ContainerSpec) -> RuntimeStatus:
        """As `Runtime.start`; when the caller is cancelled, the start goes on to its end."""
        if not spec.command:
            raise RuntimeFailure("CreateContainerConfigError", "the container has no command")
        if not spec.cpus:
            raise RuntimeFailure("CreateContainerConfigError", "the container has no CPUs")
        for other in self._known.of_pod(spec.pod_uid):
            theirs = other.stored.spec
            if theirs.name == spec.name and (theirs.attempt == spec.attempt or not other.ended.is_set()):
                taken = f'"{spec.name}" is there already, attempt {theirs.attempt}, as {other.stored.id}'
                raise RuntimeFailure("CreateContainerError", taken)
        new, log = secrets.token_hex(16), self._state.log_path(spec)
        stored = ContainerRecord(id=new, spec=spec, created_at=time.time(), log=log)
        container = self._known.add(stored, None, supervised=True)
        return await asyncio.shield(self._tasks.spawn(self._start(container)))

    async def update(self, container_id: str, change: ResourceUpdate) -> None:
        container = await self._known.settled(container_id)
        async with container.lock:
            await self._change(container, container.stored.spec.updated(change))
        if change.shares_milli is not None:
            async with container.pod:
                await self._ends.weigh(container)

    async def apply(self, container_id: str, change: ResourceUpdate) -> None:
        await self.update(container_id, change)

    async def signal(self, container_id: str, number: int) -> None:
        container = await self._known.settled(container_id)
        try:
            self._ends.send(container, number)
        except OSError as error:
            raise RuntimeFailure("KillContainerError", f"signal {number}: {error.strerror}") from error

    async def stop(self, container_id: str, grace_seconds: float) -> None:
        container = await self._known.settled(container_id)
        if grace_seconds > 0:
            with suppress(PermissionError):
                self._ends.send(container, signal.SIGTERM)
            await within(grace_seconds, container.ended)
        await self._ends.kill(container)
        await released(container)

    async def remove(self, container_id: str) -> None:
        container = self._known.get(container_id)
        if container is None:
            return
        if not container.ended.is_set():
            raise RuntimeFailure(
                "RemoveContainerError", f"container {container_id} still runs; stop it first"
            )
        await released(container)
        await self._ends.discard(container)

    async def remove_pod(self, pod_uid: str) -> None:
        for container in self._known.of_pod(pod_uid):
            await self.remove(container.stored.id)
        for directory in await asyncio.to_thread(self._state.pod_logs, pod_uid):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def sweep(self, pods: Collection[str]) -> None:
        uids = {container.stored.spec.pod_uid for container in self._known.all()}
        directories = await asyncio.to_thread(self._state.logs_but, uids.union(pods))
        for directory in directories:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def others(self) -> tuple[OtherContainer, ...]:
        """Return the running containers of other instances on this machine."""
        records = [one.stored for one in self._known.all()]
        ids, groups = {one.id for one in records}, {one.group for one in records}
        return await asyncio.to_thread(self._others.find, ids, groups)

    def recorded(self) -> list[tuple[ContainerSpec, bool]]:
        """Return what was ordered for every container that has a record, and whether a process may run."""
        return [(container.stored.spec, not container.ended.is_set()) for container in self._known.all()]

    async def containers(self) -> list[RuntimeStatus]:
        return [container.status for container in self._known.all()]

    def wait_events(self) -> AsyncIterator[RuntimeStatus]:
        return self._known.events.listen()

    async def observe(self, container_id: str) -> ObservedResources | None:
        """As `Runtime.observe`. Raises CgroupError."""
        container = await self._known.settled(container_id)
        if container.outcome is None:
            return None
        return await asyncio.to_thread(
            self._enforcements.of(container.stored).observe, container.stored, container.outcome
        )

    async def observe_all(self, container_ids: Iterable[str]) -> dict[str, Observation]:
        return await registry.observe_all(self._known, self._enforcements, container_ids)

    async def allowed(self, container_id: str, *, most: int | None = None) -> list[TaskAffinity]:
        container = await self._known.settled(container_id)
        return await asyncio.to_thread(lambda: proc.tasks_allowed(self._ends.processes(container), most=most))

    def logs(
        self, container_id: str, choice: LogSelection = WHOLE_LOG, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        container = self._known.find(container_id)
        ended = container.ended.is_set if follow else lambda: True
        return logs.stream(container.stored.log, ended, choice)

    async def stop_all(self, grace_seconds: float) -> None:
        """Stop every container at once. Raises an ExceptionGroup of RuntimeFailures."""
        ids = [container.stored.id for container in self._known.all()]
        stops = (self.stop(container_id, grace_seconds) for container_id in ids)
        results = await asyncio.gather(*stops, return_exceptions=True)
        if failures := [error for error in results if isinstance(error, RuntimeFailure)]:
            raise ExceptionGroup("some containers could not be ended", failures)

    async def destroy(self, grace_seconds: float) -> None:
        """Stop all and leave nothing: no process, no cgroup, no file. Closes the runtime, if it is open."""
        if self._closed:
            return
        await self.stop_all(grace_seconds)
        await self.close()
        await asyncio.to_thread(self._enforcements.default.destroy)
        await asyncio.to_thread(shutil.rmtree, self._state.root, ignore_errors=True)

    async def close(self) -> None:
        """Let go of everything, and of the cgroups too once nothing runs in them."""
        self._closed = True
        self._sweeper.cancel()
        await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._tasks.finish()
        try:
            await asyncio.to_thread(self._enforcements.default.leave)
        except OSError as error:
            _log.warning("cgroups are left: %s", error)
        self._known.close()
        self._state.close()

    # Starting.

    async def _start(self, container: LocalContainer) -> RuntimeStatus:
        try:
            async with container.pod:
                self._check_online(container.stored.spec)
                started = await asyncio.to_thread(self._launch, container)
                await self._ends.weigh(container)
            if started.state == "failed":
                raise outcomes.failure(container.stored, started)
        except RuntimeFailure as failure:
            await self._ends.discard(container)
            if failure.reason == "RunContainerError":
                self._check_online(container.stored.spec)
            raise
        except REFUSED as error:
            await self._ends.discard(container)
            self._check_online(container.stored.spec)
            raise RuntimeFailure("RunContainerError", str(error), 128) from error
        finally:
            container.started.set()
        self._known.refresh(container)
        return container.status

    def _check_online(self, spec: ContainerSpec) -> None:
        """Raise RuntimeFailure for off-line CPUs: the kernel would refuse them, or take others instead."""
        online = self.sys.read("devices/system/cpu/online")
        missing = spec.cpus - CPUSet.parse(online.strip()) if online else None
        if missing:
            text = f"{named(missing.mask)} went off-line; it starts on other CPUs, or when they are back"
            raise RuntimeFailure(CPUS_OFFLINE, text)

    def _launch(self, container: LocalContainer) -> ShimOutcome:
        """The part of a start that blocks; recorded first, so that nothing is started unknown."""
        group, directories = self._enforcements.default.place(container.stored.spec)
        self._state.make_directory(container.stored.id)
        self._known.keep(container, replace(container.stored, group=group, directories=directories))
        self._enforcements.default.prepare(container.stored)
        return launch(self._state, container.stored, self.log_bytes, self.log_files)

    # Changing.

    async def _change(self, container: LocalContainer, spec: ContainerSpec) -> None:
        if container.ended.is_set():
            return
        try:
            await asyncio.to_thread(self._apply, container, spec)
        except REFUSED as error:
            self._known.refresh(container)
            if container.final is None and not container.ended.is_set():
                raise RuntimeFailure("UpdateContainerError", str(error)) from error

    def _apply(self, container: LocalContainer, spec: ContainerSpec) -> None:
        """Recorded first: after a crash half-way, the next owner finds both the old and the new CPUs."""
        assert container.outcome is not None
        old = container.stored
        new = replace(old, spec=spec, previous=old.spec.cpus)
        self._known.keep(container, new)
        try:
            self._enforcements.of(container.stored).apply(old, new, container.outcome)
        except REFUSED:
            self._known.keep(container, old)
            raise
        self._known.keep(container, replace(new, previous=None))

    # Adopting and sweeping.

    async def _adopt(self) -> None:
        """Adopt all before anything is done about one: they share pods, and names with former runs."""
        for container_id in await asyncio.to_thread(self._state.ids):
            stored = self._state.load(container_id)
            supervised = self._state.is_supervised(container_id)
            outcome = self._state.outcome(container_id)
            if stored is None or (outcome is None and not supervised):  # cut short before anything ran
                shutil.rmtree(self._state.directory(container_id), ignore_errors=True)
            else:
                self._known.add(stored, outcome, supervised=supervised)
        adopted = self._known.all()
        for container in adopted:
            self._known.refresh(container)
        await asyncio.gather(*map(self._finish, adopted))
        groups = {container.stored.group for container in self._known.all()}
        try:
            await asyncio.to_thread(self._enforcements.default.tidy, groups)
        except CgroupError as error:
            _log.warning("a cgroup without a record is left: %s", error)

    async def _finish(self, container: LocalContainer) -> None:
        """See to the end what a crash came between: a start, or a change."""
        try:
            await self._known.settle(container)
            if container.outcome is None:
                await self._ends.discard(container)  # its shim never got its instructions
            elif container.stored.previous:
                await self._change(container, container.stored.spec)
            await released(container)
        except RuntimeFailure as error:
            _log.warning("container %s: %s", container.stored.id, error)

    async def _sweep(self, seconds: float) -> None:
        """Look after all containers in turn; at tasks' affinities of a few at a time, as that takes long.

        At whole multiples of `seconds`, so that other periodic work of the process shares the wake-up.
        """
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(seconds - now() % seconds)
            everyone = self._known.all()
            self._deleted.look(everyone)
            due = {id(one) for one in self._due_for_repair(everyone)}
            for container in [one for one in everyone if one.watch is None or id(one) in due]:
                try:
                    await self._look_after(container, repair=id(container) in due)
                except REFUSED as error:
                    _log.warning("container %s: %s", container.stored.id, error)

    def _due_for_repair(self, everyone: Sequence[LocalContainer]) -> Iterator[LocalContainer]:
        """Yield the next containers of which tasks may have left their CPUs, `_REPAIRS` at most, in turn."""
        for _ in range(min(_REPAIRS, len(everyone))):
            self._repaired += 1
            yield everyone[self._repaired % len(everyone)]

    async def _look_after(self, container: LocalContainer, *, repair: bool) -> None:
        if not container.started.is_set() or not (repair or container.watch is None):
            return
        async with container.lock:
            if container.watch is None:
                self._known.refresh(container)
            stored, outcome = container.stored, container.outcome
            if repair and outcome and not container.ended.is_set():
                done = await asyncio.to_thread(self._enforcements.of(stored).repair, stored, outcome)
                if done.changed:
                    what = (
                        f"CPUs {stored.spec.cpus}" if stored.group is None else f"its cgroup {stored.group}"
                    )
                    _log.warning("container %s: %d tasks had left %s", stored.id, done.changed, what)
