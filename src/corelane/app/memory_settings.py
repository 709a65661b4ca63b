"""The memory manager's settings, as the kubelet's flags and its configuration file have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from corelane import quantity
from corelane.app.settings_file import SettingsError
from corelane.node.kubelet import memory_validation
from corelane.node.kubelet.memory_validation import Reserved

__all__ = ["configured", "given", "policy"]


def policy(where: str, config: Mapping[str, Any]) -> str:
    """`memoryManagerPolicy`. Raises SettingsError."""
    found = config.get("memoryManagerPolicy") or "None"
    if found not in memory_validation.POLICIES:
        named = ", ".join(memory_validation.POLICIES)
        raise SettingsError(f"{where}: memoryManagerPolicy: unknown policy: {found!r}: use one of {named}")
    return str(found)


def configured(where: str, listed: Any) -> Reserved | None:
    """`reservedMemory`: a list of {numaNode, limits}. Raises SettingsError."""
    if listed is None:
        return None
    where = f"{where}: reservedMemory"
    if not isinstance(listed, list):
        raise SettingsError(f"{where}: is {type(listed).__name__}, not a list")
    return _summed(_item(f"{where}[{index}]", item) for index, item in enumerate(listed))


def _item(where: str, item: Any) -> tuple[int, dict[str, int]]:
    node, limits = (item.get("numaNode", 0), item.get("limits")) if isinstance(item, dict) else (None, None)
    if not isinstance(node, int) or isinstance(node, bool) or node < 0 or not isinstance(limits, dict):
        raise SettingsError(f"{where}: is not numaNode: N and limits: {{memory: SIZE}}")
    return node, {name: _bytes(f"{where}.limits.{name}", str(text)) for name, text in limits.items()}


_GIVEN = re.compile(r"(?P<node>[0-9]{1,9}):(?P<limits>[^=,]+=[^=,]+(?:,[^=,]+=[^=,]+)*)", re.ASCII)


def given(texts: Iterable[str], option: str = "--reserved-memory") -> Reserved:
    """By NUMA node, as the kubelet's flag says it; of what is named twice the last counts. SettingsError."""
    return _summed(_parsed(option, text) for text in texts)


def _parsed(option: str, text: str) -> tuple[int, dict[str, int]]:
    found = _GIVEN.fullmatch(text)
    if not found:
        raise SettingsError(
            f"{option}: {text!r} is not NODE:RESOURCE=SIZE,…, such as 0:memory=1Gi,hugepages-1Gi=2Gi"
        )
    pairs = (pair.split("=") for pair in found["limits"].split(","))
    return int(found["node"]), {name: _bytes(f"{option}: {name}", size) for name, size in pairs}


def _bytes(where: str, text: str) -> int:
    try:
        amount = quantity.value(text)
    except quantity.QuantityError as error:
        raise SettingsError(f"{where}: {text!r} is no size such as 1Gi: {error}") from None
    if amount < 0:
        raise SettingsError(f"{where}: {text} is less than nothing")
    return amount


def _summed(items: Iterable[tuple[int, dict[str, int]]]) -> Reserved:
    """By NUMA node; of what is named twice the last counts, as for the kubelet."""
    reserved: dict[int, dict[str, int]] = {}
    for node, limits in items:
        reserved.setdefault(node, {}).update(limits)
    return reserved
