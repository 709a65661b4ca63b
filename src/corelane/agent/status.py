"""A pod's record as the `status` that Kubernetes shows: phase, conditions, the state of every container.

Reasons and messages are the kubelet's, because tools and people look for them. There are no probes: a
container counts as started and ready as soon as it runs.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from corelane.agent import lifecycle, restarts
from corelane.agent.pods import Container, Ended, Pod, Stage, Transition
from corelane.workload import ContainerKind

PINNED: Final = "corelane.io/Pinned"
"""The condition of a pod whose every live container the kernel was seen to hold to its CPUs."""
_INITS: Final = (ContainerKind.INIT, ContainerKind.SIDECAR)


@dataclass(frozen=True, slots=True)
class Place:
    """Where pods of this node run: local processes have the addresses of their host."""

    host_ips: tuple[str, ...] = ()
    id_scheme: str = "corelane"
    confirms: bool = True
    """Whether there is a kernel that can confirm where a container runs."""


def rfc3339(at: float) -> str:
    """Unix seconds as Kubernetes writes times, whole seconds in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def of(pod: Pod, at: float, place: Place) -> dict[str, Any]:
    """The whole status; refreshes the pod's record of when its conditions last changed."""
    if pod.rejected:
        return {
            "phase": "Failed",
            "reason": pod.rejected.reason,
            "message": f"Pod was rejected: {pod.rejected.message}",
            "startTime": rfc3339(pod.started_at),
        }
    status: dict[str, Any] = {
        "phase": lifecycle.phase(pod),
        "startTime": rfc3339(pod.started_at),
        **_reason(pod),
        "conditions": _conditions(pod, at, place),
        "containerStatuses": [_container(pod, c, at, place) for c in pod.of(ContainerKind.APP)],
        **_addresses(place),
    }
    inits = [_container(pod, container, at, place) for container in pod.of(*_INITS)]
    return status | ({"initContainerStatuses": inits} if inits else {})


def _reason(pod: Pod) -> dict[str, str]:
    if pod.live or pod.doom is None or pod.doom.reason is None:
        return {}
    return {"reason": pod.doom.reason.reason, "message": pod.doom.reason.message}


def _addresses(place: Place) -> dict[str, Any]:
    if not place.host_ips:
        return {}
    listed = [{"ip": ip} for ip in place.host_ips]
    return {"hostIP": place.host_ips[0], "hostIPs": listed, "podIP": place.host_ips[0], "podIPs": listed}


def _conditions(pod: Pod, at: float, place: Place) -> list[dict[str, Any]]:
    unready = [c.name for c in pod.of(ContainerKind.SIDECAR, ContainerKind.APP) if not _ready(c)]
    uninitialized = [] if lifecycle.initialized(pod) else [c.name for c in pod.of(*_INITS) if not _passed(c)]
    ready = _readiness(pod, unready)
    return [
        _condition(pod, at, "PodReadyToStartContainers", ""),
        _condition(
            pod, at, "Initialized", *_lacking("ContainersNotInitialized", "incomplete", uninitialized)
        ),
        _condition(pod, at, "Ready", *ready),
        _condition(pod, at, "ContainersReady", *ready),
        _condition(pod, at, "PodScheduled", ""),
        *([_condition(pod, at, PINNED, *_loose(pod))] if place.confirms else []),
    ]


def _loose(pod: Pod) -> tuple[str, str]:
    """Who is not seen to be held to its CPUs.

    One that is being moved counts as held, or every move of the pool would change every pod's status.
    """
    live = [one for one in pod.containers.values() if one.live]
    names = [one.name for one in live if not one.confirmed and (one.drifted or not one.seen)]
    if names:
        return "NotConfirmed", f"the kernel does not yet hold to their CPUs: [{' '.join(names)}]"
    return ("", "") if live else ("NothingRuns", "no container runs")


def _readiness(pod: Pod, unready: list[str]) -> tuple[str, str]:
    phase = lifecycle.phase(pod)
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    return _lacking("ContainersNotReady", "unready", unready)


def _lacking(reason: str, what: str, names: list[str]) -> tuple[str, str]:
    return (reason, f"containers with {what} status: [{' '.join(names)}]") if names else ("", "")


def _condition(pod: Pod, at: float, kind: str, reason: str, message: str = "") -> dict[str, Any]:
    """True without a reason, else False."""
    status = "False" if reason else "True"
    known = pod.conditions.get(kind)
    if known is None or known.status != status:
        known = pod.conditions[kind] = Transition(status, at)
    named = {"reason": reason, "message": message, "lastTransitionTime": rfc3339(known.since)}
    # Strategic merge keeps what is absent, so a reason that no longer holds has to be taken out by null.
    return {"type": kind, "status": status, **{key: value or None for key, value in named.items()}}


def _passed(container: Container) -> bool:
    return container.ran if container.kind is ContainerKind.SIDECAR else container.succeeded


def _ready(container: Container) -> bool:
    return container.stage in (Stage.RUNNING, Stage.STOPPING)


def _container(pod: Pod, container: Container, at: float, place: Place) -> dict[str, Any]:
    shown_waiting = _waiting(pod, container, at)
    ended = container.ended if container.stage in (Stage.EXITED, Stage.STARTING) else None
    last = ended if shown_waiting and ended else container.last
    ready = container.succeeded if container.kind is ContainerKind.INIT else _ready(container)
    status = {
        "name": container.name,
        "image": container.plan.image,
        "imageID": "",
        "ready": ready,
        "started": _ready(container),
        "restartCount": max(container.attempt, 0),
        "state": shown_waiting or _state(container, ended, place),
        "lastState": {"terminated": _terminated(last, place)} if last else {},
    }
    return status | ({"containerID": _id(container.id, place)} if container.id else {})


def _state(container: Container, ended: Ended | None, place: Place) -> dict[str, Any]:
    if ended:
        return {"terminated": _terminated(ended, place)}
    return {"running": {"startedAt": rfc3339(container.started_at)}}


def _waiting(pod: Pod, container: Container, at: float) -> dict[str, Any]:
    """The waiting state, empty if it runs, or ended and is not held back by anything."""
    if container.live and container.stage is not Stage.STARTING:
        return {}
    restarting = lifecycle.startable(pod, container) and not lifecycle.ending(pod)
    if container.ended and restarting and restarts.waits(container, at):
        return {"waiting": {"reason": "CrashLoopBackOff", "message": back_off_message(pod, container)}}
    if container.ended and not (restarting and container.waiting):
        return {}
    if container.waiting:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    return {"waiting": {"reason": "PodInitializing" if pod.of(*_INITS) else "ContainerCreating"}}


def back_off_message(pod: Pod, container: Container) -> str:
    """The kubelet's words for a container that is held back."""
    delay = container.backoff.delay if container.backoff else 0.0
    return f"back-off {_duration(delay)} restarting failed container={container.name} pod={full_name(pod)}"


def full_name(pod: Pod) -> str:
    """A pod as the kubelet names it in its messages."""
    return f"{pod.plan.request.name}_{pod.plan.request.namespace}({pod.uid})"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _terminated(ended: Ended, place: Place) -> dict[str, Any]:
    known = {
        "signal": ended.signal,
        "message": ended.message,
        "startedAt": rfc3339(ended.started_at) if ended.started_at else None,
        "finishedAt": rfc3339(ended.finished_at),
        "containerID": _id(ended.id, place) if ended.id else None,
    }
    return {
        "exitCode": ended.exit_code,
        "reason": ended.word,
        **{key: value for key, value in known.items() if value},
    }


def _id(container_id: str, place: Place) -> str:
    return f"{place.id_scheme}://{container_id}"
