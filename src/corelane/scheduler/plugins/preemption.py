"""DefaultPreemption: evict pods of lower priority where that makes the pending pod fit, as few as possible.

Upstream: `pkg/scheduler/framework/plugins/defaultpreemption`, `.../framework/preemption`. What is tried on a
node is exact: the victims release the very CPUs that they have, and the node's own admission decides whether
the pod fits then. So pods are evicted that make one NUMA node fit, not others that free the same total.

Upstream starts at a random node and stops at a number of candidates. Here the nodes come in the order of what
they can offer at best, and the search ends when no node left can be better than the best one found.

On one node, all pods of lower priority are thought away (`SelectVictimsOnNode`); if the pod fits then, they
are thought back one by one, those first whose eviction violates a budget, then the most important ones. Those
beside which the pod does not fit are the victims. That is upstream's answer; it leaves out no pod that could
stay beside the victims, but another set of victims may be smaller.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np

from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason, Refusal, sentence
from corelane.scheduler.cluster.columns import CPU, MEMORY, Columns, Integers, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NONE
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework import trials
from corelane.scheduler.framework.changes import exclusive_needs
from corelane.scheduler.framework.plugin import Cycle, Nomination, NotNominated, Rejection, Rejections

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


def select(cycle: Cycle, node: NodeInfo) -> Candidate | Rejection:
    """Return the victims on a node, or why the pod does not fit even without any pod of lower priority."""
    lower = [info for info in node.pods.values() if priority(info) < priority(cycle.pod)]
    if not lower:
        return Rejection.of("DefaultPreemption", Reason(Code.NO_PREEMPTION_VICTIMS), resolvable=False)
    violating, others = cycle.cluster.budgets.split(sorted(lower, key=_importance))
    order = [*violating, *others]
    if rejection := _rejection(cycle, node, trials.without(node, order), order):
        return rejection
    thinned = [node]  # Without the pods from the last one on, up to all of them.
    for info in reversed(order):
        thinned.append(trials.without(thinned[-1], [info]))
    thinned.reverse()
    victims: list[PodInfo] = []
    for number, info in enumerate(order):
        absent = [*victims, *order[number + 1 :]]
        if _rejection(cycle, node, trials.without(thinned[number + 1], victims), absent):
            victims.append(info)
    broken = {info.uid for info in violating}
    violations = sum(info.uid in broken for info in victims)
    return Candidate(node.name, tuple(sorted(victims, key=_importance)), violations)


def _rejection(
    cycle: Cycle, node: NodeInfo, changed: NodeInfo, absent: Sequence[PodInfo]
) -> Rejection | None:
    """Return why the pod does not fit, with the nominated pods on the node or without."""
    copied, filters = cycle.copy(), cycle.filters
    trials.remove(filters, copied, absent, node)
    beside = trials.beside_nominated(filters, copied, changed)
    return beside or trials.first_rejection(filters, copied, changed)


def _importance(info: PodInfo) -> tuple[float, float]:
    """Upstream's `MoreImportantPod`: priority first, then the older one."""
    return -priority(info), started(info)


_NAME: Final = "DefaultPreemption"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
ENOUGH: Final = 8
"""On large clusters, so many equally good candidates are enough."""
MOST_DRY_RUNS: Final = 32
"""Then the best candidate so far is taken; without any, the search goes on after other pods."""
DRY_RUNS_AT_ONCE: Final = 11
"""In one attempt; then the pod is tried again at once, and the search goes on."""
LOOKED_AT_ONCE: Final = 1024
"""Nodes that one attempt looks at to leave them out of the dry runs, 5 to 10 ms."""
PODS_AT_ONCE: Final = 24
"""Pods of lower priority on the nodes of these: each is thought away and back, about 1 ms."""
_REFUSED: Final = 2
"""A node that is refused without any of them counts as so many."""
_MOST_SEARCHES: Final = 256
_OF_AMOUNTS: Final = frozenset({"NodeResourcesFit", "CPUPlacement"})
_ANY_AMOUNT: Final = 2**62


class DefaultPreemption:
    """Nominates a node, and the pods to evict there.

    `percentage` and `absolute` are upstream's minCandidateNodesPercentage and -Absolute: on so many nodes at
    least the victims are determined, if so many can help.
    """

    name = _NAME

    def __init__(self, percentage: int = 10, absolute: int = 100) -> None:
        faults = {
            f"minCandidateNodesPercentage {percentage}: use 0 to 100": not 0 <= percentage <= 100,
            f"minCandidateNodesAbsolute {absolute}: use 0 or more": absolute < 0,
            "minCandidateNodesPercentage 0, minCandidateNodesAbsolute 0: no node is looked at; "
            "use 1 or more for one of them": not percentage and not absolute,
        }
        if fault := next((text for text, wrong in faults.items() if wrong), ""):
            raise ValueError(f"{_NAME}: {fault}")
        self._searches: dict[str, _Search] = {}
        self._percentage, self._absolute = percentage, absolute

    @classmethod
    def of(
        cls,
        minCandidateNodesPercentage: int = 10,  # noqa: N803 - upstream's name
        minCandidateNodesAbsolute: int = 100,  # noqa: N803
    ) -> "DefaultPreemption":
        """Read upstream's arguments. Raises ValueError."""
        return cls(minCandidateNodesPercentage, minCandidateNodesAbsolute)

    def post_filter(self, cycle: Cycle, rejections: Mapping[str, Rejection]) -> Nomination | NotNominated:
        """Return the node that fits once the victims are gone; else why preemption does not help."""
        if why := _ineligible(cycle, rejections):
            return NotNominated(f"preemption: {why}", keep=True)
        rows, key = _resolvable(cycle, rejections), cycle.pod.uid
        # The search for this pod that is not finished, without the rows that changed; or a new one.
        search = self._searches.pop(key, None) or _Search(key)
        search.begin(cycle)
        while len(self._searches) >= _MOST_SEARCHES:
            del self._searches[next(iter(self._searches))]
        self._searches[key] = search
        best = self._best(cycle, rows, search)
        if search.cut and (best is None or search.dry_runs < MOST_DRY_RUNS):
            doubtful = search.dry_runs >= MOST_DRY_RUNS
            return NotNominated("", keep=True, unfinished=True, doubtful=doubtful)
        del self._searches[search.key]
        if best is not None and not search.confirmed(cycle, best):
            return NotNominated("", keep=True, unfinished=True, doubtful=True)
        if best is None:
            total = cycle.cluster.count()
            search.helpless[NOT_HELPFUL] += total - len(rows)
            texts = sorted(f"{number} {text}" for text, number in search.helpless.items() if number)
            why = f"preemption: 0/{total} nodes are available: {', '.join(texts)}."
            return NotNominated(why, plugins=frozenset(search.plugins))
        return Nomination(best.node, tuple(info.uid for info in best.victims))

    def _best(self, cycle: Cycle, rows: Rows, search: "_Search") -> Candidate | None:
        limit = min(len(rows), max(self._absolute, len(rows) * self._percentage // 100))
        thorough = len(rows) <= limit
        best, candidates = None, 0
        for bound, node in _promising(cycle, rows, search, thorough=thorough):
            if best is not None and not best.violations and bound > best.highest:
                break
            tried = search.select(cycle, node)
            if tried is None:
                continue
            best = tried if best is None else min(best, tried, key=Candidate.order)
            candidates += 1
            if not best.violations and candidates >= (limit if thorough else min(limit, ENOUGH)):
                break
            if search.spent:
                return best
        return best


class _Search:
    """Dry runs for one pod, over as many attempts as it takes: only nodes that changed are tried again."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.dry_runs = 0
        """Dry runs made of `MOST_DRY_RUNS`, over some attempts."""
        self._begun_at = self._pods = self._looks = 0
        self.helpless: Counter[str] = Counter()
        """Nodes by why they are no candidates."""
        self.known: dict[int, Candidate | tuple[str, ...]] = {}
        """Row to the victims, or to why there are none."""
        self.plugins: set[str] = set()
        """Plugins that reject the pod on nodes that were tried."""
        self._fresh: set[str] = set()
        """Nodes that were tried in this attempt."""
        self._positions = (0, 0)

    def begin(self, cycle: Cycle) -> None:
        """Begin an attempt: rows that changed since the last one are asked again."""
        columns = cycle.cluster.columns
        logs = (columns.nodes_log, columns.pods_log)
        for log, position in zip(logs, self._positions, strict=True):
            changed = log.since(position) if self.known else None
            if changed is None:
                self.known.clear()
            else:
                for row in changed.tolist():
                    self.known.pop(row, None)
        self._positions = (columns.nodes_log.position, columns.pods_log.position)
        if self.dry_runs >= MOST_DRY_RUNS:
            self.dry_runs = 0
        self._begun_at, self._pods, self._looks, self.helpless = self.dry_runs, 0, 0, Counter()
        self._fresh.clear()

    @property
    def spent(self) -> bool:
        """Whether this attempt may make no more dry runs."""
        most = min(MOST_DRY_RUNS, self._begun_at + DRY_RUNS_AT_ONCE)
        return self.dry_runs >= most or self._pods >= PODS_AT_ONCE

    @property
    def cut(self) -> bool:
        """Whether this attempt may ask about no more nodes that are not known."""
        return self._looks >= LOOKED_AT_ONCE or self.spent

    def look(self, cycle: Cycle, row: int, node: NodeInfo, *, suffices: bool) -> None:
        """Take note of a node that is certainly no candidate, by amounts (not `suffices`) or its ledger."""
        if row in self.known:
            return
        self._looks += 1
        if suffices and not certainly_refused(cycle.pod, node):
            return
        # What is too little even without the pods of lower priority, as the filters say it.
        pod, texts = cycle.pod, []
        staying = [one for one in node.pods.values() if priority(one) >= priority(pod)]
        for name in ("cpu", "memory"):
            used = sum(one.requests.get(name, 0) for one in staying)
            if pod.requests.get(name, 0) > node.allocatable.get(name, 0) - used:
                texts.append(f"Insufficient {name}")
        too_few = Reason(Code.TOO_FEW_EXCLUSIVE, (pod.shape.exclusive_cpus,))
        self.known[row] = tuple(texts or [sentence(too_few)])
        self.plugins |= _OF_AMOUNTS

    def select(self, cycle: Cycle, node: NodeInfo) -> Candidate | None:
        """Return the victims on a node; None for a node that is refused, or not asked in this attempt."""
        outcome = self.known.get(node.row)
        if outcome is None:
            if self.spent:
                return None
            self.dry_runs += 1
            self._fresh.add(node.name)
            tried = select(cycle, node)
            if isinstance(tried, Candidate):
                outcome = tried
                self._pods += sum(priority(info) < priority(cycle.pod) for info in node.pods.values())
            else:
                outcome = tuple(map(str, tried.reasons))
                self._pods += _REFUSED
                self.plugins |= {tried.plugin} - {_NAME}
            self.known[node.row] = outcome
        if isinstance(outcome, Candidate):
            return outcome
        self.helpless.update(outcome)
        return None

    def confirmed(self, cycle: Cycle, best: Candidate) -> bool:
        """Return whether the victims are still those: budgets and nominations may have changed."""
        node = cycle.cluster.node(best.node)
        return best.node in self._fresh or select(cycle, node) == best


def _ineligible(cycle: Cycle, rejections: Mapping[str, Rejection]) -> str:
    """Why the pod must not preempt others now; "" if it may. Upstream: `PodEligibleToPreemptOthers`."""
    pod = cycle.pod.pod
    if pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominations = cycle.cluster.nominations
    name = nominations.of(cycle.pod.uid)
    node = cycle.cluster.get(name) if name else None
    if node is None or ((rejected := rejections.get(name)) is not None and not rejected.resolvable):
        return ""
    lower = [info.pod for info in node.pods.values() if info.pod.spec.priority < pod.spec.priority]
    leaving = any(one.metadata.uid in nominations.evicting or _is_preempted(one) for one in lower)
    # The node's agent may not have released the CPUs of victims that are gone yet.
    ledger = node.cpu_state.pods if node.cpu_state is not None else {}
    victims = nominations.victims(cycle.pod.uid)
    if leaving or any(uid in ledger and uid not in node.pods for uid in victims):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def _is_preempted(pod: Pod) -> bool:
    """Whether the pod terminates because a scheduler evicted it for another."""
    if not pod.metadata.deletion_timestamp:
        return False
    target = next((one for one in pod.status.conditions if one.type == "DisruptionTarget"), None)
    return target is not None and (target.status, target.reason) == ("True", "PreemptionByScheduler")


def _resolvable(cycle: Cycle, rejections: Mapping[str, Rejection]) -> Rows:
    """The rows of nodes where evicting pods may help."""
    if isinstance(rejections, Rejections):
        rows = [rows for rejected, rows in rejections.groups if rejected.resolvable]
        return np.concatenate(rows) if rows else np.zeros(0, np.intp)
    names = [name for name, rejected in rejections.items() if rejected.resolvable]
    return np.array([node.row for name in names if (node := cycle.cluster.get(name))], np.intp)


def _promising(
    cycle: Cycle, rows: Rows, search: _Search, *, thorough: bool
) -> Iterator[tuple[int, NodeInfo]]:
    """Nodes, the most promising first, with the least priority that some victim must have.

    Those that certainly are no candidates come last, unless the search is to be thorough. In a search that is
    spent, only nodes that are known.
    """
    priority, cluster = cycle.pod.pod.spec.priority, cycle.cluster
    lowest = cluster.priorities.lowest()
    if lowest is None or lowest >= priority:
        search.helpless[NO_VICTIMS] += len(rows)
        return
    reclaimable = cluster.priorities.reclaimable(priority, partial(_free, cluster.columns))
    having = np.isin(reclaimable.rows, rows)
    search.helpless[NO_VICTIMS] += len(rows) - int(having.sum())
    least = reclaimable.least_priority(cycle.pod)
    cluster.columns.sort()
    order = np.lexsort((cluster.columns.order[reclaimable.rows], -reclaimable.free[:, 0], least))
    order = order[having[order]]
    for row, bound in zip(reclaimable.rows[order].tolist(), least[order].tolist(), strict=True):
        if (search.cut and row not in search.known) or (node := cluster.by_row[row]) is None:
            continue
        if not thorough:
            search.look(cycle, row, node, suffices=bound != NONE)
        yield (lowest if thorough and bound == NONE else bound), node


def _free(columns: Columns, rows: Rows) -> Integers:
    """MilliCPU and bytes that are free; of CPUs that are amplified, more than any pod requests."""
    free = columns.left.take(rows, 0)[:, [CPU, MEMORY]]
    free[columns.amplified[rows], CPU] = _ANY_AMOUNT
    return free
