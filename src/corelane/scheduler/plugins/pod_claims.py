"""The claims of a pod: those that its volumes name, and those made for its ephemeral volumes."""

from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolumeClaim
from corelane.reasons import Code, Reason
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.cache.pod_volumes import PodClaim, is_owned, pod_claims
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ClusterChange


def not_watched(objects: ClusterObjects, *more: str) -> Reason | None:
    """Return why pods with claims cannot be judged; None if everything needed, and `more`, is watched."""
    for plural in ("persistentvolumeclaims", "persistentvolumes", "storageclasses", *more):
        if error := objects.unwatched.get(plural):
            return Reason(Code.VOLUMES_NOT_WATCHED, (plural, error))
    return None


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


def names_claim(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether a claim that was added or changed is one of the pod's."""
    claim = change.new
    if not isinstance(claim, PersistentVolumeClaim):
        return change.old is None
    return any(one.key == claim.key for one in pod_claims(pod.pod))
