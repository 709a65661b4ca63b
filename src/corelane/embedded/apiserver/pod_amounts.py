"""Resource lists of pods: sums and maxima over containers, by upstream's rules."""

from collections.abc import Iterator, Mapping
from typing import Any

from corelane import quantity
from corelane.quantity import Quantity

Amounts = dict[str, "Quantity"]
_POD_LEVEL = ("cpu", "memory")


def parsed(amounts: Mapping[str, str] | None) -> Amounts:
    """A resource list with its quantities read."""
    return {name: quantity.parse(text) for name, text in (amounts or {}).items()}


def is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def is_pod_level(name: str) -> bool:
    """Whether a pod, and not only a container, may ask for the resource (KEP-2837)."""
    return name in _POD_LEVEL or is_huge_page(name)


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod's containers, then its init containers."""
    spec = pod.get("spec", {})
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def aggregated(pod: Mapping[str, Any], column: str) -> dict[str, str]:
    """Return what the pod's containers need together: `column` is "requests" or "limits".

    The larger of the sum over containers and sidecars, and of each init container with the sidecars started
    before it (KEP-753; component-helpers' `AggregateContainerRequests`).
    """
    spec = pod.get("spec", {})
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, column))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, column)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        _raise_to(peak, own)
    _raise_to(total, peak)
    return {name: amount.text for name, amount in total.items()}


def _amounts(container: Mapping[str, Any], column: str) -> Amounts:
    return parsed(container.get("resources", {}).get(column))


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        before = total.get(name)
        if before is None:
            total[name] = amount
        else:
            form = before.format if before.nano else amount.format
            total[name] = quantity.of_nano(before.nano + amount.nano, form)


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        if name not in total or amount.nano > total[name].nano:
            total[name] = amount
