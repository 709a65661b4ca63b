"""VolumeRestrictions: disks that one pod of a node uses at a time, and claims that one pod uses at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from corelane.kube.pod import Volume
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo, is_disk
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, Rejection, Scope, Skip
from corelane.scheduler.plugins.volume_matching import names_claim

NAME: Final = "VolumeRestrictions"
_ONE_POD: Final = "ReadWriteOncePod"


@dataclass(slots=True)
class ClaimUse:
    """Claims of the pod that one pod may use at a time, and how many uses by pods on nodes there are."""

    claims: frozenset[str]
    uses: int

    def copy(self) -> "ClaimUse":
        """Return a copy that can be changed."""
        return ClaimUse(self.claims, self.uses)


class VolumeRestrictions:
    """Rejects nodes where a pod has the same disk, and all nodes while a ReadWriteOncePod claim is used."""

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        objects, pod, names = cycle.cluster.objects, cycle.pod.pod, set()
        if cycle.pod.facts.claims and (reason := objects.not_watched()):
            return Rejection.of(NAME, reason, resolvable=False)
        for name in cycle.pod.facts.claims:
            claim = objects.claims.get((pod.metadata.namespace, name))
            if claim is None:
                return Rejection.of(NAME, Reason(Code.CLAIM_NOT_FOUND, (name,)), resolvable=False)
            if _ONE_POD in claim.spec.access_modes:
                names.add(name)
        used = cycle.cluster.index.claims
        uses = sum((pod.metadata.namespace, name) in used for name in names)
        if not uses and not any(map(is_disk, pod.spec.volumes)):
            return SKIP
        cycle.state[NAME] = ClaimUse(frozenset(names), uses)
        return None

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if _has_disk_of(cycle.pod, node):
            return Rejection.of(NAME, Reason(Code.DISK_CONFLICT))
        use: ClaimUse = cycle.state[NAME]
        return Rejection.of(NAME, Reason(Code.CLAIM_IN_USE)) if use.uses > 0 else None

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        use: ClaimUse = cycle.state[NAME]
        return np.zeros(len(rows), np.bool_) if use.uses > 0 else ~self._conflicts(cycle, rows)

    def _conflicts(self, cycle: Cycle, rows: Rows) -> Mask:
        """On which rows a pod has the same disk; only nodes of pods with disks are asked."""
        conflicts, disks = np.zeros(len(rows), np.bool_), cycle.cluster.index.disks
        if any(map(is_disk, cycle.pod.pod.spec.volumes)):
            for place in np.isin(rows, np.fromiter(disks, np.intp, len(disks))).nonzero()[0].tolist():
                node = cycle.cluster.by_row[rows[place]]
                conflicts[place] = node is not None and _has_disk_of(cycle.pod, node)
        return conflicts

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        conflict = self._conflicts(cycle, rows)
        for code, some in ((Code.DISK_CONFLICT, rows[conflict]), (Code.CLAIM_IN_USE, rows[~conflict])):
            if len(some):
                yield Rejection.of(NAME, Reason(code)), some

    def add_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self._change(cycle, pod, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self._change(cycle, pod, -1)

    @staticmethod
    def _change(cycle: Cycle, pod: PodInfo, number: int) -> None:
        use: ClaimUse | None = cycle.state.get(NAME)
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
