"""Filters by volumes: VolumeRestrictions, VolumeZone and NodeVolumeLimits.

NodeVolumeLimits counts volumes of the pods on the node, and those attached to it, each once. A claim without
a volume counts for its class's provisioner. Volumes of plugins that CSI drivers took over count for these
drivers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from corelane.kube.pod import Volume
from corelane.kube.storage import CSINode, PersistentVolume, StorageClass
from corelane.kube.volumes import VolumeID, class_of, inline_id, may_be_limited, volume_id
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.labels import ABSENT
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo, is_disk
from corelane.scheduler.cluster.volumes import claim_of, claim_volume, is_owned, pod_claims, volumes_on_node
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, added, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, NodeReason, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import CountsPods, IdleForPlainPods, RowFilter, values_mask
from corelane.scheduler.plugins.volume_matching import names_claim

VOLUME_RESTRICTIONS: Final = "VolumeRestrictions"
_ONE_POD: Final = "ReadWriteOncePod"
_DISK_CONFLICT: Final = Rejection.of(VOLUME_RESTRICTIONS, Reason(Code.DISK_CONFLICT))
_CLAIM_IN_USE: Final = Rejection.of(VOLUME_RESTRICTIONS, Reason(Code.CLAIM_IN_USE))


@dataclass(slots=True)
class ClaimUse:
    """Claims of the pod that one pod may use at a time, and how many uses by pods on nodes there are."""

    claims: frozenset[str]
    uses: int

    def copy(self) -> "ClaimUse":
        """Return a copy that can be changed."""
        return ClaimUse(self.claims, self.uses)


class VolumeRestrictions(IdleForPlainPods, RowFilter, CountsPods):
    """Rejects nodes where a pod has the same disk, and all nodes while a ReadWriteOncePod claim is used."""

    name = VOLUME_RESTRICTIONS
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        objects, pod, names = cycle.cluster.objects, cycle.pod.pod, set()
        if cycle.pod.facts.claims and (reason := objects.not_watched()):
            return Rejection.of(VOLUME_RESTRICTIONS, reason, resolvable=False)
        for name in cycle.pod.facts.claims:
            claim = objects.claims.get((pod.metadata.namespace, name))
            if claim is None:
                return Rejection.of(
                    VOLUME_RESTRICTIONS, Reason(Code.CLAIM_NOT_FOUND, (name,)), resolvable=False
                )
            if _ONE_POD in claim.spec.access_modes:
                names.add(name)
        used = cycle.cluster.index.claims
        uses = sum((pod.metadata.namespace, name) in used for name in names)
        if not uses and not any(map(is_disk, pod.spec.volumes)):
            return SKIP
        cycle.state[VOLUME_RESTRICTIONS] = ClaimUse(frozenset(names), uses)
        return None

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Judge the given node, which may have other pods than in the columns."""
        if _has_disk_of(cycle.pod, node):
            return _DISK_CONFLICT
        use: ClaimUse = cycle.state[VOLUME_RESTRICTIONS]
        return _CLAIM_IN_USE if use.uses > 0 else None

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """Rows where a pod has the same disk, of which only nodes of pods with disks are asked; or all."""
        conflicts, disks = np.zeros(len(rows), np.bool_), cycle.cluster.index.disks
        use: ClaimUse = cycle.state[VOLUME_RESTRICTIONS]
        if any(map(is_disk, cycle.pod.pod.spec.volumes)):
            for place in np.isin(rows, np.fromiter(disks, np.intp, len(disks))).nonzero()[0].tolist():
                node = cycle.cluster.by_row[rows[place]]
                conflicts[place] = node is not None and _has_disk_of(cycle.pod, node)
        yield _DISK_CONFLICT, conflicts
        yield _CLAIM_IN_USE, np.full(len(rows), use.uses > 0)

    def change(self, cycle: Cycle, pod: PodInfo, node: NodeInfo, number: int) -> None:
        use: ClaimUse | None = cycle.state.get(VOLUME_RESTRICTIONS)
        if use is not None and pod.pod.metadata.namespace == cycle.pod.pod.metadata.namespace:
            use.uses += number * sum(name in use.claims for name in pod.facts.claims)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.POD_REMOVED: _frees,
            ChangeKind.CLAIM: names_claim,
            ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF | ChangeKind.WATCHED: always,
        }


def _frees(pod: PodInfo, change: ClusterChange) -> bool:
    old = change.old
    if not isinstance(old, PodInfo):
        return True
    if old.pod.metadata.namespace == pod.pod.metadata.namespace and {*old.facts.claims} & {*pod.facts.claims}:
        return True
    return _share_disk(pod, old)


def _has_disk_of(pod: PodInfo, node: NodeInfo) -> bool:
    return any(_share_disk(pod, other) for other in node.pods.values())


def _share_disk(pod: PodInfo, other: PodInfo) -> bool:
    mine = [volume for volume in pod.pod.spec.volumes if is_disk(volume)]
    return any(_same_disk(volume, theirs) for volume in mine for theirs in other.pod.spec.volumes)


def _same_disk(one: Volume, other: Volume) -> bool:
    """Upstream's `isVolumeConflict`: the same disk, unless both only read it (and it is not Amazon's)."""
    a, b = one.gce_persistent_disk, other.gce_persistent_disk
    if a and b and a.pd_name == b.pd_name and not (a.read_only and b.read_only):
        return True
    aws, other_aws = one.aws_elastic_block_store, other.aws_elastic_block_store
    if aws and other_aws and aws.volume_id == other_aws.volume_id:
        return True
    c, d = one.iscsi, other.iscsi
    if c and d and c.iqn == d.iqn and not (c.read_only and d.read_only):
        return True
    e, f = one.rbd, other.rbd
    if not (e and f) or (e.read_only and f.read_only):
        return False
    return bool({*e.monitors} & {*f.monitors}) and (e.pool, e.image) == (f.pool, f.image)


VOLUME_ZONE: Final = "VolumeZone"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_CURRENT: Final = {_BETA_ZONE: _ZONE, _BETA_REGION: _REGION}
_LABELS: Final = (_BETA_ZONE, _BETA_REGION, _ZONE, _REGION)
_SEPARATOR: Final = "__"
_MISMATCH: Final = Rejection.of(VOLUME_ZONE, Reason(Code.VOLUME_ZONE_MISMATCH), resolvable=False)


Place: TypeAlias = tuple[str, frozenset[str]]
"""A label of a volume that the node must have, and its values, of which one must be the node's."""


class VolumeZone(IdleForPlainPods, RowFilter):
    """Rejects nodes in other zones or regions than the pod's bound volumes; nodes without labels pass."""

    name = VOLUME_ZONE
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        places: list[Place] = []
        for name in cycle.pod.facts.claims:
            of_claim = _places(cycle, name)
            if isinstance(of_claim, Reason):
                return Rejection.of(VOLUME_ZONE, of_claim, resolvable=False)
            places += of_claim
        if not places:
            return SKIP
        cycle.state[VOLUME_ZONE] = tuple(places)
        return None

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Judge the given Node object, which may differ from the one in the columns."""
        labels: Mapping[str, str] = node.labels
        if not any(key in labels for key in _LABELS):
            return None
        places: tuple[Place, ...] = cycle.state[VOLUME_ZONE]
        agree = (labels.get(key, labels.get(_CURRENT.get(key, key))) in values for key, values in places)
        return None if all(agree) else _MISMATCH

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        columns = cycle.cluster.columns
        placed, agrees = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        for key in _LABELS:
            placed |= columns.topology.ids(key)[rows] != ABSENT
        for former, values in cycle.state[VOLUME_ZONE]:
            # By the label's current name where they lack the former one.
            agreeing, absent = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
            for key in dict.fromkeys((former, _CURRENT.get(former, former))):
                agreeing |= absent & values_mask(key, values, columns, rows)
                absent &= columns.topology.ids(key)[rows] == ABSENT
            agrees &= agreeing
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
        if volume is None:
            return Reason(Code.VOLUME_NOT_FOUND, (claim.spec.volume_name,))
        labels = volume.metadata.labels
        values = {
            key: [part.strip() for part in labels[key].split(_SEPARATOR)] for key in _LABELS if key in labels
        }
        return [(key, frozenset(parts)) for key, parts in values.items() if all(parts)]
    class_name = class_of(claim)
    if not class_name:
        return Reason(Code.CLAIM_WITHOUT_CLASS)
    storage = objects.classes.get(class_name)
    if storage is None:
        return Reason(Code.CLASS_NOT_FOUND, (class_name,))
    return [] if storage.volume_binding_mode == "WaitForFirstConsumer" else Reason(Code.CLAIM_NOT_BOUND)


def _waits(_pod: PodInfo, change: ClusterChange) -> bool:
    new = change.new
    return isinstance(new, StorageClass) and new.volume_binding_mode == "WaitForFirstConsumer"


NODE_VOLUME_LIMITS: Final = "NodeVolumeLimits"


@dataclass(frozen=True, slots=True)
class LimitedVolumes:
    """State of one attempt: the pod's volumes of CSI drivers, and why they cannot be counted."""

    volumes: frozenset[VolumeID]
    problem: Reason | None = None
    """On every node."""
    inline_problem: Reason | None = None
    """On nodes with CSI drivers."""


class NodeVolumeLimits(IdleForPlainPods):
    """Rejects nodes that cannot have all of the pod's volumes; nodes without a CSINode have no limits."""

    name = NODE_VOLUME_LIMITS
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        info, objects = cycle.pod, cycle.cluster.objects
        if not info.facts.volumes or not any(map(may_be_limited, info.pod.spec.volumes)):
            return SKIP
        if reason := objects.not_watched("csinodes", "volumeattachments"):
            return Rejection.of(NODE_VOLUME_LIMITS, reason, resolvable=False)
        cycle.state[NODE_VOLUME_LIMITS] = _limited_volumes(info, cycle.cluster)
        return None

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        state, objects = _state(cycle), cycle.cluster.objects
        csi_node = objects.csi_nodes.get(node.name)
        if state.problem or (state.inline_problem and csi_node):
            return _unreadable(state)
        limits = csi_node.limits if csi_node is not None else {}
        if not any(driver in limits for driver, _ in state.volumes):
            return None
        there: set[VolumeID] = set()
        for one in node.pods.values():
            if one.facts.volumes:
                there |= volumes_on_node(one.pod, objects)
        new, used = state.volumes - there, there | objects.uses.attached(node.name)
        for driver in sorted({driver for driver, _ in new} & limits.keys()):
            asked, had = (sum(of == driver for of, _ in volumes) for volumes in (new, used))
            if had + asked > limits[driver]:
                return _exceeded(driver, had, asked, limits[driver])
        return None

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        state, objects = _state(cycle), cycle.cluster.objects
        if state.problem:
            return np.zeros(len(rows), np.bool_)
        mask = np.ones(len(rows), np.bool_)
        if state.inline_problem:
            mask &= ~_with_drivers(cycle.cluster, rows)
        for numbers in objects.uses.counts(state.volumes, rows):
            mask &= ~numbers.exceeded
        return mask

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        state, left = _state(cycle), np.ones(len(rows), np.bool_)
        if state.problem or state.inline_problem:
            unreadable = left if state.problem else _with_drivers(cycle.cluster, rows)
            if unreadable.any():
                yield _unreadable(state), rows[unreadable]
            left = ~unreadable
        for numbers in cycle.cluster.objects.uses.counts(state.volumes, rows):
            exceeded = left & numbers.exceeded
            left &= ~exceeded
            alike: dict[tuple[int, int, int], list[int]] = {}
            for place in exceeded.nonzero()[0].tolist():
                key = int(numbers.used[place]), int(numbers.new[place]), int(numbers.limit[place])
                alike.setdefault(key, []).append(place)
            for key, places in alike.items():
                yield _exceeded(numbers.driver, *key), rows[places]

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.CSI_NODE: _allows_more,
            ChangeKind.POD_REMOVED: _has_volumes,
            ChangeKind.POD_ADDED: _shares_volume,
            ChangeKind.VOLUME_ATTACHMENT: _is_gone,
            ChangeKind.CLAIM: _claim_counts_otherwise,
            ChangeKind.VOLUME: _counts_otherwise,
            ChangeKind.STORAGE_CLASS: _provisions_no_more,
            ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF | ChangeKind.WATCHED: always,
        }


def _state(cycle: Cycle) -> LimitedVolumes:
    state: LimitedVolumes = cycle.state[NODE_VOLUME_LIMITS]
    return state


def _limited_volumes(info: PodInfo, cluster: NodeCache) -> LimitedVolumes:
    requested: set[VolumeID] = set()
    pod, objects, inline_problem = info.pod, cluster.objects, None
    for volume in pod.spec.volumes:
        of = claim_of(pod, volume)
        if of is None:
            try:
                volume_of = inline_id(volume)
            except ValueError as error:
                inline_problem = inline_problem or Reason(Code.VOLUME_NOT_COUNTED, (str(error),))
                continue
        else:
            claim, name = objects.claims.get(of.key), "/".join(of.key)
            if not of.key[1]:
                return LimitedVolumes(frozenset(), Reason(Code.CLAIM_WITHOUT_NAME))
            if claim is None:
                return LimitedVolumes(frozenset(), Reason(Code.CLAIM_LOOKED_UP, (name, of.key[1])))
            if of.ephemeral and not is_owned(pod, claim):
                problem = Reason(Code.CLAIM_OF_OTHER_POD, (claim.title, pod.title))
                return LimitedVolumes(frozenset(), problem)
            volume_of = claim_volume(claim, objects)
        if volume_of is not None:
            requested.add(volume_of)
    return LimitedVolumes(frozenset(requested), inline_problem=inline_problem)


def _unreadable(state: LimitedVolumes) -> Rejection:
    reason = state.problem or state.inline_problem
    assert reason is not None
    return Rejection.of(NODE_VOLUME_LIMITS, reason, resolvable=False)


def _exceeded(driver: str, used: int, new: int, limit: int) -> Rejection:
    detail = Reason(Code.VOLUMES_OF_DRIVER, (driver, used, new, limit))
    return Rejection(NODE_VOLUME_LIMITS, (NodeReason(Reason(Code.VOLUME_COUNT_EXCEEDED), detail),))


def _with_drivers(cluster: NodeCache, rows: Rows) -> Mask:
    """Return which rows have a CSINode."""
    names, csi_nodes = cluster.columns.names, cluster.objects.csi_nodes
    return np.fromiter((names[row] in csi_nodes for row in rows.tolist()), np.bool_, len(rows))


def _allows_more(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether a node is known from now on, has no limits any more, or a limit of a driver was raised."""
    old, new = change.old, change.new
    if not (isinstance(old, CSINode) and isinstance(new, CSINode)):
        return True
    before, now = old.limits, new.limits
    raised = any(limit > before.get(driver, 0) for driver, limit in now.items())
    return raised or not before.keys() <= now.keys()


def _has_volumes(_pod: PodInfo, change: ClusterChange) -> bool:
    old = change.old
    return not isinstance(old, PodInfo) or any(map(may_be_limited, old.pod.spec.volumes))


def _shares_volume(pod: PodInfo, change: ClusterChange) -> bool:
    """Whether a pod that came may use a volume of this one, which is not new to its node then."""
    new = change.new
    if not isinstance(new, PodInfo) or not new.facts.volumes:
        return not isinstance(new, PodInfo)
    mine, theirs = ({one.key for one in pod_claims(info.pod)} for info in (pod, new))
    inline = all(any(not claim_of(one.pod, each) for each in one.pod.spec.volumes) for one in (pod, new))
    return inline or not mine.isdisjoint(theirs)


def _is_gone(_pod: PodInfo, change: ClusterChange) -> bool:
    old, new = change.old, change.new
    return new is None or (old is not None and old.spec != new.spec)


def _claim_counts_otherwise(pod: PodInfo, change: ClusterChange) -> bool:
    """Whether a claim is the pod's; or a claim, of pods on nodes perhaps, means another volume, or none."""
    old, new = change.old, change.new
    if new is None or names_claim(pod, change):
        return True
    owners = new.metadata.owner_references
    return old is not None and (old.spec, old.metadata.owner_references) != (new.spec, owners)


def _counts_otherwise(pod: PodInfo, change: ClusterChange) -> bool:
    """Whether a volume is another driver's than before, or is bound to one of the pod's claims."""
    old, new = change.old, change.new
    if not (isinstance(old, PersistentVolume) and isinstance(new, PersistentVolume)):
        return True
    claimed = new.spec.claim_ref
    if claimed is None or volume_id(old) != volume_id(new):
        return volume_id(old) != volume_id(new)
    return any(one.key == (claimed.namespace, claimed.name) for one in pod_claims(pod.pod))


def _provisions_no_more(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether volumes to be made of a class are another driver's than before."""
    old, new = change.old, change.new
    return old is not None and (new is None or old.provisioner != new.provisioner)
