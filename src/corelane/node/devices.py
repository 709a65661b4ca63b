"""The kubelet's device manager on one node: which devices are free, and which of them a container gets.

Upstream: `pkg/kubelet/cm/devicemanager` (v1.36). Where upstream takes any, here the first in the inventory's
order are taken; what a device plugin might prefer is not asked.
"""

from collections.abc import Iterable, Mapping

from corelane.node.config import Inventory
from corelane.node.decision import Refusal
from corelane.node.entries import Entry
from corelane.placement.hints import device_hints
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code
from corelane.workload import ContainerKind, ContainerRequest, PodRequest, peak

__all__ = ["Handout", "held"]


def held(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """The devices of each resource that some container has."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        for resource, ids in entry.devices.items():
            found.setdefault(resource, set()).update(ids)
    return found


class Handout:
    """The device manager during the admission of one pod: what is free, what is lent, who got what."""

    __slots__ = ("given", "inventory", "lent", "narrow", "nodes", "used")

    def __init__(
        self, inventory: Inventory, entries: Iterable[Entry], nodes: int, *, narrow: bool = False
    ) -> None:
        self.inventory, self.nodes, self.narrow = inventory, nodes, narrow
        self.used = held(entries)
        self.lent: dict[str, set[str]] = {}
        """Devices of init containers, which later ones take over."""
        self.given: dict[str, dict[str, tuple[str, ...]]] = {}
        """Container name to resource to devices."""

    def wanted(self, container: ContainerRequest) -> dict[str, int]:
        """What a container asks for, as far as this node knows the resource."""
        return {name: n for name, n in container.devices.items() if name in self.inventory}

    def of_pod(self, request: PodRequest) -> dict[str, int]:
        """The devices that the whole pod needs at once."""
        each = [(container.kind, self.wanted(container)) for container in request.containers]
        names = {name for _, of in each for name in of}
        return {name: peak((kind, of.get(name, 0)) for kind, of in each) for name in sorted(names)}

    def hints(self, wanted: Mapping[str, int]) -> list[Hints]:
        """One for each resource."""
        return [self.hint(name, n) for name, n in wanted.items()]

    def hint(self, name: str, n: int) -> Hints:
        all_, lent = self.inventory[name], self.lent.get(name, set())
        free = [all_[one] for one in self.free(name)]
        reusable = [all_[one] for one in sorted(lent)]
        return device_hints(list(all_.values()), free, n, self.nodes, reusable=reusable, narrow=self.narrow)

    def free(self, name: str) -> list[str]:
        used = self.used.get(name, set())
        return [one for one in self.inventory[name] if one not in used]

    def allocate(
        self, container: ContainerRequest, wanted: Mapping[str, int], affinity: NUMAAffinity
    ) -> None:
        """Give a container what it wants, near the affinity's nodes first. Raises Refusal."""
        given = {name: self.picked(name, n, affinity.nodes) for name, n in wanted.items()}
        self.given[container.name] = {name: ids for name, ids in given.items() if ids}
        for name, ids in given.items():
            self.used.setdefault(name, set()).update(ids)
            lent = self.lent.setdefault(name, set())
            if container.kind is ContainerKind.INIT:
                lent.update(ids)
            else:
                lent.difference_update(ids)

    def picked(self, name: str, n: int, nodes: int | None) -> tuple[str, ...]:
        all_ = self.inventory[name]
        if not all_:
            raise Refusal(Code.DEVICES_UNHEALTHY, name)
        lent = self.lent.get(name, set())
        taken = [one for one in all_ if one in lent][:n]
        free, missing = self.free(name), n - len(taken)
        if len(free) < missing:
            raise Refusal(Code.DEVICES_UNAVAILABLE, name, missing, len(free))
        if nodes is not None:
            free.sort(key=lambda one: _distance(all_[one], nodes))
        return tuple(taken + free[:missing])


def _distance(near: int, nodes: int) -> int:
    """First what is near the nodes, then what is near others, last what is known to be near none."""
    if near & nodes:
        return 0
    return 1 if near else 2
