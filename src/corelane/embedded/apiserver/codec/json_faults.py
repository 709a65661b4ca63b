"""What Go's `encoding/json` says of a text that is not JSON: the first wrong byte, and where it stands.

After Go's src/encoding/json/scanner.go. Bytes are quoted as Go 1.27 does, whose answers are recorded.
"""

import re
from typing import Final

END: Final = "unexpected end of JSON input"

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(rb"[0-9]*")
_HEXADECIMAL: Final = re.compile(rb"[0-9a-fA-F]{0,4}")
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}
_ESCAPES: Final = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 39: "'", 92: "\\"}
_AFTER: Final = {
    b"": "after top-level value",
    b"}": "after object key:value pair",
    b"]": "after array element",
    b":": "after object key",
}


class _FaultError(Exception):
    pass


def first_fault(text: bytes) -> str | None:
    """Go's message, or None if the text is JSON."""
    try:
        _scan(text)
    except _FaultError as fault:
        return str(fault)
    return None


def _scan(text: bytes) -> None:
    closing: list[bytes] = []
    at = _value(text, 0, closing, may_close=False)
    while True:
        at, byte = _next(text, at)
        inner = closing[-1] if closing else b""
        if not inner and not byte:
            return
        if byte == inner != b":":
            closing.pop()
            at += 1
        elif inner == b":" == byte:
            closing[-1] = b"}"
            at = _value(text, at + 1, closing, may_close=False)
        elif inner in {b"}", b"]"} and byte == b",":
            key = inner == b"}"
            at = _key(text, at + 1, closing) if key else _value(text, at + 1, closing, may_close=False)
        else:
            raise _wrong(text, at, _AFTER[inner])


def _next(text: bytes, at: int) -> tuple[int, bytes]:
    at = _end(_SPACE, text, at)
    return at, text[at : at + 1]


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Return where the part ends that a pattern matches there, be it empty."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _value(text: bytes, at: int, closing: list[bytes], *, may_close: bool) -> int:
    """Return where a value's first part ends: opened objects and lists are put onto `closing`."""
    while True:
        at, byte = _next(text, at)
        if byte == b"]" and may_close:
            return at
        if byte == b"{":
            closing.append(b"}")
            at, byte = _next(text, at + 1)
            return at if byte == b"}" else _key(text, at, closing)
        if byte != b"[":
            return _scalar(text, at, byte)
        closing.append(b"]")
        at, may_close = at + 1, True


def _key(text: bytes, at: int, closing: list[bytes]) -> int:
    at, byte = _next(text, at)
    if byte != b'"':
        raise _wrong(text, at, "looking for beginning of object key string")
    closing[-1] = b":"
    return _string(text, at + 1)


def _scalar(text: bytes, at: int, byte: bytes) -> int:
    if byte == b'"':
        return _string(text, at + 1)
    if byte == b"-" or byte.isdigit():
        return _number(text, at)
    word = _LITERALS.get(byte)
    if word is None:
        raise _wrong(text, at, "looking for beginning of value")
    for offset in range(1, len(word)):
        if text[at + offset : at + offset + 1] != word[offset : offset + 1]:
            where = f"in literal {word.decode()} (expecting '{chr(word[offset])}')"
            raise _wrong(text, at + offset, where)
    return at + len(word)


def _string(text: bytes, at: int) -> int:
    """Return where a string ends whose inner part begins at `at`."""
    while True:
        at = _end(_PLAIN, text, at)
        byte = text[at : at + 1]
        if byte == b'"':
            return at + 1
        if byte != b"\\":
            raise _wrong(text, at, "in string literal")
        at += 1
        escape = text[at : at + 1]
        if escape == b"u":
            end = _end(_HEXADECIMAL, text, at + 1)
            if end < at + 5:
                raise _wrong(text, end, r"in \u hexadecimal character escape")
            at = end
        elif escape and escape in b'bfnrt\\/"':
            at += 1
        else:
            raise _wrong(text, at, "in string escape code")


def _number(text: bytes, at: int) -> int:
    at += text[at : at + 1] == b"-"
    at = at + 1 if text[at : at + 1] == b"0" else _digits(text, at, "in numeric literal")
    if text[at : at + 1] == b".":
        at = _digits(text, at + 1, "after decimal point in numeric literal")
    if text[at : at + 1] in {b"e", b"E"}:
        at += 1
        at += text[at : at + 1] in {b"+", b"-"}
        at = _digits(text, at, "in exponent of numeric literal")
    return at


def _digits(text: bytes, at: int, where: str) -> int:
    end = _end(_DIGITS, text, at)
    if end == at:
        raise _wrong(text, at, where)
    return end


def _wrong(text: bytes, at: int, where: str) -> _FaultError:
    if at >= len(text):
        return _FaultError(END)
    return _FaultError(f"invalid character {_quoted(text[at : at + 4])} {where}")


def _quoted(start: bytes) -> str:
    """The first letter as Go's `strconv.QuoteRune`; a byte that begins none in hexadecimal."""
    for length in range(1, 5):
        try:
            letter = start[:length].decode()
        except UnicodeDecodeError:
            continue
        break
    else:
        return f"'\\x{start[0]:02x}'"
    code = ord(letter)
    if code in _ESCAPES:
        return f"'\\{_ESCAPES[code]}'"
    if letter.isprintable():
        return f"'{letter}'"
    return f"'\\x{code:02x}'" if code < 0x80 else f"'\\u{code:04x}'" if code < 0x10000 else f"'\\U{code:08x}'"
