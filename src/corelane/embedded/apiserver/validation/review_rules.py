"""Rules on the specification of an access review (`pkg/apis/authorization/validation`)."""

from collections.abc import Iterator
from typing import Any

from corelane import names
from corelane.embedded.apiserver import selector_syntax
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item

Object = dict[str, Any]

_PATH = "spec.resourceAttributes"
_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_NOT_BOTH = "cannot be specified in combination with resourceAttributes"
_SELECTORS = ("fieldSelector", "labelSelector")
_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")


def faults(spec: Object) -> Iterator[StatusCause]:
    """Yield what is wrong with the specification."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        yield causes.invalid("spec.nonResourceAttributes", shown, _NOT_BOTH)
    if resource is None and path is None:
        yield causes.invalid(_PATH, None, _ONE_OF)
    for name in _SELECTORS:
        selector = (resource or {}).get(name)
        if selector is not None:
            yield from _selector(selector, child(_PATH, name), is_label=name == "labelSelector")


def _selector(selector: Object, path: str, *, is_label: bool) -> Iterator[StatusCause]:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements", ())
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        yield causes.invalid(child(path, "rawSelector"), raw, why)
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        yield causes.required(child(path, "requirements"), why)
    for index, requirement in enumerate(requirements):
        where = item(child(path, "requirements"), index)
        if is_label:
            yield from _values(requirement, where)
            yield from _label(requirement, where)
        else:
            if not requirement.get("key"):
                yield causes.required(child(where, "key"), "must be specified")
            yield from _values(requirement, where)


def _values(requirement: Object, path: str) -> Iterator[StatusCause]:
    """An operator that is not known may have values or not: later versions may know it."""
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in _WITH_VALUES and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        yield causes.required(child(path, "values"), why)
    if operator in _WITHOUT_VALUES and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield causes.forbidden(child(path, "values"), why)


def _label(requirement: Object, path: str) -> Iterator[StatusCause]:
    key = requirement.get("key", "")
    yield from causes.all_invalid(child(path, "key"), key, names.qualified_name(key))
    for index, value in enumerate(requirement.get("values", ())):
        where = item(child(path, "values"), index)
        yield from causes.all_invalid(where, value, names.label_value(value))


def ignored_selectors(spec: Object) -> str:
    """Return the evaluation error of selectors that cannot be read; they restrict the question no further."""
    resource = spec.get("resourceAttributes") or {}
    found = []
    for name in _SELECTORS:
        known, unknown = _read(resource.get(name) or {}, is_label=name == "labelSelector")
        if unknown:
            how = "partially ignored" if known else "ignored"
            found.append(f"{child(_PATH, name)} {how} due to parse error")
    return "; ".join(found)


def _read(selector: Object, *, is_label: bool) -> tuple[int, int]:
    """Return how many requirements can be read, and how many cannot."""
    requirements = selector.get("requirements", ())
    if requirements:
        known = sum(_is_readable(one, is_label=is_label) for one in requirements)
        return known, len(requirements) - known
    parse = selector_syntax.parse_labels if is_label else selector_syntax.parse_fields
    try:
        return len(parse(selector.get("rawSelector", ""))), 0
    except ValueError:
        return 0, 1


def _is_readable(requirement: Object, *, is_label: bool) -> bool:
    operator = requirement.get("operator", "")
    if is_label:
        return operator in _WITH_VALUES + _WITHOUT_VALUES
    return operator in _WITH_VALUES and len(requirement.get("values", ())) == 1
