"""The walk over an object by its table: each row's rules in the order that the record gives.

A rule is a function named in the tables. Rules on a value get it when it is there and not zero (`name!` also
runs on the zero value); `required` is one of them. Rules on a record (`@name` in its order) get the object.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corelane.embedded.apiserver.schema.notation import FieldRow, ListType, ObjectType, ScalarType, Shape
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item

Object: TypeAlias = dict[str, Any]
Rule: TypeAlias = "Callable[[Any, str, Scope], Iterable[StatusCause]]"
Format: TypeAlias = "Callable[[Any], list[str]]"


@dataclass(frozen=True, slots=True)
class Scope:
    """Context of a rule: the whole object, the one it replaces, and facts found on the way."""

    root: Object
    old: Object | None = None
    volumes: dict[str, Object] = field(default_factory=dict)
    spread: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def spec(self) -> Object:
        spec = self.root.get("spec")
        return spec if isinstance(spec, dict) else {}


RULES: dict[str, Rule] = {}
MAX_TEXT = 4 * 2**20  # bytes of faults after which no more are looked for


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under the name that the tables use."""

    def register(function: Rule) -> Rule:
        assert name not in RULES, name
        RULES[name] = function
        return function

    return register


def format_rule(name: str, check: Format) -> None:
    """Register a rule from a function that says what is wrong with a value."""
    RULES[name] = lambda value, path, _scope: causes.all_invalid(path, value, check(value))


def walk(record: ObjectType, obj: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """The faults of an object, by its record's order."""
    for step in record.order or record.fields:
        if step.startswith("@"):
            yield from RULES[step[1:]](obj, path, scope)
        else:
            yield from check_field(record.fields[step], obj, path, scope)


def check_field(row: FieldRow, obj: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """The faults of one field, and of what is inside it."""
    value = obj.get(row.name)
    if _unset(row, value):
        if row.check or row.enum:
            yield from _faults_of_nothing(row, value, child(path, row.name), scope)
        return
    where = child(path, row.name)
    sound = True
    for name in row.check:
        for cause in _applied(name, value, where, scope):
            sound = False
            yield cause
    if row.enum and sound and value not in row.enum:
        yield causes.not_supported(where, value, row.enum)
    yield from inside(row.shape, value, where, scope)


def inside(shape: Shape, value: Any, path: str, scope: Scope) -> Iterator[StatusCause]:
    """The faults of the parts of a value."""
    if isinstance(shape, ObjectType):
        yield from walk(shape, value, path, scope)
    elif isinstance(shape, ListType) and isinstance(shape.item, ObjectType):
        for index, part in enumerate(value):
            yield from walk(shape.item, part, item(path, index), scope)


def limited(faults: Iterable[StatusCause]) -> list[StatusCause]:
    """The faults, but not without end: some texts repeat what was sent, as often as it is wrong."""
    found, size = [], 0
    for cause in faults:
        found.append(cause)
        size += len(cause.message) + len(cause.field)
        if size > MAX_TEXT:
            break
    return found


def _unset(row: FieldRow, value: Any) -> bool:
    if value is None:
        return True
    plain = isinstance(row.shape, ScalarType | ListType)
    return row.presence != "opt" and plain and not value


def _faults_of_nothing(row: FieldRow, value: Any, path: str, scope: Scope) -> list[StatusCause]:
    found = [causes.required(path)] if "required" in row.check else []
    zero = row.shape.zero if value is None and isinstance(row.shape, ScalarType) else value
    for name in row.check:
        if name.endswith("!"):
            found.extend(RULES[name[:-1]](zero, path, scope))
    if row.enum and row.presence == "req" and not found:
        found.append(causes.not_supported(path, zero, row.enum))
    return found


def _applied(name: str, value: Any, path: str, scope: Scope) -> Iterable[StatusCause]:
    if name == "required":
        return [] if value != "" else [causes.required(path)]
    return RULES[name.removesuffix("!")](value, path, scope)
