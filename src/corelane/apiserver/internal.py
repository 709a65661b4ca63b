"""Objects as upstream's internal Go types show in error texts: all fields, by Go name, in Go's order."""

from __future__ import annotations

import difflib
import json
from typing import Any

from corelane.apiserver.schema.meta import META
from corelane.apiserver.schema.notation import Field, List, Map, Record, Scalar, Shape

_HOST = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_NOT_INTERNAL = {"PodSpec": {*_HOST, "serviceAccount"}, "PodStatus": {"podIP"}, "NodeSpec": {"podCIDR"}}
_CONTEXT = 3


def rendered(record: Record, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as its internal type marshals; metadata types, which have JSON names there, as they are."""
    if record.model.startswith(META):
        return {row.name: obj[row.name] for row in record if row.name in obj}
    skipped = _NOT_INTERNAL.get(record.name, set())
    shown = {row.go: _field(row, obj.get(row.name)) for row in record if row.name not in skipped}
    if record.name == "PodSpec" and shown["SecurityContext"] is not None:
        shown["SecurityContext"] = {**_host_fields(record, obj), **shown["SecurityContext"]}
    return shown


def difference(record: Record, old: dict[str, Any], new: dict[str, Any]) -> str:
    """A unified diff of two objects, as upstream puts it into a message."""
    lines = difflib.unified_diff(_lines(record, old), _lines(record, new), n=_CONTEXT)
    return "".join(list(lines)[2:])


def _lines(record: Record, obj: dict[str, Any]) -> list[str]:
    text = json.dumps(rendered(record, obj), indent=1, ensure_ascii=False)
    return [f"{line}\n" for line in text.split("\n")]


def _host_fields(record: Record, obj: dict[str, Any]) -> dict[str, Any]:
    rows = (record.fields[name] for name in _HOST)
    return {row.go: _field(row, obj.get(row.name)) for row in rows}


def _field(row: Field, value: Any) -> Any:
    if value is None and row.presence != "opt" and isinstance(row.shape, Scalar):
        return row.shape.zero
    if value is None and row.presence == "req" and isinstance(row.shape, Record):
        return rendered(row.shape, {})
    return _shape(row.shape, value)


def _shape(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(shape, Record):
        return rendered(shape, value)
    if isinstance(shape, List):
        return [_shape(shape.item, item) for item in value]
    if isinstance(shape, Map):
        return {name: _shape(shape.value, value[name]) for name in sorted(value)}
    return value
