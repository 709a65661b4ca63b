"""An OpenAPI v2 document in protobuf, as gnostic's `openapi.v2.Document`.

A message is a table from JSON member to field number and encoder (numbers from gnostic's OpenAPIv2.proto).
Only what our documents contain is there, and an unknown member is an error. This needs no protobuf library.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Encoder = Callable[[Any], bytes]
Table = Mapping[str, tuple[int, Encoder]]

_EXTENSION = "x-"


def document(openapi: Mapping[str, Any]) -> bytes:
    """The bytes of a whole document; raises KeyError for a member that has no row here."""
    return _message(_DOCUMENT, openapi)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field: a string, bytes, or a message."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def text(number: int) -> tuple[int, Encoder]:
    return number, lambda value: _field(number, value.encode())


def texts(number: int) -> tuple[int, Encoder]:
    return number, lambda values: b"".join(_field(number, value.encode()) for value in values)


def flag(number: int) -> tuple[int, Encoder]:
    return number, lambda value: _varint(number << 3) + _varint(int(value))


def integer(number: int) -> tuple[int, Encoder]:
    return number, lambda value: _varint(number << 3) + _varint(value)


def double(number: int) -> tuple[int, Encoder]:
    return number, lambda value: _varint(number << 3 | 1) + struct.pack("<d", value)


def anything(number: int) -> tuple[int, Encoder]:
    """An Any of gnostic's, whose content is YAML; JSON is YAML."""
    return number, lambda value: _field(number, _any(value))


def anythings(number: int) -> tuple[int, Encoder]:
    return number, lambda values: b"".join(_field(number, _any(value)) for value in values)


def one(number: int, encode: Encoder) -> tuple[int, Encoder]:
    return number, lambda value: _field(number, encode(value))


def many(number: int, encode: Encoder) -> tuple[int, Encoder]:
    return number, lambda values: b"".join(_field(number, encode(value)) for value in values)


def _any(value: Any) -> bytes:
    return _field(2, msgspec.json.encode(value))


def _message(table: Table, value: Mapping[str, Any], extensions: int = 0) -> bytes:
    """The members of `value` by the table; members `x-…` go to the field `extensions` as named values."""
    parts = []
    for key, member in value.items():
        if key.startswith(_EXTENSION) and extensions:
            parts.append(_field(extensions, _named(key, _any(member))))
        else:
            parts.append(table[key][1](member))
    return b"".join(parts)


def _named(name: str, value: bytes) -> bytes:
    """One entry of a map, which gnostic writes as a message of name and value."""
    return _field(1, name.encode()) + _field(2, value)


def _map(number: int, encode: Encoder, value: Mapping[str, Any]) -> bytes:
    return b"".join(_field(number, _named(name, encode(member))) for name, member in value.items())


def _schema(value: Mapping[str, Any]) -> bytes:
    return _message(_SCHEMA, value, extensions=31)


def _operation(value: Mapping[str, Any]) -> bytes:
    return _message(_OPERATION, value, extensions=13)


def _parameter(value: Mapping[str, Any]) -> bytes:
    """ParametersItem → Parameter → a body, or a path or query parameter."""
    if value["in"] == "body":
        return _field(1, _field(1, _message(_BODY, value)))
    number, table = (3, _QUERY) if value["in"] == "query" else (4, _PATH)
    return _field(1, _field(2, _field(number, _message(table, value))))


def _response(value: Mapping[str, Any]) -> bytes:
    return _field(1, _message(_RESPONSE, value))


def _strings(values: str | Iterable[str]) -> bytes:
    names = [values] if isinstance(values, str) else values
    return b"".join(_field(1, name.encode()) for name in names)


_SCHEMA: Table = {
    "$ref": text(1),
    "format": text(2),
    "description": text(4),
    "default": anything(5),
    "maximum": double(7),
    "minimum": double(9),
    "maxLength": integer(11),
    "pattern": text(13),
    "required": texts(19),
    "enum": anythings(20),
    "additionalProperties": one(21, lambda schema: _field(1, _schema(schema))),
    "type": one(22, _strings),
    "items": one(23, lambda schema: _field(1, _schema(schema))),
    "allOf": many(24, _schema),
    "properties": one(25, lambda members: _map(1, _schema, members)),
}
_BODY: Table = {
    **{name: text(number) for number, name in enumerate(("description", "name", "in"), 1)},
    "required": flag(4),
    "schema": one(5, _schema),
}
_PATH: Table = {
    "required": flag(1),
    **{name: text(number) for number, name in enumerate(("in", "description", "name", "type"), 2)},
}
_QUERY: Table = {**_PATH, "type": text(6)}
_RESPONSE: Table = {"description": text(1), "schema": one(2, lambda schema: _field(1, _schema(schema)))}
_OPERATION: Table = {
    "description": text(3),
    "operationId": text(5),
    "produces": texts(6),
    "consumes": texts(7),
    "parameters": many(8, _parameter),
    "responses": one(9, lambda responses: _map(1, _response, responses)),
}
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_PATH_ITEM: Table = {method: one(number, _operation) for method, number in _METHODS.items()}
_INFO: Table = {"title": text(1), "version": text(2)}
_DOCUMENT: Table = {
    "swagger": text(1),
    "info": one(2, lambda info: _message(_INFO, info)),
    "paths": one(8, lambda paths: _map(2, lambda item: _message(_PATH_ITEM, item), paths)),
    "definitions": one(9, lambda schemas: _map(1, _schema, schemas)),
}
