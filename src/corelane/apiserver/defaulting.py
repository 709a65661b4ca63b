"""Default values by the tables: each row's own, then what a record's fillers derive from several fields."""

from __future__ import annotations

import copy
from typing import Any

from corelane.apiserver.schema.notation import Field, List, Map, Record, Shape


def fill(record: Record, obj: dict[str, Any]) -> None:
    """Set what is absent and has a default, everywhere in a decoded object. Twice is the same as once."""
    for row in record:
        if row.default is not None and row.name not in obj:
            _set(row, obj)
        if obj.get(row.name) is not None:
            _inside(row.shape, obj[row.name])
    for filler in record.defaults:
        filler(obj)


def _set(row: Field, obj: dict[str, Any]) -> None:
    value = row.default(obj) if callable(row.default) else copy.deepcopy(row.default)
    if value not in ("", None) or row.presence == "opt":
        obj[row.name] = value


def _inside(shape: Shape, value: Any) -> None:
    if isinstance(shape, Record):
        fill(shape, value)
    elif isinstance(shape, List) and isinstance(shape.item, Record):
        for item in value:
            fill(shape.item, item)
    elif isinstance(shape, Map) and isinstance(shape.value, Record):
        for item in value.values():
            fill(shape.value, item)
