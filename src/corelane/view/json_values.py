"""Values as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from corelane.cpuset import CPUSet

_OWN_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def json_value(value: object, keys: Mapping[str, str] = _OWN_NAMES) -> Any:
    """Return a value for JSON: dataclasses as objects, CPU sets as list strings, enums as their values.

    A field's key is its name in camel case, or that in `keys`, which holds at every depth; "" leaves the
    field out.
    """
    if isinstance(value, CPUSet):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: json_value(item, keys) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, keys) for item in value]
    if not is_dataclass(value):
        return value
    named = ((keys.get(one.name, _camel(one.name)), getattr(value, one.name)) for one in fields(value))
    return {key: json_value(item, keys) for key, item in named if key}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
