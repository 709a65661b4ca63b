"""Protobuf messages by field number, written without protobuf."""


def encode(fields: dict) -> bytes:
    """A protobuf message: field number to text, bytes, whole number, message (a dict), or list of those."""
    return b"".join(
        _field(number, one)
        for number, value in fields.items()
        for one in (value if isinstance(value, list) else [value])
    )


def _field(number: int, value: object) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    payload = value.encode() if isinstance(value, str) else value
    payload = encode(payload) if isinstance(payload, dict) else payload
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def strings(values: dict[str, str]) -> list[dict]:
    """A map of strings, as a field."""
    return [{1: key, 2: value} for key, value in values.items()]


def decode(message: bytes) -> dict[int, list]:
    """Field number to its values: whole numbers, or bytes for texts and messages. Skips fixed sizes."""
    fields: dict[int, list] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(message, at)
        elif kind == 2:
            length, at = _read_varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            at += {1: 8, 5: 4}[kind]
            continue
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
