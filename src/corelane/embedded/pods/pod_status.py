"""A pod's `status` for the API server, the events about it, and the writes of both.

Reasons and messages are the kubelet's, because tools and people search for them. There are no probes: a
container is started and ready as soon as it runs. A pod that is admitted is Pending for some milliseconds,
until its containers have started: that status waits for the next one, which saves half the writes.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from corelane import durations, quantity
from corelane.agent.allocation.confirmation import lost, unconfirmed
from corelane.agent.allocation.instructions import PodWrite
from corelane.agent.allocation.pod_events import Outbox
from corelane.agent.allocation.records import StatusReason
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.cpuset import CPUSet, named
from corelane.embedded.pods import pod_steps
from corelane.embedded.pods.records import (
    INIT_KINDS,
    ConditionTransition,
    ContainerExit,
    ContainerProgress,
    ContainerStage,
    DeletePod,
    LifecycleReporter,
    PodRecord,
    PublishStatus,
)
from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.meta import rfc3339
from corelane.kube.pod import Pod
from corelane.runtime.base import OOM_KILLED
from corelane.workload.request import ContainerKind

CREATING: Final = "ContainerCreating"
"""Reason of a container that is about to start, of which nothing else is known."""
_ONCE_A_NODE: Final = frozenset({"ImageIgnored", "MemoryLimitsIgnored"})
"""Reasons of warnings that apply to every pod; only the first pod gets the event."""
_PENDING_SECONDS: Final = 1.0
"""Longest time by which the status of a pending pod is written later."""
Put = Callable[[], None]


@dataclass(frozen=True, slots=True)
class PodHost:
    """The node's part of pod statuses: its addresses, which local processes share, and its runtime's name.

    `confirms`: a kernel can confirm where containers run (not so on simulated nodes).
    """

    host_ips: tuple[str, ...] = ()
    id_scheme: str = "corelane"
    confirms: bool = True


def pod_status(pod: PodRecord, at: float, now: float, host: PodHost) -> dict[str, Any]:
    """Return the whole status, and record in the pod when its conditions last changed; `now` is monotonic."""
    if pod.rejected:
        return {
            "phase": "Failed",
            "reason": pod.rejected.reason,
            "message": f"Pod was rejected: {pod.rejected.message}",
            "startTime": rfc3339(pod.started_at),
        }
    status: dict[str, Any] = {
        "phase": pod_steps.phase(pod),
        "startTime": rfc3339(pod.started_at),
        **_reason(pod),
        "conditions": _conditions(pod, at, host),
        "containerStatuses": [_container(pod, c, now, host) for c in pod.of(ContainerKind.APP)],
        **_addresses(host),
    }
    inits = [_container(pod, container, now, host) for container in pod.of(*INIT_KINDS)]
    return status | ({"initContainerStatuses": inits} if inits else {})


def _reason(pod: PodRecord) -> dict[str, str]:
    if pod.live or pod.termination is None or pod.termination.reason is None:
        return {}
    return {"reason": pod.termination.reason.reason, "message": pod.termination.reason.message}


def _addresses(host: PodHost) -> dict[str, Any]:
    if not host.host_ips:
        return {}
    ips = [{"ip": ip} for ip in host.host_ips]
    return {"hostIP": host.host_ips[0], "hostIPs": ips, "podIP": host.host_ips[0], "podIPs": ips}


def _conditions(pod: PodRecord, at: float, host: PodHost) -> list[dict[str, Any]]:
    unready = [c.name for c in pod.of(ContainerKind.SIDECAR, ContainerKind.APP) if not c.ready]
    incomplete = [c.name for c in pod.of(*INIT_KINDS) if not c.initialized]
    ready = _readiness(pod, unready)
    return [
        _condition(pod, at, "PodReadyToStartContainers", ""),
        _condition(pod, at, "Initialized", *_lacking("ContainersNotInitialized", "incomplete", incomplete)),
        _condition(pod, at, "Ready", *ready),
        _condition(pod, at, "ContainersReady", *ready),
        _condition(pod, at, "PodScheduled", ""),
        *([_condition(pod, at, keys.PINNED, *_unconfirmed(pod))] if host.confirms else []),
    ]


def _unconfirmed(pod: PodRecord) -> tuple[str, str]:
    """Return reason and message if a container's CPUs are lost or not confirmed, in the order of the spec."""
    return lost(pod.cpus) or unconfirmed(c.cpus for c in pod.containers.values() if c.cpus is not None)


def _readiness(pod: PodRecord, unready: list[str]) -> tuple[str, str]:
    phase = pod_steps.phase(pod)
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    return _lacking("ContainersNotReady", "unready", unready)


def _lacking(reason: str, status: str, names: list[str]) -> tuple[str, str]:
    return (reason, f"containers with {status} status: [{' '.join(names)}]") if names else ("", "")


def _condition(pod: PodRecord, at: float, kind: str, reason: str, message: str = "") -> dict[str, Any]:
    """Return a condition: True without a reason, else False."""
    status = "False" if reason else "True"
    transition = pod.conditions.get(kind)
    if transition is None or transition.status != status:
        transition = pod.conditions[kind] = ConditionTransition(status, at)
    members = {"reason": reason, "message": message, "lastTransitionTime": rfc3339(transition.since)}
    # Strategic merge keeps absent members, so an outdated reason has to be removed by null.
    return {"type": kind, "status": status, **{key: value or None for key, value in members.items()}}


def _container(pod: PodRecord, container: ContainerProgress, now: float, host: PodHost) -> dict[str, Any]:
    waiting = _waiting(pod, container, now)
    shows_exit = container.stage in (ContainerStage.EXITED, ContainerStage.STARTING)
    ended = container.ended if shows_exit else None
    last = ended if waiting and ended else container.last
    status = {
        "name": container.name,
        "image": container.plan.image,
        "imageID": "",
        "ready": container.succeeded if container.kind is ContainerKind.INIT else container.ready,
        "started": container.ready,
        "restartCount": max(container.attempt, 0),
        "state": waiting or _state(container, ended, host),
        "lastState": {"terminated": _terminated(last, host)} if last else {},
    }
    return status | ({"containerID": _id(container.id, host)} if container.id else {})


def _state(container: ContainerProgress, ended: ContainerExit | None, host: PodHost) -> dict[str, Any]:
    if ended:
        return {"terminated": _terminated(ended, host)}
    return {"running": {"startedAt": rfc3339(container.started_at)}}


def _waiting(pod: PodRecord, container: ContainerProgress, now: float) -> dict[str, Any]:
    """Return the waiting state; empty if the container runs, or ended and does not wait for a restart."""
    if container.ready:
        return {}
    restarting = pod_steps.startable(pod, container) and not pod_steps.is_ending(pod)
    if container.ended and restarting and pod_steps.in_backoff(container, now):
        return {"waiting": {"reason": "CrashLoopBackOff", "message": _back_off_message(pod, container)}}
    if container.ended and not (restarting and container.waiting):
        return {}
    if container.waiting:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    return {"waiting": {"reason": "PodInitializing" if pod.of(*INIT_KINDS) else CREATING}}


def _back_off_message(pod: PodRecord, container: ContainerProgress) -> str:
    """Return the kubelet's message for a container in back-off."""
    delay = durations.text(round(container.backoff.delay if container.backoff else 0))
    return f"back-off {delay} restarting failed container={container.name} pod={full_name(pod)}"


def full_name(pod: PodRecord) -> str:
    """Return a pod's name as in the kubelet's messages."""
    return f"{pod.plan.request.name}_{pod.plan.request.namespace}({pod.uid})"


def _terminated(ended: ContainerExit, host: PodHost) -> dict[str, Any]:
    members = {
        "signal": ended.signal,
        "message": ended.message,
        "startedAt": rfc3339(ended.started_at) if ended.started_at else None,
        "finishedAt": rfc3339(ended.finished_at),
        "containerID": _id(ended.id, host) if ended.id else None,
    }
    return {
        "exitCode": ended.exit_code,
        "reason": ended.status_reason,
        **{key: value for key, value in members.items() if value},
    }


def _id(container_id: str, host: PodHost) -> str:
    return f"{host.id_scheme}://{container_id}"


class LifecycleEvents:
    """Records what happened to containers; a pod that was deleted gets no Kubernetes events."""

    def __init__(self, outbox: Outbox, reporter: LifecycleReporter) -> None:
        self._outbox = outbox
        self._reporter = reporter
        self._warned: set[str] = set()

    def warn_of_ignored_fields(self, pod: PodRecord) -> None:
        """An admitted pod has fields that corelane ignores."""
        for warning in pod.plan.warnings:
            if warning.reason in _ONCE_A_NODE:
                if warning.reason in self._warned:
                    continue
                self._warned.add(warning.reason)
            self._record(pod, warning.reason, warning.message, warning=True)

    def backs_off(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container failed and is restarted after a delay."""
        name = full_name(pod)
        text = f"Back-off restarting failed container {container.name} in pod {name}"
        self._record(pod, "BackOff", text, warning=True)

    def started(self, pod: PodRecord, container: ContainerProgress, cpus: CPUSet) -> None:
        """A container runs on these CPUs."""
        self._record(pod, "Started", f"Container {container.name} started on {named(cpus.mask)}")
        self._reporter.started(pod.plan, container.name, container.attempt, cpus)

    def start_failed(self, pod: PodRecord, container: ContainerProgress, reason: StatusReason) -> None:
        """A container could not be started; a pod that is terminating gets no event about it."""
        if pod.termination is None:
            self._record(pod, "Failed", f"Error: {reason.message}", warning=True)
        self._reporter.start_failed(pod.plan, container.name, reason)

    def out_of_memory(self, pod: PodRecord, container: ContainerProgress, ended: ContainerExit) -> None:
        """A container ended after the kernel had ended a process of it for lack of memory."""
        request = pod.plan.request
        limits = (request.memory_limit_of(part) for part in request.containers if part.name == container.name)
        limit = next(limits, 0)
        at = f" at its memory limit of {quantity.of_value(limit, quantity.BINARY_SI)}" if limit else ""
        text = f"Container {container.name} was out of memory{at}: the kernel killed a process"
        self._record(pod, OOM_KILLED, f"{text}; exit code {ended.exit_code}", warning=True)

    def stopping(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container is being stopped."""
        self._record(pod, "Killing", f"Stopping container {container.name}")

    def stop_failed(self, pod: PodRecord, container: ContainerProgress, message: str) -> None:
        """A container could not be stopped."""
        self._record(pod, "FailedKillPod", f"error killing pod: {message}", warning=True)
        self._reporter.stop_failed(pod.plan, container.name, message)

    def _record(self, pod: PodRecord, reason: str, message: str, *, warning: bool = False) -> None:
        self._outbox.record(pod.cpus, reason, message, warning=warning)


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

    def __init__(self, client: KubeClient, publisher: Publisher, objects: NodeObjects | None = None) -> None:
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
    return status["phase"] == "Pending" and all(state and state["reason"] == CREATING for state in states)
