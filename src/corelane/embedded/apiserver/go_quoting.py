"""Text in Go's quotes, as upstream's messages have it."""

_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_KEPT_ESCAPES = 4096


class _Escapes(dict[int, str]):
    """Go's escapes by code point, found out as they are needed."""

    def __missing__(self, code: int) -> str:
        letter = _escaped(chr(code))
        if len(self) < _KEPT_ESCAPES:
            self[code] = letter
        return letter


_ESCAPES = _Escapes()


def quoted(text: str) -> str:
    """Go's %q."""
    return f'"{text.translate(_ESCAPES)}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    if letter in _GO_ESCAPES:
        return _GO_ESCAPES[letter]
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
