"""VolumeBinding: claims that are bound, and claims that are bound once a node is chosen.

A claim of a class with WaitForFirstConsumer gets an existing volume that the node can reach, or one made for
the node (`volume.kubernetes.io/selected-node`). Both are written before the pod's binding, which waits until
the claims are bound (`volume_binder`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corelane.kube.storage import StorageClass
from corelane.reasons import Code, Reason
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, NodeReason, Rejection, Scope, Skip
from corelane.scheduler.instructions import PreBindWork
from corelane.scheduler.plugins import volume_rows
from corelane.scheduler.plugins.pod_claims import names_claim, not_watched, pod_claims, unusable
from corelane.scheduler.plugins.volume_binder import VolumeWork, bind_volumes
from corelane.scheduler.plugins.volume_matching import (
    ClaimOffers,
    ClaimsOfPod,
    NodeVolumes,
    claims_of,
    find,
    reasons_of,
)
from corelane.scheduler.plugins.volume_rows import BOUND, Codes

if TYPE_CHECKING:
    from corelane.scheduler.framework.binding import BindContext

NAME: Final = "VolumeBinding"


@dataclass(frozen=True, slots=True)
class VolumeState:
    """State of one attempt."""

    claims: ClaimsOfPod
    offers: ClaimOffers


class VolumeBinding:
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
        found = tuple(pod_claims(pod))
        if not found:
            return SKIP
        if reason := not_watched(objects):
            return self._reject(reason)
        for one in found:
            if reason := unusable(pod, one, objects):
                return self._reject(reason)
        claims = claims_of(pod, objects)
        if claims.immediate:
            return self._reject(Reason(Code.CLAIMS_UNBOUND))
        cycle.state[NAME] = VolumeState(claims, ClaimOffers(objects))
        return None

    def _reject(self, reason: Reason) -> Rejection:
        return Rejection.of(NAME, reason, resolvable=False)

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        found = self._find(cycle, node)
        if isinstance(found, NodeVolumes):
            return None
        return Rejection(NAME, tuple(map(NodeReason, found)), resolvable=False)

    @staticmethod
    def _find(cycle: Cycle, node: NodeInfo) -> NodeVolumes | tuple[Reason, ...]:
        state: VolumeState | None = cycle.state.get(NAME)
        if state is None or node.node is None:
            return NodeVolumes()
        return find(state.claims, node.node, state.offers)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        codes, available = self._judged(cycle, rows)
        fits: Mask = (codes == 0) & available
        return fits

    @staticmethod
    def _judged(cycle: Cycle, rows: Rows) -> tuple[Codes, Mask]:
        """By each row: what bound claims say, and whether the others get volumes."""
        state: VolumeState = cycle.state[NAME]
        codes = volume_rows.bound_codes(state.claims, state.offers, cycle.cluster.columns, rows)
        return codes, volume_rows.available(state.claims, state.offers, cycle.cluster, rows)

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        codes, available = self._judged(cycle, rows)
        for number, code in enumerate(BOUND):
            for able in (False, True):
                alike = rows[(codes == number) & (available == able)]
                reasons = reasons_of(code, available=able)
                if len(alike) and reasons:
                    yield Rejection(NAME, tuple(map(NodeReason, reasons)), resolvable=False), alike

    # Reserve and PreBind.

    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if NAME not in cycle.state:
            return None
        found, objects = self._find(cycle, node), cycle.cluster.objects
        if not isinstance(found, NodeVolumes):
            return Rejection(NAME, tuple(map(NodeReason, found)), resolvable=False)
        self._objects = objects
        for volume, claim in found.static:
            objects.take(volume, claim)
        for claim in found.provisions:
            objects.provision(claim, node.name)
        cycle.state[f"{NAME}/volumes"] = found
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        if self._objects is not None:
            self._objects.release(one.key for one in pod_claims(pod.pod))

    def pre_bind_work(self, cycle: Cycle, node: NodeInfo) -> PreBindWork | None:
        found: NodeVolumes | None = cycle.state.get(f"{NAME}/volumes")
        if found is None or not (found.static or found.provisions):
            return None
        return VolumeWork(NAME, node.name, found.static, found.provisions)

    async def pre_bind(self, context: "BindContext", work: PreBindWork) -> None:
        assert isinstance(work, VolumeWork)
        assert self._objects is not None
        await bind_volumes(context.client, self._objects, work, self.timeout)

    # Hints.

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.CLAIM: names_claim,
            ChangeKind.STORAGE_CLASS: _allows_more,
            ChangeKind.VOLUME | ChangeKind.NODE_ADDED | ChangeKind.NODE_LABELS: always,
            ChangeKind.POD_ITSELF: always,
        }


def _allows_more(_pod: PodInfo, change: ClusterChange) -> bool:
    old, new = change.old, change.new
    if not (isinstance(old, StorageClass) and isinstance(new, StorageClass)):
        return True
    return old.allowed_topologies != new.allowed_topologies
