"""The first field of a decoded YAML file that is unknown or of another type: path, problem and remedy."""

import math
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Struct

_USE: Final[Mapping[Any, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
}


class FieldFault(NamedTuple):
    """A field, "" for the whole file; what is wrong with its value, and the remedy."""

    path: str
    problem: str
    remedy: str


def first_fault(tree: Any, of_type: Any) -> FieldFault | None:
    """Return the first fault of a tree of dicts, lists and scalars; None where it has the type."""
    return next(_faults(tree, of_type, ""), None)


def _faults(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    origin = get_origin(of_type)
    if of_type is Any:
        return
    if origin in {Union, UnionType}:
        kinds = [one for one in get_args(of_type) if one is not type(None)]
        if len(kinds) == 1:
            yield from _faults(value, kinds[0], path)
            return
    if isinstance(of_type, type) and issubclass(of_type, Struct):
        yield from _of_struct(value, of_type, path)
    elif origin is tuple:
        yield from _of_list(value, get_args(of_type)[0], path)
    elif origin is dict:
        yield from _of_mapping(value, get_args(of_type)[1], path)
    else:
        yield from _of_scalar(value, of_type, path)


def _of_struct(value: Any, of_type: type[Struct], path: str) -> Iterator[FieldFault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(of_type)}
    listed = ", ".join(fields)
    if not isinstance(value, dict):
        yield FieldFault(path, _invalid(value), f"use a mapping with the fields {listed}")
        return
    for key in value:
        if key not in fields:
            close = get_close_matches(str(key), fields, 1)
            remedy = f"use {close[0]}, or remove the field" if close else f"use one of {listed}"
            yield FieldFault(_joined(path, key), f"{shown(value[key])}: there is no such field", remedy)
    for name, field in fields.items():
        if name in value:
            yield from _faults(value[name], field.type, _joined(path, name))
        elif field.required:
            yield FieldFault(_joined(path, name), "missing", "add the field")


def _of_list(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, list):
        yield FieldFault(path, _invalid(value), "use a list, or remove the field")
        return
    for i, one in enumerate(value):
        yield from _faults(one, of_type, f"{path}[{i}]")


def _of_mapping(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, dict):
        yield FieldFault(path, _invalid(value), "use a mapping, or remove the field")
        return
    for key, one in value.items():
        if not isinstance(key, str):
            yield FieldFault(path, _invalid(key), "use text as the name of a field")
        else:
            yield from _faults(one, of_type, _joined(path, key))


def _of_scalar(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    types = [one for one in get_args(of_type) or (of_type,) if one is not type(None)]
    remedy = f"use {_USE[types[-1]]}, or remove the field"
    if isinstance(value, float) and not math.isfinite(value):
        yield FieldFault(path, _invalid(value), remedy)
        return
    try:
        msgspec.convert(value, of_type)
    except msgspec.ValidationError:
        yield FieldFault(path, _invalid(value), remedy)


def _invalid(value: object) -> str:
    return f"{shown(value)} is invalid"


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def shown(value: object) -> str:
    """Return a value on one line, shortened to 80 characters; None as null."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
