"""Arguments of a plugin in a configuration file, held to the signature of what makes the plugin."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from corelane.scheduler.framework.field_faults import FieldFault, first_fault, shown

_LISTS: Final = (list, tuple, Sequence)


def arguments_fault(factory: Callable[..., Any], args: Mapping[str, Any]) -> FieldFault | None:
    """Return the first argument that there is not, or that has another type; None without any."""
    return next(_faults(factory, args), None)


def _faults(factory: Callable[..., Any], args: Mapping[str, Any]) -> Iterator[FieldFault]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return  # Of some builtins it is not known.
    names = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(names) == len(parameters):
        for name in (name for name in args if name not in names):
            yield FieldFault(name, f"{shown(args[name])}: there is no such argument", _remedy(name, names))
    hints = _hints(factory)
    for name, value in args.items():
        if name in hints and (fault := _fault(value, hints[name], name)):
            yield fault


def _remedy(name: str, names: Sequence[str]) -> str:
    if not names:
        return "remove it: the plugin has no arguments"
    close = get_close_matches(name, names, 1)
    return f"use {close[0]}, or remove it" if close else f"use one of {', '.join(names)}"


def _hints(factory: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of arguments; of a class, those of its `__init__`; none where they cannot be read."""
    try:
        return get_type_hints(vars(factory).get("__init__") if isinstance(factory, type) else factory)
    except (NameError, TypeError):
        return {}


def _fault(value: Any, hint: Any, path: str) -> FieldFault | None:
    if get_origin(hint) in {Union, UnionType}:
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return _fault(value, kinds[0], path) if len(kinds) == 1 else None
    origin = get_origin(hint) or hint
    if origin is Literal:
        allowed = ", ".join(map(str, get_args(hint)))
        return None if value in get_args(hint) else _invalid(value, path, f"use one of {allowed}")
    if origin in {Mapping, dict}:
        return None if isinstance(value, dict) else _invalid(value, path, "use a mapping, or remove it")
    if origin in _LISTS:
        return None if isinstance(value, list) else _invalid(value, path, "use a list, or remove it")
    if hint not in {str, bool, int, float}:
        return None
    fault = first_fault(value, hint)
    return _invalid(value, path, fault.remedy) if fault else None


def _invalid(value: Any, path: str, remedy: str) -> FieldFault:
    return FieldFault(path, f"{shown(value)} is invalid", remedy)
