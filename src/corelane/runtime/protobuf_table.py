"""Protobuf message classes built from tables of field numbers, in place of generated code.

A table maps message to field to number and type. Types are protobuf's scalars, a message's name, `[TYPE]` for
a list of either, and `strings` for a map of strings to strings. Enumerations are int32. Fields that are not
listed come through unread. Importing this needs protobuf.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

Table: TypeAlias = Mapping[str, Mapping[str, tuple[int, str]]]

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "double": _Field.TYPE_DOUBLE,
}


class MessageTable:
    """The message classes of one protobuf package."""

    def __init__(self, package: str, messages: Table) -> None:
        """Raises TypeError for a field whose type is neither a scalar nor a message of the table."""
        self._package = package
        self._pool = descriptor_pool.DescriptorPool()
        self._pool.Add(_file(package, messages))
        self._any_bytes = descriptor_pool.DescriptorPool()
        self._any_bytes.Add(_file(package, messages, syntax="proto2"))

    def message(self, name: str) -> Any:
        """Return the class of a message. Raises KeyError for one that the table lacks."""
        return self._class(self._pool, name)

    def parse(self, name: str, data: bytes) -> Any:
        """Return a message; strings that are not UTF-8, as some runtimes send, have U+FFFD in their place.

        Raises ValueError for bytes that are not such a message.
        """
        kind = self.message(name)
        try:
            return kind.FromString(data)
        except DecodeError:
            pass
        try:
            unchecked = self._class(self._any_bytes, name).FromString(data)  # proto2 does not check strings
            _replace_invalid(unchecked)
            return kind.FromString(unchecked.SerializeToString())
        except DecodeError:
            raise ValueError(f"{len(data)} bytes that are not a {self._package}.{name}") from None

    def _class(self, pool: Any, name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{self._package}.{name}"))


def _replace_invalid(found: Any) -> None:
    """Replace what is not UTF-8 in the strings of a message, and of those within it."""
    for field, value in found.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else (value,):
                _replace_invalid(one)
        elif field.type == field.TYPE_STRING and field.is_repeated:
            value[:] = [_text(one) for one in value]
        elif field.type == field.TYPE_STRING:
            setattr(found, field.name, _text(value))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _file(package: str, messages: Table, syntax: str = "proto3") -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        message_type = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(package, message_type, field, number, kind, is_map=syntax == "proto3")
    return file


def _add(package: str, owner: Any, name: str, number: int, kind: str, *, is_map: bool) -> None:
    field = owner.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind == "strings":
        kind = f"[{owner.name}.{_add_entry(owner, name, is_map=is_map)}]"
    if kind.startswith("["):
        kind = kind.strip("[]")
        field.label = _Field.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def _add_entry(owner: Any, field: str, *, is_map: bool) -> str:
    """Add the message of key and value that a map is a list of, by the name that protobuf prescribes.

    Without `is_map` it is that list: maps check their keys.
    """
    entry = owner.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
    entry.options.map_entry = is_map
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    return str(entry.name)
