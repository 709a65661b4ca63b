"""Why a pod would lie where it would, term by term; or what would make it fit, and which pods to move.

For people who ask, and for the refusals that they read: it takes some ten times as long as an admission, so
an admission does not say as much.
"""

from collections.abc import Iterator

from corelane.cpuset import format_list
from corelane.node.errors import Refusal
from corelane.node.ledger import NodeState
from corelane.node.managers import needed
from corelane.node.pools import memory_devices, pod_affinity
from corelane.node.pools.admission import policies_of
from corelane.node.pools.binding import Binding, binding
from corelane.node.pools.classes import pod_class
from corelane.placement import optimal
from corelane.placement.optimal import shape as shapes
from corelane.placement.optimal.result import Change, Infeasible, Placement
from corelane.placement.reasons import Reason
from corelane.workload import PodRequest

__all__ = ["explain", "remedies"]


def explain(state: NodeState, request: PodRequest) -> tuple[Reason, ...]:
    """What the optimal allocator has to say of a pod that is not in the ledger, whatever the node's own is.

    Nothing of a pod that would not be bound. Raises Refusal where the pod contradicts itself or the node.
    """
    asked = _asked(state, request)
    if asked is None:
        return ()
    answer = _answer(asked)
    return tuple(_help(asked, answer)) if isinstance(answer, Infeasible) else answer.reasons


def remedies(state: NodeState, request: PodRequest) -> str:
    """In words, what would let in a pod that the node has refused; "" where that is not known."""
    try:
        asked = _asked(state, request)
    except Refusal:
        return ""
    answer = _answer(asked) if asked else None
    if asked is None or not isinstance(answer, Infeasible):
        return ""
    return "; ".join(_in_words(asked, change) for change in answer.changes)


def _asked(state: NodeState, request: PodRequest) -> Binding | None:
    found = pod_class(request, state.config.pools)
    policies = policies_of(state, request, found)
    if not found.bound:
        return None
    return binding(state, request, found, policies, memory_devices.resources(needed(state, request), request))


def _answer(asked: Binding) -> Placement | Infeasible:
    shape = shapes.from_machine(asked.state.machine)
    return optimal.place(shape, asked.demand, asked.available, asked.others, explain=True)


def _help(asked: Binding, answer: Infeasible) -> Iterator[Reason]:
    yield Reason(answer.requirement, answer.text)
    for change in answer.changes:
        yield Reason(change.kind, _in_words(asked, change))


def _in_words(asked: Binding, change: Change) -> str:
    """The change, with the names of the pods that it means."""
    if change.also is not None and change.also.holders:
        return f"without: {change.requirement}, {_in_words(asked, change.also)}"
    if not change.holders:
        return change.text
    uids = list(pod_affinity.holdings(asked.state))
    moved = {uids[position] for position in change.holders}
    pods: dict[str, int] = {}
    for entry in asked.state.entries.values():
        if entry.uid in moved:
            pods[entry.pod] = pods.get(entry.pod, 0) | entry.cpus.mask
    names = ", ".join(f"{pod} (CPUs {format_list(cpus)})" for pod, cpus in pods.items())
    return f"it would fit if {names} {'was' if len(pods) == 1 else 'were'} elsewhere"
