"""Protobuf messages by field number, written without protobuf."""


def encode(fields: dict) -> bytes:
    """A protobuf message: field number to text, whole number, message (a dict), or list of those."""
    return b"".join(
        _field(number, one)
        for number, value in fields.items()
        for one in (value if isinstance(value, list) else [value])
    )


def _field(number: int, value: object) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    payload = value.encode() if isinstance(value, str) else encode(value)
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def strings(values: dict[str, str]) -> list[dict]:
    """A map of strings, as a field."""
    return [{1: key, 2: value} for key, value in values.items()]
