"""Which volumes of a pod are there for a node: bound ones, ones to be bound, and ones to be made.

As upstream's volume binder (`FindPodVolumes`, `hasEnoughCapacity`). Local volumes are as many as nodes: asked
one by one, 5,000 of either take minutes. Most name their node by one label, so a node is asked only about
volumes that name one of its labels. For a volume that is to be made, a driver's free storage
(CSIStorageCapacity) counts where its CSIDriver has `storageCapacity`; one object that the node can reach must
have the whole amount.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.kube import keys
from corelane.kube.meta import ResourceList
from corelane.kube.node_terms import term_is_valid
from corelane.kube.objects import Node
from corelane.kube.pod import NodeSelector, Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm
from corelane.kube.volumes import (
    class_of,
    is_reserved,
    migrated_plugins,
    plugin_of,
    reaches,
    translated,
    waits_for_consumer,
)
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.labels import Rules, holds, rules_of
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.objects import ClusterObjects
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.volumes import PodClaim, amount, is_owned, pod_claims
from corelane.scheduler.framework.changes import ClusterChange
from corelane.scheduler.plugins.rows import rules_mask, selector_mask, values_mask
from corelane.workload.selectors import Operator

_MOST_SELECTORS: Final = 65_536
_NOWHERE: Final[tuple[int, ...]] = ()


class Offers:
    """The volumes for one claim; each node gets the first that reaches it."""

    def __init__(self, reserved: Iterable[PersistentVolume], available: Iterable[PersistentVolume]) -> None:
        """The first of the `reserved` is the only one that will do; `available` ones are in their order."""
        self._reserved = tuple(reserved)
        self._available = tuple(available)
        self._by_label: dict[str, dict[str, list[int]]] = {}
        """Label and value to the places of volumes that only nodes with it reach."""
        self._others: list[int] = []
        for place, volume in enumerate(self._available):
            label = _one_label(_selector(volume))
            if label is None:
                self._others.append(place)
                continue
            key, values = label
            for value in values:
                self._by_label.setdefault(key, {}).setdefault(value, []).append(place)

    def on(self, node: Node, chosen: Mapping[str, PersistentVolume]) -> PersistentVolume | None:
        """Return the volume for a node, none of those that were `chosen` for other claims."""
        for volume in self._reserved:
            if volume.metadata.name not in chosen:
                return volume if reaches(volume, node) else None
        labels = node.metadata.labels
        named = (of.get(labels[key], _NOWHERE) for key, of in self._by_label.items() if key in labels)
        for place in merge(self._others, *named):
            volume = self._available[place]
            if volume.metadata.name not in chosen and reaches(volume, node):
                return volume
        return None

    def reached(self, columns: Columns, rows: Rows) -> Mask:
        """Return which rows get a volume."""
        if self._reserved:
            return reach_mask(self._reserved[0], columns, rows)
        reached = np.zeros(len(rows), np.bool_)
        for key, of in self._by_label.items():
            reached |= values_mask(key, of, columns, rows)
        for selector in dict.fromkeys(_selector(self._available[place]) for place in self._others):
            if reached.all():
                break
            reached |= _selector_mask(selector, columns, rows)
        return reached


def reach_mask(volume: PersistentVolume, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes a volume reaches; see `reaches`."""
    return _selector_mask(_selector(volume), columns, rows)


def _selector_mask(selector: NodeSelector | None, columns: Columns, rows: Rows) -> Mask:
    if selector is None:
        return np.ones(len(rows), np.bool_)
    return selector_mask(selector, columns, rows, fields=False)


def _selector(volume: PersistentVolume) -> NodeSelector | None:
    affinity = volume.spec.node_affinity
    return affinity.required if affinity else None


@lru_cache(_MOST_SELECTORS)
def _one_label(selector: NodeSelector | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the label, and its values, by which alone a selector chooses nodes; None for other selectors."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if len(term.match_expressions) != 1 or not term_is_valid(term):
        return None
    rule = term.match_expressions[0]
    return (rule.key, rule.values) if rule.operator == "In" else None


class FreeStorage:
    """Where a volume of a claim's size can be made: on nodes that reach one of these capacities."""

    def __init__(self, capacities: Iterable[Rules]) -> None:
        """`capacities` are what the labels of their nodes must be."""
        self._by_label: dict[str, set[str]] = {}
        """Values of a label, one of which is all that a node must have."""
        self._others: set[Rules] = set()
        for rules in capacities:
            if len(rules) == 1 and rules[0].operator is Operator.IN:
                self._by_label.setdefault(rules[0].key, set()).update(rules[0].values)
            else:
                self._others.add(rules)

    def reached_by(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels reaches enough of it."""
        if any(labels.get(key) in values for key, values in self._by_label.items()):
            return True
        return any(holds(rules, labels) for rules in self._others)

    def reached(self, columns: Columns, rows: Rows) -> Mask:
        """Return which rows reach enough of it."""
        reached = np.zeros(len(rows), np.bool_)
        for key, values in self._by_label.items():
            reached |= values_mask(key, values, columns, rows)
        for rules in self._others:
            if reached.all():
                break
            reached |= rules_mask(rules, columns, rows)
        return reached


_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class ClaimsOfPod:
    """A pod's claims: bound, to be bound once a node is chosen, and waiting for somebody else."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """Tasks before a binding to a node."""

    static: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    """Volumes to bind to claims."""
    provisions: tuple[PersistentVolumeClaim, ...] = ()
    """Claims for which a volume is to be made."""


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim is bound from both sides."""
    return bool(claim.spec.volume_name) and keys.BIND_COMPLETED in claim.metadata.annotations


def unusable(pod: Pod, of: PodClaim, objects: ClusterObjects) -> Reason | None:
    """Return why the pod must wait for this claim, in upstream's words; None if it can be used."""
    claim, name = objects.claims.get(of.key), of.key[1]
    if claim is None:
        return Reason(Code.CLAIM_AWAITED if of.ephemeral else Code.CLAIM_NOT_FOUND, (name,))
    if claim.status.phase == "Lost":
        return Reason(Code.CLAIM_LOST, (name, claim.spec.volume_name))
    if claim.metadata.deletion_timestamp:
        return Reason(Code.CLAIM_DELETED, (name,))
    if of.ephemeral and not is_owned(pod, claim):
        return Reason(Code.CLAIM_OF_OTHER_POD, (claim.title, pod.title))
    return None


def claims_of(pod: Pod, objects: ClusterObjects) -> ClaimsOfPod:
    """Return the claims of a pod, all of which exist."""
    bound, delayed, immediate = [], [], []
    for of in pod_claims(pod):
        claim = objects.claims[of.key]
        if fully_bound(claim):
            bound.append(claim)
        elif waits_for_consumer(objects.classes.get(class_of(claim))) and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate.append(claim)
    return ClaimsOfPod(tuple(bound), tuple(delayed), tuple(immediate))


class ClaimOffers:
    """The volumes that may be bound to each claim of a pod, in one attempt."""

    def __init__(self, objects: ClusterObjects) -> None:
        self.objects = objects
        self._offers: dict[tuple[str, str], Offers] = {}
        self._storage: dict[tuple[str, str], FreeStorage | None] = {}

    def of(self, claim: PersistentVolumeClaim) -> Offers:
        offers = self._offers.get(claim.key)
        if offers is None:
            offers = self._offers[claim.key] = _offers(claim, self.objects)
        return offers

    def storage(self, claim: PersistentVolumeClaim) -> FreeStorage | None:
        """Return where there is storage for a volume that is made for the claim; None for everywhere."""
        if claim.key in self._storage:
            return self._storage[claim.key]
        storage, requests = self.objects.classes.get(class_of(claim)), claim.spec.resources.requests
        driver = self.objects.csi_drivers.get(storage.provisioner) if storage is not None else None
        free = None
        if storage and driver and driver.spec.storage_capacity and "storage" in requests:
            size, listed = _storage(requests), self.objects.capacities_of_class(storage.metadata.name)
            large = (one for one in listed if one.largest is not None and one.largest >= size)
            free = FreeStorage(one.rules for one in large if one.rules is not None)
        self._storage[claim.key] = free
        return free


def find(claims: ClaimsOfPod, node: Node, offers: ClaimOffers) -> NodeVolumes | tuple[Reason, ...]:
    """Return what a binding to the node must do, or why the node cannot have the pod."""
    bound, objects = None, offers.objects
    csi_node = objects.csi_nodes.get(node.metadata.name)
    for claim in claims.bound:
        volume = objects.volumes.get(claim.spec.volume_name)
        plugin = plugin_of(volume.spec) if volume is not None else ""
        if volume is not None and plugin and plugin in migrated_plugins(csi_node):
            volume = translated(volume)  # A CSI driver took the volume's plugin over on this node.
        if volume is None or not reaches(volume, node):
            bound = Code.VOLUME_MISSING if volume is None else Code.VOLUME_NODE_MISMATCH
            break
    delayed = _delayed(claims.delayed, node, offers)
    if isinstance(delayed, NodeVolumes):
        return reasons_of(bound, None) or delayed
    return reasons_of(bound, delayed)


def reasons_of(bound: Code | None, delayed: Code | None) -> tuple[Reason, ...]:
    """Return why a node cannot have a pod, by its bound claims, and by what the others would get."""
    codes = (
        bound if bound is Code.VOLUME_NODE_MISMATCH else None,
        delayed,
        bound if bound is Code.VOLUME_MISSING else None,
    )
    return tuple(Reason(code) for code in codes if code is not None)


def _delayed(
    claims: tuple[PersistentVolumeClaim, ...], node: Node, offers: ClaimOffers
) -> NodeVolumes | Code:
    """Return what the node has for claims that wait for it, or why it has nothing."""
    objects = offers.objects
    provisions, matching = [], []
    for claim in claims:
        selected = selected_node(claim, objects)
        if selected is None:
            matching.append(claim)
        elif selected == node.metadata.name:
            provisions.append(claim)
        else:
            return Code.VOLUME_NOT_AVAILABLE
    chosen: dict[str, PersistentVolume] = {}
    static = []
    for claim in sorted(matching, key=lambda one: _storage(one.spec.resources.requests)):
        volume = offers.of(claim).on(node, chosen)
        if volume is None:
            provisions.append(claim)
        else:
            chosen[volume.metadata.name] = volume
            static.append((volume, claim))
    for claim in provisions:
        terms, labels = topologies(claim, objects), node.metadata.labels
        if terms is None or not _allowed(terms, labels):
            return Code.VOLUME_NOT_AVAILABLE
        storage = offers.storage(claim)
        if storage is not None and not storage.reached_by(labels):
            return Code.STORAGE_INSUFFICIENT
    return NodeVolumes(tuple(static), tuple(provisions))


def selected_node(claim: PersistentVolumeClaim, objects: ClusterObjects) -> str | None:
    """Return the node for which the claim's volume is being made."""
    return objects.provisioned_node(claim) or claim.metadata.annotations.get(keys.SELECTED_NODE)


def topologies(
    claim: PersistentVolumeClaim, objects: ClusterObjects
) -> tuple[TopologySelectorTerm, ...] | None:
    """Return where a volume can be made for the claim, everywhere without terms; None where none can be."""
    storage = objects.classes.get(class_of(claim))
    if storage is None or storage.provisioner in {"", _NO_PROVISIONER}:
        return None
    return storage.allowed_topologies


def _allowed(terms: tuple[TopologySelectorTerm, ...], labels: Mapping[str, str]) -> bool:
    """Without terms, everywhere; a term without expressions allows nothing."""
    if not terms:
        return True
    return any(
        bool(term.match_label_expressions)
        and all(labels.get(rule.key) in rule.values for rule in term.match_label_expressions)
        for term in terms
    )


def _offers(claim: PersistentVolumeClaim, objects: ClusterObjects) -> Offers:
    """Upstream's `FindMatchingVolume`: one bound to this claim beforehand, else the smallest that will do."""
    size, reserved, available = _storage(claim.spec.resources.requests), [], []
    for name, volume in objects.volumes_of_class(class_of(claim)).items():
        spec = volume.spec
        if (
            volume.metadata.deletion_timestamp
            or _storage(spec.capacity) < size
            or spec.volume_mode != claim.spec.volume_mode
            or spec.volume_attributes_class_name != claim.spec.volume_attributes_class_name
        ):
            continue
        if _is_for(volume, claim, objects):
            reserved.append(volume)
        elif spec.claim_ref is None and name not in objects.taken_volumes and _available(volume, claim):
            available.append(volume)
    available.sort(key=lambda volume: (_storage(volume.spec.capacity), volume.metadata.name))
    return Offers(reserved, available)


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim, objects: ClusterObjects) -> bool:
    """Whether the volume is bound to this claim, by its own word or by a binding under way."""
    taken = objects.taken_by(volume)
    if taken is not None:
        return taken == claim.key
    return is_reserved(volume, claim)


def _available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if volume.status.phase != "Available" or class_of(volume) != class_of(claim):
        return False
    if claim.spec.selector is not None and not holds(rules_of(claim.spec.selector), volume.metadata.labels):
        return False
    return {*claim.spec.access_modes} <= {*volume.spec.access_modes}


def _storage(amounts: ResourceList) -> int:
    """Bytes; 0 for an absent or invalid amount."""
    return amount(amounts.get("storage")) or 0


Codes: TypeAlias = NDArray[np.int8]
BOUND: tuple[Code | None, ...] = (None, Code.VOLUME_NODE_MISMATCH, Code.VOLUME_MISSING)
"""Faults of a node for bound claims, by the numbers in `bound_codes`."""
DELAYED: tuple[Code | None, ...] = (None, Code.VOLUME_NOT_AVAILABLE, Code.STORAGE_INSUFFICIENT)
"""Faults of a node for claims that wait for it, by the numbers in `delayed_codes`."""


def bound_codes(claims: ClaimsOfPod, offers: ClaimOffers, columns: Columns, rows: Rows) -> Codes:
    """Return for each row the number in `BOUND` of the first bound claim's fault."""
    codes, nodes = np.zeros(len(rows), np.int8), offers.objects.csi_nodes
    for claim in claims.bound:
        volume = offers.objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            codes[codes == 0] = BOUND.index(Code.VOLUME_MISSING)
            break
        reached, plugin = reach_mask(volume, columns, rows), plugin_of(volume.spec)
        if plugin and nodes:  # On some of the nodes a CSI driver may have taken the volume over.
            migrated = {name for name, node in nodes.items() if plugin in migrated_plugins(node)}
            names = (columns.names[row] for row in rows.tolist())
            there = np.fromiter((name in migrated for name in names), np.bool_, len(rows))
            reached = np.where(there, reach_mask(translated(volume), columns, rows), reached)
        codes[(codes == 0) & ~reached] = BOUND.index(Code.VOLUME_NODE_MISMATCH)
    return codes


def delayed_codes(claims: ClaimsOfPod, offers: ClaimOffers, cluster: NodeCache, rows: Rows) -> Codes:
    """Return for each row the number in `DELAYED` of why a claim gets no volume, nor can have one made."""
    columns, objects, codes = cluster.columns, offers.objects, np.zeros(len(rows), np.int8)
    selected = [(claim, name) for claim in claims.delayed if (name := selected_node(claim, objects))]
    matching = [claim for claim in claims.delayed if not selected_node(claim, objects)]
    for _, name in selected:
        node = cluster.get(name)
        codes[rows != (node.row if node else -1)] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
    for claim, _ in selected:
        _note(codes, *_made(claim, offers, columns, rows))
    if len(matching) == 1:
        offered = offers.of(matching[0]).reached(columns, rows)
        able, stored = _made(matching[0], offers, columns, rows)
        _note(codes, able | offered, stored | offered)
    elif matching:
        _note_competing(codes, claims, matching, offers, cluster, rows)
    return codes


def _note(codes: Codes, able: Mask, stored: Mask) -> None:
    codes[(codes == 0) & ~able] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
    codes[(codes == 0) & ~stored] = DELAYED.index(Code.STORAGE_INSUFFICIENT)


def _note_competing(
    codes: Codes,
    claims: ClaimsOfPod,
    matching: list[PersistentVolumeClaim],
    offers: ClaimOffers,
    cluster: NodeCache,
    rows: Rows,
) -> None:
    """Ask the nodes one by one: the claims may compete for one volume. Nodes that have none are left out."""
    if not any(map(offers.storage, matching)):
        for claim in matching:
            able, _ = _made(claim, offers, cluster.columns, rows)
            _note(codes, able | offers.of(claim).reached(cluster.columns, rows), np.ones(len(rows), np.bool_))
    delayed = ClaimsOfPod(delayed=claims.delayed)
    for place in (codes == 0).nonzero()[0].tolist():
        node = cluster.by_row[rows[place]]
        if node is None or node.node is None:
            codes[place] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
        elif isinstance(faults := find(delayed, node.node, offers), tuple):
            codes[place] = DELAYED.index(faults[0].code)


def _made(
    claim: PersistentVolumeClaim, offers: ClaimOffers, columns: Columns, rows: Rows
) -> tuple[Mask, Mask]:
    """Where a volume can be made for the claim, and where there is storage for it."""
    storage = offers.storage(claim)
    stored = np.ones(len(rows), np.bool_) if storage is None else storage.reached(columns, rows)
    return _possible(claim, offers, columns, rows), stored


def _possible(claim: PersistentVolumeClaim, offers: ClaimOffers, columns: Columns, rows: Rows) -> Mask:
    """Where the class has a provisioner, and its allowed topologies hold."""
    terms = topologies(claim, offers.objects)
    if not terms:
        return np.full(len(rows), terms is not None)
    allowed = np.zeros(len(rows), np.bool_)
    for term in terms:
        mask = np.full(len(rows), bool(term.match_label_expressions))
        for rule in term.match_label_expressions:
            mask &= values_mask(rule.key, rule.values, columns, rows)
        allowed |= mask
    return allowed


def names_claim(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether a claim that was added or changed is one of the pod's."""
    claim = change.new
    if not isinstance(claim, PersistentVolumeClaim):
        return change.old is None
    return any(one.key == claim.key for one in pod_claims(pod.pod))
