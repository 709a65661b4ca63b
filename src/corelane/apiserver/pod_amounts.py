"""Resource lists of pods: sums, maxima and the quality-of-service class, by upstream's rules."""

from collections.abc import Iterable, Iterator, Mapping
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
    """What the pod's containers need together: `column` is "requests" or "limits".

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


def qos_class(pod: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort (`ComputePodQOS`); a pod's own resources go first."""
    own = pod.get("spec", {}).get("resources")
    holders = list(containers(pod)) if own is None else [{"resources": own}]
    requests, limits = _summed(holders, "requests"), _summed(holders, "limits")
    if not requests and not limits:
        return "BestEffort"
    whole = all(len(_positive(holder, "limits")) == 2 for holder in holders)
    if own is not None and not own.get("limits"):
        whole = True  # upstream looks at the limits of a pod only where there are some
    equal = all(name in limits and limits[name].nano == amount.nano for name, amount in requests.items())
    return "Guaranteed" if whole and equal and len(requests) == len(limits) else "Burstable"


def _amounts(container: Mapping[str, Any], column: str) -> Amounts:
    return parsed(container.get("resources", {}).get(column))


def _positive(holder: Mapping[str, Any], column: str) -> Amounts:
    amounts = _amounts(holder, column)
    return {name: amount for name, amount in amounts.items() if name in _POD_LEVEL and amount.nano > 0}


def _summed(holders: Iterable[Mapping[str, Any]], column: str) -> Amounts:
    total: Amounts = {}
    for holder in holders:
        _add(total, _positive(holder, column))
    return total


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
