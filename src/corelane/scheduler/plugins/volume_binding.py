"""VolumeBinding: claims that are bound, and claims that are bound once a node is chosen.

A claim of a class with WaitForFirstConsumer gets an existing volume that the node can reach, or one made for
the node (`volume.kubernetes.io/selected-node`). Both are written before the pod's binding, which waits until
the claims are bound, as upstream's `BindPodVolumes`: a volume gets the claim as its claimRef, a claim the
node in an annotation. The cluster's controllers, which bind claims and make volumes, do the rest.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from corelane.kube.volumes import migrated_plugins
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.objects import ClusterObjects
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.volumes import largest, pod_claims
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, added, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, NodeReason, PreBindError, Rejection, Scope, Skip
from corelane.scheduler.instructions import PreBindWork
from corelane.scheduler.plugins import volume_matching
from corelane.scheduler.plugins.rows import IdleForPlainPods
from corelane.scheduler.plugins.volume_matching import (
    BOUND,
    DELAYED,
    ClaimOffers,
    ClaimsOfPod,
    Codes,
    NodeVolumes,
    claims_of,
    find,
    fully_bound,
    names_claim,
    reasons_of,
    unusable,
)

if TYPE_CHECKING:
    from corelane.scheduler.framework.plugin import BindContext


_INTERVAL: Final = 0.2
"""Seconds between two looks at what the informers show."""


@dataclass(frozen=True, slots=True)
class VolumeWork:
    """Writes before a binding; claims and volumes as they were when it was decided."""

    plugin: str
    node: str
    static: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...]
    provisions: tuple[PersistentVolumeClaim, ...]


async def bind_volumes(client: KubeClient, objects: ClusterObjects, work: VolumeWork, seconds: float) -> None:
    """Write, and wait until `objects` shows all claims bound. Raises APIError, PreBindError.

    A binding without an answer is prepared again: only what is not written yet is written.
    """
    for volume, claim in work.static:
        now = objects.volumes.get(volume.metadata.name)
        if now is None or now.spec.claim_ref is None or now.spec.claim_ref.uid != claim.metadata.uid:
            await client.patch(PersistentVolume, volume.metadata.name, _claim_ref(volume, claim))
    for claim in work.provisions:
        of, current = claim.metadata, objects.claims.get(claim.key)
        if current is None or current.metadata.annotations.get(keys.SELECTED_NODE) != work.node:
            annotations = {keys.SELECTED_NODE: work.node}
            patch = {"metadata": {"resourceVersion": of.resource_version, "annotations": annotations}}
            await client.patch(PersistentVolumeClaim, of.name, patch, namespace=of.namespace)
    try:
        async with asyncio.timeout(seconds):
            while waiting := list(_unbound(objects, work)):  # noqa: ASYNC110 - plain values of informers
                await asyncio.sleep(_INTERVAL)
    except TimeoutError:
        raise PreBindError(
            f"binding volumes: claim {', '.join(waiting)} not bound after {seconds:.0f} s; "
            f"see the claim's events and its provisioner"
        ) from None


def _claim_ref(volume: PersistentVolume, claim: PersistentVolumeClaim) -> dict[str, Any]:
    """A merge patch; the resourceVersion makes it fail if the volume was changed meanwhile."""
    of = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if volume.spec.claim_ref is None:
        metadata["annotations"] = {keys.BOUND_BY_CONTROLLER: "yes"}
    return {"metadata": metadata, "spec": {"claimRef": of}}


def _unbound(objects: ClusterObjects, work: VolumeWork) -> Iterator[str]:
    """Yield the claims that are not bound yet. Raises PreBindError where waiting is of no use."""
    for volume, claim in work.static:
        name = volume.metadata.name
        now = objects.volumes.get(name)
        if now is None:
            raise PreBindError(f"binding volumes: persistentvolume {name} was deleted")
        changed = now.metadata.resource_version != volume.metadata.resource_version
        if changed and (now.spec.claim_ref is None or not now.spec.claim_ref.uid):
            raise PreBindError(f"binding volumes: ClaimRef got reset for pv {name!r}")
        if not _bound(objects, claim):
            yield claim.title
    for claim in work.provisions:
        current = objects.claims.get(claim.key)
        changed = current is not None and current.metadata.resource_version != claim.metadata.resource_version
        if current is not None and changed:
            selected = current.metadata.annotations.get(keys.SELECTED_NODE)
            if selected != work.node and not current.spec.volume_name:
                raise PreBindError(f"binding volumes: provisioning failed for PVC {claim.title!r}")
        if not _bound(objects, claim):
            yield claim.title


def _bound(objects: ClusterObjects, claim: PersistentVolumeClaim) -> bool:
    current = objects.claims.get(claim.key)
    if current is None or current.metadata.uid != claim.metadata.uid:
        raise PreBindError(f"binding volumes: persistentvolumeclaim {claim.title} was deleted")
    return fully_bound(current)


NAME: Final = "VolumeBinding"


@dataclass(frozen=True, slots=True)
class VolumeState:
    """State of one attempt."""

    claims: ClaimsOfPod
    offers: ClaimOffers


class VolumeBinding(IdleForPlainPods):
    """See the module. `bindTimeoutSeconds` limits the wait for claims."""

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def __init__(self, bindTimeoutSeconds: float = 600.0) -> None:  # noqa: N803 - upstream's name
        if bindTimeoutSeconds < 0:
            raise ValueError(f"bindTimeoutSeconds {bindTimeoutSeconds}: use 0 or more")
        self.timeout = float(bindTimeoutSeconds)
        self._objects: ClusterObjects | None = None

    # Filter.

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        objects, pod = cycle.cluster.objects, cycle.pod.pod
        of_pod = tuple(pod_claims(pod))
        if not of_pod:
            return SKIP
        if reason := objects.not_watched("csinodes"):
            return self._reject(reason)
        for claim in of_pod:
            if reason := unusable(pod, claim, objects):
                return self._reject(reason)
        claims = claims_of(pod, objects)
        if claims.immediate:
            return self._reject(Reason(Code.CLAIMS_UNBOUND))
        if claims.delayed and (reason := objects.not_watched("csidrivers", "csistoragecapacities")):
            return self._reject(reason)
        cycle.state[NAME] = VolumeState(claims, ClaimOffers(objects))
        return None

    def _reject(self, reason: Reason) -> Rejection:
        return Rejection.of(NAME, reason, resolvable=False)

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        volumes = self._find(cycle, node)
        return volumes if isinstance(volumes, Rejection) else None

    @staticmethod
    def _find(cycle: Cycle, node: NodeInfo) -> NodeVolumes | Rejection:
        state: VolumeState | None = cycle.state.get(NAME)
        if state is None or node.node is None:
            return NodeVolumes()
        volumes = find(state.claims, node.node, state.offers)
        if isinstance(volumes, NodeVolumes):
            return volumes
        return Rejection(NAME, tuple(map(NodeReason, volumes)), resolvable=False)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        bound, delayed = self._judged(cycle, rows)
        fits: Mask = (bound == 0) & (delayed == 0)
        return fits

    @staticmethod
    def _judged(cycle: Cycle, rows: Rows) -> tuple[Codes, Codes]:
        """By each row: what bound claims say, and what the others do."""
        state: VolumeState = cycle.state[NAME]
        codes = volume_matching.bound_codes(state.claims, state.offers, cycle.cluster.columns, rows)
        return codes, volume_matching.delayed_codes(state.claims, state.offers, cycle.cluster, rows)

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        bound, delayed = self._judged(cycle, rows)
        for number, code in enumerate(BOUND):
            for other, why in enumerate(DELAYED):
                alike = rows[(bound == number) & (delayed == other)]
                reasons = reasons_of(code, why)
                if len(alike) and reasons:
                    yield Rejection(NAME, tuple(map(NodeReason, reasons)), resolvable=False), alike

    # Reserve and PreBind.

    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if NAME not in cycle.state:
            return None
        volumes, objects = self._find(cycle, node), cycle.cluster.objects
        if isinstance(volumes, Rejection):
            return volumes
        self._objects = objects
        for volume, claim in volumes.static:
            objects.take(volume, claim)
        for claim in volumes.provisions:
            objects.provision(claim, node.name)
        cycle.state[f"{NAME}/volumes"] = volumes
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        if self._objects is not None:
            self._objects.release(one.key for one in pod_claims(pod.pod))

    def pre_bind_work(self, cycle: Cycle, node: NodeInfo) -> PreBindWork | None:
        volumes: NodeVolumes | None = cycle.state.get(f"{NAME}/volumes")
        if volumes is None or not (volumes.static or volumes.provisions):
            return None
        return VolumeWork(NAME, node.name, volumes.static, volumes.provisions)

    async def pre_bind(self, context: "BindContext", work: PreBindWork) -> None:
        assert isinstance(work, VolumeWork)
        assert self._objects is not None
        await bind_volumes(context.client, self._objects, work, self.timeout)

    # Hints.

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.CLAIM: names_claim,
            ChangeKind.STORAGE_CLASS: _allows_more,
            ChangeKind.VOLUME: added,
            ChangeKind.NODE_ADDED | ChangeKind.NODE_LABELS: always,
            ChangeKind.POD_ITSELF | ChangeKind.WATCHED: always,
            ChangeKind.POD_REMOVED: _releases,
            ChangeKind.CSI_NODE: _migrates,
            ChangeKind.CSI_DRIVER: _limits_no_more,
            ChangeKind.STORAGE_CAPACITY: _has_more,
        }


def _releases(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether volumes that a binding under way has taken are free again."""
    old = change.old
    if not isinstance(old, PodInfo):
        return True
    return not old.pod.spec.node_name and any(pod_claims(old.pod))


def _allows_more(_pod: PodInfo, change: ClusterChange) -> bool:
    old, new = change.old, change.new
    if not (isinstance(old, StorageClass) and isinstance(new, StorageClass)):
        return new is not None
    return _RULES(old) != _RULES(new)


_RULES: Final = attrgetter("allowed_topologies", "provisioner", "volume_binding_mode")


def _migrates(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether other plugins' volumes are CSI drivers' on the node."""
    before, after = (one if isinstance(one, CSINode) else None for one in (change.old, change.new))
    return before is None or migrated_plugins(before) != migrated_plugins(after)


def _limits_no_more(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether free storage of a driver no longer counts."""
    before, after = (
        isinstance(one, CSIDriver) and bool(one.spec.storage_capacity) for one in (change.old, change.new)
    )
    return before and not after


def _has_more(_pod: PodInfo, change: ClusterChange) -> bool:
    """Whether larger volumes can be made than before, or on other nodes."""
    old, new = change.old, change.new
    if not (isinstance(old, CSIStorageCapacity) and isinstance(new, CSIStorageCapacity)):
        return new is not None
    if (old.node_topology, old.storage_class_name) != (new.node_topology, new.storage_class_name):
        return True
    before, after = largest(old), largest(new)
    return after is not None and (before is None or after > before)
