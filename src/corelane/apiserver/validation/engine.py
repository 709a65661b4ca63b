"""The walk over an object by its table: each row's rules in the order that the record gives.

A rule is a function named in the tables. Rules on a value get it when it is there and not zero (`name!` also
runs on the zero value); `required` is one of them. Rules on a record (`@name` in its order) get the object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from corelane.apiserver.schema.notation import Field, List, Record, Scalar, Shape
from corelane.apiserver.validation import causes
from corelane.apiserver.validation.causes import child, item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from corelane.apiserver.status import Cause

Object: TypeAlias = dict[str, Any]
Rule: TypeAlias = "Callable[[Any, str, Scope], Iterable[Cause]]"
Format: TypeAlias = "Callable[[Any], list[str]]"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a rule may know beside its value: the whole object, the one it replaces, and facts on the way."""

    root: Object
    old: Object | None = None
    volumes: dict[str, Object] = field(default_factory=dict)

    @property
    def spec(self) -> Object:
        spec = self.root.get("spec")
        return spec if isinstance(spec, dict) else {}


RULES: dict[str, Rule] = {}


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


def walk(record: Record, obj: Object, path: str, scope: Scope) -> list[Cause]:
    """The faults of an object, by its record's order."""
    found: list[Cause] = []
    for step in record.order or record.fields:
        if step.startswith("@"):
            found.extend(RULES[step[1:]](obj, path, scope))
        else:
            found.extend(check_field(record.fields[step], obj, path, scope))
    return found


def check_field(row: Field, obj: Object, path: str, scope: Scope) -> list[Cause]:
    """The faults of one field, and of what is inside it."""
    value, where = obj.get(row.name), child(path, row.name)
    if _unset(row, value):
        return _faults_of_nothing(row, value, where, scope)
    found = [cause for name in row.check for cause in _applied(name, value, where, scope)]
    if row.enum and not found and value not in row.enum:
        found.append(causes.not_supported(where, value, row.enum))
    return found + inside(row.shape, value, where, scope)


def inside(shape: Shape, value: Any, path: str, scope: Scope) -> list[Cause]:
    """The faults of the parts of a value."""
    if isinstance(shape, Record):
        return walk(shape, value, path, scope)
    if isinstance(shape, List) and isinstance(shape.item, Record):
        return [
            cause
            for index, part in enumerate(value)
            for cause in walk(shape.item, part, item(path, index), scope)
        ]
    return []


def _unset(row: Field, value: Any) -> bool:
    if value is None:
        return True
    plain = isinstance(row.shape, Scalar | List)
    return row.presence != "opt" and plain and not value


def _faults_of_nothing(row: Field, value: Any, path: str, scope: Scope) -> list[Cause]:
    found = [causes.required(path)] if "required" in row.check else []
    zero = row.shape.zero if value is None and isinstance(row.shape, Scalar) else value
    for name in row.check:
        if name.endswith("!"):
            found.extend(RULES[name[:-1]](zero, path, scope))
    if row.enum and row.presence == "req" and not found:
        found.append(causes.not_supported(path, zero, row.enum))
    return found


def _applied(name: str, value: Any, path: str, scope: Scope) -> Iterable[Cause]:
    if name == "required":
        return [] if value != "" else [causes.required(path)]
    return RULES[name.removesuffix("!")](value, path, scope)
