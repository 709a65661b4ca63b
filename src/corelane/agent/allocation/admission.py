"""Admission of a pod to the ledger. A pod that runs keeps the CPUs on which its containers run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from corelane.agent.allocation.instructions import Annotate
from corelane.agent.allocation.records import CPURecord, PodCPUs, StatusReason
from corelane.cpuset import CPUSet
from corelane.node import admit
from corelane.node.ledger import Decision, NodeState, release, with_entries
from corelane.node.recovery.rebasing import exclusive_counts
from corelane.node.recovery.takeover import complete
from corelane.node.recovery.unplaced import adopted, is_unplaced
from corelane.workload.request import ContainerRequest, PodRequest, integer_cpus, peak


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
        moves = new and pod.live and not _can_stay(ledger, pod)
        return new, not pod.live, moves, pod.pod.created_at

    return sorted(pods, key=order)


def _can_stay(ledger: NodeState, pod: PodCPUs) -> bool:
    _, decision = admit(ledger, _request_where_it_runs(ledger, pod))
    return decision.admitted and not decision.repicked


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


def fits_without(ledger: NodeState, pod: PodCPUs, uids: Iterable[str]) -> bool:
    """Whether a pod would be admitted if other pods were released."""
    for uid in uids:
        ledger = release(ledger, uid)
    return admit(ledger, pod.pod.request)[1].admitted


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
