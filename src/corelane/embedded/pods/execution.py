"""Carries out the instructions that start and end containers, with a runtime that the agent alone uses.

Not used beside a kubelet, which starts and ends the containers itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from corelane.agent.allocation.events import AgentEvent, ContainerRun, Exited
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.event_loop import Clocks
from corelane.agent.execution import ENDED, InstructionTasks, container_run
from corelane.agent.reporting import AgentReporter
from corelane.embedded.pods import container_env, instructions, recorded_manifest
from corelane.embedded.pods import events as pod_events
from corelane.embedded.pods.container_env import NodeFields
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.embedded.pods.pod_steps import LOST, LOST_CODE
from corelane.embedded.pods.records import ContainerProgress
from corelane.kernel import cfs
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import ConfigMap
from corelane.node.ledger import NodeState
from corelane.runtime.base import (
    CPUS_OFFLINE,
    ContainerSpec,
    LifecycleRuntime,
    RuntimeFailure,
    UnknownContainer,
)
from corelane.workload.request import ContainerKind

_STARTS_AT_ONCE: Final = 8


class LifecycleExecution:
    """Starts and ends containers: `pods` are manifests by UID, `put` takes the answering events."""

    def __init__(
        self,
        client: KubeClient,
        runtime: LifecycleRuntime,
        *,
        pods: Mapping[str, RunPod],
        ledger: Callable[[], NodeState],
        node_fields: Callable[[], NodeFields],
        put: Callable[[AgentEvent], None],
        cpus_lost: Callable[[], Awaitable[None]],
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        """`cpus_lost` reads the machine, before the answer about a start on CPUs that it lacks."""
        self._client = client
        self._runtime = runtime
        self._records_manifests = runtime.capabilities.plain_processes
        self._pods = pods
        self._ledger = ledger
        self._node_fields = node_fields
        self._put = put
        self._cpus_lost = cpus_lost
        self._reporter = reporter
        self._clocks = clocks
        self._tasks = InstructionTasks(reporter)
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)

    def carry_out(self, order: Instruction) -> bool:
        """Begin to carry out an instruction; return whether it starts or ends containers."""
        match order:
            case instructions.Start():
                self._tasks.spawn(self._start(order))
            case instructions.Stop():
                self._tasks.spawn(self._stop(order))
            case instructions.Remove():
                self._tasks.spawn(self._runtime.remove(order.id))
            case instructions.RemovePod():
                self._tasks.spawn(self._runtime.remove_pod(order.uid))
            case _:
                return False
        return True

    def cancel(self) -> None:
        """Cancel outstanding tasks; the runtime may still complete what was begun."""
        self._tasks.cancel()

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
            if failure.reason == CPUS_OFFLINE:
                await self._read_machine()
            answer |= {"reason": failure.reason, "message": failure.message, "exit_code": failure.exit_code}
            self._put(pod_events.StartFailed(**self._clocks.times(), **answer))
        except Exception as error:
            answer |= {"reason": "CreateContainerError", "message": str(error) or type(error).__name__}
            self._put(pod_events.StartFailed(**self._clocks.times(), **answer))
            if not isinstance(error, APIError):
                raise
        else:
            times = self._clocks.times()
            started_at = status.started_at or times["at"]
            self._put(pod_events.Started(id=status.id, started_at=started_at, **times, **answer))

    async def _read_machine(self) -> None:
        try:
            await self._cpus_lost()
        except Exception as error:  # noqa: BLE001 - reported; the next period reads it again
            self._reporter.malfunction("reading the machine", error)

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
            quota_us=self._quota_us(order, request.cpu_limit),
            memory_limit=order.plan.request.memory_limit_of(request),
            pod_memory_limit=order.plan.request.memory_limit,
            attempt=order.attempt,
            manifest=recorded_manifest.encode(pod) if self._records_manifests else "",
            completes=any(
                one.name == order.container and one.kind is ContainerKind.INIT
                for one in order.plan.containers
            ),
        )

    def _quota_us(self, order: instructions.Start, limit: int) -> int | None:
        """Return the quota for a limit in milliCPU; none on exclusive CPUs.

        As the kubelet's feature DisableCPUQuotaWithExclusiveCPUs.
        """
        entry = self._ledger().entries.get((order.plan.uid, order.container))
        exclusive = entry is not None and entry.exclusive
        return None if exclusive or not limit else cfs.quota_us(limit)

    async def _config_maps(self, namespace: str, names: Iterable[str]) -> container_env.ConfigMaps:
        return {name: await self._config_map(namespace, name) for name in names}

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(ConfigMap, name, namespace)).data
        except APIError as error:
            if error.code == 404:
                return None
            raise

    # -- ending

    async def _stop(self, order: instructions.Stop) -> None:
        try:
            await self._runtime.stop(order.id, order.grace)
        except UnknownContainer:
            pass  # the next `compare` reports it as lost
        except Exception as error:
            self._put(pod_events.StopFailed(id=order.id, message=str(error), **self._clocks.times()))
            if not isinstance(error, RuntimeFailure):
                raise
        for status in await self._runtime.containers():
            if status.id == order.id and status.state == ENDED:
                self._put(Exited(run=container_run(status), **self._clocks.times()))

    async def stop_all(self, grace: float) -> None:
        """Stop every process without the state machine, after it ended or before it began."""
        statuses = await self._runtime.containers()
        stops = (self._runtime.stop(status.id, grace) for status in statuses if status.state != ENDED)
        for failed in await asyncio.gather(*stops, return_exceptions=True):
            if failed:
                self._reporter.malfunction("stopping a container", failed)


def lost_run(container: ContainerProgress, uid: str) -> ContainerRun:
    """Return the end of a container that the runtime does not have any more."""
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
