"""What is said when an object cannot be understood."""

__all__ = ["TranslationError"]


class TranslationError(ValueError):
    """A field or annotation that makes no sense: which (`field`), its `value`, and why.

    A value of None is one that is not there. The message is one line, and never a long one.
    """

    def __init__(self, field: str, value: object, why: str) -> None:
        what = "missing" if value is None else f"invalid value {_short(repr(value))}"
        super().__init__(f"{_short(_printable(field), 300)}: {what}: {_short(_printable(why), 300)}")
        self.field = field
        self.value = value
        self.why = why


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
