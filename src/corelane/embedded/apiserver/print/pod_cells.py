"""Cells of `kubectl get pods`: ready containers, status or reason of failure, restarts.

The rules are those of upstream's printer (kubernetes `pkg/printers/internalversion`, `printPod`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

NONE = "<none>"
_TERMINAL = {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Containers:
    """Summary of the containers' statuses; `reason` None leaves the pod's own, `restarted` is a time."""

    ready: int
    reason: str | None
    restarts: int
    restarted: str


def summary(pod: Object) -> tuple[str, str, int, str]:
    """Ready as `1/2`, status, restarts, and when a container last ended before a restart ("" if never)."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    found = _initialising(spec, status)
    if found.reason is None or _condition(status, "Initialized").get("status") == "True":
        found = _running(status, _sidecars(spec, status), found.reason or _own_reason(status))
    total = len(spec.get("containers") or ()) + len(_sidecar_names(spec))
    reason = _deletion(pod, status) or found.reason or ""
    return f"{found.ready}/{total}", reason, found.restarts, found.restarted


def readiness_gates(pod: Object) -> str:
    """True readiness gates of all, as `1/2`."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return NONE
    status = pod.get("status") or {}
    true = [g for g in gates if _condition(status, g.get("conditionType")).get("status") == "True"]
    return f"{len(true)}/{len(gates)}"


def pod_ip(pod: Object) -> str:
    addresses = (pod.get("status") or {}).get("podIPs") or ()
    return (addresses[0].get("ip") if addresses else "") or NONE


def row_conditions(pod: Object) -> list[dict[str, str]]:
    """The row's conditions, by which clients leave out pods that have ended."""
    texts = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    phase = (pod.get("status") or {}).get("phase")
    if phase not in texts:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": texts[phase]}]


def _own_reason(status: Object) -> str:
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        return "SchedulingGated"
    return status.get("reason") or status.get("phase") or ""


def _deletion(pod: Object, status: Object) -> str:
    """The status of a pod that is being deleted; "" for every other."""
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return ""
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return "" if status.get("phase") in _TERMINAL else "Terminating"


def _condition(status: Object, name: object) -> Object:
    for condition in status.get("conditions") or ():
        if condition.get("type") == name:
            return condition  # type: ignore[no-any-return]
    return {}


def _sidecar_names(spec: Object) -> set[str]:
    """Init containers that keep running beside the others."""
    return {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}


def _initialising(spec: Object, status: Object) -> Containers:
    """The init containers up to the first that is neither done nor a started sidecar, and why it is not."""
    sidecars = _sidecar_names(spec)
    ready = restarts = 0
    restarted = ""
    for number, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        restarted = max(restarted, _last_end(container))
        if _succeeded(container):
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        count = len(spec.get("initContainers") or ())
        return Containers(ready, _init_reason(container, f"Init:{number}/{count}"), restarts, restarted)
    return Containers(ready, None, restarts, restarted)


def _init_reason(container: Object, progress: str) -> str:
    terminated = _state(container, "terminated")
    if terminated is not None:
        return f"Init:{_end_reason(terminated)}"
    waiting = (_state(container, "waiting") or {}).get("reason")
    return f"Init:{waiting}" if waiting and waiting != "PodInitializing" else progress


def _sidecars(spec: Object, status: Object) -> Containers:
    """The sidecars alone: once a pod is initialised, only their restarts count beside the containers'."""
    if not spec.get("initContainers"):
        return Containers(0, None, 0, "")
    seen = list(_seen_init_statuses(spec, status))
    names = _sidecar_names(spec)
    mine = [c for c in seen if c.get("name") in names]
    ready = sum(bool(c.get("ready")) for c in mine if c.get("started") and not _succeeded(c))
    restarts = sum(c.get("restartCount") or 0 for c in mine)
    return Containers(ready, None, restarts, max(map(_last_end, mine), default=""))


def _seen_init_statuses(spec: Object, status: Object) -> Iterator[Object]:
    """Upstream stops counting at the first init container that holds the pod up."""
    names = _sidecar_names(spec)
    for container in status.get("initContainerStatuses") or ():
        yield container
        if not (_succeeded(container) or (container.get("name") in names and container.get("started"))):
            return


def _running(status: Object, sidecars: Containers, reason: str) -> Containers:
    """The containers proper, the last first, so that the first one's trouble is what shows."""
    ready, running = sidecars.ready, False
    statuses = status.get("containerStatuses") or ()
    for container in reversed(statuses):
        trouble = _trouble(container)
        if trouble:
            reason = trouble
        elif container.get("ready") and _state(container, "running") is not None:
            running, ready = True, ready + 1
    if reason == "Completed" and running:
        reason = "Running" if _condition(status, "Ready").get("status") == "True" else "NotReady"
    restarts = sidecars.restarts + sum(c.get("restartCount") or 0 for c in statuses)
    restarted = max([sidecars.restarted, *map(_last_end, statuses)])
    return Containers(ready, reason, restarts, restarted)


def _trouble(container: Object) -> str:
    """Why the container is not running, "" if it is."""
    waiting = (_state(container, "waiting") or {}).get("reason")
    if waiting:
        return str(waiting)
    terminated = _state(container, "terminated")
    return "" if terminated is None else _end_reason(terminated)


def _end_reason(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _succeeded(container: Object) -> bool:
    terminated = _state(container, "terminated")
    return terminated is not None and not terminated.get("exitCode")


def _state(container: Object, name: str) -> Object | None:
    return (container.get("state") or {}).get(name)


def _last_end(container: Object) -> str:
    """When the container's previous run ended, as RFC 3339 text, which sorts as time does."""
    terminated = (container.get("lastState") or {}).get("terminated") or {}
    return terminated.get("finishedAt") or ""
