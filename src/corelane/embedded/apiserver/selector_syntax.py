"""Label and field selectors as upstream reads them, with upstream's error texts.

After apimachinery's `pkg/labels/selector.go` and `pkg/fields/selector.go`. ValueError is the 400's text.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from corelane import names

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]+|$)")
_BINARY = {"in": "in", "notin": "notin", "=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One term: `operator` is in, notin, exists, absent, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        number, bound = _integer(value), _integer(min(self.values))
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "gt" else number < bound


@dataclass(frozen=True, slots=True)
class Selectors:
    """Label and field selector of a request; empty selects all objects."""

    labels: tuple[SelectorTerm, ...] = ()
    fields: tuple[SelectorTerm, ...] = ()

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        return all(r.matches(labels) for r in self.labels) and all(r.matches(fields) for r in self.fields)

    def named(self, name: str) -> "Selectors":
        """Only the object of that name."""
        term = SelectorTerm("metadata.name", "in", frozenset({name}))
        return Selectors(self.labels, (*self.fields, term))

    @property
    def empty(self) -> bool:
        return not self.labels and not self.fields

    @property
    def name(self) -> str:
        """The one name asked for by `metadata.name=…`, else ""."""
        for term in self.fields:
            if term.key == "metadata.name" and term.operator == "in":
                return min(term.values)
        return ""


def parse_labels(text: str) -> tuple[SelectorTerm, ...]:
    """Terms of a label selector. Raises ValueError."""
    return tuple(_Parser(text).requirements())


def parse_fields(text: str) -> tuple[SelectorTerm, ...]:
    """Terms of a field selector: `=`, `==` and `!=`. Raises ValueError.

    Nothing equal to nothing selects everything.
    """
    terms = [_field_term(term, text) for term in _split_terms(text) if term]
    return tuple(term for term in terms if term != SelectorTerm("", "in", frozenset({""})))


def check_fields(terms: Collection[SelectorTerm], known: Collection[str], *, strict_list: bool) -> None:
    """Refuse labels that cannot be selected by; `strict_list` is the wording of kinds with metadata only."""
    for term in terms:
        if term.key in known or (strict_list and term.key in {"metadata.name", "metadata.namespace"}):
            continue
        if strict_list:
            raise ValueError(
                f'"{term.key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
        raise ValueError(f"field label not supported: {term.key}")


class _Parser:
    """The grammar of label selectors; a token's text is "" at the end of the string."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        self._tokens.append("")
        self._at = 0

    def requirements(self) -> Iterator[SelectorTerm]:
        while word := self._peek():
            if word != "!" and not _identifier(word):
                raise ValueError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                yield self._requirement()
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            if not self._separator():
                return

    def _separator(self) -> bool:
        word = self._take()
        if word not in {"", ","}:
            raise ValueError(f"found '{word}', expected: ',' or 'end of string'")
        following = self._peek()
        if word and following != "!" and not _identifier(following):
            raise ValueError(f"found '{following}', expected: identifier after ','")
        return bool(word)

    def _requirement(self) -> SelectorTerm:
        negated = self._peek() == "!"
        if negated:
            self._take()
        key = self._take()
        if not _identifier(key):
            raise ValueError(f"found '{key}', expected: identifier")
        _check_key(key)
        if negated or self._peek() in {"", ","}:
            return SelectorTerm(key, "absent" if negated else "exists")
        return self._comparison(key)

    def _comparison(self, key: str) -> SelectorTerm:
        word = self._take()
        if word not in _BINARY:
            raise ValueError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if word in {"in", "notin"} else {self._exact()}
        operator = _BINARY[word]
        for index, value in enumerate(sorted(values)):
            _check_value(key, value, index, numeric=operator in {"gt", "lt"})
        return SelectorTerm(key, operator, frozenset(values))

    def _exact(self) -> str:
        if self._peek() in {"", ","}:
            return ""
        word = self._take()
        if not _identifier(word):
            raise ValueError(f"found '{word}', expected: identifier")
        return word

    def _set(self) -> set[str]:
        opening = self._take()
        if opening != "(":
            raise ValueError(f"found '{opening}' expected: '('")
        values: set[str] = set()
        if self._peek() not in {")", ","} and not _identifier(self._peek()):
            raise ValueError(f"found '{self._peek()}', expected: ',', ')' or identifier")
        while True:
            values.add(self._take() if _identifier(self._peek()) else "")
            word = self._take()
            if word == ")":
                return values
            if word != ",":
                raise ValueError(f"found '{word}', expected: ',' or ')'")

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        word = self._tokens[self._at]
        if word:
            self._at += 1
        return word


def _identifier(word: str) -> bool:
    return bool(word) and word[0] not in "=!<>(),"


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _check_key(key: str) -> None:
    if faults := names.qualified_name(key):
        raise ValueError(f'<nil>: Invalid value: "{key}": {"; ".join(faults)}')


def _check_value(key: str, value: str, index: int, *, numeric: bool) -> None:
    if numeric and _integer(value) is None:
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise ValueError(f'values[{index}]: Invalid value: "{value}": {rule}')
    if faults := names.label_value(value):
        raise ValueError(f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(faults)}')


def _split_terms(text: str) -> list[str]:
    """Split at commas that no backslash escapes."""
    return [match[0] for match in re.finditer(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)]


def _field_term(term: str, whole: str) -> SelectorTerm:
    match = re.match(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
    if not match:
        raise ValueError(f"invalid selector: '{whole}'; can't understand '{term}'")
    operator = "notin" if match[2] == "!=" else "in"
    return SelectorTerm(match[1], operator, frozenset({_unescape(match[3])}))


def _unescape(value: str) -> str:
    if bad := re.search(r"\\(?![\\,=])", re.sub(r"\\\\", "", value)):
        raise ValueError(f"invalid field selector: invalid escape sequence: {value[bad.start() :][:2]}")
    if "=" in re.sub(r"\\.", "", value):
        raise ValueError("invalid field selector: unescaped character in value: 61")  # Go prints its number
    return re.sub(r"\\(.)", r"\1", value)
