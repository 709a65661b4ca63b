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

    def message(self, name: str) -> Any:
        """Return the class of a message. Raises KeyError for one that the table lacks."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"{self._package}.{name}"))


def _file(package: str, messages: Table) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message_type = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(package, message_type, field, number, kind)
    return file


def _add(package: str, owner: Any, name: str, number: int, kind: str) -> None:
    field = owner.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind == "strings":
        kind = f"[{owner.name}.{_add_entry(owner, name)}]"
    if kind.startswith("["):
        kind = kind.strip("[]")
        field.label = _Field.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def _add_entry(owner: Any, field: str) -> str:
    """Add the message of key and value that a map is a list of, by the name that protobuf prescribes."""
    entry = owner.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    return str(entry.name)
