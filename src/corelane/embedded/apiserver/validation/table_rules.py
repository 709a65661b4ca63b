"""The walk over an object by its table: each row's checks, then the rules on several fields of the record.

A rule is a function registered under the name that the tables use. A rule on a value gets it where it is set;
a rule on a record gets the object. Rows below which nothing is checked are left out of
the walk when a record is met for the first time.

Custom resources have a walk of their own, as kube-openapi's: a number that is not an integer is faulted
twice, once with `<nil>` for a field.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from corelane.embedded.apiserver.schema.defaults_and_formats import FORMATS
from corelane.embedded.apiserver.schema.notation import (
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
    read_length,
    read_range,
)
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item

Rule: TypeAlias = "Callable[[Any, str, Scope], Iterable[StatusCause]]"
RULES: dict[str, Rule] = {}
MOST_CAUSES = 1000
_PLANS: dict[str, "tuple[_Step | Rule, ...]"] = {}
_ENVELOPE = {"apiVersion", "kind", "metadata"}
_NOWHERE = "<nil>"


@dataclass(frozen=True, slots=True)
class Scope:
    """Context of a rule: the whole object, and the one it replaces."""

    root: Object
    old: Object | None = None

    @property
    def spec(self) -> Object:
        spec = self.root.get("spec")
        return spec if isinstance(spec, dict) else {}


@dataclass(frozen=True, slots=True)
class _Step:
    """What is checked of a row: its checks, those of the zero value, and what is inside it."""

    row: FieldRow
    checks: tuple[Rule, ...]
    of_zero: tuple[Rule, ...]
    required: bool
    record: ObjectType | None
    scalar: bool  # or a list: zero counts as unset


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under the name that the tables use."""

    def register(function: Rule) -> Rule:
        assert name not in {*RULES, *FORMATS}, name
        RULES[name] = function
        return function

    return register


def limited(faults: Iterable[StatusCause]) -> list[StatusCause]:
    """The faults, but not without end."""
    return list(islice(faults, MOST_CAUSES))


def walk(record: ObjectType, obj: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """The faults of an object, by its record."""
    plan = _PLANS.get(record.model)
    if plan is None:
        plan = _PLANS[record.model] = _plan(record)
    for step in plan:
        if not isinstance(step, _Step):
            yield from step(obj, path, scope)
            continue
        row = step.row
        value = obj.get(row.name)
        if value is None or (not value and step.scalar and row.presence != "opt"):
            if step.required or step.of_zero or row.enum:
                yield from _faults_of_nothing(step, value, child(path, row.name), scope)
            continue
        where = child(path, row.name)
        faults = [cause for check in step.checks for cause in check(value, where, scope)]
        if step.required and value == "":
            faults.append(causes.required(where))
        yield from faults
        if row.enum and not faults and value not in row.enum:
            yield causes.not_supported(where, value, row.enum)
        if step.record and isinstance(row.shape, ListType):
            for index, part in enumerate(value):
                yield from walk(step.record, part, item(where, index), scope)
        elif step.record:
            yield from walk(step.record, value, where, scope)


def _faults_of_nothing(step: _Step, value: Any, path: str, scope: Scope) -> list[StatusCause]:
    row = step.row
    zero = row.shape.zero if value is None and isinstance(row.shape, ScalarType) else value
    faults = [causes.required(path)] if step.required else []
    faults += [cause for check in step.of_zero for cause in check(zero, path, scope)]
    if row.enum and row.presence == "req" and not faults:
        faults.append(causes.not_supported(path, zero, row.enum))
    return faults


def _plan(record: ObjectType) -> "tuple[_Step | Rule, ...]":
    steps = (_step(row) for row in record)
    return (*(step for step in steps if step), *(RULES[name] for name in record.rules))


def _step(row: FieldRow) -> _Step | None:
    checks = {text: _check(text, row.shape) for text in row.check if text != "required"}
    leaf = row.shape.item if isinstance(row.shape, ListType) else row.shape
    inner = leaf if row.walked and isinstance(leaf, ObjectType) and _plan(leaf) else None
    if not (row.check or row.enum or inner):
        return None
    of_zero = tuple(check for text, check in checks.items() if text.endswith("!"))
    scalar = isinstance(row.shape, ScalarType | ListType)
    return _Step(row, tuple(checks.values()), of_zero, "required" in row.check, inner, scalar)


def _check(text: str, shape: Shape) -> Rule:
    """Return the function for a check: of a value, of each item of a list, or of each key of a map."""
    name, bounds, longest = text.rstrip("!"), read_range(text), read_length(text)
    if name in RULES:
        return RULES[name]

    def single(value: Any, path: str, _scope: Scope | None = None) -> list[StatusCause]:
        if longest is not None:
            return [causes.too_long(path, longest)] if len(value.encode()) > longest else []
        if bounds is None:
            return causes.all_invalid(path, value, FORMATS[name](value))
        low, high = bounds
        if (low is None or value >= low) and (high is None or value <= high):
            return []
        why = f"must be at least {low}" if high is None else f"must be between {low} and {high}"
        return [causes.invalid(path, value, why)]

    def each(values: Iterable[Any], path: str, _scope: Scope) -> Iterator[StatusCause]:
        for index, value in enumerate(values):
            yield from single(value, item(path, index if isinstance(shape, ListType) else value))

    return each if isinstance(shape, ListType | MapType) else single


_encode = msgspec.json.Encoder().encode


def validate(record: ObjectType, obj: Object, old: Any = None, path: str = "") -> Iterator[StatusCause]:
    """The faults of an object against its schema; those of missing fields come last at each level.

    What is as in `old`, the valid object that it replaces, is not looked at again.
    """
    rows = [row for row in record if not (path == "" and row.name in _ENVELOPE)]
    before = old if isinstance(old, dict) else {}
    for row in rows:
        if obj.get(row.name) is not None:
            yield from _value(row.shape, obj[row.name], child(path, row.name), row, before.get(row.name))
    for row in rows:
        if row.presence == "req" and obj.get(row.name) is None:
            yield causes.required(child(path, row.name))


def _value(shape: Shape, value: Any, path: str, row: FieldRow, old: Any) -> Iterator[StatusCause]:
    if isinstance(shape, ScalarType):
        if shape.name in {"int-or-string", "int64"}:
            yield from _integer(value, path, row, or_text=shape.name == "int-or-string")
        elif _type_of(value) != shape.name:
            yield _wrong_type(path, shape.name, _type_of(value))
        return
    if old is not None and _encode(value) == _encode(old):  # unlike `==` this tells 1 from True
        return
    expected = "object" if isinstance(shape, ObjectType) else "array"
    if _type_of(value) != expected:
        yield _wrong_type(path, expected, _type_of(value))
    elif isinstance(shape, ObjectType):
        yield from validate(shape, value, old, path)
    elif isinstance(shape, ListType):
        before = old if isinstance(old, list) else []
        for index, part in enumerate(value):
            previous = before[index] if index < len(before) else None
            yield from _value(shape.item, part, item(path, index), row, previous)


def _integer(value: Any, path: str, row: FieldRow, *, or_text: bool) -> Iterator[StatusCause]:
    actual = _type_of(value)
    if actual == "integer" or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53):
        return
    if or_text and actual == "string":
        if row.pattern and not re.search(row.pattern, value):
            yield causes.invalid(path, value, f"must match {row.pattern}")
        return
    yield _wrong_type(path, "integer,string" if or_text else "integer", actual)
    if or_text or actual == "number":
        yield causes.invalid(_NOWHERE, "", f"{path}: got a {actual}, expected an integer of 64 bits")


def _wrong_type(path: str, expected: str, actual: str) -> StatusCause:
    return causes.type_invalid(path, actual, f'{path} in body must be of type {expected}: "{actual}"')


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "number"
    names = {int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return names.get(type(value), "object")
