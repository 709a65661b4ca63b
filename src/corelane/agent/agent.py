"""The node agent: the thin shell that feeds the core with what happens, and carries out what it orders.

One task takes events from a queue; instructions for the runtime run as tasks of their own, once the ledger
that they rest on is on disk. Everything else here listens: to the API server, the runtime, the clock, /proc.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corelane.agent import checkpoint, environment, intake, messages, registration
from corelane.agent.admission import Capacity
from corelane.agent.core import Core
from corelane.agent.environment import Host
from corelane.agent.heartbeat import Heartbeat
from corelane.agent.journal import Journal
from corelane.agent.manifest import RunPod
from corelane.agent.messages import Event, Instruction, Run
from corelane.agent.pods import NO_CPUS
from corelane.agent.publishing import Publisher
from corelane.agent.reporter import Reporter
from corelane.agent.runs import LOST, LOST_CODE
from corelane.agent.status import Place
from corelane.cpuset import CPUSet
from corelane.kube.client import APIError, Client
from corelane.kube.decode import Malformed
from corelane.kube.informer import Change, Informer
from corelane.kube.informer import Reporter as InformerReporter
from corelane.kube.objects import ConfigMap, Object
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState
from corelane.runtime.base import ContainerSpec, ContainerStatus, Runtime, RuntimeFailure, UnknownContainer

SIMULATED: Final = "simulated"
_BATCH: Final = 50
_STARTS_AT_ONCE: Final = 8
_TICK: Final = 1.0
_FAREWELL: Final = 2.0
_RETRY_CHECKPOINT: Final = 2.0
_ENDED: Final = "exited"


class NoLogs(LookupError):  # noqa: N818 - says what is the case
    """There is no such log; the text says why, in the kubelet's words."""


class _Listening(InformerReporter):
    """What the informer of pods has to say, to the agent's reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def malformed(self, bad: Malformed) -> None:
        self._reporter.malformed(str(bad))

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._reporter.api_failed(f"watching {kind.api.plural}", error)


class Agent:
    """One node's agent. `run` it until cancelled; `shutdown` ends it in good order.

    `runtime` is closed by `shutdown`. State is kept in `state_dir`. Times are Unix seconds by `clock`.
    """

    def __init__(
        self,
        client: Client,
        *,
        node_name: str,
        machine: Machine,
        runtime: Runtime,
        config: NodeConfig | None = None,
        state_dir: Path,
        labels: Mapping[str, str] | None = None,
        addresses: tuple[str, ...] | None = None,
        reporter: Reporter | None = None,
        reconcile_seconds: float = 5.0,
        validate: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the ledger. Raises OSError, NodeConfigError."""
        self.node_name = node_name
        self.reporter = reporter or Journal(node_name)
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._reconcile_seconds = reconcile_seconds
        self._path = state_dir / checkpoint.FILE_NAME
        self._loaded = checkpoint.load(self._path, machine, config or NodeConfig())
        simulated = runtime.enforcement == SIMULATED
        local = () if simulated else registration.own_addresses()
        self._identity = registration.Identity(
            node_name,
            simulated,
            runtime.name,
            runtime.enforcement,
            runtime.notice,
            ips=local if addresses is None else addresses,
            labels=labels or {},
        )
        self._core = Core(
            self._loaded.ledger,
            place=Place(self._identity.ips, runtime.name, confirms=not simulated),
            capacity=Capacity(self._identity.pods, registration.memory_of(machine)),
            reporter=self.reporter,
            validate=validate,
        )
        self._pods: dict[str, RunPod] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)
        self._runner: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._publisher = Publisher(client, node_name, self.reporter, clock)
        self._heartbeat = Heartbeat(
            client,
            self._identity,
            self.reporter,
            clock,
            lambda: self.ledger,
            registered=self._publish_topology,
        )
        self._informer = Informer(
            client,
            RunPod,
            field_selector=f"spec.nodeName={node_name}",
            handler=self._pod_changed,
            reporter=_Listening(self.reporter),
        )

    @property
    def ledger(self) -> NodeState:
        """Who has which CPUs now, and how far the kernel has confirmed it."""
        return self._core.ledger

    async def ready(self) -> None:
        """Wait until the node is registered and every pod of it is known."""
        await self._ready.wait()

    async def run(self) -> None:
        """Work until cancelled, or until `shutdown`. The pods' processes go on running after either."""
        self._runner = asyncio.current_task()
        changes = self._runtime.wait_events()
        self._put(messages.Found(runs=await self._inventory(), at=self._clock()))
        try:
            async with asyncio.TaskGroup() as group:
                for part in (
                    self._work(),
                    self._listen(changes),
                    self._tick(),
                    self._reconcile(),
                    self._come_up(),
                    *(lane.run() for lane in self._publisher.lanes),
                ):
                    group.create_task(part)
        finally:
            for task in self._tasks:
                task.cancel()
            self._runner = None

    async def shutdown(self, *, stop_pods: bool = False) -> None:
        """End `run`, and close the runtime; with `stop_pods` end the pods' processes first, with their grace.

        The pods stay bound to the node: the next start takes them over, or starts them again.
        """
        runner = self._runner
        if runner is not None:
            if stop_pods:
                await self._drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._publisher.idle(), _FAREWELL)
            runner.cancel()
            await asyncio.wait([runner])
        await self._runtime.close()

    async def _drain(self) -> None:
        self._put(messages.Drain(at=self._clock()))
        await self._drained.wait()

    # -- what happens

    def _put(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def _come_up(self) -> None:
        """Register the node, then learn of its pods; from then on the core acts."""
        await self._heartbeat.register()
        self._say_what_was_loaded()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat.run())
            group.create_task(self._informer.run())
            await self._informer.synced()
            self._put(messages.Synced(at=self._clock()))
            self._ready.set()

    def _say_what_was_loaded(self) -> None:
        damaged = self._loaded.damaged
        if damaged:
            self.reporter.ledger_lost(str(self._path), str(damaged.backup), damaged.why)
            text = f"{damaged.why}. It is kept as {damaged.backup}; the ledger was made anew from what runs"
            self._publisher.node_event("LedgerDamaged", text, warning=True)
        for problem in self._loaded.problems:
            self.reporter.ledger_changed(problem)
            self._publisher.node_event("LedgerChanged", problem, warning=True)

    def _pod_changed(self, change: Change[RunPod]) -> None:
        pod = change.new
        if pod is None:
            if change.old:
                self._pods.pop(change.old.metadata.uid, None)
                self._put(messages.PodGone(uid=change.old.metadata.uid, at=self._clock()))
            return
        self._pods[pod.metadata.uid] = pod
        plan = intake.plan(pod, processes=not self._identity.simulated)
        self._put(messages.PodSeen(plan=plan, at=self._clock()))

    async def _listen(self, changes: AsyncIterator[ContainerStatus]) -> None:
        async for status in changes:
            if status.state == _ENDED:
                self._put(messages.Exited(run=_run(status), at=self._clock()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._put(messages.Tick(at=self._clock()))

    async def _reconcile(self) -> None:
        """Now and then look at everything: what ended unnoticed, and what the kernel allows the others."""
        while True:
            await asyncio.sleep(self._reconcile_seconds)
            try:
                await self._look_around()
            except (RuntimeFailure, OSError) as error:
                self.reporter.malfunction("reconcile", error)

    async def _look_around(self) -> None:
        believed = self._core.live()
        known = {status.id: status for status in await self._runtime.containers()}
        for container, uid in believed:
            status = known.get(container.id)
            if status is None:
                lost = Run(
                    id=container.id,
                    uid=uid,
                    container=container.name,
                    attempt=container.attempt,
                    live=False,
                    exit_code=LOST_CODE,
                    reason=LOST.reason,
                    message=LOST.message,
                )
                self._put(messages.Exited(run=lost, at=self._clock()))
            elif status.state == _ENDED:
                self._put(messages.Exited(run=_run(status), at=self._clock()))
            else:
                await self._read(messages.Read(container.id))

    async def _inventory(self) -> tuple[Run, ...]:
        return tuple([await self._found(status) for status in await self._runtime.containers()])

    async def _found(self, status: ContainerStatus) -> Run:
        return _run(status, await self._allowed(status.id) if status.state != _ENDED else NO_CPUS)

    async def _allowed(self, container_id: str) -> CPUSet:
        """What the kernel allows all tasks of a container together; nothing of one that is gone."""
        found = NO_CPUS
        with suppress(UnknownContainer):
            for task in await self._runtime.allowed(container_id):
                found |= task.cpus
        return found

    # -- what is ordered

    async def _work(self) -> None:
        """Events to the core, its instructions to whom they concern; a burst of events is one batch."""
        while True:
            batch = self._core.handle(await self._events.get())
            for _ in range(min(self._events.qsize(), _BATCH)):
                batch += self._core.handle(self._events.get_nowait())
            await self._checkpoint(batch)
            for instruction in batch:
                self._carry_out(instruction)
            if self._core.drained:
                self._drained.set()

    async def _checkpoint(self, batch: list[Instruction]) -> None:
        """Write the last ledger of a batch; until that is done, nothing else is."""
        ledgers = [one.ledger for one in batch if isinstance(one, messages.Checkpoint)]
        while ledgers:
            begun = time.monotonic()
            try:
                await _to_the_end(checkpoint.save, self._path, ledgers[-1])
            except OSError as error:
                self.reporter.checkpoint_failed(str(self._path), str(error))
                await asyncio.sleep(_RETRY_CHECKPOINT)
            else:
                self.reporter.checkpointed(ledgers[-1].generation, time.monotonic() - begun)
                return

    def _carry_out(self, order: Instruction) -> None:
        match order:
            case messages.Start():
                self._spawn(self._start(order))
            case messages.Pin():
                self._spawn(self._pin(order))
            case messages.Read():
                self._spawn(self._read(order))
            case messages.Stop():
                self._spawn(self._stop(order))
            case messages.Remove():
                self._spawn(self._runtime.remove(order.id))
            case messages.RemovePod():
                self._spawn(self._runtime.remove_pod(order.uid))
            case messages.PublishTopology():
                self._publish_topology()
            case messages.Checkpoint():
                pass
            case messages.Tell(uid=""):
                self._publisher.node_event(order.reason, order.message, warning=order.warning)
            case _:
                self._publish(order)

    def _publish_topology(self) -> None:
        self._publisher.topology(lambda: self.ledger, lambda: self._heartbeat.uid)

    def _publish(
        self,
        order: messages.PublishStatus | messages.DeletePod | messages.Annotate | messages.Tell,
    ) -> None:
        pod = self._pods.get(order.uid)
        if pod is None:
            return
        match order:
            case messages.PublishStatus():
                self._publisher.status(pod, order.status)
            case messages.DeletePod():
                self._publisher.delete(pod)
            case messages.Annotate():
                self._publisher.annotate(pod, order.cpus, order.reasons)
            case messages.Tell():
                self._publisher.event(pod, order.reason, order.message, warning=order.warning)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """One order that fails in a way nobody foresaw must not end the agent."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - reported; the core asks again where it matters
            self.reporter.malfunction(getattr(work, "__qualname__", "instruction"), error)

    async def _start(self, order: messages.Start) -> None:
        answer: dict[str, Any] = {
            "uid": order.plan.uid,
            "container": order.container,
            "attempt": order.attempt,
        }
        try:
            async with self._starts:
                status = await self._runtime.start(await self._spec(order))
        except RuntimeFailure as failure:
            answer |= {"reason": failure.reason, "message": failure.message, "exit_code": failure.exit_code}
            self._put(messages.StartFailed(at=self._clock(), **answer))
        except Exception as error:
            answer |= {"reason": "CreateContainerError", "message": str(error) or type(error).__name__}
            self._put(messages.StartFailed(at=self._clock(), **answer))
            if not isinstance(error, APIError):
                raise
        else:
            now = self._clock()
            self._put(messages.Started(id=status.id, started_at=status.started_at or now, at=now, **answer))

    async def _spec(self, order: messages.Start) -> ContainerSpec:
        """What to run. Raises RuntimeFailure for what cannot be, APIError if a config map cannot be read."""
        pod = self._pods.get(order.plan.uid)
        if pod is None:
            raise RuntimeFailure("CreateContainerError", "the pod is gone")
        container = pod.container(order.container)
        wanted = next(one for one in order.plan.ask.containers if one.name == order.container)
        env = environment.variables(
            pod, container, self._host(), await self._config_maps(pod, order.container)
        )
        return ContainerSpec(
            pod_uid=order.plan.uid,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            name=order.container,
            command=environment.command_line(container, env),
            env=tuple(env.items()),
            working_dir=container.working_dir,
            cpus=order.cpus,
            mems=order.mems,
            cpu_shares_milli=wanted.cpu_request,
            quota_milli=self._quota(order, wanted.cpu_limit),
            attempt=order.attempt,
        )

    def _quota(self, order: messages.Start, limit: int) -> int | None:
        """No quota on exclusive CPUs: they are the limit (upstream: DisableCPUQuotaWithExclusiveCPUs)."""
        entry = self.ledger.entries.get((order.plan.uid, order.container))
        exclusive = entry is not None and entry.exclusive
        return None if exclusive or not limit else limit

    def _host(self) -> Host:
        machine = self.ledger.machine
        return Host(
            self.node_name, self._identity.ips, self.ledger.allocatable, registration.memory_of(machine)
        )

    async def _config_maps(self, pod: RunPod, container: str) -> environment.ConfigMaps:
        names = environment.config_maps(pod.container(container))
        return {name: await self._config_map(pod.metadata.namespace, name) for name in names}

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(ConfigMap, name, namespace)).data
        except APIError as error:
            if error.code == 404:
                return None
            raise

    async def _pin(self, order: messages.Pin) -> None:
        try:
            await self._runtime.update(order.id, cpus=order.cpus, mems=order.mems)
            allowed = await self._allowed(order.id)
        except Exception as error:
            self._put(messages.PinFailed(id=order.id, message=str(error), at=self._clock()))
            if not isinstance(error, RuntimeFailure | UnknownContainer):
                raise
        else:
            self._put(messages.Pinned(id=order.id, cpus=order.cpus, allowed=allowed, at=self._clock()))

    async def _read(self, order: messages.Read) -> None:
        allowed = await self._allowed(order.id)
        self._put(messages.Observed(id=order.id, allowed=allowed, at=self._clock()))

    async def _stop(self, order: messages.Stop) -> None:
        try:
            await self._runtime.stop(order.id, order.grace)
        except UnknownContainer:
            pass  # the next look around finds it lost
        except Exception as error:
            self._put(messages.StopFailed(id=order.id, message=str(error), at=self._clock()))
            if not isinstance(error, RuntimeFailure):
                raise
        for status in await self._runtime.containers():
            if status.id == order.id and status.state == _ENDED:
                self._put(messages.Exited(run=_run(status), at=self._clock()))

    # -- what others ask

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail_lines: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Open the log of a container's current or `previous` run; `since` in Unix seconds. Raises NoLogs."""
        run = self._core.run_of(namespace, pod, container, previous=previous)
        if not run:
            missing = f'previous terminated container "{container}" in pod "{pod}" not found'
            waiting = f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            raise NoLogs(missing if previous else waiting)
        try:
            return self._runtime.logs(
                run,
                follow=follow,
                tail_lines=tail_lines,
                since=since,
                timestamps=timestamps,
                limit_bytes=limit_bytes,
            )
        except UnknownContainer as error:
            raise NoLogs(f'the log of container "{container}" in pod "{pod}" is gone') from error


async def _to_the_end(work: Callable[..., None], *args: Any) -> None:
    """Run in a thread; a cancellation waits for its end, so that nothing is written after we are gone."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _run(status: ContainerStatus, allowed: CPUSet = NO_CPUS) -> Run:
    return Run(
        id=status.id,
        uid=status.pod_uid,
        container=status.name,
        attempt=status.attempt,
        live=status.state != _ENDED,
        allowed=allowed,
        started_at=status.started_at or 0.0,
        finished_at=status.finished_at or 0.0,
        exit_code=status.exit_code or 0,
        signal=status.signal or 0,
        message=status.message,
    )
