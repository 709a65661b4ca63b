"""Admission of a pod: whether this agent can run it, the kubelet's general checks, the ledger's decision.

A pod that runs already is never rejected: it keeps the CPUs on which its containers run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from corelane.agent import container_lifecycle
from corelane.agent.instructions import Annotate
from corelane.agent.pod_records import (
    ContainerExit,
    ContainerPlan,
    ContainerProgress,
    ContainerStage,
    PastRuns,
    PodPlan,
    PodRecord,
    RestartPolicy,
    StatusReason,
    container_records,
)
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeState, admit
from corelane.node.recovery.takeover import complete
from corelane.workload import PodRequest, QOSClass


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Number of pods, and bytes of memory for them (0 for no check), before memory withheld by settings."""

    pods: int = 110
    memory: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """A decision, a refusal, or neither if the ledger had the pod already.

    `unmanaged`: the pod runs but the ledger refused it, so its containers are left unchanged.
    """

    decision: Decision | None = None
    refusal: StatusReason | None = None
    unmanaged: bool = False


def admission_order(ledger: NodeState, pods: Iterable[PodRecord]) -> list[PodRecord]:
    """Return pods in the ledger first, then running pods, then the others; the oldest first in each group."""
    return sorted(pods, key=lambda pod: (pod.uid not in ledger.pods, not pod.live, pod.plan.created_at))


def admit_pod(
    ledger: NodeState, pod: PodRecord, pods: Iterable[PodRecord], capacity: NodeCapacity
) -> tuple[NodeState, AdmissionResult]:
    """Allocate a pod's CPUs and memory in the ledger, or return why it is refused."""
    if pod.uid in ledger.pods:
        return complete(ledger, pod.plan.request), AdmissionResult()
    if not pod.live:
        refusal = pod.plan.refusal or _exceeded_capacity(pod.plan, pods, capacity, ledger.withheld_memory)
        if refusal is not None:
            return ledger, AdmissionResult(refusal=refusal)
        return _admit(ledger, pod.plan.request)
    ledger, result = _admit(ledger, _request_where_it_runs(ledger, pod))
    return ledger, replace(result, unmanaged=result.refusal is not None)


def _admit(ledger: NodeState, request: PodRequest) -> tuple[NodeState, AdmissionResult]:
    ledger, decision = admit(ledger, request)
    if decision.admitted:
        return ledger, AdmissionResult(decision)
    return ledger, AdmissionResult(decision, StatusReason(decision.reason, decision.message))


def _request_where_it_runs(ledger: NodeState, pod: PodRecord) -> PodRequest:
    """Return the request with the CPUs on which the containers run, and their NUMA nodes, as its proposal."""
    seen = {c.name: c.seen for c in pod.containers.values() if c.live and c.seen}
    request = replace(pod.plan.request, proposal={**pod.plan.request.proposal, **seen})
    nodes = {
        node for node, mask in ledger.machine.numa_masks if any(cpus.mask & mask for cpus in seen.values())
    }
    all_nodes = len(nodes) == len(ledger.machine.numa_masks)
    return request if request.zone or not nodes or all_nodes else replace(request, zone=CPUSet(nodes))


def _exceeded_capacity(
    plan: PodPlan, pods: Iterable[PodRecord], capacity: NodeCapacity, withheld: int
) -> StatusReason | None:
    """Apply the kubelet's general predicates for resources other than CPUs."""
    admitted = [pod.plan.request for pod in pods if pod.admitted and not pod.finished and pod.uid != plan.uid]
    if len(admitted) >= capacity.pods:
        return _out_of("pods", 1, len(admitted), capacity.pods)
    used = sum(request.memory_request for request in admitted)
    allocatable = max(capacity.memory - withheld, 0)
    if capacity.memory and used + plan.request.memory_request > allocatable:
        return _out_of("memory", plan.request.memory_request, used, allocatable)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> StatusReason:
    return StatusReason(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )


def annotation_update(ledger: NodeState, request: PodRequest, result: AdmissionResult) -> Annotate | None:
    """Return the annotations of an admitted pod, unless its proposal says the same already.

    They map container names to exclusive CPUs, and name the NUMA nodes of the other containers.
    """
    entries = ledger.of_pod(request.uid)
    cpus = {entry.container: entry.cpus for entry in entries if entry.cpus}
    zone = next((entry.zone for entry in entries if entry.zone), None)
    if result.unmanaged or (cpus, zone) == (dict(request.proposal), request.zone):
        return None
    reasons = result.decision.reasons if result.decision and (cpus or zone) else ()
    return Annotate(request.uid, cpus, zone, reasons)


def plan_from_ledger(uid: str, ledger: NodeState) -> PodPlan:
    """Return a plan for a running pod that was not listed by the API server yet."""
    titles = (entry.pod for entry in ledger.of_pod(uid))
    namespace, _, name = next(titles, f"/pod with UID {uid}").partition("/")
    request = PodRequest(uid, namespace, name, QOSClass.BEST_EFFORT, ())
    return PodPlan(request, (), restart_policy=RestartPolicy.NEVER)


def adopt_plan(pod: PodRecord, plan: PodPlan, at: float) -> None:
    """Take over a pod's plan when the API server first lists it; some of its containers may run already."""
    before = pod.containers
    pod.plan = plan
    pod.present = True
    pod.started_at = plan.started_at or at
    pod.conditions = dict(plan.conditions)
    pod.containers = container_records(plan.containers) | before
    for container in plan.containers:
        _adopt_past(pod.containers[container.name], container, plan.past.get(container.name), at)
    pod.finished = plan.ended and not pod.live


def _adopt_past(container: ContainerProgress, plan: ContainerPlan, past: PastRuns | None, at: float) -> None:
    """Record the container's plan, and its earlier runs by the API server if the runtime has lost them."""
    container.plan = plan
    if past is None or container.attempt >= 0:
        return
    container.attempt = past.restarts
    container.stage = ContainerStage.EXITED
    lost = container_lifecycle.LOST
    container.ended = past.ended or ContainerExit(
        container_lifecycle.LOST_CODE, at, reason=lost.reason, message=lost.message
    )
