"""Records of the CPUs of pods and of their containers' runs, and the admission of a pod to the ledger.

A pod that runs keeps the CPUs on which its containers run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from corelane.agent.allocation.instructions import Annotate
from corelane.cpuset import CPUSet
from corelane.node import admit
from corelane.node.ledger import Decision, NodeState, release, with_entries
from corelane.node.recovery.rebasing import exclusive_counts
from corelane.node.recovery.takeover import complete
from corelane.node.recovery.unplaced import adopted, is_unplaced
from corelane.runtime.base import ObservedResources, ResourceUpdate
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass, integer_cpus, peak


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


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """A decision, with the refusal if it is one, or neither if the ledger had the pod already."""

    decision: Decision | None = None
    refusal: StatusReason | None = None


def admission_order(ledger: NodeState, pods: Iterable[PodCPUs]) -> list[PodCPUs]:
    """Return pods in the ledger first, then running ones, then the others; the oldest first in each group.

    Of the running ones those go first that can stay on their CPUs: without a ledger, another one that has to
    move must not be given these.
    """

    def order(pod: PodCPUs) -> tuple[bool, bool, bool, float]:
        new = pod.uid not in ledger.pods
        moves = False
        if new and pod.live:
            _, decision = admit(ledger, _request_where_it_runs(ledger, pod))
            moves = not decision.admitted or decision.repicked
        return new, not pod.live, moves, pod.pod.created_at

    return sorted(pods, key=order)


def admit_pod(ledger: NodeState, pod: PodCPUs) -> tuple[NodeState, AdmissionResult]:
    """Allocate a pod's CPUs and memory in the ledger, or return why it is refused.

    One that no admission placed is admitted as if it were new; refused, it stays as it is.
    """
    without = release(ledger, pod.uid) if is_unplaced(ledger, pod.uid) else ledger
    if pod.uid in without.pods:
        return complete(ledger, pod.pod.request), AdmissionResult()
    request = _request_where_it_runs(ledger, pod) if pod.live or without is not ledger else pod.pod.request
    after, decision = admit(without, request)
    if decision.admitted:
        return after, AdmissionResult(decision)
    return ledger, AdmissionResult(decision, StatusReason(decision.reason, decision.message))


def _request_where_it_runs(ledger: NodeState, pod: PodCPUs) -> PodRequest:
    """Return the request with the CPUs on which the containers run, and their NUMA nodes, as its proposal.

    Of containers that do not run, those that are held for them.
    """
    seen = {entry.container: entry.cpus for entry in adopted(ledger, pod.uid) if entry.cpus}
    seen |= {run.container: run.seen for run in pod.runs if run.seen}
    request = replace(pod.pod.request, proposal={**pod.pod.request.proposal, **seen})
    nodes = {
        node for node, mask in ledger.machine.numa_masks if any(cpus.mask & mask for cpus in seen.values())
    }
    all_nodes = len(nodes) == len(ledger.machine.numa_masks)
    return request if request.zone or not nodes or all_nodes else replace(request, zone=CPUSet(nodes))


def record_of(ledger: NodeState, uid: str) -> CPURecord:
    """Return what the annotations of a pod in the ledger are to say."""
    entries = ledger.of_pod(uid)
    cpus = {entry.container: entry.cpus for entry in entries if entry.cpus}
    return CPURecord(cpus, next((entry.zone for entry in entries if entry.zone), None))


def annotation_update(ledger: NodeState, request: PodRequest, result: AdmissionResult) -> Annotate | None:
    """Return the annotations of an admitted pod, unless its proposal says the same already."""
    record = record_of(ledger, request.uid)
    if record == CPURecord(dict(request.proposal), request.zone):
        return None
    reasons = result.decision.reasons if result.decision and (record.cpus or record.zone) else ()
    return Annotate(request.uid, record.cpus, record.zone, reasons)


@dataclass(frozen=True, slots=True)
class Resized:
    """The ledger with the new requests, and the containers that keep what their new requests do not say."""

    ledger: NodeState
    exclusive: tuple[tuple[ContainerRequest, CPUSet], ...] = ()
    """With exclusive CPUs, of another number."""
    shared: tuple[ContainerRequest, ...] = ()
    """In the shared pool, with a request that now is one for exclusive CPUs."""


def follow(ledger: NodeState, request: PodRequest, before: PodRequest) -> Resized:
    """Take over the requests of a pod's containers in a pool; `before` is what was read of the pod last.

    The ledger is compared, as a pod may be resized while no agent runs.
    """
    requests = {container.name: container.cpu_request for container in before.containers}
    counts = exclusive_counts(ledger, request)[1]
    entries, exclusive, shared = dict(ledger.entries), [], []
    for container in request.containers:
        entry, milli = entries.get((request.uid, container.name)), container.cpu_request
        if entry and entry.cpus and entry.sharing.exclusive:
            if requests.get(container.name, milli) != milli:
                exclusive.append((container, entry.cpus))
        elif entry and entry.cpu_request != milli:
            entries[entry.key] = replace(entry, cpu_request=milli)
            if counts.get(container.name) and not integer_cpus(entry.cpu_request):
                shared.append(container)
    if entries != dict(ledger.entries):
        total = peak((one.kind, one.cpu_request) for key, one in entries.items() if key[0] == request.uid)
        ledger = with_entries(ledger, entries, {**ledger.pods, request.uid: total})
    return Resized(ledger, tuple(exclusive), tuple(shared))
