"""NodeResourceTopology of other exporters (NFD's topology-updater, scheduler-plugins'): amounts by NUMA node.

Read as scheduler-plugins reads it: the kubelet's policy and scope are in attributes, each of which overrides
the deprecated `topologyPolicies`, of which the first word counts; zones of other types than Node, or with
other names than `node-<id>`, are not looked at.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from corelane import quantity
from corelane.kube.objects import NodeResourceTopology, TopologyZone
from corelane.kube.translate.fields import TranslationError
from corelane.kube.translate.node_labels import TopologyManager, with_attributes
from corelane.node.zones.zone_state import Zone, ZonesState
from corelane.placement.topologymanager import Policy, Scope
from corelane.quantity import QuantityError

NODE: Final = "Node"
_NAME: Final = re.compile(r"node-\+?([0-9]{1,9})", re.ASCII)
_MOST_ZONES: Final = 64
"""Ids that scheduler-plugins' bit masks hold."""
MOST: Final = 1 << 53
"""Amounts are taken for this at most: 8 PiB, or 9 billion CPUs."""
FINGERPRINT: Final = "nodeTopologyPodsFingerprint"
FINGERPRINT_METHOD: Final = "nodeTopologyPodsFingerprintMethod"
FINGERPRINT_ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
_EXCLUSIVE_ONLY: Final = "with-exclusive-resources"
_POLICIES: Final[Mapping[str, Policy]] = {
    "SingleNUMANode": "single-numa-node",
    "Restricted": "restricted",
    "BestEffort": "best-effort",
}
_SCOPES: Final[Mapping[str, Scope]] = {"PodLevel": "pod", "ContainerLevel": "container"}
_WORDS: Final[Mapping[str, tuple[Policy, Scope]]] = {
    f"{word}{level}": (policy, scope)
    for word, policy in _POLICIES.items()
    for level, scope in _SCOPES.items()
}


class PodsFingerprint(NamedTuple):
    """Of the pods that an exporter has counted; `text` is "" where none is published."""

    text: str = ""
    exclusive_only: bool = False
    """Only pods with exclusive resources are part of it."""


def zones_state(published: NodeResourceTopology) -> ZonesState:
    """Return the zones and settings, no pod assumed. Raises TranslationError for an invalid quantity."""
    manager, zones = topology_manager(published), []
    for index, zone in enumerate(published.zones):
        name = _NAME.fullmatch(zone.name)
        if zone.type == NODE and name and int(name[1]) < _MOST_ZONES:
            available = dict(_available(f"zones[{index}]", zone))
            others = [(_NAME.fullmatch(cost.name), cost.value) for cost in zone.costs]
            zones.append(Zone(int(name[1]), available, {int(node[1]): cost for node, cost in others if node}))
    return ZonesState(tuple(zones), manager.policy, manager.scope, manager.max_numa_nodes)


def topology_manager(published: NodeResourceTopology) -> TopologyManager:
    """Return policy and scope of the topology manager; invalid attributes are ignored, and named."""
    policy, scope = _WORDS.get(next(iter(published.topology_policies), ""), ("none", "container"))
    return with_attributes(published, TopologyManager(policy, scope))


def _available(path: str, zone: TopologyZone) -> Iterator[tuple[str, int]]:
    for index, resource in enumerate(zone.resources):
        try:
            nano = quantity.parse(str(resource.available)).nano
        except QuantityError as error:
            where = f"{path}.resources[{index}].available"
            raise TranslationError(where, resource.available, str(error)) from error
        amount = nano // (10**6 if resource.name == "cpu" else quantity.NANO)
        yield resource.name, max(0, min(MOST, amount))


def pods_fingerprint(published: NodeResourceTopology) -> PodsFingerprint:
    """Return the fingerprint of the pods that the zones count: an attribute, or the older annotation."""
    attributes = {attribute.name: attribute.value for attribute in reversed(published.attributes)}
    if FINGERPRINT in attributes:
        exclusive = attributes.get(FINGERPRINT_METHOD) == _EXCLUSIVE_ONLY
        return PodsFingerprint(attributes[FINGERPRINT], exclusive)
    return PodsFingerprint(published.metadata.annotations.get(FINGERPRINT_ANNOTATION, ""))
