"""Koordinator's `resource-status`: where a pod's CPUs and amounts come from, and in whose pool it floats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube.keys import CRANE_RESULT, RESOURCE_STATUS
from corelane.kube.translate import crane
from corelane.kube.translate.annotations import (
    annotation,
    cpus,
    items,
    listed,
    member,
    numa_node,
    place,
    tree,
)
from corelane.kube.translate.errors import TranslationError
from corelane.quantity import QuantityError

__all__ = ["ResourceStatus", "crane_result", "dump", "read"]

_PARTS: Final = ("cpuset", "numaNodeResources", "cpuSharedPools")


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """What a scheduler decided for a pod; only `cpus` names CPUs."""

    cpus: CPUSet = field(default_factory=CPUSet)
    """For every container."""
    amounts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """NUMA node to quantities by resource, as Kubernetes writes them."""
    pools: tuple[tuple[int, int], ...] = ()
    """Sockets and NUMA nodes to whose part of the shared pool an LS pod is held."""

    @property
    def zone(self) -> CPUSet | None:
        """The NUMA nodes whose pools a pod without CPUs of its own is held to; None is anywhere.

        The proposal's `cpuSharedPools`, else the nodes that upstream's agent would take: those in
        `numaNodeResources` with CPUs.
        """
        nodes = {node for _, node in self.pools} or {
            node for node, found in self.amounts.items() if _cpu(found)
        }
        return CPUSet(nodes) if nodes and not self.cpus else None


def _cpu(amounts: Mapping[str, str]) -> bool:
    return any(quantity.milli(amounts.get(name, "0")) > 0 for name in ("cpu", "kubernetes.io/batch-cpu"))


def read(annotations: Mapping[str, str]) -> ResourceStatus:
    """What `resource-status` says, all of it optional. Raises TranslationError."""
    where = annotation(RESOURCE_STATUS)
    status = tree(where, annotations.get(RESOURCE_STATUS, ""), _PARTS)
    return ResourceStatus(
        cpus(f"{where}.cpuset", status.get("cpuset")),
        _amounts(f"{where}.numaNodeResources", status.get("numaNodeResources")),
        tuple(
            place(path, member(path, one, ("socket", "node")))
            for path, one in items(f"{where}.cpuSharedPools", status.get("cpuSharedPools"))
        ),
    )


def _amounts(where: str, parts: Any) -> dict[int, dict[str, str]]:
    return dict(_amount(path, one) for path, one in items(where, parts))


def _amount(where: str, value: Any) -> tuple[int, dict[str, str]]:
    part = member(where, value, ("node", "resources"))
    found = member(f"{where}.resources", part.get("resources"))
    return numa_node(f"{where}.node", part.get("node")), {
        name: _quantity(f"{where}.resources.{name}", amount)
        for name, amount in found.items()
        if amount is not None
    }


def _quantity(where: str, value: Any) -> str:
    try:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise QuantityError("must be a quantity such as '4' or '8Gi'")
        quantity.parse(str(value))
    except QuantityError as error:
        raise TranslationError(where, value, str(error)) from error
    return str(value)


def dump(status: ResourceStatus) -> str:
    """The annotation's text, with upstream's field order; what is empty is left out."""
    parts: dict[str, Any] = {}
    if status.cpus:
        parts["cpuset"] = str(status.cpus)
    if status.amounts:
        parts["numaNodeResources"] = [
            {"node": node, "resources": dict(sorted(amounts.items()))}
            for node, amounts in sorted(status.amounts.items())
        ]
    if status.pools:
        parts["cpuSharedPools"] = [{"socket": socket, "node": node} for socket, node in sorted(status.pools)]
    return msgspec.json.encode(parts).decode()


def crane_result(annotations: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """What gocrane's scheduler chose (`topology-result`): NUMA node to what of the request is there.

    It says so under `capacity`; its amount of memory is wrong upstream, so only CPUs are to be believed.
    Raises TranslationError.
    """
    where = annotation(CRANE_RESULT)
    zones = items(where, listed(where, annotations.get(CRANE_RESULT, "")))
    named = ((path, member(path, one, ("name", "type", "resources"))) for path, one in zones)
    return dict(_crane_zone(path, zone) for path, zone in named if zone.get("type") == "Node")


def _crane_zone(where: str, zone: Mapping[str, Any]) -> tuple[int, dict[str, str]]:
    resources = member(f"{where}.resources", zone.get("resources"), ("capacity",))
    capacity = member(f"{where}.resources.capacity", resources.get("capacity"))
    return crane.numa_id(f"{where}.name", zone.get("name")), {
        name: _quantity(f"{where}.resources.capacity.{name}", value) for name, value in capacity.items()
    }
