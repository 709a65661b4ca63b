"""Which volumes of a pod are there for a node: bound ones, ones to be bound, and ones to be made.

As upstream's volume binder (`FindPodVolumes`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from corelane import quantity
from corelane.kube import keys
from corelane.kube.csi_migration import migrated_plugins, plugin_of, translated
from corelane.kube.meta import ResourceList
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm
from corelane.kube.volumes import class_of, is_reserved, reaches, waits_for_consumer
from corelane.quantity import QuantityError
from corelane.reasons import Code, Reason
from corelane.scheduler.cache.label_rules import holds, rules_of
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.cache.pod_volumes import pod_claims
from corelane.scheduler.plugins.storage_capacity import FreeStorage, free_storage
from corelane.scheduler.plugins.volume_offers import Offers

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class ClaimsOfPod:
    """A pod's claims: bound, to be bound once a node is chosen, and waiting for somebody else."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """What a binding to a node must do first."""

    static: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    """Volumes to bind to claims."""
    provisions: tuple[PersistentVolumeClaim, ...] = ()
    """Claims for which a volume is to be made."""


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim is bound from both sides."""
    return bool(claim.spec.volume_name) and keys.BIND_COMPLETED in claim.metadata.annotations


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
        if claim.key not in self._storage:
            self._storage[claim.key] = free_storage(claim, self.objects)
        return self._storage[claim.key]


def find(claims: ClaimsOfPod, node: Node, offers: ClaimOffers) -> NodeVolumes | tuple[Reason, ...]:
    """Return what a binding to the node must do, or why the node cannot have the pod."""
    bound = _bound(claims.bound, node, offers.objects)
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


def _bound(claims: Iterable[PersistentVolumeClaim], node: Node, objects: ClusterObjects) -> Code | None:
    for claim in claims:
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            return Code.VOLUME_MISSING
        if not reaches(for_node(volume, node.metadata.name, objects), node):
            return Code.VOLUME_NODE_MISMATCH
    return None


def for_node(volume: PersistentVolume, node: str, objects: ClusterObjects) -> PersistentVolume:
    """Return a volume as a node knows it: of the CSI driver, where that took the volume's plugin over."""
    plugin = plugin_of(volume.spec)
    if plugin and plugin in migrated_plugins(objects.csi_nodes.get(node)):
        return translated(volume)
    return volume


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
        if fault := _cannot_be_made(claim, node, offers):
            return fault
    return NodeVolumes(tuple(static), tuple(provisions))


def _cannot_be_made(claim: PersistentVolumeClaim, node: Node, offers: ClaimOffers) -> Code | None:
    terms, labels = topologies(claim, offers.objects), node.metadata.labels
    if terms is None or not _allowed(terms, labels):
        return Code.VOLUME_NOT_AVAILABLE
    storage = offers.storage(claim)
    return None if storage is None or storage.reached_by(labels) else Code.STORAGE_INSUFFICIENT


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
    candidates = list(_candidates(claim, objects))
    reserved = [volume for volume in candidates if _is_for(volume, claim, objects)]
    others = (volume for volume in candidates if not _is_for(volume, claim, objects))
    available = [volume for volume in others if _available(volume, claim)]
    available.sort(key=lambda volume: (_storage(volume.spec.capacity), volume.metadata.name))
    return Offers(reserved, available)


def _candidates(claim: PersistentVolumeClaim, objects: ClusterObjects) -> Iterator[PersistentVolume]:
    size = _storage(claim.spec.resources.requests)
    for name, volume in objects.volumes_of_class(class_of(claim)).items():
        of_other = (volume.spec.claim_ref is not None or name in objects.taken_volumes) and not _is_for(
            volume, claim, objects
        )
        if (
            not of_other
            and _storage(volume.spec.capacity) >= size
            and volume.spec.volume_mode == claim.spec.volume_mode
            and volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
            and not volume.metadata.deletion_timestamp
        ):
            yield volume


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
    return _bytes(str(amounts.get("storage", "0")))


@lru_cache(4096)
def _bytes(amount: str) -> int:
    try:
        return quantity.value(amount)
    except QuantityError:
        return 0
