"""InterPodAffinity: affinity and anti-affinity to other pods, in both directions, required and preferred.

Nothing loops over pods: `cache.pod_index` has the numbers by node, which become totals by topology domain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores, at
from corelane.scheduler.cluster.labels import Term, Totals
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pod_index import TermKind
from corelane.scheduler.cluster.pods import NO_AFFINITIES, PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import CountsPods, RowFilter, RowScore, by_range

NAME: Final = "InterPodAffinity"
_SCORES: Final = f"{NAME}/scores"
_AFFINITY: Final = Rejection.of(NAME, Reason(Code.POD_AFFINITY_MISMATCH), resolvable=False)
_ANTI: Final = Rejection.of(NAME, Reason(Code.POD_ANTI_AFFINITY_MISMATCH))
_EXISTING: Final = Rejection.of(NAME, Reason(Code.EXISTING_ANTI_AFFINITY))


@dataclass(slots=True)
class Matched:
    """Pods by topology domain, by label key."""

    existing: dict[str, Totals] = field(default_factory=dict)
    """Pods with a required anti-affinity term that matches the pod to place."""
    affinity: dict[str, Totals] = field(default_factory=dict)
    """Pods that match all required affinity terms of the pod to place."""
    anti: dict[str, Totals] = field(default_factory=dict)
    """Pods that match one of its required anti-affinity terms."""
    first: bool = False
    """Whether the pod matches its own affinity terms, so that it may be the first of its group."""

    def copy(self) -> "Matched":
        """Return a copy that can be changed."""
        return Matched(_copied(self.existing), _copied(self.affinity), _copied(self.anti), self.first)

    @property
    def alone(self) -> bool:
        """Whether no pod in any domain matches the affinity terms, and the pod may be the first."""
        return self.first and not any(totals.any() for totals in self.affinity.values())


class InterPodAffinity(RowFilter, RowScore, CountsPods):
    """See the module. Weights are 0 to 100; upstream's arguments."""

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def __init__(
        self,
        hardPodAffinityWeight: int = 1,  # noqa: N803 - upstream's name
        ignorePreferredTermsOfExistingPods: bool = False,  # noqa: N803 - upstream's name
    ) -> None:
        if not 0 <= hardPodAffinityWeight <= 100:
            raise ValueError(f"hardPodAffinityWeight {hardPodAffinityWeight}: use 0 to 100")
        self.hard_weight = hardPodAffinityWeight
        self.ignore_existing = ignorePreferredTermsOfExistingPods

    # Filter.

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        cluster, mine = cycle.cluster, cycle.pod.facts.affinities
        error = cluster.objects.unwatched.get("namespaces")
        if error and any(term.pods.namespace_rules for term in (*mine.required, *mine.anti)):
            return Rejection.of(NAME, Reason(Code.NAMESPACES_NOT_WATCHED, (error,)), resolvable=False)
        owned = cluster.index.owned(cycle.pod)
        if not owned and mine is NO_AFFINITIES:
            cycle.state[_SCORES] = {}
            return SKIP
        matched = Matched()
        for (kind, term, _), counts in owned:
            if kind is TermKind.ANTI and counts.by_row:
                _sum(matched.existing, term, counts.totals(cluster.topology, term.topology_key))
        if not (matched.existing or mine.required or mine.anti):
            return SKIP
        if mine.required:
            counts = cluster.index.matching(mine.required)
            keys = {term.topology_key for term in mine.required}
            matched.affinity = {key: counts.totals(cluster.topology, key) for key in keys}
            matched.first = cluster.index.in_all(mine.required, cycle.pod)
        for term in mine.anti:
            counts = cluster.index.matching((term,))
            _sum(matched.anti, term, counts.totals(cluster.topology, term.topology_key))
        cycle.state[NAME] = matched
        return None

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        """Judge domains first, then their rows; `rejected` says which rule rejects."""
        matched: Matched = cycle.state[NAME]
        topology, alone = cycle.cluster.topology, matched.alone
        passed = np.ones(len(rows), np.bool_)
        for key, totals in matched.affinity.items():
            ids = at(topology.ids(key), rows)
            passed &= (ids >= 0) if alone else (totals > 0).take(ids)
        for key in {**matched.anti, **matched.existing}:
            domains = [part[key] <= 0 for part in (matched.anti, matched.existing) if key in part]
            passed &= np.logical_and.reduce(domains).take(at(topology.ids(key), rows))
        return passed

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """The rows that each rule rejects, in the order of the rules."""
        matched: Matched = cycle.state[NAME]
        topology = cycle.cluster.topology
        if matched.affinity:
            alone, bad = matched.alone, np.zeros(len(rows), np.bool_)
            for key, totals in matched.affinity.items():
                ids = topology.ids(key)[rows]
                bad |= (ids < 0) if alone else (totals[ids] <= 0)
            yield _AFFINITY, bad
        for rejection, part in ((_ANTI, matched.anti), (_EXISTING, matched.existing)):
            for key, totals in part.items():
                yield rejection, totals[topology.ids(key)[rows]] > 0

    # Pods that are looked at as if they came or went.

    def change(self, cycle: Cycle, pod: PodInfo, node: NodeInfo, number: int) -> None:
        matched: Matched | None = cycle.state.get(NAME)
        if matched is None:
            return
        cluster, mine = cycle.cluster, cycle.pod.facts.affinities
        for term in pod.facts.affinities.anti:
            if cluster.index.has_in(term, cycle.pod):
                _add(matched.existing, cluster, term, node, number)
        if mine.required and cluster.index.in_all(mine.required, pod):
            for key in {term.topology_key: term for term in mine.required}.values():
                _add(matched.affinity, cluster, key, node, number)
        for term in mine.anti:
            if cluster.index.in_all((term,), pod):
                _add(matched.anti, cluster, term, node, number)

    # Score.

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        return None if self._totals(cycle) else SKIP

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        return by_range(scores)

    def scores(self, cycle: Cycle, _columns: Columns, rows: Rows) -> Scores:
        sums = np.zeros(len(rows))
        for key, totals in self._totals(cycle).items():
            sums += totals[cycle.cluster.topology.ids(key)[rows]]
        return sums

    def _totals(self, cycle: Cycle) -> dict[str, Totals]:
        totals: dict[str, Totals] | None = cycle.state.get(_SCORES)
        if totals is not None:
            return totals
        totals = cycle.state[_SCORES] = {}
        index, topology, mine = cycle.cluster.index, cycle.cluster.topology, cycle.pod.facts.affinities
        for sign, terms in ((1, mine.preferred), (-1, mine.preferred_anti)):
            for term, weight in terms:
                pods = index.matching((term,)).totals(topology, term.topology_key)
                _sum(totals, term, sign * weight * pods)
        if self.ignore_existing and not (mine.preferred or mine.preferred_anti):
            return totals
        signs = {TermKind.REQUIRED: self.hard_weight, TermKind.PREFERRED: 1, TermKind.PREFERRED_ANTI: -1}
        for (kind, term, weight), counts in index.owned(cycle.pod):
            if counts.by_row and (sign := signs.get(kind, 0)):
                _sum(totals, term, sign * weight * counts.totals(topology, term.topology_key))
        return totals

    # Hints.

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.POD_ADDED: _matches_affinity,
            ChangeKind.POD_REMOVED: _conflicted,
            ChangeKind.POD_CHANGED | ChangeKind.NAMESPACE | ChangeKind.POD_ITSELF: always,
            ChangeKind.WATCHED: always,
            # Of the domains of other pods' anti-affinity too, whose labels the pod does not know.
            ChangeKind.NODE_ADDED | ChangeKind.NODE_REMOVED | ChangeKind.NODE_LABELS: always,
        }


def _copied(totals: dict[str, Totals]) -> dict[str, Totals]:
    return {key: one.copy() for key, one in totals.items()}


def _sum(into: dict[str, Totals], term: Term, totals: Totals) -> None:
    key = term.topology_key
    into[key] = into[key] + totals if key in into else totals


def _add(into: dict[str, Totals], cluster: NodeCache, term: Term, node: NodeInfo, number: int) -> None:
    key = term.topology_key
    of = cluster.topology.id(key, node.row)
    if of >= 0:
        if key not in into:
            into[key] = np.zeros(cluster.topology.size(key) + 1)
        into[key][of] += number


def _means(term: Term, pod: PodInfo) -> bool:
    """Whether a term may mean a pod, with namespaces chosen by labels taken as chosen."""
    pods, metadata = term.pods, pod.pod.metadata
    if metadata.namespace not in pods.namespaces and pods.namespace_rules is None:
        return False
    return all(rule.holds(metadata.labels) for rule in pods.rules) if pods.rules is not None else False


def _matches_affinity(pod: PodInfo, change: ClusterChange) -> bool:
    """A pod that came helps if it matches all affinity terms."""
    mine, new = pod.facts.affinities.required, change.new
    return not isinstance(new, PodInfo) or (bool(mine) and all(_means(term, new) for term in mine))


def _conflicted(pod: PodInfo, change: ClusterChange) -> bool:
    """A pod that went helps if one of both kept the other away, or as the last of the group of both.

    Where no pod of its group is left, the pod may be the first one anywhere.
    """
    old = change.old
    if not isinstance(old, PodInfo):
        return True
    group = pod.facts.affinities.required
    if group and all(_means(term, pod) and _means(term, old) for term in group):
        return True
    mine, its = pod.facts.affinities.anti, old.facts.affinities.anti
    return any(_means(term, old) for term in mine) or any(_means(term, pod) for term in its)
