"""VolumeZone: zone and region labels of bound volumes, as cloud providers set them before node affinity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from corelane.kube.storage import PersistentVolume, StorageClass
from corelane.kube.volumes import class_of
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.labels import ABSENT
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, added, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import RowFilter, values_mask
from corelane.scheduler.plugins.volume_matching import names_claim

NAME: Final = "VolumeZone"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_CURRENT: Final = {_BETA_ZONE: _ZONE, _BETA_REGION: _REGION}
_LABELS: Final = (_BETA_ZONE, _BETA_REGION, _ZONE, _REGION)
_SEPARATOR: Final = "__"
_MISMATCH: Final = Rejection.of(NAME, Reason(Code.VOLUME_ZONE_MISMATCH), resolvable=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A label of a volume that the node must have, with one of the values."""

    key: str
    values: frozenset[str]


class VolumeZone(RowFilter):
    """Rejects nodes in other zones or regions than the pod's bound volumes; nodes without labels pass."""

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        places: list[Place] = []
        for name in cycle.pod.facts.claims:
            of_claim = _places(cycle, name)
            if isinstance(of_claim, Reason):
                return Rejection.of(NAME, of_claim, resolvable=False)
            places += of_claim
        if not places:
            return SKIP
        cycle.state[NAME] = tuple(places)
        return None

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """As `rejected`, of a Node object that may differ from the one in the columns."""
        labels: Mapping[str, str] = node.labels
        if not any(key in labels for key in _LABELS):
            return None
        places: tuple[Place, ...] = cycle.state[NAME]
        agree = (
            labels.get(place.key, labels.get(_CURRENT.get(place.key, place.key))) in place.values
            for place in places
        )
        return None if all(agree) else _MISMATCH

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        columns = cycle.cluster.columns
        placed, agrees = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        for key in _LABELS:
            placed |= columns.topology.ids(key)[rows] != ABSENT
        for place in cycle.state[NAME]:
            agrees &= _agrees(place, columns, rows)
        yield _MISMATCH, placed & ~agrees

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.CLAIM: names_claim,
            ChangeKind.STORAGE_CLASS: _waits,
            ChangeKind.VOLUME: added,
            ChangeKind.NODE_ADDED | ChangeKind.NODE_LABELS: always,
            ChangeKind.POD_ITSELF | ChangeKind.WATCHED: always,
        }


def _places(cycle: Cycle, name: str) -> list[Place] | Reason:
    """The places of one claim's volume, or why the pod must wait."""
    objects = cycle.cluster.objects
    if reason := objects.not_watched():
        return reason
    if not name:
        return Reason(Code.CLAIM_WITHOUT_NAME)
    claim = objects.claims.get((cycle.pod.pod.metadata.namespace, name))
    if claim is None:
        return Reason(Code.CLAIM_NOT_FOUND, (name,))
    if claim.spec.volume_name:
        volume = objects.volumes.get(claim.spec.volume_name)
        return _of(volume) if volume else Reason(Code.VOLUME_NOT_FOUND, (claim.spec.volume_name,))
    class_name = class_of(claim)
    if not class_name:
        return Reason(Code.CLAIM_WITHOUT_CLASS)
    storage = objects.classes.get(class_name)
    if storage is None:
        return Reason(Code.CLASS_NOT_FOUND, (class_name,))
    return [] if storage.volume_binding_mode == "WaitForFirstConsumer" else Reason(Code.CLAIM_NOT_BOUND)


def _of(volume: PersistentVolume) -> list[Place]:
    labels = volume.metadata.labels
    sets = (
        (key, [part.strip() for part in labels[key].split(_SEPARATOR)]) for key in _LABELS if key in labels
    )
    return [Place(key, frozenset(values)) for key, values in sets if all(values)]


def _agrees(place: Place, columns: Columns, rows: Rows) -> Mask:
    """Which rows have one of the values, by the label's current name where they lack the former one."""
    agrees, absent = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    for key in dict.fromkeys((place.key, _CURRENT.get(place.key, place.key))):
        agrees |= absent & values_mask(key, place.values, columns, rows)
        absent &= columns.topology.ids(key)[rows] == ABSENT
    return agrees


def _waits(_pod: PodInfo, change: ClusterChange) -> bool:
    new = change.new
    return isinstance(new, StorageClass) and new.volume_binding_mode == "WaitForFirstConsumer"
