"""Exclusive CPUs that containers had at their admission and lost: off-line, or taken for the pool."""

from collections.abc import Mapping
from typing import Final

from corelane.node.entries import Entry, Origin
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.reasons import Refusal
from corelane.workload import PodRequest, QOSClass

_OF_OTHERS: Final = (Origin.ADOPTED, Origin.KUBELET)


def exclusive_shortfall(state: NodeState, request: PodRequest) -> dict[str, tuple[int, int]]:
    """Return the containers with fewer exclusive CPUs than they were admitted with, as (admitted, now).

    Pods that no admission placed, and those of a kubelet, are not judged here. Nor are those that were
    admitted under another class than the request has with the present settings.
    """
    entries = [entry for entry in state.of_pod(request.uid) if entry.origin not in _OF_OTHERS]
    if not entries:
        return {}
    qos, admitted = exclusive_counts(state, request)
    now = {entry.container: _exclusive(entry) for entry in entries if entry.cls == qos}
    return {name: (number, now[name]) for name, number in admitted.items() if number > now.get(name, number)}


def _exclusive(entry: Entry) -> int:
    return len(entry.cpus) if entry.exclusive else 0


def exclusive_counts(state: NodeState, request: PodRequest) -> tuple[str, Mapping[str, int]]:
    """Return the class of a pod and its containers' numbers of exclusive CPUs by the present settings."""
    config = state.config
    if config.policy == "static":
        gate = config.pod_level
        of_each = {one.name: request.exclusive_cpus(one, gate=gate) for one in request.containers}
        return QOSClass.GUARANTEED.value, of_each
    if config.policy != "pools":
        return "", {}
    try:
        found = pod_class(request, config.pools)
    except Refusal:
        return "", {}
    if not found.sharing.exclusive:
        return "", {}
    common = dict.fromkeys((one.name for one in request.containers), found.common)
    return found.qos.value, common if found.common else found.own
