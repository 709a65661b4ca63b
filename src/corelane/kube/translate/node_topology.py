"""A node's hardware and ledger as a NodeResourceTopology, and back.

Zones carry amounts for all readers (`topology_zones`); annotations carry the CPUs' ids, in Koordinator's form
where it has one.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import (
    koordlet,
    ledger_annotation,
    machine_annotation,
    node_labels,
    topology_zones,
)
from corelane.kube.translate.fields import TranslationError
from corelane.kube.translate.koordlet import KubeletReport
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import Entry, NodeConfig, Origin, PoolOptions
from corelane.node.config import Level
from corelane.node.entries import Sharing
from corelane.node.ledger import NodeState, usable_topology, with_entries
from corelane.workload import PodQOS

Version: TypeAlias = Literal["v1alpha1", "v1alpha2"]

_WHOLE_POD: Final = "*"
"""Container name of an entry that stands for a whole pod."""
_UPSTREAM_OPTIONS: Final = PoolOptions(
    allocator="koordinator", guaranteed_default=PodQOS.LS, be_minimum=0, system_exclusive=True
)
_NO_FACTS: Final = CPUFacts()
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


def topology(
    machine: Machine,
    node_name: str,
    state: NodeState,
    *,
    owner_uid: str = "",
    facts: CPUFacts = _NO_FACTS,
    node_annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    levels: Collection[Level] | None = None,
    version: Version = "v1alpha2",
    kubelet: KubeletReport | None = None,
) -> dict[str, Any]:
    """Return the whole NodeResourceTopology object of a node, owned by the Node with `owner_uid`.

    `node_annotations` are the Node's; some are repeated in the object. `levels` are those of the zones; None
    takes them from the node's settings. v1alpha1 has no attributes. `kubelet` is what is published of a
    kubelet beside the agent; None is a node without one, where the ledger's settings stand for a kubelet's.
    """
    report = kubelet or koordlet.report_of_ledger(state)
    api = NodeResourceTopology.api
    metadata: dict[str, Any] = {
        "name": node_name,
        "labels": {keys.MANAGED_BY: "corelane"},
        "annotations": {
            keys.MACHINE: machine_annotation.dump(machine),
            **koordlet.annotations(machine, state, facts, node_annotations, report),
            keys.CPU_ALLOCATIONS: ledger_annotation.dump(state),
        },
    }
    if owner_uid:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": owner_uid}
        ]
    settings = report.settings or KubeletSettings()
    policy, scope = settings.topology_policy, settings.topology_scope
    attributes = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": scope},
    ]
    return {
        "apiVersion": f"{api.group}/{version}",
        "kind": api.kind,
        "metadata": metadata,
        "topologyPolicies": node_labels.topology_policies(policy, scope),
        **({"attributes": attributes} if version == "v1alpha2" else {}),
        "zones": topology_zones.zones(
            machine,
            state,
            state.config.zones if levels is None else levels,
            koordlet.taken_cpus(state, report),
        ),
    }


def as_patch(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of `topology` as a merge patch, which removes optional annotations that it lacks."""
    metadata = body["metadata"]
    annotations = dict.fromkeys(koordlet.OPTIONAL) | metadata["annotations"]
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def is_damaged(stored: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Return whether the object on the API server lacks an annotation or zone of `body`; others may add some.

    Amounts in zones are not compared: others may change them, and the agent's next write restores them.
    """
    annotations = stored["metadata"].get("annotations") or {}
    if any(annotations.get(key) != text for key, text in body["metadata"]["annotations"].items()):
        return True
    zones = [zone.get("name") for zone in stored.get("zones") or () if isinstance(zone, dict)]
    return any(zone["name"] not in zones for zone in body["zones"])


def machine_from_topology(published: NodeResourceTopology) -> Machine:
    """Return the hardware of a node, as its agent (or Koordinator's) published it.

    Raises TranslationError for an invalid annotation or zone, or where none names the CPUs.
    """
    annotations, name = published.metadata.annotations, published.metadata.name
    nodes = topology_zones.numa_nodes(published)
    if keys.MACHINE in annotations:
        return machine_annotation.load(annotations[keys.MACHINE], name, nodes)
    if keys.CPU_TOPOLOGY in annotations:
        return machine_annotation.load_detail(annotations[keys.CPU_TOPOLOGY], name, nodes)
    why = f"the CPUs are unknown without {keys.MACHINE} or {keys.CPU_TOPOLOGY}"
    raise TranslationError("metadata.annotations", sorted(annotations), why)


def same_machine(first: NodeResourceTopology, second: NodeResourceTopology) -> bool:
    """Return whether both versions of an object describe the same hardware."""
    old, new = first.metadata.annotations, second.metadata.annotations
    return (
        old.get(keys.MACHINE) == new.get(keys.MACHINE)
        and old.get(keys.CPU_TOPOLOGY) == new.get(keys.CPU_TOPOLOGY)
        and topology_zones.hardware(first) == topology_zones.hardware(second)
    )


def is_koordlets(published: NodeResourceTopology) -> bool:
    """Return whether another agent than corelane's published it, without the labels of its Node."""
    return not published.metadata.annotations.get(keys.CPU_ALLOCATIONS)


def state_from_topology(
    published: NodeResourceTopology,
    machine: Machine | None = None,
    labels: Mapping[str, str] = _NO_ANNOTATIONS,
) -> NodeState:
    """Return the node's state: its machine (read from the object unless given) and the exclusive CPUs.

    Pods in the shared pool count by their requests, without entries. An object of koordlet's gives a node
    under policy pools, with the exclusive CPUs of a kubelet's pods, without the CPUs withheld from pods, and
    with the policies that the Node's `labels` name. Raises TranslationError.
    """
    machine = machine or machine_from_topology(published)
    if is_koordlets(published):
        return _state_of_koordlet(published, machine, labels)
    return ledger_annotation.load(published.metadata.annotations[keys.CPU_ALLOCATIONS], machine)


def _state_of_koordlet(
    published: NodeResourceTopology, machine: Machine, labels: Mapping[str, str]
) -> NodeState:
    state = _koordlets_pools(published, machine, labels)
    entries, pods = {}, {}
    for pod in koordlet.pod_allocations(published.metadata.annotations):
        if cpus := pod.cpus & state.usable:
            entry = Entry(
                pod.uid,
                _WHOLE_POD,
                f"{pod.namespace}/{pod.name}",
                cpus,
                Sharing.ALONE,
                cls=PodQOS.LSR.value,
                origin=Origin.KUBELET,
                cpu_request=1000 * len(cpus),
            )
            entries[entry.key], pods[pod.uid] = entry, entry.cpu_request
    return with_entries(state, entries, pods) if entries else state


def _koordlets_pools(
    published: NodeResourceTopology, machine: Machine, labels: Mapping[str, str]
) -> NodeState:
    """Pools by upstream's rules, without the CPUs of kubelet, reservation and SYSTEM pods."""
    settings = node_labels.node_labels(labels, published.metadata.annotations)
    if settings.faults:
        raise settings.faults[0]
    kubelet, cpus = node_labels.published_kubelet(published), usable_topology(machine)
    options = node_labels.pool_options(settings, kubelet, _UPSTREAM_OPTIONS, cpus)
    reserved = kubelet.reserved & machine.usable
    return NodeState(machine, NodeConfig("pools", reserved or None, pools=options), cpus, reserved)
