"""Carries out the instructions that start and end containers, with a runtime that the agent alone uses.

Not used beside a kubelet, which starts and ends the containers itself. A container's environment and command
line are made as the kubelet does: first the sources (`envFrom`), then `env` in order; `$(NAME)` refers to a
variable set before, `$$` is a dollar, and a reference to an unset name stays unchanged (upstream:
`third_party/forked/golang/expansion`).

Statuses are written here, too. A pod that is admitted is Pending for some milliseconds, until its containers
have started: that status waits for the next one, which saves half the writes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from corelane import quantity
from corelane.agent.allocation.events import AgentEvent, ContainerRun, Exited
from corelane.agent.allocation.instructions import Instruction, PodWrite
from corelane.agent.event_loop import Clocks
from corelane.agent.execution import ENDED, InstructionTasks, container_run
from corelane.agent.publication.publisher import Publisher
from corelane.agent.reporting import AgentReporter
from corelane.embedded.pods import pod_manifest, pod_steps, records
from corelane.embedded.pods.pod_manifest import RunContainer, RunPod
from corelane.embedded.pods.pod_steps import LOST, LOST_CODE
from corelane.embedded.pods.records import (
    ContainerProgress,
    DeletePod,
    PublishStatus,
    Started,
    StartFailed,
    StopFailed,
)
from corelane.embedded.pods.registration import HeartbeatObjects
from corelane.kernel import cfs
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import ConfigMap
from corelane.kube.pod import EnvVar, Pod, ResourceFieldSelector
from corelane.node.ledger import NodeState
from corelane.runtime.base import (
    CPUS_OFFLINE,
    ContainerSpec,
    LifecycleRuntime,
    RuntimeFailure,
    UnknownContainer,
)
from corelane.workload.request import ContainerKind

ConfigMaps = Mapping[str, Mapping[str, str] | None]
"""Config map name to its data; None where there is no such config map."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_STARTS_AT_ONCE: Final = 8
_PENDING_SECONDS: Final = 1.0
"""Longest time by which the status of a pending pod is written later."""
Put = Callable[[], None]


@dataclass(frozen=True, slots=True)
class NodeFields:
    """Fields of the node that an environment may reference; allocatable milliCPU and bytes."""

    name: str
    ips: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0


def config_maps(container: RunContainer) -> set[str]:
    """Return the names of the config maps that the environment references."""
    keyed = (var.value_from.config_map_key_ref for var in container.env if var.value_from)
    whole = (source.config_map_ref for source in container.env_from)
    return {ref.name for ref in (*keyed, *whole) if ref is not None}


def command_line(container: RunContainer, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return entry point and arguments, with references expanded."""
    return tuple(expand(part, env) for part in (*container.command, *container.args))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` by the value of that variable."""

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else env.get(name, match.group())

    return _REFERENCE.sub(replaced, text)


def variables(pod: RunPod, container: RunContainer, node: NodeFields, maps: ConfigMaps) -> dict[str, str]:
    """Return all variables of a container. Raises RuntimeFailure for a missing or unsupported source."""
    env = dict(_sourced(container, maps))
    for var in container.env:
        value = _value(pod, container, var, node, maps)
        if value is not None:
            env[var.name] = expand(value, env) if var.value_from is None else value
    return env


def _sourced(container: RunContainer, maps: ConfigMaps) -> Iterator[tuple[str, str]]:
    for source in container.env_from:
        if source.config_map_ref is None:
            continue
        data = maps.get(source.config_map_ref.name)
        if data is None and not source.config_map_ref.optional:
            raise _missing(f'configmap "{source.config_map_ref.name}" not found')
        for key, value in (data or {}).items():
            yield source.prefix + key, value


def _value(
    pod: RunPod, container: RunContainer, var: EnvVar, node: NodeFields, maps: ConfigMaps
) -> str | None:
    source = var.value_from
    if source is None:
        return var.value
    if source.field_ref is not None:
        path = source.field_ref.field_path
        keyed = _KEYED.fullmatch(path)
        if keyed:
            values: dict[str, str] = getattr(pod.metadata, keyed[1])
            return values.get(keyed[2], "")
        reader = _FIELDS.get(path)
        if reader is None:
            raise _missing(f"unsupported fieldPath: {path}")
        return reader(pod, node)
    if source.resource_field_ref is not None:
        return _resource(pod, container, source.resource_field_ref, node)
    if source.config_map_key_ref is not None:
        ref = source.config_map_key_ref
        data = maps.get(ref.name)
        if data is not None and ref.key in data:
            return data[ref.key]
        if ref.optional:
            return None
        if data is None:
            raise _missing(f'configmap "{ref.name}" not found')
        raise _missing(f"couldn't find key {ref.key} in ConfigMap {ref.name}")
    raise _missing(f"env {var.name}: corelane cannot resolve this valueFrom")


_FIELDS: Final[Mapping[str, Callable[[RunPod, NodeFields], str]]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "spec.nodeName": lambda _, node: node.name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name,
    "status.hostIP": lambda _, node: node.ips[0] if node.ips else "",
    "status.hostIPs": lambda _, node: ",".join(node.ips),
    "status.podIP": lambda _, node: node.ips[0] if node.ips else "",
    "status.podIPs": lambda _, node: ",".join(node.ips),
}


def _resource(pod: RunPod, own: RunContainer, ref: ResourceFieldSelector, node: NodeFields) -> str:
    """Return a resource in units of the divisor, rounded up; an unset limit is the node's allocatable."""
    part, _, resource = ref.resource.partition(".")
    if part not in ("requests", "limits") or resource not in ("cpu", "memory"):
        raise _missing(f"unsupported container resource: {ref.resource}")
    try:
        container = pod.container(ref.container_name) if ref.container_name else own
    except KeyError:
        raise _missing(f"resourceFieldRef: the pod has no container {ref.container_name!r}") from None
    amounts = container.resources.limits if part == "limits" else container.resources.requests
    reader = quantity.milli if resource == "cpu" else quantity.value
    default = {"cpu": node.cpu, "memory": node.memory}[resource] if part == "limits" else 0
    amount = reader(str(amounts[resource])) if resource in amounts else default
    divisor = reader(str(ref.divisor or "1")) or reader("1")
    if divisor < 0:
        raise _missing(f"resourceFieldRef: divisor {ref.divisor} is negative")
    return str(-(-amount // divisor))


def _missing(message: str) -> RuntimeFailure:
    return RuntimeFailure("CreateContainerConfigError", message)


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
            case records.Start():
                self._tasks.spawn(self._start(order))
            case records.Stop():
                self._tasks.spawn(self._stop(order))
            case records.Remove():
                self._tasks.spawn(self._runtime.remove(order.id))
            case records.RemovePod():
                self._tasks.spawn(self._runtime.remove_pod(order.uid))
            case _:
                return False
        return True

    def cancel(self) -> None:
        """Cancel outstanding tasks; the runtime may still complete what was begun."""
        self._tasks.cancel()

    # -- starting

    async def _start(self, order: records.Start) -> None:
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
            self._put(StartFailed(**self._clocks.times(), **answer))
        except Exception as error:
            answer |= {"reason": "CreateContainerError", "message": str(error) or type(error).__name__}
            self._put(StartFailed(**self._clocks.times(), **answer))
            if not isinstance(error, APIError):
                raise
        else:
            times = self._clocks.times()
            started_at = status.started_at or times["at"]
            self._put(Started(id=status.id, started_at=started_at, **times, **answer))

    async def _read_machine(self) -> None:
        try:
            await self._cpus_lost()
        except Exception as error:  # noqa: BLE001 - reported; the next period reads it again
            self._reporter.malfunction("reading the machine", error)

    async def _spec(self, order: records.Start) -> ContainerSpec:
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
        maps = await self._config_maps(pod.metadata.namespace, config_maps(container))
        env = variables(pod, container, self._node_fields(), maps)
        return ContainerSpec(
            pod_uid=order.plan.uid,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            name=order.container,
            command=command_line(container, env),
            env=tuple(env.items()),
            working_dir=container.working_dir,
            cpus=order.cpus,
            mems=order.mems,
            cpu_shares_milli=request.cpu_request,
            quota_us=self._quota_us(order, request.cpu_limit),
            memory_limit=order.plan.request.memory_limit_of(request),
            pod_memory_limit=order.plan.request.memory_limit,
            attempt=order.attempt,
            manifest=pod_manifest.encode_manifest(pod) if self._records_manifests else "",
            completes=any(
                other.name == order.container and other.kind is ContainerKind.INIT
                for other in order.plan.containers
            ),
        )

    def _quota_us(self, order: records.Start, limit: int) -> int | None:
        """Return the quota for a limit in milliCPU; none on exclusive CPUs.

        As the kubelet's feature DisableCPUQuotaWithExclusiveCPUs.
        """
        entry = self._ledger().entries.get((order.plan.uid, order.container))
        exclusive = entry is not None and entry.exclusive
        return None if exclusive or not limit else cfs.quota_us(limit)

    async def _config_maps(self, namespace: str, names: Iterable[str]) -> ConfigMaps:
        return {name: await self._config_map(namespace, name) for name in names}

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(ConfigMap, name, namespace)).data
        except APIError as error:
            if error.code == 404:
                return None
            raise

    # -- ending

    async def _stop(self, order: records.Stop) -> None:
        try:
            await self._runtime.stop(order.id, order.grace)
        except UnknownContainer:
            pass  # the next `compare` reports it as lost
        except Exception as error:
            self._put(StopFailed(id=order.id, message=str(error), **self._clocks.times()))
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


@dataclass(frozen=True, slots=True)
class _Held:
    put: Put
    timer: asyncio.TimerHandle


class HeldWrites:
    """Puts what is held `seconds` later, unless it is replaced, released or dropped before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[Hashable, _Held] = {}

    def hold(self, key: Hashable, put: Put) -> None:
        """Hold a write, in place of one that is held under this key; that one's time goes on."""
        held = self._held.get(key)
        loop = asyncio.get_running_loop()
        timer = held.timer if held else loop.call_later(self._seconds, self.release, key)
        self._held[key] = _Held(put, timer)

    def release(self, key: Hashable) -> None:
        """Put what is held under this key now."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()
            held.put()

    def drop(self, key: Hashable) -> None:
        """Forget what is held under this key."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()

    def release_all(self) -> None:
        """Put everything now."""
        for key in list(self._held):
            self.release(key)


class StatusWriter:
    """Puts statuses and deletions into the publisher's queues of pods."""

    def __init__(
        self, client: KubeClient, publisher: Publisher, objects: HeartbeatObjects | None = None
    ) -> None:
        """`objects` writes to a server in this process without HTTP."""
        self._client = client
        self._publisher = publisher
        self._objects = objects
        self._pending = HeldWrites(_PENDING_SECONDS)

    def carry_out(self, pod: Pod, order: PodWrite) -> bool:
        """Queue what an instruction asks for; return whether it is about a status or a deletion."""
        match order:
            case PublishStatus():
                self._status(pod, order.status)
            case DeletePod():
                meta = pod.metadata
                self._pending.release(meta.uid)
                delete = partial(self._client.delete, Pod, meta.name, namespace=meta.namespace)
                self._publisher.put(pod, "deletion", partial(delete, grace_seconds=0, uid=meta.uid))
            case _:
                return False
        return True

    def _status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Write a status; that of a pod which is about to run waits a moment for the next one."""
        meta = pod.metadata
        uid = meta.uid
        if self._objects is None:
            put = partial(self._publisher.patch, pod, "status", {"status": status}, "strategic", "status")
        else:
            write = partial(self._objects.patch_status, meta.namespace, meta.name, uid, dict(status))
            put = partial(self._publisher.put, pod, "status", write)
        if _is_starting(status):
            self._pending.hold(uid, put)
        else:
            self._pending.drop(uid)
            put()

    def forget(self, uid: str) -> None:
        """Drop the status that waits to be written about a pod that is gone."""
        self._pending.drop(uid)

    def flush(self) -> None:
        """Queue every status that waits."""
        self._pending.release_all()


def _is_starting(status: Mapping[str, Any]) -> bool:
    """Whether nothing is known of a pod but that its containers are to start."""
    states = [state["state"].get("waiting") for state in status.get("containerStatuses") or ()]
    return status["phase"] == "Pending" and all(
        state and state["reason"] == pod_steps.CREATING for state in states
    )
