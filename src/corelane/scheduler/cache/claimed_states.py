"""The canonical state of a node with one more pod: a claim, or a pod whose CPUs are a fact."""

from dataclasses import replace
from itertools import count
from typing import Final

from corelane.node import NodeState
from corelane.node.admission import capacity_refusal
from corelane.node.zones.zone_state import ZonesState
from corelane.reasons import Reason
from corelane.scheduler.cache import node_kinds
from corelane.scheduler.cache.pods import PodInfo, Shape
from corelane.scheduler.cache.states import CanonicalState, States

_uids: Final = count()


def with_pod(
    states: States, before: CanonicalState, info: PodInfo, *, fact: bool
) -> tuple[CanonicalState, bool]:
    """Return the state with a pod that may have CPUs proposed, and whether it is admitted.

    A `fact` is a pod whose annotations, or whose claim, tell its CPUs, and no agent's ledger does. Of
    koordlet's nodes, pods without a record count by their requests only, as for Koordinator's scheduler.
    """
    state = before.state
    if isinstance(state, NodeState) and state.config.koordinator and not (info.proposal or info.numa_amounts):
        return before, True
    if fact or isinstance(state, ZonesState):
        return _recorded(states, before, info, fact=fact), True
    if not info.proposal and info.zone is None:
        answer = states.admit(before, info.shape)
        return answer.state, answer.admitted
    if states.known(before, info.shape):
        answer = states.admit(before, info.shape)
        if answer.assignments == info.proposal and answer.decision.zone == info.zone:
            return answer.state, answer.admitted
    request = info.request
    assert request is not None
    after, decision = node_kinds.admit(state, replace(request, uid=f"@{next(_uids)}"))
    return states.following(before, after), decision.admitted


def _recorded(states: States, before: CanonicalState, info: PodInfo, *, fact: bool) -> CanonicalState:
    request = info.request
    assert request is not None
    request = replace(request, uid=f"@{next(_uids)}")
    state = node_kinds.running(before.state, request, recorded=fact)
    return states.following(before, state)


def too_much(canonical: CanonicalState, admitted: int, shape: Shape) -> Reason | None:
    """Return why the node's capacity, in all, does not admit a pod of the shape."""
    state, request = canonical.state, shape.request
    assert request is not None
    if not isinstance(state, NodeState):
        return None
    if admitted + shape.milli <= canonical.capacity and not canonical.amplified:
        return None
    return capacity_refusal(replace(state, requested=admitted), request)
