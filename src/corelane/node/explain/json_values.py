"""Values as JSON with stable keys, and back."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from corelane.cpuset import CPUSet

T = TypeVar("T")
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
    named = ((keys.get(each.name, _camel(each.name)), getattr(value, each.name)) for each in fields(value))
    return {key: json_value(item, keys) for key, item in named if key}


def from_json(kind: type[T], value: object) -> T:
    """Return a dataclass from what `json_value` made of it with own names; unknown members are ignored.

    Raises ValueError, naming the member, for a value of another type. A member left out has its default.
    """
    made: T = _of(kind, value, kind.__name__)
    return made


def _of(kind: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return None if value is None else _of(args[0], value, path)
    if origin is tuple:
        return tuple(_of(args[0], item, f"{path}[{i}]") for i, item in enumerate(_checked(list, value, path)))
    if kind is CPUSet or issubclass(kind, Enum):
        text = _checked(str, value, path)
        try:
            return CPUSet.parse(text) if kind is CPUSet else kind(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if is_dataclass(kind):
        members = _checked(dict, value, path)
        make: Any = kind
        hints = get_type_hints(kind)
        named = ((field.name, _camel(field.name)) for field in fields(kind))
        given = {
            name: _of(hints[name], members[key], f"{path}.{key}") for name, key in named if key in members
        }
        try:
            return make(**given)
        except TypeError as error:
            raise ValueError(f"{path}: {error}") from error
    return _checked((int, float) if kind is float else kind, value, path)


def _checked(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{path}: {value!r} is of another type")
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
