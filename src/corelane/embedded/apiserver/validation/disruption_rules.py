"""Rules on PodDisruptionBudgets (`pkg/apis/policy/validation`), and on conditions (apimachinery)."""

from collections.abc import Iterator
from typing import Any

from corelane import names
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema.disruption_kind import DISRUPTION_SPEC
from corelane.embedded.apiserver.schema.notation import META, TYPES
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule, walk

_LONGEST_REASON = 1024
_LONGEST_MESSAGE = 32 * 1024
_STATUSES = ("False", "True", "Unknown")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_CONDITION = TYPES[f"{META}Condition"]


@rule("disruption-numbers")
def _numbers(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    names = [name for name in ("minAvailable", "maxUnavailable") if name in spec]
    if len(names) == 2:
        shown = go_rendering.rendered(DISRUPTION_SPEC, spec)
        yield causes.invalid(path, shown, "minAvailable and maxUnavailable cannot be both set")
    for name in names:
        yield from _count_or_percentage(spec[name], child(path, name))


def _count_or_percentage(value: Any, path: str) -> Iterator[StatusCause]:
    if isinstance(value, int):
        yield from [causes.invalid(path, value, causes.NEGATIVE)] if value < 0 else []
        return
    faults = formats.percentage(value)
    yield from causes.all_invalid(path, value, faults)
    if not faults and _above_100(value[:-1]):
        yield causes.invalid(path, value, "must not be greater than 100%")


def _above_100(digits: str) -> bool:
    """Of a number that Go's int cannot hold upstream takes the largest one that it can."""
    return len(digits.lstrip("0")) > 3 or int(digits) > 100


def status(budget: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodDisruptionBudgetStatusUpdate`."""
    found, scope = budget.get("status", {}), Scope(budget)
    seen: set[str] = set()
    for index, condition in enumerate(found.get("conditions", ())):
        where, name = item("status.conditions", index), condition.get("type", "")
        if name in seen:
            yield causes.duplicate(child(where, "type"), name)
        seen.add(name)
        yield from walk(_CONDITION, condition, where, scope)
    for name in _COUNTS:
        if found.get(name, 0) < 0:
            yield causes.invalid(child("status", name), found[name], causes.NEGATIVE)


@rule("condition")
def _condition(condition: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    kind, state = condition.get("type", ""), condition.get("status", "")
    yield from causes.all_invalid(child(path, "type"), kind, names.qualified_name(kind))
    if state not in _STATUSES:
        yield causes.not_supported(child(path, "status"), state, _STATUSES)
    generation = condition.get("observedGeneration", 0)
    if generation < 0:
        why = "must be greater than or equal to zero"
        yield causes.invalid(child(path, "observedGeneration"), generation, why)
    if not condition.get("lastTransitionTime"):
        yield causes.required(child(path, "lastTransitionTime"))
    yield from _reason(condition.get("reason", ""), child(path, "reason"))
    if len(condition.get("message", "").encode()) > _LONGEST_MESSAGE:
        yield causes.too_long(child(path, "message"), _LONGEST_MESSAGE)


def _reason(reason: str, path: str) -> Iterator[StatusCause]:
    if not reason:
        yield causes.required(path)
        return
    yield from causes.all_invalid(path, reason, formats.condition_reason(reason))
    if len(reason.encode()) > _LONGEST_REASON:
        yield causes.too_long(path, _LONGEST_REASON)
