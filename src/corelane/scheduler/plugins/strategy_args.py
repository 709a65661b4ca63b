"""The argument `scoringStrategy` of plugins of scheduler-plugins and Koordinator: a type, and weights."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from corelane.scheduler.framework.field_faults import shown

_DEFAULT: Final = "LeastAllocated"
"""The type of both plugins where none is given."""
_FIELDS: Final = ("type", "resources")
_OF_RESOURCE: Final = ("name", "weight")


def strategy_type(given: Mapping[str, Any] | None, types: Sequence[str]) -> str:
    """Return the type, LeastAllocated where none is given. Raises ValueError for a wrong or unknown field."""
    strategy = given or {}
    _refuse_others(strategy, _FIELDS, "scoringStrategy")
    kind = strategy.get("type", _DEFAULT)
    if kind not in types:
        raise ValueError(f"scoringStrategy.type {kind!r} is unknown: use one of {', '.join(types)}")
    return str(kind)


def weights(given: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the weight of each resource, 1 where none or 0 is given. Raises ValueError."""
    listed = (given or {}).get("resources") or ()
    if not isinstance(listed, list | tuple):
        raise ValueError(f"scoringStrategy.resources {shown(listed)}: use a list of name and weight")
    found: dict[str, int] = {}
    for i, one in enumerate(listed):
        where = f"scoringStrategy.resources[{i}]"
        if not isinstance(one, Mapping):
            raise ValueError(f"{where} {shown(one)}: use a mapping with name and weight")
        _refuse_others(one, _OF_RESOURCE, where)
        name, weight = one.get("name"), one.get("weight") or 1
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}.name {shown(name)}: use the name of a resource")
        if name in found:
            raise ValueError(f"{where}.name {name!r}: name a resource once")
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
            raise ValueError(f"{where}.weight {shown(weight)}: use a whole number, 1 or more")
        found[name] = weight
    return found


def _refuse_others(given: Mapping[str, Any], fields: Sequence[str], where: str) -> None:
    for field in given:
        if field not in fields:
            raise ValueError(f"{where}.{field} is not supported: use {' and '.join(fields)}, or remove it")
