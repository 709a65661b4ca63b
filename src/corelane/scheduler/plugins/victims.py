"""Which pods of one node must be evicted for a pod to fit there, and how much that costs.

Upstream: `SelectVictimsOnNode` and `pickOneNodeForPreemption`. All pods of lower priority are thought away;
if the pod fits then, they are thought back one by one, those first whose eviction violates a budget, then the
most important ones. Those beside which the pod does not fit are the victims. That is upstream's answer; it
leaves out no pod that could stay beside the victims, but another set of victims may be smaller.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from corelane.reasons import Code, Reason, Refusal
from corelane.scheduler.cache import hypothetical
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.summaries import exclusive_needs
from corelane.scheduler.framework import filtering
from corelane.scheduler.framework.plugin import Cycle, Rejection

_LATER: Final = float("inf")
_OFFSET: Final = 2**31
"""Makes all priorities positive, so that each victim counts in a sum of priorities."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and the pods to evict there, the most important first."""

    node: str
    victims: tuple[PodInfo, ...]
    violations: int
    """Victims whose eviction violates a budget."""

    def order(self) -> tuple[object, ...]:
        """Return a key: the least is the best candidate."""
        priorities = [priority(info) for info in self.victims]
        highest = priorities[0]
        earliest = min(started(info) for info in self.victims if priority(info) == highest)
        total = sum(one + _OFFSET for one in priorities)
        return self.violations, highest, total, len(priorities), -earliest, self.node

    @property
    def highest(self) -> int:
        """The highest priority of a victim."""
        return priority(self.victims[0])


def priority(info: PodInfo) -> int:
    return info.pod.spec.priority


def started(info: PodInfo) -> float:
    """Return when the pod started, in seconds of Unix time; later than all others if it has not yet."""
    text = info.pod.status.start_time
    try:
        return datetime.fromisoformat(text).timestamp() if text else _LATER
    except ValueError:
        return _LATER


def certainly_refused(pod: PodInfo, node: NodeInfo) -> bool:
    """Return whether the node's ledger has too few CPUs for the pod's exclusive ones, whoever is evicted.

    Only looked at where the published ledger has all pods; False is no answer.
    """
    state, request = node.ledger, pod.request
    if request is None or state is None or state.config.policy == "none":
        return False
    if not node.pods.keys() <= state.pods.keys():
        return False
    try:
        total, together = exclusive_needs(request, state)
    except Refusal:
        return True
    if not total:
        return False
    lower = {info.uid for info in node.pods.values() if priority(info) < priority(pod)}
    free = state.free_exclusive.mask
    for entry in state.entries.values():
        free |= entry.cpus.mask if entry.uid in lower else 0
    most = max((free & zone).bit_count() for zone in state.topology.numa)
    return free.bit_count() < total or most < together


def count_lower(pod: PodInfo, node: NodeInfo) -> int:
    """Return the number of pods of lower priority on a node."""
    return sum(priority(info) < priority(pod) for info in node.pods.values())


def select(cycle: Cycle, node: NodeInfo) -> Candidate | Rejection:
    """Return the victims on a node, or why the pod does not fit even without any pod of lower priority."""
    lower = [info for info in node.pods.values() if priority(info) < priority(cycle.pod)]
    if not lower:
        return Rejection.of("DefaultPreemption", Reason(Code.NO_PREEMPTION_VICTIMS), resolvable=False)
    violating, others = cycle.cluster.budgets.split(sorted(lower, key=_importance))
    order = [*violating, *others]
    if rejection := _rejection(cycle, node, hypothetical.without(node, order), order):
        return rejection
    thinned = _thinned(node, order)
    victims: list[PodInfo] = []
    for number, info in enumerate(order):
        absent = [*victims, *order[number + 1 :]]
        if _rejection(cycle, node, hypothetical.without(thinned[number + 1], victims), absent):
            victims.append(info)
    broken = {info.uid for info in violating}
    violations = sum(info.uid in broken for info in victims)
    return Candidate(node.name, tuple(sorted(victims, key=_importance)), violations)


def _thinned(node: NodeInfo, order: list[PodInfo]) -> list[NodeInfo]:
    """The node without all of these pods, without all but the first, and so on, up to the node itself."""
    nodes = [node]
    for info in reversed(order):
        nodes.append(hypothetical.without(nodes[-1], [info]))
    return nodes[::-1]


def _rejection(
    cycle: Cycle, node: NodeInfo, changed: NodeInfo, absent: Iterable[PodInfo]
) -> Rejection | None:
    copied = cycle.copy()
    filtering.remove(cycle.filters, copied, absent, node)
    return filtering.rejection(cycle.filters, copied, changed)


def _importance(info: PodInfo) -> tuple[float, float]:
    """Upstream's `MoreImportantPod`: priority first, then the older one."""
    return -priority(info), started(info)
