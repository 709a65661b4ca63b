"""What a CustomResourceDefinition's schema has against an object, as far as structural schemas go."""

import re
from functools import cache
from typing import Any

import yaml

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "number": (int, float),
}
_ENVELOPE = {"apiVersion", "kind", "metadata"}


@cache
def schemas(crd: str) -> dict[str, Any]:
    """The schema of each served version."""
    spec = yaml.safe_load(crd)["spec"]
    return {one["name"]: one["schema"]["openAPIV3Schema"] for one in spec["versions"] if one["served"]}


def faults(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """What is wrong, and what the server would prune; nothing for an object that is stored as it is."""
    if "anyOf" in schema and all(faults(one, value) for one in schema["anyOf"]):
        return [f"{path}: {value!r} is none of its types"]
    if not _is(schema.get("type"), value):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{path}: {value!r} does not match"]
    if schema.get("format") == "int64" and not -(1 << 63) <= value < 1 << 63:
        return [f"{path}: {value} is too large"]
    if isinstance(value, list):
        return [
            fault for i, one in enumerate(value) for fault in faults(schema["items"], one, f"{path}[{i}]")
        ]
    return _members(schema, value, path) if isinstance(value, dict) else []


def _is(name: str | None, value: Any) -> bool:
    if name is None:
        return True
    return isinstance(value, _TYPES[name]) and isinstance(value, bool) <= (name == "boolean")


def _members(schema: dict[str, Any], value: dict[str, Any], path: str) -> list[str]:
    known = schema.get("properties", {})
    lacking = [f"{path}.{name}: required" for name in schema.get("required", ()) if name not in value]
    unknown = [f"{path}.{name}: unknown" for name in value.keys() - known.keys() - _ENVELOPE]
    inner = [
        fault
        for name, one in value.items()
        if name in known and (path or name not in _ENVELOPE)
        for fault in faults(known[name], one, f"{path}.{name}")
    ]
    return lacking + (unknown if known or not path else []) + inner
