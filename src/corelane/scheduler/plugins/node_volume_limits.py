"""NodeVolumeLimits: how many volumes of a CSI driver a node can have, as its CSINode says.

Volumes of the pods on the node count, and those attached to it, each once. A claim without a volume counts
for its class's provisioner. Volumes of plugins that CSI drivers took over count for these drivers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from corelane.kube.storage import CSINode, PersistentVolume
from corelane.kube.volumes import VolumeID, inline_id, may_be_limited, volume_id
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.volumes import claim_of, claim_volume, is_owned, pod_claims, volumes_on_node
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, NodeReason, Rejection, Scope, Skip
from corelane.scheduler.plugins.volume_matching import names_claim

NAME: Final = "NodeVolumeLimits"


@dataclass(frozen=True, slots=True)
class LimitedVolumes:
    """State of one attempt: the pod's volumes of CSI drivers, and why they cannot be counted."""

    volumes: frozenset[VolumeID]
    problem: Reason | None = None
    """On every node."""
    inline_problem: Reason | None = None
    """On nodes with CSI drivers."""


class NodeVolumeLimits:
    """Rejects nodes that cannot have all of the pod's volumes; nodes without a CSINode have no limits."""

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        info, objects = cycle.pod, cycle.cluster.objects
        if not info.facts.volumes or not any(map(may_be_limited, info.pod.spec.volumes)):
            return SKIP
        if reason := objects.not_watched("csinodes", "volumeattachments"):
            return Rejection.of(NAME, reason, resolvable=False)
        cycle.state[NAME] = _limited_volumes(info, cycle.cluster)
        return None

    def idle(self, _pod: PodInfo) -> bool:
        return True

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
            asked, had = _of_driver(new, driver), _of_driver(used, driver)
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
    state: LimitedVolumes = cycle.state[NAME]
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
    return Rejection.of(NAME, reason, resolvable=False)


def _exceeded(driver: str, used: int, new: int, limit: int) -> Rejection:
    detail = Reason(Code.VOLUMES_OF_DRIVER, (driver, used, new, limit))
    return Rejection(NAME, (NodeReason(Reason(Code.VOLUME_COUNT_EXCEEDED), detail),))


def _of_driver(volumes: set[VolumeID] | frozenset[VolumeID], driver: str) -> int:
    return sum(of == driver for of, _ in volumes)


def _with_drivers(cluster: NodeCache, rows: Rows) -> Mask:
    """Return which rows have a CSINode."""
    names, csi_nodes = cluster.columns.names, cluster.objects.csi_nodes
    return np.fromiter((names[row] in csi_nodes for row in rows.tolist()), np.bool_, len(rows))


# Hints.


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
    return old is not None and (old.spec, old.metadata.owner_references) != (
        new.spec,
        new.metadata.owner_references,
    )


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
