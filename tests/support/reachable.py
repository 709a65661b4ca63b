"""What an object holds on to: the entries of all collections that are reachable from it."""

from collections import Counter, deque
from collections.abc import Iterator
from types import MethodType
from typing import Any

COLLECTIONS = (dict, set, frozenset, list, tuple, deque)


def lengths(root: object, modules: tuple[str, ...]) -> Counter[str]:
    """Count the entries of all collections by class and field, through objects of these modules."""
    found, seen, waiting = Counter[str](), set[int](), [(root, type(root).__name__)]
    while waiting:
        value, name = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, COLLECTIONS):
            found[name] += len(value)
            entries = [*value.values(), *value] if isinstance(value, dict) else value
            waiting += [(entry, name) for entry in entries]
        elif isinstance(value, MethodType):
            waiting.append((value.__self__, name))
        elif type(value).__module__.startswith(modules):
            waiting += [(part, f"{type(value).__name__}.{field}") for field, part in _fields(value)]
    return found


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        for slot in getattr(kind, "__slots__", ()):
            if slot != "__weakref__" and hasattr(value, slot):
                yield slot, getattr(value, slot)
