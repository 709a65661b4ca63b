"""Carries out the state machine's instructions with the runtime, and lists what the runtime holds.

Each instruction is a task of its own and answers with an event. An unexpected error is reported and answered
as a failure; it never ends the agent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from corelane.agent import container_env, instructions
from corelane.agent.container_env import NodeFields
from corelane.agent.container_lifecycle import LOST, LOST_CODE
from corelane.agent.instructions import AgentEvent, ContainerRun, Instruction
from corelane.agent.pod_manifest import RunPod
from corelane.agent.pod_records import NO_CPUS, ContainerProgress
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import ConfigMap
from corelane.node import NodeState
from corelane.runtime.base import ContainerSpec, Runtime, RuntimeFailure, RuntimeStatus, UnknownContainer

ENDED: Final = "exited"
_STARTS_AT_ONCE: Final = 8


class Execution:
    """Runtime side of the agent: `pods` are manifests by UID, `put` takes the answering events."""

    def __init__(
        self,
        client: KubeClient,
        runtime: Runtime,
        *,
        pods: Mapping[str, RunPod],
        ledger: Callable[[], NodeState],
        node_fields: Callable[[], NodeFields],
        put: Callable[[AgentEvent], None],
        reporter: AgentReporter,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._pods = pods
        self._ledger = ledger
        self._node_fields = node_fields
        self._put = put
        self._reporter = reporter
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)

    def carry_out(self, order: Instruction) -> bool:
        """Begin to carry out an instruction; return whether it is one for the runtime."""
        match order:
            case instructions.Start():
                self._spawn(self._start(order))
            case instructions.Pin():
                self._spawn(self._pin(order))
            case instructions.ReadAllowedCPUs():
                self._spawn(self.read(order.id))
            case instructions.Stop():
                self._spawn(self._stop(order))
            case instructions.Remove():
                self._spawn(self._runtime.remove(order.id))
            case instructions.RemovePod():
                self._spawn(self._runtime.remove_pod(order.uid))
            case _:
                return False
        return True

    def cancel(self) -> None:
        """Cancel outstanding tasks; the runtime may still complete what was begun."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - reported; the state machine retries where it matters
            self._reporter.malfunction(getattr(work, "__qualname__", "an instruction"), error)

    # -- starting

    async def _start(self, order: instructions.Start) -> None:
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
            self._put(instructions.StartFailed(at=self._clock(), **answer))
        except Exception as error:
            answer |= {"reason": "CreateContainerError", "message": str(error) or type(error).__name__}
            self._put(instructions.StartFailed(at=self._clock(), **answer))
            if not isinstance(error, APIError):
                raise
        else:
            now = self._clock()
            self._put(
                instructions.Started(id=status.id, started_at=status.started_at or now, at=now, **answer)
            )

    async def _spec(self, order: instructions.Start) -> ContainerSpec:
        """Return what to start. Raises RuntimeFailure for a pod that must not start, APIError."""
        pod = self._pods.get(order.plan.uid)
        if pod is None:
            raise RuntimeFailure("CreateContainerError", "the pod is gone")
        if pod.metadata.deletion_timestamp:  # since the instruction, which may have waited for its turn
            raise RuntimeFailure("CreateContainerError", "the pod is being deleted")
        container = pod.container(order.container)
        request = next((r for r in order.plan.request.containers if r.name == order.container), None)
        if request is None:
            refusal = order.plan.refusal
            text = refusal.message if refusal else "the pod's request lacks this container"
            raise RuntimeFailure("CreateContainerConfigError", text)
        maps = await self._config_maps(pod.metadata.namespace, container_env.config_maps(container))
        env = container_env.variables(pod, container, self._node_fields(), maps)
        return ContainerSpec(
            pod_uid=order.plan.uid,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            name=order.container,
            command=container_env.command_line(container, env),
            env=tuple(env.items()),
            working_dir=container.working_dir,
            cpus=order.cpus,
            mems=order.mems,
            cpu_shares_milli=request.cpu_request,
            quota_milli=self._quota(order, request.cpu_limit),
            attempt=order.attempt,
        )

    def _quota(self, order: instructions.Start, limit: int) -> int | None:
        """Return the quota in milliCPU; None on exclusive CPUs (DisableCPUQuotaWithExclusiveCPUs)."""
        entry = self._ledger().entries.get((order.plan.uid, order.container))
        exclusive = entry is not None and entry.exclusive
        return None if exclusive or not limit else limit

    async def _config_maps(self, namespace: str, names: Iterable[str]) -> container_env.ConfigMaps:
        return {name: await self._config_map(namespace, name) for name in names}

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(ConfigMap, name, namespace)).data
        except APIError as error:
            if error.code == 404:
                return None
            raise

    # -- changing and ending

    async def _pin(self, order: instructions.Pin) -> None:
        try:
            await self._runtime.update(order.id, cpus=order.cpus, mems=order.mems)
            allowed = await self._allowed(order.id)
        except Exception as error:
            self._put(instructions.PinFailed(id=order.id, message=str(error), at=self._clock()))
            if not isinstance(error, RuntimeFailure | UnknownContainer):
                raise
        else:
            self._put(instructions.Pinned(id=order.id, cpus=order.cpus, allowed=allowed, at=self._clock()))

    async def _stop(self, order: instructions.Stop) -> None:
        try:
            await self._runtime.stop(order.id, order.grace)
        except UnknownContainer:
            pass  # the next `compare` reports it as lost
        except Exception as error:
            self._put(instructions.StopFailed(id=order.id, message=str(error), at=self._clock()))
            if not isinstance(error, RuntimeFailure):
                raise
        for status in await self._runtime.containers():
            if status.id == order.id and status.state == ENDED:
                self.ended(status)

    async def stop_all(self, grace: float) -> None:
        """Stop every process without the state machine, after it ended or before it began."""
        statuses = await self._runtime.containers()
        stops = (self._runtime.stop(status.id, grace) for status in statuses if status.state != ENDED)
        for failed in await asyncio.gather(*stops, return_exceptions=True):
            if failed:
                self._reporter.malfunction("stopping a container", failed)

    # -- observing

    def ended(self, status: RuntimeStatus) -> None:
        """Report that a run ended."""
        self._put(instructions.Exited(run=run(status), at=self._clock()))

    async def read(self, container_id: str) -> None:
        """Report the CPUs that the kernel allows a container."""
        allowed = await self._allowed(container_id)
        self._put(instructions.AllowedCPUsRead(id=container_id, allowed=allowed, at=self._clock()))

    async def inventory(self) -> tuple[ContainerRun, ...]:
        """Return every run that the runtime knows, live or ended."""
        statuses = await self._runtime.containers()
        return tuple([run(status, await self._allowed(status.id)) for status in statuses])

    async def compare(self, recorded: Iterable[tuple[ContainerProgress, str]]) -> None:
        """Compare the containers that are recorded as live with the runtime and the kernel."""
        recorded = tuple(recorded)  # before listing: a container that is started meanwhile is not lost
        statuses = {status.id: status for status in await self._runtime.containers()}
        for container, uid in recorded:
            status = statuses.get(container.id)
            if status is None:
                self._put(instructions.Exited(run=_lost(container, uid), at=self._clock()))
            elif status.state == ENDED:
                self.ended(status)
            else:
                await self.read(container.id)

    async def _allowed(self, container_id: str) -> CPUSet:
        """Return the CPUs that the kernel allows all tasks of a container; none if it is gone."""
        cpus = NO_CPUS
        with suppress(UnknownContainer):
            for task in await self._runtime.allowed(container_id):
                cpus |= task.cpus
        return cpus


def run(status: RuntimeStatus, allowed: CPUSet = NO_CPUS) -> ContainerRun:
    """Convert the runtime's status."""
    return ContainerRun(
        id=status.id,
        uid=status.pod_uid,
        container=status.name,
        attempt=status.attempt,
        live=status.state != ENDED,
        allowed=allowed,
        started_at=status.started_at or 0.0,
        finished_at=status.finished_at or 0.0,
        exit_code=status.exit_code or 0,
        signal=status.signal or 0,
        message=status.message,
    )


def _lost(container: ContainerProgress, uid: str) -> ContainerRun:
    return ContainerRun(
        id=container.id,
        uid=uid,
        container=container.name,
        attempt=container.attempt,
        live=False,
        started_at=container.started_at,
        exit_code=LOST_CODE,
        reason=LOST.reason,
        message=LOST.message,
    )
