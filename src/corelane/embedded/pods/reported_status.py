"""A pod's `status` for the API server: phase, conditions, and the state of every container.

Reasons and messages are the kubelet's, because tools and people search for them. There are no probes: a
container is started and ready as soon as it runs.
"""

from dataclasses import dataclass
from typing import Any, Final

from corelane import durations
from corelane.agent.allocation.confirmation import lost, unconfirmed
from corelane.embedded.pods import pod_steps
from corelane.embedded.pods.records import (
    INIT_KINDS,
    ConditionTransition,
    ContainerExit,
    ContainerProgress,
    ContainerStage,
    PodRecord,
)
from corelane.kube import keys
from corelane.kube.meta import rfc3339
from corelane.workload.request import ContainerKind

CREATING: Final = "ContainerCreating"
"""Reason of a container that is about to start, of which nothing else is known."""


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
