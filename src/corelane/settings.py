"""Settings files: YAML into msgspec structs, with one line for each mistake.

A line has the field, its value, and what is allowed. The structs say what is allowed: by their types, or by a
`msgspec.Meta(description=…)`. CPU lists and sizes are decoded here, for all files alike.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import UNSET, Meta, Struct

from corelane import quantity
from corelane.cpuset import CPUSet, CPUSetError
from corelane.yaml_keys import DuplicateKeyError, UniqueKeyLoader

_T = TypeVar("_T")


class SettingsError(ValueError):
    """An option or a field of a file with an invalid value; names it, its value, and what is allowed."""


class Bytes(int):
    """A size, written as a quantity such as 1Gi."""


Count = Annotated[int, Meta(ge=0, description="an integer of 0 or more")]
_CPU_LIST: Final = 'a CPU list such as "0-1,8"'
_CPU_OR_RANGE: Final = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")
_SIZE: Final = "a size such as 1Gi"


def invalid(field: str, value: Any, allowed: str) -> SettingsError:
    """Return the error for a field's value, with what is allowed instead."""
    return SettingsError(f"{field}: {_short(value)} is invalid: use {allowed}")


def _short(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def cpu_list(field: str, text: str) -> CPUSet:
    """Parse a CPU list. Raises SettingsError."""
    try:
        return CPUSet.parse(text)
    except CPUSetError as error:
        cause = _wrong_part(text) or str(error)
        raise SettingsError(f"{field}: {_short(text)} is not {_CPU_LIST}: {cause}") from None


def _wrong_part(text: str) -> str:
    """Return what is wrong with the first wrong part of a list; "" for the size or order of its numbers."""
    for part in text.split(","):
        if not part.strip():
            return "it has an empty part"
        if not _CPU_OR_RANGE.fullmatch(part):
            return f"{_short(part)} is neither a CPU nor a range of CPUs"
    return ""


def size(field: str, text: str) -> int:
    """Parse a size in bytes. Raises SettingsError."""
    return _quantity(field, text, quantity.value, _SIZE)


def cpu_amount(field: str, text: str) -> int:
    """Parse an amount of CPU in milliCPU. Raises SettingsError."""
    return _quantity(field, text, quantity.milli, "an amount of CPU such as 4 or 1500m")


def _quantity(field: str, text: str, parse: Callable[[str], int], form: str) -> int:
    try:
        amount = parse(text)
    except quantity.QuantityError as error:
        raise SettingsError(f"{field}: {text!r} is not {form}: {error}") from None
    if amount < 0:
        raise SettingsError(f"{field}: {text} is negative; give 0 or more")
    return amount


def given(settings: Struct) -> dict[str, Any]:
    """Return the fields that a file sets, by their names in the struct."""
    values = ((name, getattr(settings, name)) for name in settings.__struct_fields__)
    return {name: value for name, value in values if value is not UNSET}


def camel(name: str) -> str:
    """Return a struct member's name in the kubelet's files: reservedSystemCPUs for reserved_system_cpus."""
    first, *rest = name.split("_")
    return first + "".join("CPUs" if word == "cpus" else word.title() for word in rest)


class EncodingError(SettingsError):
    """Text in another encoding than UTF-8; line and column of the first wrong byte count from 1."""

    def __init__(self, message: str, before: bytes = b"") -> None:
        super().__init__(message)
        self.line = before.count(b"\n") + 1
        self.column = len(before) - (before.rfind(b"\n") + 1) + 1


_MARK: Final = "\ufeff".encode()
_OTHERS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def utf8_text(content: bytes) -> str:
    """Return a file's text without a byte order mark at its beginning. Raises EncodingError."""
    other = next((name for mark, name in _OTHERS if content.startswith(mark)), "")
    if not other and content[:64].count(0) > len(content[:64]) // 4:
        other = "UTF-16"
    if other:
        raise EncodingError(f"is {other} text, as PowerShell's > writes it; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EncodingError("is not UTF-8 text; save it as UTF-8", content[: error.start]) from None
    if (mark := content.find(_MARK, 1)) > 0:
        message = "has a byte order mark (U+FEFF) after its beginning, where files were joined; remove it"
        raise EncodingError(message, content[:mark])
    return text


def parse(content: bytes, kind: type[_T]) -> _T:
    """Decode YAML as a struct. Raises SettingsError without the file's name; an empty file sets nothing."""
    tree = load_yaml(content)
    return convert({} if tree is None else tree, kind)


def load_yaml(content: bytes) -> Any:
    """Parse YAML. Raises SettingsError."""
    try:
        return yaml.load(content, UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except DuplicateKeyError as error:
        raise SettingsError(str(error)) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"not YAML: {' '.join(str(error).split())}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"not UTF-8 text: {error}") from None
    except RecursionError:
        raise SettingsError("not YAML: nested too deeply") from None


def convert(tree: Any, kind: type[_T], *, strict: bool = False) -> _T:
    """Decode plain values; `strict`: structs that ignore fields refuse them, too. Raises SettingsError."""
    try:
        decoded = msgspec.convert(tree, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise next(_faults("", tree, kind), SettingsError(str(error))) from None
    if strict and (fault := next(_ignored("", tree, kind), None)):
        raise fault
    return decoded


def _decode(kind: type, value: Any) -> Any:
    """Decode what msgspec does not know; the error's text is what is allowed."""
    try:
        if kind is CPUSet and isinstance(value, str | int) and not isinstance(value, bool):
            return CPUSet.parse(str(value))
        if kind is Bytes:
            return Bytes(size("", str(value)))
    except (CPUSetError, SettingsError):
        pass
    raise ValueError(_CPU_LIST if kind is CPUSet else _SIZE)


# From msgspec's error to the field: descend to the first value that its type does not allow.


def _faults(field: str, value: Any, kind: Any) -> Iterator[SettingsError]:
    kind = _inner(kind, value)
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if isinstance(plain, type) and issubclass(plain, Struct) and isinstance(value, dict):
        yield from _of_struct(field, value, plain)
    elif get_origin(plain) in (list, tuple) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_item(f"{field}[{index}]", item, get_args(plain)[0])
    elif get_origin(plain) is dict and isinstance(value, dict):
        of_key, of_value = get_args(plain)
        for key, item in value.items():
            yield from _of_item(f"{field}: key", key, of_key)
            yield from _of_item(f"{field}.{key}", item, of_value)
    yield invalid(field or "the file", value, _allowed(kind))


def _of_struct(field: str, value: dict[Any, Any], kind: type[Struct]) -> Iterator[SettingsError]:
    hints = get_type_hints(kind, include_extras=True)
    kinds = {
        name: hints[own]
        for own, name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    }
    for key, item in value.items():
        path = f"{field}.{key}" if field else str(key)
        if key in kinds:
            yield from _of_item(path, item, kinds[key])
        elif kind.__struct_config__.forbid_unknown_fields:
            yield _unknown(path, item, kinds)
    required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
    if missing := [name for name in required if name not in value]:
        yield SettingsError(f"{field}: {missing[0]} is missing")


def _unknown(field: str, value: Any, fields: Iterable[str]) -> SettingsError:
    remedy = f"use {listed}" if (listed := _listed(fields)) else "remove it"
    return SettingsError(f"{field}: unknown field, value {_short(value)}: {remedy}")


def _ignored(field: str, value: Any, kind: Any) -> Iterator[SettingsError]:
    """Yield the fields that no struct has, of a value that has its type."""
    kind = _inner(kind, value)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _ignored(f"{field}[{index}]", item, get_args(kind)[0])
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct):
        kinds = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
        for key, item in value.items():
            path = f"{field}.{key}" if field else str(key)
            if key in kinds:
                yield from _ignored(path, item, kinds[key])
            else:
                yield _unknown(path, item, kinds)


def _of_item(field: str, value: Any, kind: Any) -> Iterator[SettingsError]:
    try:
        msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError:
        yield from _faults(field, value, kind)


def _inner(kind: Any, value: Any) -> Any:
    """The member of a union that the value's form points to, without UNSET and null."""
    if get_origin(kind) is Annotated or not _is_union(kind):
        return kind
    members = [one for one in get_args(kind) if one not in (msgspec.UnsetType, type(None))]
    lists = [one for one in members if isinstance(value, list) and get_origin(one) in (list, tuple)]
    return (lists or members)[0] if len(members) == 1 or lists else kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _allowed(kind: Any) -> str:
    """What a type allows, in words."""
    if get_origin(kind) is Annotated:
        plain, *metas = get_args(kind)
        return next((meta.description for meta in metas if meta.description), None) or _allowed(plain)
    if get_origin(kind) is Literal:
        return _listed(get_args(kind), "or")
    if get_origin(kind) in (list, tuple):
        item = get_args(kind)[0]
        words = get_args(item) if get_origin(item) is Literal else ()
        return f"a list of {_listed(words) if words else _allowed(item)}"
    if _is_union(kind):
        members = [one for one in get_args(kind) if one is not msgspec.UnsetType and one is not type(None)]
        return " or ".join(map(_allowed, members))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"a mapping with {_listed(kind.__struct_encode_fields__)}"
    names = {bool: "true or false", str: "a string", int: "an integer", float: "a number"}
    return (names | {CPUSet: _CPU_LIST, Bytes: _SIZE}).get(kind, "a mapping")


def _listed(words: Iterable[str], last: str = "and") -> str:
    names = list(words)
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)
