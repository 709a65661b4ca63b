"""What is said when an object cannot be understood."""

__all__ = ["TranslationError"]


class TranslationError(ValueError):
    """A field or annotation that makes no sense: which (`field`), its `value`, and why.

    A value of None is one that is not there.
    """

    def __init__(self, field: str, value: object, why: str) -> None:
        what = "missing" if value is None else f"invalid value {_short(repr(value))}"
        super().__init__(f"{field}: {what}: {why}")
        self.field = field
        self.value = value
        self.why = why


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
