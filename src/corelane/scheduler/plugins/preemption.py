"""DefaultPreemption: evict pods of lower priority where that makes the pending pod fit, as few as possible.

Upstream: `pkg/scheduler/framework/plugins/defaultpreemption`, `.../framework/preemption`. What is tried on a
node is exact: the victims release the very CPUs that they have, and the node's own admission decides whether
the pod fits then. So pods are evicted that make one NUMA node fit, not others that free the same total.

Upstream starts at a random node and stops at a number of candidates. Here the nodes come in the order of what
they can offer at best, and the search ends when no node left can be better than the best one found.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason, sentence
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.priorities import NONE
from corelane.scheduler.framework.plugin import Cycle, Nomination, NotNominated, Rejection
from corelane.scheduler.plugins import victims
from corelane.scheduler.plugins.victims import Candidate

_NAME: Final = "DefaultPreemption"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
ENOUGH: Final = 8
"""On large clusters, so many equally good candidates are enough."""
MOST_DRY_RUNS: Final = 32
"""Then the best candidate so far is taken; without any, the search goes on after other pods."""
DRY_RUNS_AT_ONCE: Final = 11
"""In one attempt; then the pod is tried again at once, and the search goes on."""
PODS_AT_ONCE: Final = 24
"""Pods of lower priority on the nodes of these: each is thought away and back, about 1 ms."""
_MOST_SEARCHES: Final = 256
_ANY_AMOUNT: Final = 2**62


class DefaultPreemption:
    """Nominates a node, and the pods to evict there.

    `min_candidate_nodes_percentage` and `min_candidate_nodes_absolute` are upstream's: on so many nodes at
    least the victims are determined, if so many can help.
    """

    name = _NAME

    def __init__(
        self, min_candidate_nodes_percentage: int = 10, min_candidate_nodes_absolute: int = 100
    ) -> None:
        if not 0 <= min_candidate_nodes_percentage <= 100:
            raise ValueError(
                f"{_NAME}: minCandidateNodesPercentage {min_candidate_nodes_percentage}: use 0 to 100"
            )
        if min_candidate_nodes_absolute < 0:
            raise ValueError(
                f"{_NAME}: minCandidateNodesAbsolute {min_candidate_nodes_absolute}: use 0 or more"
            )
        self._searches: dict[str, _Search] = {}
        self._percentage = min_candidate_nodes_percentage
        self._absolute = min_candidate_nodes_absolute

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
        nodes, search = list(_resolvable(cycle, rejections)), self._search(cycle)
        best = self._best(cycle, nodes, search)
        if search.spent and (best is None or search.dry_runs < MOST_DRY_RUNS):
            doubtful = search.dry_runs >= MOST_DRY_RUNS
            return NotNominated("", keep=True, unfinished=True, doubtful=doubtful)
        del self._searches[search.key]
        if best is not None and not search.confirmed(cycle, best):
            return NotNominated("", keep=True, unfinished=True, doubtful=True)
        if best is None:
            total = cycle.cluster.count()
            search.helpless[NOT_HELPFUL] += total - len(nodes)
            return NotNominated(f"preemption: {_message(total, search.helpless)}", keep=False)
        return Nomination(best.node, tuple(info.uid for info in best.victims))

    def _search(self, cycle: Cycle) -> "_Search":
        """The search for this pod that is not finished, without the rows that changed; or a new one."""
        key = cycle.pod.uid
        search = self._searches.pop(key, None) or _Search(key)
        search.begin(cycle)
        while len(self._searches) >= _MOST_SEARCHES:
            del self._searches[next(iter(self._searches))]
        self._searches[key] = search
        return search

    def _best(self, cycle: Cycle, nodes: list[NodeInfo], search: "_Search") -> Candidate | None:
        limit = min(len(nodes), max(self._absolute, len(nodes) * self._percentage // 100))
        thorough = len(nodes) <= limit
        best: Candidate | None = None
        found = 0
        for bound, node in _promising(cycle, nodes, search.helpless, thorough=thorough):
            if best is not None and not best.violations and bound > best.highest:
                break
            tried = search.select(cycle, node)
            if tried is None:
                continue
            best, found = tried if best is None else min(best, tried, key=Candidate.order), found + 1
            if not best.violations and found >= (limit if thorough else min(limit, ENOUGH)):
                break
            if search.spent:
                return best
        return best


class _Search:
    """Dry runs for one pod, over as many attempts as it takes: only nodes that changed are tried again."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.dry_runs = 0
        """Of `MOST_DRY_RUNS`, over some attempts."""
        self._begun_at = self._pods = 0
        self.helpless: Counter[str] = Counter()
        """Nodes by why they are no candidates."""
        self._known: dict[int, Candidate | tuple[str, ...]] = {}
        """Row to the victims, or to why there are none."""
        self._fresh: set[str] = set()
        """Nodes that were tried in this attempt."""
        self._positions = (0, 0)

    def begin(self, cycle: Cycle) -> None:
        """Begin an attempt: rows that changed since the last one are asked again."""
        columns = cycle.cluster.columns
        logs = (columns.nodes_log, columns.pods_log)
        for log, position in zip(logs, self._positions, strict=True):
            changed = log.since(position) if self._known else None
            if changed is None:
                self._known.clear()
            else:
                for row in changed.tolist():
                    self._known.pop(row, None)
        self._positions = (columns.nodes_log.position, columns.pods_log.position)
        if self.dry_runs >= MOST_DRY_RUNS:
            self.dry_runs = 0
        self._begun_at, self._pods, self.helpless = self.dry_runs, 0, Counter()
        self._fresh.clear()

    @property
    def spent(self) -> bool:
        """Whether this attempt may make no more dry runs."""
        most = min(MOST_DRY_RUNS, self._begun_at + DRY_RUNS_AT_ONCE)
        return self.dry_runs >= most or self._pods >= PODS_AT_ONCE

    def select(self, cycle: Cycle, node: NodeInfo) -> Candidate | None:
        """Return the victims on a node; None for a node that is refused, or not asked in this attempt."""
        known = self._known.get(node.row)
        if known is None:
            if self.spent:
                return None
            self.dry_runs += 1
            self._pods += victims.count_lower(cycle.pod, node)
            self._fresh.add(node.name)
            tried = victims.select(cycle, node)
            known = tried if isinstance(tried, Candidate) else tuple(map(str, tried.reasons))
            self._known[node.row] = known
        if isinstance(known, Candidate):
            return known
        self.helpless.update(known)
        return None

    def confirmed(self, cycle: Cycle, best: Candidate) -> bool:
        """Return whether the victims are still those: budgets and nominations may have changed."""
        node = cycle.cluster.node(best.node)
        return best.node in self._fresh or victims.select(cycle, node) == best


def _ineligible(cycle: Cycle, rejections: Mapping[str, Rejection]) -> str:
    """Why the pod must not preempt others now; "" if it may. Upstream: `PodEligibleToPreemptOthers`."""
    pod = cycle.pod.pod
    if pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominations = cycle.cluster.nominations
    name = nominations.of(cycle.pod.uid)
    node = cycle.cluster.get(name) if name else None
    rejected = rejections.get(name)
    if node is None or (rejected is not None and not rejected.resolvable):
        return ""
    lower = [info.pod for info in node.pods.values() if info.pod.spec.priority < pod.spec.priority]
    leaving = any(one.metadata.uid in nominations.evicting or _is_preempted(one) for one in lower)
    if leaving or _unreleased(node, nominations.victims(cycle.pod.uid)):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def _unreleased(node: NodeInfo, victims: frozenset[str]) -> bool:
    """Whether victims are gone whose CPUs the node's agent has not released yet."""
    state = node.cpu_state
    return state is not None and any(uid in state.pods and uid not in node.pods for uid in victims)


def _is_preempted(pod: Pod) -> bool:
    """Whether the pod terminates because a scheduler evicted it for another."""
    if not pod.metadata.deletion_timestamp:
        return False
    found = next((one for one in pod.status.conditions if one.type == "DisruptionTarget"), None)
    return found is not None and (found.status, found.reason) == ("True", "PreemptionByScheduler")


def _resolvable(cycle: Cycle, rejections: Mapping[str, Rejection]) -> Iterator[NodeInfo]:
    for name, rejected in rejections.items():
        node = cycle.cluster.get(name) if rejected.resolvable else None
        if node is not None:
            yield node


def _promising(
    cycle: Cycle, nodes: list[NodeInfo], helpless: Counter[str], *, thorough: bool
) -> Iterator[tuple[int, NodeInfo]]:
    """Nodes, the most promising first, with the least priority that some victim must have.

    Those that certainly are no candidates are only counted, unless the search is to be thorough.
    """
    priority, cluster = cycle.pod.pod.spec.priority, cycle.cluster
    lowest = cluster.priorities.lowest()
    if lowest is None or lowest >= priority:
        helpless[NO_VICTIMS] += len(nodes)
        return
    known = cluster.priorities.reclaimable(priority, lambda row: _free(cluster.at_row(row)))
    asked = np.array([node.row for node in nodes], np.int64)
    having = np.isin(known.rows, asked)
    helpless[NO_VICTIMS] += len(nodes) - int(having.sum())
    least = known.least_priority(cycle.pod)
    cluster.columns.sort()
    order = np.lexsort((cluster.columns.order[known.rows], -known.free[:, 0], least))
    for number in order[having[order]].tolist():
        node = cluster.at_row(int(known.rows[number]))
        if node is None:
            continue
        if thorough or (least[number] != NONE and not victims.certainly_refused(cycle.pod, node)):
            yield (lowest if thorough and least[number] == NONE else int(least[number])), node
        else:
            helpless.update(_lacking(cycle.pod, node))


def _free(node: NodeInfo | None) -> tuple[int, int]:
    if node is None:
        return 0, 0
    cpu = node.allocatable.get("cpu", 0) - node.requested.get("cpu", 0)
    memory = node.allocatable.get("memory", 0) - node.requested.get("memory", 0)
    return _ANY_AMOUNT if node.amplified else cpu, memory


def _lacking(pod: PodInfo, node: NodeInfo) -> list[str]:
    """What is too little even without the pods of lower priority, as the filters say it."""
    kept = [one for one in node.pods.values() if one.pod.spec.priority >= pod.pod.spec.priority]
    texts = []
    for name in ("cpu", "memory"):
        held = sum(one.requests.get(name, 0) for one in kept)
        if pod.requests.get(name, 0) > node.allocatable.get(name, 0) - held:
            texts.append(f"Insufficient {name}")
    return texts or [sentence(Reason(Code.TOO_FEW_EXCLUSIVE, (pod.exclusive_cpus,)))]


def _message(total: int, reasons: Mapping[str, int]) -> str:
    texts = sorted(f"{number} {text}" for text, number in reasons.items() if number)
    return f"0/{total} nodes are available: {', '.join(texts)}."
