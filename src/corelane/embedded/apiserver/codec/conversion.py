"""One stored object in the forms of several groups and versions, and the labels of its fields."""

from collections.abc import Mapping
from typing import Any

from corelane.embedded.apiserver.codec import custom_resources, decoding
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.served_kinds import ServedKind

Object = dict[str, Any]

# core/v1's name of an event's field → events.k8s.io/v1's.
_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)


def convert(kind: ServedKind, obj: Object, version: str) -> Object:
    """See `strategy.convert`."""
    wanted = kind.api_version(version)
    if kind.custom:
        envelope = {"kind": kind.kind, "apiVersion": wanted, "metadata": obj["metadata"]}
        content = _content(obj)
        if obj.get("apiVersion") != wanted:  # else it was pruned when it was decoded
            content = custom_resources.prune(kind.schema[version], content)
        return envelope | content
    if obj.get("apiVersion", wanted) == wanted:
        return obj
    names = _EVENT_NAMES if kind.group else _CORE_NAMES
    renamed = {names.get(name, name): value for name, value in obj.items()}
    return _in_rows(kind.schema[version], renamed | {"apiVersion": wanted})


def _content(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in {"kind", "apiVersion", "metadata"}}


def _in_rows(record: ObjectType, obj: Object) -> Object:
    """The object with the rows' idea of which zero values are written."""
    made = {}
    for row in record:
        value = obj.get(row.name)
        if value is not None and isinstance(row.shape, ObjectType):
            value = _in_rows(row.shape, value)
        if row.presence == "req":
            made[row.name] = decoding.zero(row.shape) if value is None else value
        elif row.name in obj and not decoding.is_zero(row, value):
            made[row.name] = value
    return made


def selectable_fields(kind: ServedKind, obj: Mapping[str, Any]) -> dict[str, str]:
    """See `strategy.selectable_fields`."""
    meta = obj.get("metadata", {})
    labels = {"metadata.name": meta.get("name", "")}
    if kind.namespaced:
        labels["metadata.namespace"] = meta.get("namespace", "")
    if kind.stored == "events":
        return labels | (_new_event_fields(obj) if kind.group else _event_fields(obj))
    if kind.plural == "pods":
        return labels | {path: _at(obj, path) for path in _POD_FIELDS}
    if kind.plural == "secrets":
        return labels | {"type": obj.get("type", "")}
    if kind.plural == "nodes":
        return labels | {"spec.unschedulable": _at(obj, "spec.unschedulable")}
    if kind.plural == "namespaces":
        return labels | {"status.phase": _at(obj, "status.phase"), "name": meta.get("name", "")}
    return labels


def _at(obj: Mapping[str, Any], path: str) -> str:
    """A field's text; flags that are not set read `false`."""
    value: Any = obj
    for name in path.split("."):
        value = (value or {}).get(name)
    if path in {"spec.hostNetwork", "spec.unschedulable"}:
        return "true" if value else "false"
    return value or ""


def _event_fields(event: Mapping[str, Any]) -> dict[str, str]:
    reporter = event.get("reportingComponent") or ""
    return {
        **_reference("involvedObject", event.get("involvedObject")),
        "reason": event.get("reason", ""),
        "reportingComponent": reporter,
        "source": (event.get("source") or {}).get("component") or reporter,
        "type": event.get("type", ""),
    }


def _new_event_fields(event: Mapping[str, Any]) -> dict[str, str]:
    return {
        **_reference("regarding", event.get("regarding")),
        "reason": event.get("reason", ""),
        "reportingController": event.get("reportingController") or "",
        "type": event.get("type", ""),
    }


def _reference(name: str, reference: Mapping[str, Any] | None) -> dict[str, str]:
    return {f"{name}.{part}": (reference or {}).get(part, "") for part in _REFERENCE}
