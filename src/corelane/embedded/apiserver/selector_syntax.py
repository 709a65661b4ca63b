"""Label and field selectors as upstream reads them; ValueError is the text of the 400.

After apimachinery's `pkg/labels/selector.go` and `pkg/fields/selector.go`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from corelane import names

_LABEL_TERM = re.compile(
    r"\s*(?:!\s*(?P<absent>[^\s=!<>(),]+)|(?P<key>[^\s=!<>(),]+)"
    r"(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[^\s=!<>(),]*))?)"
    r"\s*(?P<comma>,|$)"
)
_LABEL_FORMS = "KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY>N or KEY<N"
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
        number, bound = _integer(value or ""), _integer(min(self.values))
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
    return tuple(_terms(text.strip()))


def parse_fields(text: str) -> tuple[SelectorTerm, ...]:
    """Terms of a field selector: `=`, `==` and `!=`. Raises ValueError.

    Nothing equal to nothing selects everything.
    """
    terms = [
        _field_term(term, text)
        for term in [match[0] for match in re.finditer(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)]
        if term
    ]
    return tuple(term for term in terms if term != SelectorTerm("", "in", frozenset({""})))


def check_fields(terms: Collection[SelectorTerm], supported: Collection[str]) -> None:
    """Raise ValueError for a field that cannot be selected by."""
    for term in terms:
        if term.key not in supported:
            raise ValueError(
                f"field selector: {term.key} is unknown; use one of {', '.join(sorted(supported))}"
            )


def _terms(text: str) -> Iterator[SelectorTerm]:
    position = 0
    while position < len(text):
        match = _LABEL_TERM.match(text, position)
        if not match or (match["comma"] and match.end() == len(text)):
            raise ValueError(f"label selector: got {text[position:]!r}, expected {_LABEL_FORMS}")
        position = match.end()
        yield _label_term(match)


def _label_term(match: re.Match[str]) -> SelectorTerm:
    key, word = match["absent"] or match["key"], match["set"] or match["operator"]
    if faults := names.qualified_name(key):
        raise ValueError(f'label selector: key "{key}": {"; ".join(faults)}')
    if not word:
        return SelectorTerm(key, "absent" if match["absent"] else "exists")
    values = {value.strip() for value in match["values"].split(",")} if match["set"] else {match["value"]}
    operator = _BINARY[word]
    for value in sorted(values):
        _check_value(key, value, numeric=operator in {"gt", "lt"})
    return SelectorTerm(key, operator, frozenset(values))


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _check_value(key: str, value: str, *, numeric: bool) -> None:
    if numeric and _integer(value) is None:
        raise ValueError(f'label selector: value "{value}" of {key} must be an integer for > and <')
    if faults := names.label_value(value):
        raise ValueError(f'label selector: value "{value}" of {key}: {"; ".join(faults)}')


def _field_term(term: str, whole: str) -> SelectorTerm:
    match = re.match(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
    if not match:
        raise ValueError(f"invalid selector: '{whole}'; can't understand '{term}'")
    operator = "notin" if match[2] == "!=" else "in"
    value = match[3]
    if bad := re.search(r"\\(?![\\,=])", re.sub(r"\\\\", "", value)):
        raise ValueError(f"invalid field selector: invalid escape sequence: {value[bad.start() :][:2]}")
    if "=" in re.sub(r"\\.", "", value):
        raise ValueError("invalid field selector: unescaped character in value: 61")  # Go prints its number
    return SelectorTerm(match[1], operator, frozenset({re.sub(r"\\(.)", r"\1", value)}))
