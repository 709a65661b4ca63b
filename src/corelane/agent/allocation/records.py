"""Records of the CPUs of pods and of their containers' runs: allocated, ordered, applied, and read back."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.ledger import NodeState
from corelane.runtime.base import ObservedResources, ResourceUpdate
from corelane.workload.request import PodRequest, QOSClass


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


NO_CPUS: Final = CPUSet()


@dataclass(slots=True)
class RunCPUs:
    """CPUs of one run of a container, from the order to start it until its last process has exited.

    The CPUs that the kernel allows are uncertain while they change, so three sets are recorded: `applied`
    by the runtime, ordered and `pending`, and last `seen` in the kernel. `id` is empty until it is started.
    `creating`: a runtime creates it on the pending CPUs, as answered. `pooled`: it started beside the shared
    pool, and is not alone yet on CPUs that are not its own. `recorded_at`, `retry_at` are monotonic.
    """

    uid: str
    container: str
    id: str = ""
    applied: CPUSet = NO_CPUS
    pending: CPUSet | None = None
    seen: CPUSet = NO_CPUS
    confirmed: bool = False
    unread: bool = False
    drifted: bool = False
    narrowed: bool = False
    resources: ObservedResources | None = None
    """Last report of the kernel, None if unknown."""
    attempted: tuple[ResourceUpdate, ObservedResources | None] | None = None
    """Change of other resources than CPUs that was ordered last, and the report that led to it."""
    retry_at: float = 0.0
    creating: bool = False
    pooled: bool = False
    adopted: bool = False
    """`applied` is where the run was found, and not what this agent ordered."""
    overlapped: bool = False
    """Another container may still be on its exclusive CPUs, which the kernel shows for it."""
    beside: str = ""
    """What beside this instance's containers may use its exclusive CPUs, "" for nothing known."""
    record_differs: bool = False
    """The runtime would bring back other CPUs: they are ordered once more, although they are there."""
    recorded_at: float = 0.0
    applied_at: float = float("-inf")
    """When CPUs were applied last (monotonic): a reading that began before shows the earlier ones."""
    fault: str = ""
    """Why the last attempt to apply CPUs failed, "" once they are applied."""
    warned_at: dict[str, float] = field(default_factory=dict)
    """When an event of a problem was published last, by its reason (monotonic)."""
    reported_problems: set[tuple[CPUSet, object]] = field(default_factory=set)
    """CPUs that could not be applied, each with what was observed; empty again once they are confirmed."""

    @property
    def movable(self) -> bool:
        """Whether the run was started, and no order about its CPUs is outstanding."""
        return self.pending is None and bool(self.id)

    @property
    def ordered_cpus(self) -> CPUSet:
        """CPUs that this agent ordered, applied or pending."""
        return self.applied | (self.pending or NO_CPUS)

    @property
    def possible_cpus(self) -> CPUSet:
        """Every CPU that the run's processes may be running on."""
        return self.ordered_cpus | self.seen


@dataclass(slots=True)
class PodCPUs:
    """One pod's record: its containers' runs of which a process may exist.

    `present`: the API server has the pod. `admitted`: the ledger has it. `unplaced`: why no admission placed
    it; then it runs in its pool, or it is `unmanaged`: it ran elsewhere before, its containers are left
    unchanged, and the ledger holds their CPUs. `shortfall`: container to the numbers of exclusive CPUs at its
    admission and now, where these are fewer.

    `listed`: its object was seen, or that it is gone. `held`: it was entered without its object, where it
    runs, and is admitted once that is known; `held_at` since when, in Unix seconds. `idle_since` (monotonic):
    when its last run ended. `refused_with`: what the ledger had when it was refused last.
    """

    pod: BoundPod
    present: bool = False
    admitted: bool = False
    unmanaged: bool = False
    listed: bool = False
    held: bool = False
    held_at: float = 0.0
    reported: bool = False
    """Whether an event says that it is not listed."""
    idle_since: float = 0.0
    unplaced: StatusReason | None = None
    refused_with: object = None
    shortfall: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    runs: list[RunCPUs] = field(default_factory=list)
    recorded: bool = False
    """Its annotations said what is allocated: if they differ later, another writer changed them."""
    restored_at: float | None = None
    """When an event of that was published last (monotonic)."""
    restore_at: float = 0.0
    """Earliest time (monotonic) of the next write of annotations that another writer changed."""
    condition: tuple[str, str] | None = None
    """Reason and message of the condition `corelane.io/Pinned`, as last published."""

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def live(self) -> bool:
        """Whether a process of the pod may exist."""
        return bool(self.runs)


def all_runs(pods: Iterable[PodCPUs]) -> Iterable[RunCPUs]:
    """Return the runs of all these pods."""
    return (run for pod in pods for run in pod.runs)
