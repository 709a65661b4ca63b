"""Whether a pod comes in: what this agent can run, the kubelet's general checks, the ledger's decision.

A pod that runs already is never refused: it keeps the CPUs on which it is found.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from corelane.agent import runs
from corelane.agent.messages import Annotate
from corelane.agent.pods import (
    Container,
    ContainerPlan,
    Ended,
    Past,
    Pod,
    PodPlan,
    Reason,
    RestartPolicy,
    Stage,
    records,
)
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeState, admit
from corelane.node.pools.takeover import complete
from corelane.workload import PodRequest, QOSClass


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node has beside CPUs: a number of pods, and bytes of memory (0 for no check).

    What its settings keep of the memory from pods is to be taken off that.
    """

    pods: int = 110
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a pod: a decision, a refusal, or neither if the ledger knew it already.

    `untouched`: it runs, but the ledger refuses it, so it is left as it is.
    """

    decision: Decision | None = None
    refusal: Reason | None = None
    untouched: bool = False


def in_turn(ledger: NodeState, pods: Iterable[Pod]) -> list[Pod]:
    """The pods in the order in which they come in: who runs keeps what it has, then who was there first."""
    return sorted(pods, key=lambda pod: (pod.uid not in ledger.pods, not pod.live, pod.plan.created_at))


def decide(ledger: NodeState, pod: Pod, pods: Iterable[Pod], capacity: Capacity) -> tuple[NodeState, Verdict]:
    """Give a pod its part of the ledger, or say why not."""
    if pod.uid in ledger.pods:
        return complete(ledger, pod.plan.request), Verdict()
    if not pod.live:
        refusal = pod.plan.refusal or _general(pod.plan, pods, capacity, ledger.withheld_memory)
        return _decide(ledger, pod.plan.request) if refusal is None else (ledger, Verdict(refusal=refusal))
    ledger, verdict = _decide(ledger, _as_found(ledger, pod))
    return ledger, replace(verdict, untouched=verdict.refusal is not None)


def _decide(ledger: NodeState, request: PodRequest) -> tuple[NodeState, Verdict]:
    ledger, decision = admit(ledger, request)
    if decision.admitted:
        return ledger, Verdict(decision)
    return ledger, Verdict(decision, Reason(decision.reason, decision.message))


def _as_found(ledger: NodeState, pod: Pod) -> PodRequest:
    """Its ask, with the CPUs on which its containers run, and their NUMA nodes, for a proposal."""
    found = {c.name: c.seen for c in pod.containers.values() if c.live and c.seen}
    request = replace(pod.plan.request, proposal={**pod.plan.request.proposal, **found})
    nodes = {
        node for node, mask in ledger.machine.numa_masks if any(cpus.mask & mask for cpus in found.values())
    }
    everywhere = len(nodes) == len(ledger.machine.numa_masks)
    return request if request.zone or not nodes or everywhere else replace(request, zone=CPUSet(nodes))


def _general(plan: PodPlan, pods: Iterable[Pod], capacity: Capacity, withheld: int) -> Reason | None:
    """The kubelet's general predicates that do not concern CPUs."""
    inside = [pod.plan.request for pod in pods if pod.admitted and not pod.over and pod.uid != plan.uid]
    if len(inside) >= capacity.pods:
        return _out_of("pods", 1, len(inside), capacity.pods)
    used = sum(request.memory_request for request in inside)
    offered = max(capacity.memory - withheld, 0)
    if capacity.memory and used + plan.request.memory_request > offered:
        return _out_of("memory", plan.request.memory_request, used, offered)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Reason:
    return Reason(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )


def record(ledger: NodeState, request: PodRequest, verdict: Verdict) -> Annotate | None:
    """What is to be written at a pod that came in, unless its proposal says that already.

    Container name to the CPUs that it is bound to, and the NUMA nodes that hold the others.
    """
    entries = ledger.of_pod(request.uid)
    cpus = {entry.container: entry.cpus for entry in entries if entry.cpus}
    zone = next((entry.zone for entry in entries if entry.zone), None)
    if verdict.untouched or (cpus, zone) == (dict(request.proposal), request.zone):
        return None
    reasons = verdict.decision.reasons if verdict.decision and (cpus or zone) else ()
    return Annotate(request.uid, cpus, zone, reasons)


def unknown_plan(uid: str, ledger: NodeState) -> PodPlan:
    """What can be said of a pod that is found running before the API server tells of it."""
    titles = (entry.pod for entry in ledger.of_pod(uid))
    namespace, _, name = next(titles, f"/pod with UID {uid}").partition("/")
    request = PodRequest(uid, namespace, name, QOSClass.BEST_EFFORT, ())
    return PodPlan(request, (), restart_policy=RestartPolicy.NEVER)


def introduce(pod: Pod, plan: PodPlan, at: float) -> None:
    """The API server tells of a pod for the first time; some of its containers may have run already."""
    known = pod.containers
    pod.plan = plan
    pod.present = True
    pod.started_at = plan.started_at or at
    pod.conditions = dict(plan.conditions)
    pod.containers = records(plan.containers) | known
    for planned in plan.containers:
        _fill_in(pod.containers[planned.name], planned, plan.past.get(planned.name), at)
    pod.over = plan.ended and not pod.live


def _fill_in(container: Container, plan: ContainerPlan, past: Past | None, at: float) -> None:
    """What only the API server knows: the plan, and runs that the runtime has lost."""
    container.plan = plan
    if past is None or container.attempt >= 0:
        return
    container.attempt = past.restarts
    container.stage = Stage.EXITED
    container.ended = past.ended or Ended(
        runs.LOST_CODE, at, reason=runs.LOST.reason, message=runs.LOST.message
    )
