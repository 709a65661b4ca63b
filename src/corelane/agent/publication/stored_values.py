"""Compares what is to be published with what the API server has: equal objects are not written again."""

from collections.abc import Mapping
from typing import Any, Final

from corelane import quantity

_TIMES: Final = {"lastHeartbeatTime", "lastTransitionTime"}
_AMOUNTS: Final = {"capacity", "allocatable"}


def agrees(stored: Any, wanted: Any) -> bool:
    """Whether `stored` has all values of `wanted`, but for times of conditions; others may be beside them.

    None is a member that `stored` must not have. Conditions are compared by type, taints as values among
    others, amounts of resources by what they mean, and all other lists whole.
    """
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            _member_agrees(stored, name, value) for name, value in wanted.items() if name not in _TIMES
        )
    return bool(stored == wanted)


def _member_agrees(stored: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if wanted is None or wanted in ([], {}):
        return not (wanted is None and name in stored)
    found = stored.get(name)
    if name in _AMOUNTS and isinstance(wanted, Mapping):  # not so in a topology's zones
        return found is not None and all(_equal(found.get(key), amount) for key, amount in wanted.items())
    if name == "conditions":
        by_type = {one["type"]: one for one in found or ()}
        return all(agrees(by_type.get(one["type"]), one) for one in wanted)
    if name == "taints":
        return all(any(agrees(present, taint) for present in found or ()) for taint in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and _lists_agree(found, wanted)
    return agrees(found, wanted)


def _equal(stored: Any, wanted: str | None) -> bool:
    """Whether two amounts are equal: the API server writes them in its own form."""
    if stored is None or wanted is None:
        return stored is wanted
    return bool(stored == wanted or quantity.parse(str(stored)).nano == quantity.parse(wanted).nano)


def _lists_agree(stored: list[Any], wanted: list[Any]) -> bool:
    return len(stored) == len(wanted) and all(map(agrees, stored, wanted))


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a stored Node has the condition Ready."""
    conditions = node["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one.get("status") == "True" for one in conditions)
