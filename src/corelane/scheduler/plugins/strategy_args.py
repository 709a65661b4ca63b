"""The argument `scoringStrategy` of plugins of scheduler-plugins and Koordinator: a type, and weights."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from corelane.scheduler.framework.field_faults import shown

_DEFAULT: Final = "LeastAllocated"
"""The type of both plugins where none is given."""
_NAME: Final = "scoringStrategy"
_FIELDS: Final = ("type", "resources")
_OF_RESOURCE: Final = ("name", "weight")


def strategy_type(given: Mapping[str, Any] | None, types: Sequence[str], name: str = _NAME) -> str:
    """Return the type, LeastAllocated where none is given. Raises ValueError for a wrong or unknown field."""
    strategy = given or {}
    _refuse_others(strategy, _FIELDS, name)
    kind = strategy.get("type", _DEFAULT)
    if kind not in types:
        raise ValueError(f"{name}.type {kind!r} is unknown: use one of {', '.join(types)}")
    return str(kind)


def weights(given: Mapping[str, Any] | None, name: str = _NAME) -> dict[str, int]:
    """Return the weight of each resource, 1 where none or 0 is given. Raises ValueError."""
    listed = (given or {}).get("resources") or ()
    if not isinstance(listed, list | tuple):
        raise ValueError(f"{name}.resources {shown(listed)}: use a list of name and weight")
    found: dict[str, int] = {}
    for i, one in enumerate(listed):
        where = f"{name}.resources[{i}]"
        if not isinstance(one, Mapping):
            raise ValueError(f"{where} {shown(one)}: use a mapping with name and weight")
        _refuse_others(one, _OF_RESOURCE, where)
        resource, weight = one.get("name"), one.get("weight") or 1
        if not isinstance(resource, str) or not resource:
            raise ValueError(f"{where}.name {shown(resource)}: use the name of a resource")
        if resource in found:
            raise ValueError(f"{where}.name {resource!r}: name a resource once")
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
            raise ValueError(f"{where}.weight {shown(weight)}: use a whole number, 1 or more")
        found[resource] = weight
    return found


def _refuse_others(given: Mapping[str, Any], fields: Sequence[str], where: str) -> None:
    for field in given:
        if field not in fields:
            close = get_close_matches(str(field), fields, 1) or (" and ".join(fields),)
            raise ValueError(f"{where}.{field} is not supported: use {close[0]}, or remove it")
