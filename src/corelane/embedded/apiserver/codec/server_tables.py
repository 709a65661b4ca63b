"""Lists and objects as the server-side tables (meta.k8s.io/v1 Table) that `kubectl get` prints.

Columns and cells are upstream's (kubernetes `pkg/printers/internalversion`, `printPod` for pods, and for
custom resources apiextensions-apiserver's default columns); the descriptions of the columns are corelane's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from corelane.embedded.apiserver.served_kinds import ServedKind

Object = Mapping[str, Any]

NONE = "<none>"
_TERMINAL = {"Succeeded", "Failed"}
Cells = Callable[[Object, datetime], list[Any]]
UNKNOWN = "<unknown>"
INCLUDE = ("None", "Metadata", "Object")


def summary(pod: Object) -> tuple[str, str, int, str]:
    """Ready as `1/2`, status, restarts, and when a container last ended before a restart ("" if never).

    Init containers are looked at up to the first that is neither done nor a started sidecar. Once a pod is
    initialised, only the sidecars' restarts count beside the containers', whose first in trouble shows.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    # sidecars are init containers that keep running beside the others
    sidecars = {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    initial: list[Any] = status.get("initContainerStatuses") or []
    reason = ""
    for number, container in enumerate(initial, 1):
        if not (_succeeded(container) or (container.get("name") in sidecars and container.get("started"))):
            reason = _init_reason(container, f"Init:{number - 1}/{len(spec.get('initContainers') or ())}")
            initial = initial[:number]
            break
    counted = [c for c in initial if c.get("name") in sidecars]
    ready = sum(bool(c.get("ready")) for c in counted if c.get("started") and not _succeeded(c))
    if reason and _condition(status, "Initialized").get("status") != "True":
        counted = initial
    else:
        running, containers = False, status.get("containerStatuses") or ()
        reason = reason or _own_reason(status)
        for container in reversed(containers):
            if trouble := _trouble(container):
                reason = trouble
            elif container.get("ready") and _state(container, "running") is not None:
                running, ready = True, ready + 1
        if reason == "Completed" and running:
            reason = "Running" if _condition(status, "Ready").get("status") == "True" else "NotReady"
        counted += containers
    total = len(spec.get("containers") or ()) + len(sidecars)
    restarts = sum(c.get("restartCount") or 0 for c in counted)
    restarted = max(map(_last_end, counted), default="")
    return f"{ready}/{total}", _deletion(pod, status) or reason, restarts, restarted


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


def _init_reason(container: Object, progress: str) -> str:
    terminated = _state(container, "terminated")
    if terminated is not None:
        return f"Init:{_end_reason(terminated)}"
    waiting = (_state(container, "waiting") or {}).get("reason")
    return f"Init:{waiting}" if waiting and waiting != "PodInitializing" else progress


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


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a kind, and the function that fills them.

    Names are separated by commas; `+` marks a column of `-o wide`, `:TYPE` one that is not a string.
    """

    names: str
    cells: Cells

    @property
    def definitions(self) -> list[dict[str, Any]]:
        return [_definition(*column.partition(":")) for column in self.names.split(", ")]


def _definition(column: str, _: str, kind: str) -> dict[str, Any]:
    name = column.removeprefix("+")
    return {
        "name": name,
        "type": kind or "string",
        "format": "name" if name == "Name" else "",
        "description": name,
        "priority": int(name != column),
    }


def to_table(
    kind: ServedKind,
    objects: Iterable[Object],
    list_meta: Object,
    include: str = "Metadata",
    *,
    version: str = "v1",
    columns: bool = True,
    now: datetime | None = None,
) -> dict[str, Any]:
    """A Table with a row for each of `objects`, in wire form.

    `include` is the request's `includeObject`: what a row carries beside its cells, the object whole, its
    metadata, or nothing. `columns` False leaves the column definitions null, as in all but the first event
    of a watch. Ages are counted up to `now`.
    """
    layout = _layout(kind)
    moment = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": dict(list_meta),
        "columnDefinitions": layout.definitions if columns else None,
        "rows": [row(kind, item, include, version, moment) for item in objects],
    }


def partial(item: Object, version: str = "v1") -> dict[str, Any]:
    """The object's metadata alone, as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": item.get("metadata") or {},
    }


def row(kind: ServedKind, item: Object, include: str, version: str, now: datetime) -> dict[str, Any]:
    """The row of one object; see `to_table`."""
    document: dict[str, Any] = {"cells": _layout(kind).cells(item, now)}
    conditions = row_conditions(item) if kind.kind == "Pod" else []
    if conditions:
        document["conditions"] = conditions
    bodies = {"None": None, "Object": item}
    document["object"] = bodies[include] if include in bodies else partial(item, version)
    return document


def _layout(kind: ServedKind) -> TableLayout:
    return LAYOUTS.get((kind.group, kind.kind), CUSTOM)


def age(stamp: object, now: datetime) -> str:
    """Return the time since `stamp` (RFC 3339) in the short form of kubectl: `45s`, `3m10s`, `5h`, `2d3h`."""
    try:
        when = datetime.fromisoformat(str(stamp))
    except ValueError:
        return UNKNOWN
    return human_duration(now - (when if when.tzinfo else when.replace(tzinfo=UTC)))


def human_duration(length: timedelta) -> str:
    """At most two units, the finer one only while it matters (apimachinery `duration.HumanDuration`)."""
    # Clocks of two machines differ a little: up to 2 s in the future counts as now.
    seconds = int(length.total_seconds())
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours < 3:
        return f"{minutes}m{_finer(seconds % 60, 's') if minutes < 10 else ''}"
    if days < 2:
        return f"{hours}h{_finer(minutes % 60, 'm') if hours < 8 else ''}"
    if days < 730:
        return f"{days}d{_finer(hours % 24, 'h') if days < 8 else ''}"
    return f"{days // 365}y{_finer(days % 365, 'd') if days < 2920 else ''}"


def _finer(count: int, unit: str) -> str:
    return f"{count}{unit}" if count else ""


def _meta(item: Object, name: str) -> Any:
    return (item.get("metadata") or {}).get(name)


def _created(item: Object, now: datetime) -> str:
    return age(_meta(item, "creationTimestamp"), now)


def _pod(pod: Object, now: datetime) -> list[Any]:
    ready, reason, restarts, restarted = summary(pod)
    ago = f" ({age(restarted, now)} ago)" if restarts and restarted else ""
    node = (pod.get("spec") or {}).get("nodeName") or NONE
    nominated = (pod.get("status") or {}).get("nominatedNodeName") or NONE
    shown = [_meta(pod, "name"), ready, reason, f"{restarts}{ago}", _created(pod, now)]
    return [*shown, pod_ip(pod), node, nominated, readiness_gates(pod)]


def _node(node: Object, now: datetime) -> list[Any]:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    architecture = info.get("architecture")
    prefix = "node-role.kubernetes.io/"
    labels = _meta(node, "labels") or {}
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles.add(labels.get("kubernetes.io/role", ""))
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [c.get("status") == "True" for c in conditions if c.get("type") == "Ready"]
    words = [("Ready" if ready[-1] else "NotReady") if ready else "Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return [
        _meta(node, "name"),
        ",".join(words),
        ",".join(sorted(roles - {""})) or NONE,
        _created(node, now),
        info.get("kubeletVersion") or "",
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        (info.get("kernelVersion") or UNKNOWN) + (f" ({architecture})" if architecture else ""),
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Object, kind: str) -> str:
    addresses = status.get("addresses") or ()
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), NONE)


def _config_map(config_map: Object, now: datetime) -> list[Any]:
    count = len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())
    return [_meta(config_map, "name"), count, _created(config_map, now)]


def _priority_class(item: Object, now: datetime) -> list[Any]:
    value, default = item.get("value") or 0, item.get("globalDefault") or False
    return [_meta(item, "name"), value, default, _created(item, now), item.get("preemptionPolicy") or ""]


def _event(event: Object, now: datetime) -> list[Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    target = about.get("kind", "").lower() + (f"/{about['name']}" if about.get("name") else "")
    first, last, count = _occurrences(event, now)
    source = event.get("source") or event.get("deprecatedSource") or {}
    controller = event.get("reportingComponent") or event.get("reportingController") or ""
    component = source.get("component") or controller
    host = source.get("host") or event.get("reportingInstance")
    return [
        last,
        event.get("type") or "",
        event.get("reason") or "",
        target,
        about.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        (event.get("message") or event.get("note") or "").strip(),
        first,
        count,
        _meta(event, "name"),
    ]


def _occurrences(event: Object, now: datetime) -> tuple[str, str, int]:
    """First and last time seen as ages, and how often; both forms of Event (core, events.k8s.io) serve."""
    earliest = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
    latest = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    first = age(earliest or event.get("eventTime"), now)
    last = age(latest, now) if latest else first
    series = event.get("series")
    if series:
        return first, age(series.get("lastObservedTime"), now), series.get("count") or 0
    return first, last, event.get("count") or event.get("deprecatedCount") or 1


def _budget(item: Object, now: datetime) -> list[Any]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    numbers = [str(spec.get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [_meta(item, "name"), *numbers, status.get("disruptionsAllowed") or 0, _created(item, now)]


LAYOUTS: dict[tuple[str, str], TableLayout] = {
    ("", "Pod"): TableLayout(
        "Name, Ready, Status, Restarts, Age, +IP, +Node, +Nominated Node, +Readiness Gates", _pod
    ),
    ("", "Node"): TableLayout(
        "Name, Status, Roles, Age, Version, "
        "+Internal-IP, +External-IP, +OS-Image, +Kernel-Version, +Container-Runtime",
        _node,
    ),
    ("", "Namespace"): TableLayout(
        "Name, Status, Age",
        lambda o, now: [_meta(o, "name"), (o.get("status") or {}).get("phase") or "", _created(o, now)],
    ),
    ("", "ConfigMap"): TableLayout("Name, Data, Age", _config_map),
    ("", "Secret"): TableLayout(
        "Name, Type, Data, Age",
        lambda o, now: [_meta(o, "name"), o.get("type") or "", len(o.get("data") or ()), _created(o, now)],
    ),
    ("coordination.k8s.io", "Lease"): TableLayout(
        "Name, Holder, Age",
        lambda o, now: [
            _meta(o, "name"),
            (o.get("spec") or {}).get("holderIdentity") or "",
            _created(o, now),
        ],
    ),
    ("scheduling.k8s.io", "PriorityClass"): TableLayout(
        "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", _priority_class
    ),
    ("", "Event"): TableLayout(
        "Last Seen, Type, Reason, Object, +Subobject, +Source, Message, +First Seen, +Count, +Name", _event
    ),
    ("policy", "PodDisruptionBudget"): TableLayout(
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age", _budget
    ),
}
LAYOUTS["events.k8s.io", "Event"] = LAYOUTS["", "Event"]

CUSTOM = TableLayout("Name, Age:date", lambda o, now: [_meta(o, "name"), _created(o, now)])
