"""A node's hardware and ledger as a NodeResourceTopology, and back.

Zones carry amounts for all readers (`topology_zones`); annotations carry the CPUs' ids, in Koordinator's form
where it has one.
"""

from collections.abc import Collection, Hashable, Mapping
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
from corelane.kube.translate.fields import TranslationError, annotation
from corelane.kube.translate.koordlet import KubeletReport
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node.config import Level
from corelane.node.ledger import NodeState

Version: TypeAlias = Literal["v1alpha1", "v1alpha2"]

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
    leased: bool = False,
) -> dict[str, Any]:
    """Return the whole NodeResourceTopology object of a node, owned by the Node with `owner_uid`.

    `node_annotations` are the Node's; some are repeated in the object. `levels` are those of the zones; None
    takes them from the node's settings. v1alpha1 has no attributes. `kubelet` is what is published of a
    kubelet beside the agent; None is a node without one, where the ledger's settings stand for a kubelet's.
    `leased`: the agent renews a Lease as long as it runs.
    """
    report = kubelet or koordlet.report_of_ledger(state)
    api = NodeResourceTopology.api
    metadata: dict[str, Any] = {
        "name": node_name,
        "labels": {keys.MANAGED_BY: "corelane"},
        "annotations": {
            keys.MACHINE: machine_annotation.dump(machine),
            **koordlet.annotations(machine, state, facts, node_annotations, report),
            keys.CPU_ALLOCATIONS: ledger_annotation.dump(state, leased=leased),
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


def as_v1alpha1(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of `topology` as v1alpha1, whatever its version is: without attributes."""
    older = {name: part for name, part in body.items() if name != "attributes"}
    return older | {"apiVersion": f"{NodeResourceTopology.api.group}/v1alpha1"}


def as_patch(body: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the object of `topology` as a merge patch, which removes optional annotations that it lacks.

    With `before`, the object as it was written last, the patch has only what differs.
    """
    metadata = body["metadata"]
    annotations = dict.fromkeys(koordlet.OPTIONAL) | metadata["annotations"]
    whole = {**body, "metadata": {**metadata, "annotations": annotations}}
    if before is None:
        return whole
    known = before["metadata"]
    changed = {key: text for key, text in annotations.items() if known["annotations"].get(key) != text}
    return _differing(body, before) | {
        "metadata": _differing(metadata, known) | ({"annotations": changed} if changed else {})
    }


def _differing(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    own = {"metadata", "annotations"}
    return {name: part for name, part in new.items() if name not in own and old.get(name) != part}


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
    return hardware_key(first) == hardware_key(second)


def hardware_key(published: NodeResourceTopology) -> Hashable:
    """Return a value that is equal for objects from which equal machines are read, but for their names."""
    annotations = published.metadata.annotations
    texts = annotations.get(keys.MACHINE), annotations.get(keys.CPU_TOPOLOGY)
    return texts, repr(topology_zones.hardware(published))


def is_koordlets(published: NodeResourceTopology) -> bool:
    """Return whether another agent than corelane's published it, without the labels of its Node.

    Raises TranslationError for an object of corelane's that has lost the node's ledger.
    """
    annotations = published.metadata.annotations
    if annotations.get(keys.CPU_ALLOCATIONS):
        return False
    if keys.MACHINE in annotations or published.metadata.labels.get(keys.MANAGED_BY) == "corelane":
        why = "corelane's agent published this object without a ledger; restart the agent on the node"
        raise TranslationError(annotation(keys.CPU_ALLOCATIONS), None, why)
    return True


def names_cpus(published: NodeResourceTopology) -> bool:
    """Return whether corelane's agent or koordlet published it: CPUs have ids, or should have."""
    metadata = published.metadata
    managed_by = metadata.labels.get(keys.MANAGED_BY, "")
    return bool({keys.MACHINE, keys.CPU_TOPOLOGY, keys.CPU_ALLOCATIONS} & metadata.annotations.keys()) or (
        managed_by in ("corelane", "Koordinator")
    )


def is_leased(published: NodeResourceTopology) -> bool:
    """Return whether the agent that published it renews a Lease as long as it runs."""
    return ledger_annotation.is_leased(published.metadata.annotations.get(keys.CPU_ALLOCATIONS, ""))


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
        return koordlet.pools_state(published, machine, labels)
    return ledger_annotation.load(published.metadata.annotations[keys.CPU_ALLOCATIONS], machine)
