"""A pod bound to this node, as far as its CPUs are concerned."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.workload import PodRequest, QOSClass


@dataclass(frozen=True, slots=True)
class StatusReason:
    """Reason (one CamelCase word) and message, as in a pod's status and events."""

    reason: str
    message: str = ""


UNDECODABLE: Final = StatusReason("PodUndecodable", "the pod object cannot be decoded")
NOT_LISTED: Final = StatusReason(
    "PodNotListed", "neither the kubelet nor the API server has listed the pod; it is admitted once one does"
)
NO_POD_OBJECT: Final = StatusReason("NoPodObject", "the container belongs to no pod of this node")


@dataclass(frozen=True, slots=True)
class CPURecord:
    """What a pod's annotations say: container name to exclusive CPUs, and the NUMA nodes of its pool."""

    cpus: Mapping[str, CPUSet]
    zone: CPUSet | None = None


INVALID_RECORD: Final = CPURecord({"": CPUSet()})
"""Of annotations that cannot be read: no allocation equals it."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of the API server or the kubelet that runs, or is to run, on this node.

    `created_at` is in Unix seconds. `ended`: its phase is terminal. `bound_by_corelane`: a rejection
    contradicts corelane's scheduler. `record` is None where it was not read.
    """

    request: PodRequest
    _: KW_ONLY
    created_at: float = 0.0
    ended: bool = False
    bound_by_corelane: bool = False
    record: CPURecord | None = None

    @property
    def uid(self) -> str:
        return self.request.uid

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return self.request.key


def unlisted_request(uid: str, ledger: NodeState) -> PodRequest:
    """Return an empty request for a running pod that was not listed yet, named as in the ledger."""
    titles = (entry.pod for entry in ledger.of_pod(uid))
    namespace, _, name = next(titles, f"/pod with UID {uid}").partition("/")
    return named_request(uid, namespace, name)


def named_request(uid: str, namespace: str, name: str) -> PodRequest:
    """Return the request of a pod of which only the names are known.

    Not of class BE, whose containers may be given CPUs that exclusive ones share with that class alone.
    """
    return PodRequest(uid, namespace, name, QOSClass.BURSTABLE, ())
