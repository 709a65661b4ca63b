"""The agent's hands: carries out the core's orders with the runtime, and looks at what the runtime holds.

Every order is a task of its own and answers with an event. An order that fails in a way nobody foresaw is
reported and answered as a failure; it never ends the agent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from corelane.agent import environment, messages
from corelane.agent.environment import Host
from corelane.agent.manifest import RunPod
from corelane.agent.messages import Event, Instruction, Run
from corelane.agent.pods import NO_CPUS, Container
from corelane.agent.reporter import Reporter
from corelane.agent.runs import LOST, LOST_CODE
from corelane.cpuset import CPUSet
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import ConfigMap
from corelane.node import NodeState
from corelane.runtime.base import ContainerSpec, ContainerStatus, Runtime, RuntimeFailure, UnknownContainer

ENDED: Final = "exited"
_STARTS_AT_ONCE: Final = 8


class Execution:
    """`pods` are the manifests by UID, `put` takes the answers, `host` is what environments may tell of."""

    def __init__(
        self,
        client: KubeClient,
        runtime: Runtime,
        *,
        pods: Mapping[str, RunPod],
        ledger: Callable[[], NodeState],
        host: Callable[[], Host],
        put: Callable[[Event], None],
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._pods = pods
        self._ledger = ledger
        self._host = host
        self._put = put
        self._reporter = reporter
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)

    def carry_out(self, order: Instruction) -> bool:
        """Begin to carry out an order, if it is one for the runtime."""
        match order:
            case messages.Start():
                self._spawn(self._start(order))
            case messages.Pin():
                self._spawn(self._pin(order))
            case messages.Read():
                self._spawn(self.read(order.id))
            case messages.Stop():
                self._spawn(self._stop(order))
            case messages.Remove():
                self._spawn(self._runtime.remove(order.id))
            case messages.RemovePod():
                self._spawn(self._runtime.remove_pod(order.uid))
            case _:
                return False
        return True

    def cancel(self) -> None:
        """Wait for no answer any more; what was begun may still happen."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - reported; the core asks again where it matters
            self._reporter.malfunction(getattr(work, "__qualname__", "an order"), error)

    # -- starting

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
        """What to run. Raises RuntimeFailure for what is not to be, APIError where a config map fails."""
        pod = self._pods.get(order.plan.uid)
        if pod is None:
            raise RuntimeFailure("CreateContainerError", "the pod is gone")
        if pod.metadata.deletion_timestamp:  # since the order, which may have waited for its turn
            raise RuntimeFailure("CreateContainerError", "the pod is being deleted")
        container = pod.container(order.container)
        wanted = next((one for one in order.plan.request.containers if one.name == order.container), None)
        if wanted is None:
            why = order.plan.refusal
            raise RuntimeFailure(
                "CreateContainerConfigError", why.message if why else "the pod does not ask for it"
            )
        known = await self._config_maps(pod.metadata.namespace, environment.config_maps(container))
        env = environment.variables(pod, container, self._host(), known)
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
        entry = self._ledger().entries.get((order.plan.uid, order.container))
        exclusive = entry is not None and entry.exclusive
        return None if exclusive or not limit else limit

    async def _config_maps(self, namespace: str, names: Iterable[str]) -> environment.ConfigMaps:
        return {name: await self._config_map(namespace, name) for name in names}

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(ConfigMap, name, namespace)).data
        except APIError as error:
            if error.code == 404:
                return None
            raise

    # -- changing and ending

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
            if status.id == order.id and status.state == ENDED:
                self.ended(status)

    async def stop_all(self, grace: float) -> None:
        """Stop every process without the core, where that has ended or never begun."""
        found = await self._runtime.containers()
        stops = (self._runtime.stop(one.id, grace) for one in found if one.state != ENDED)
        for failed in await asyncio.gather(*stops, return_exceptions=True):
            if failed:
                self._reporter.malfunction("stopping a container", failed)

    # -- looking

    def ended(self, status: ContainerStatus) -> None:
        """Tell that a run is over."""
        self._put(messages.Exited(run=run(status), at=self._clock()))

    async def read(self, container_id: str) -> None:
        """Look what the kernel allows a container."""
        allowed = await self._allowed(container_id)
        self._put(messages.Observed(id=container_id, allowed=allowed, at=self._clock()))

    async def inventory(self) -> tuple[Run, ...]:
        """Everything that the runtime holds, live or ended."""
        return tuple([await self._found(status) for status in await self._runtime.containers()])

    async def _found(self, status: ContainerStatus) -> Run:
        return run(status, await self._allowed(status.id) if status.state != ENDED else NO_CPUS)

    async def look_around(self, believed: Iterable[tuple[Container, str]]) -> None:
        """Hold what the core believes to be live against the runtime and the kernel."""
        believed = tuple(believed)  # before the question: what is begun meanwhile is not lost
        known = {status.id: status for status in await self._runtime.containers()}
        for container, uid in believed:
            status = known.get(container.id)
            if status is None:
                self._put(messages.Exited(run=_lost(container, uid), at=self._clock()))
            elif status.state == ENDED:
                self.ended(status)
            else:
                await self.read(container.id)

    async def _allowed(self, container_id: str) -> CPUSet:
        """What the kernel allows all tasks of a container together; nothing of one that is gone."""
        found = NO_CPUS
        with suppress(UnknownContainer):
            for task in await self._runtime.allowed(container_id):
                found |= task.cpus
        return found


def run(status: ContainerStatus, allowed: CPUSet = NO_CPUS) -> Run:
    """A run in the core's words."""
    return Run(
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


def _lost(container: Container, uid: str) -> Run:
    return Run(
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
