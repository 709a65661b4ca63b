"""One attempt to place a pod: pre-filters, columns, then finalists in the order of their scores.

Theory of operation. Filters and scores of scope ROW are vectors per pod shape (`vectors`); those of scope
CLUSTER are computed for this pod, over the rows that are left. The best row by these is a finalist: filters
and scores that only gave estimates are asked about its node. A rejection, or a lower score, holds for all
rows that the plugin says are alike, and the next best is taken. So "no node fits" is only said when every
node that the columns leave has been asked. Pure; the claim is the caller's.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from corelane.scheduler.attempts import Attempt, Rejections, message
from corelane.scheduler.cache.columns import Rows, Scores
from corelane.scheduler.cache.nodes import NodeCache, NodeInfo
from corelane.scheduler.cache.pod_index import Unfinished
from corelane.scheduler.cache.pods import PodInfo, with_defaults
from corelane.scheduler.cache.points import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE
from corelane.scheduler.cache.states import looks_at_others
from corelane.scheduler.framework import filtering
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, Rejection, Scope, Skip
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plans import Weighted, has_a_say, plan_of, pre_filters_of, vectors_of
from corelane.scheduler.plugin_forms import feasible, normalizes, scores
from corelane.scheduler.rejections import rejections
from corelane.scheduler.searched import Searched
from corelane.scheduler.vectors import NEVER

__all__ = ["Attempt", "attempt", "message"]

MOST_ADMISSIONS: Final = 64
"""Admissions that one attempt computes, 10 to 25 ms; then the pod is tried again at once."""
COUNTED_AT_ONCE: Final = 2048
"""Pods that one attempt sorts by a label that is looked at for the first time, 5 to 15 ms."""
FEW_NODES: Final = 8
"""Of an attempt on these nodes only, no others are judged."""
MOST_BETTER: Final = 8
"""Admissions computed to find a better node than the first that fits; then the best known one is taken."""
_ROUNDING: Final = 1e-9
_MANY_EQUAL: Final = 512
_LAST: Final = np.iinfo(np.int64).max
"""After every row in the order of rows."""


def attempt(
    profile: Profile,
    nodes: NodeCache,
    pod: PodInfo,
    only: frozenset[str] | None = None,
    most_judged: int | None = None,
) -> Attempt:
    """Return the best node for a pod, of all or `only` of some; equal scores: fewest pods, then by name.

    With more than `most_judged` canonical states that the vectors of its shape do not know yet, the attempt
    is unfinished: the next one goes on. So it is where many pods have to be counted for it.
    """
    index = nodes.index
    index.steps = None if most_judged is None else COUNTED_AT_ONCE
    try:
        return _attempt(profile, nodes, pod, only, most_judged)
    except Unfinished:
        return Attempt(Cycle(pod, only=only, cluster=nodes), unfinished=True)
    finally:
        index.steps = None


def _attempt(
    profile: Profile, nodes: NodeCache, pod: PodInfo, only: frozenset[str] | None, most_judged: int | None
) -> Attempt:
    nodes.points.begin("PreFilter")
    cycle, skipped, rejected = begin(profile, nodes, pod, only)
    nodes.points.end(_status(rejected))
    if rejected:
        return Attempt(cycle, rejected=rejected)
    search = _Search(profile, cycle, skipped)
    if cycle.only is not None and len(cycle.only) <= FEW_NODES:
        search.vectors.update_only(cycle, search.rows_of(cycle.only))
    elif not search.vectors.update(cycle, most_judged):
        return Attempt(cycle, unfinished=True)
    return search.run()


def _status(rejection: Rejection | None) -> str:
    if rejection is None:
        return SUCCESS
    return UNSCHEDULABLE if rejection.resolvable else UNRESOLVABLE


def begin(
    profile: Profile, nodes: NodeCache, pod: PodInfo, only: frozenset[str] | None = None
) -> tuple[Cycle, frozenset[str], Rejection | None]:
    """Return a new cycle after its pre-filters, the plugins these skip, and their rejection."""
    nodes.settle()
    cycle = Cycle(
        pod, only=only, cluster=nodes, labelled=with_defaults(nodes.shape_of(pod), profile.defaults)
    )
    return cycle, *_pre_filter(profile, cycle)


def _pre_filter(profile: Profile, cycle: Cycle) -> tuple[frozenset[str], Rejection | None]:
    asked, skipped = pre_filters_of(profile, cycle)
    more = []
    for plugin in asked:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Rejection):
            return frozenset(), answer
        if isinstance(answer, Skip):
            more.append(plugin.name)
    return skipped.union(more), None


class _Search(Searched):
    """The search for a node in one attempt."""

    def __init__(self, profile: Profile, cycle: Cycle, skipped: frozenset[str]) -> None:
        plan = plan_of(profile, skipped)
        super().__init__(cycle, plan, vectors_of(profile, plan, skipped, cycle))
        cycle.filters, cycle.plan, cycle.scored = self.plan.plugins, plan, self.vectors.names
        self.nominated = cycle.cluster.nominations.matter_to(cycle.pod)
        self.beside: dict[int, Rejection] = {}
        """Rows where the pod does not fit beside the pods for which the node is nominated."""
        self.estimated = self.vectors.estimated
        self.asked: set[int] = set()
        """Rows whose own scores are in the values of this attempt only."""
        self.misses = 0

    def run(self) -> Attempt:
        values = self._values()
        result = Attempt(self.cycle)
        row = self._best(values)
        if row < 0:
            states = self.cycle.cluster.states
            result.unfinished = bool(self.inexact) and states.misses - self.misses >= MOST_ADMISSIONS
            if not result.unfinished:
                rows = self._asked()
                own = np.setdiff1d(rows, np.fromiter(self.beside, np.intp), assume_unique=True)
                groups = list(rejections(self.cycle, self.filters, self.blamed(), own))
                groups += [(one, np.array([row], np.intp)) for row, one in self.beside.items()]
                result.rejections = Rejections(groups, self.columns.names)
            return result
        result.node = self.cycle.cluster.by_row[row]
        result.search = self, row, values
        return result

    # Vectors.

    def _values(self) -> Scores:
        """The scores of all rows, `NEVER` where the pod does not fit."""
        total, cluster, alone = self.vectors.total, self.plan.cluster, self.cycle.only is None
        late = [] if cluster else self._late(total)
        if not cluster and not late and alone and not self.nominated:
            detailed = looks_at_others(self.cycle.shape)
            return np.copy(total) if detailed else total
        values, self.blame = total.copy(), self.vectors.blame.copy()
        if not alone:
            rows = self._only(np.flatnonzero(total > NEVER))
            values[:] = NEVER
            values[rows] = total[rows]
        points = self.cycle.cluster.points
        points.begin("Filter")
        for number, plugin in cluster:
            rows = np.flatnonzero(values > NEVER)
            passed = feasible(plugin, self.cycle, rows)
            rejected = rows[~passed]
            self.blame[rejected], values[rejected] = number, NEVER
        points.end()
        if late := self._late(values) if cluster else late:
            rows = np.flatnonzero(values > NEVER)
            values[rows] += self._late_scores(late, rows)
        return values

    def _late(self, values: Scores) -> list[Weighted]:
        """The scores of scope CLUSTER, and those to normalise, that make a difference."""
        nodes = self._nodes(values)
        differing = [
            one for one in self.vectors.normalized if self.vectors.differs(one[0].name, self.columns)
        ]
        points = self.cycle.cluster.points
        points.begin("PreScore")
        saying = [one for one in self.plan.cluster_scores if has_a_say(one, self.cycle, nodes)]
        late = differing + saying
        if saying:
            self.cycle.scored = (*self.vectors.names, *(plugin.name for plugin, _ in saying))
        points.end()
        return late

    def _late_scores(self, late: Iterable[Weighted], rows: Rows) -> Scores:
        total = np.zeros(len(rows))
        points = self.cycle.cluster.points
        points.begin("Score")
        for plugin, weight in late:
            raw = self.vectors.raw.get(plugin.name)
            found = scores(plugin, self.cycle, rows) if raw is None else raw[rows]
            if normalizes(plugin) and len(rows):
                found = plugin.normalize(self.cycle, found)  # type: ignore[attr-defined]
            total += weight * found
        points.end()
        return total

    # Finalists.

    def _best(self, values: Scores) -> int:
        """The best row that fits by every plugin's last word; -1 without any."""
        self.columns.sort()
        states, rated_at = self.cycle.cluster.states, None
        self.misses = states.misses
        while True:
            if rated_at is not None and states.misses - rated_at >= MOST_BETTER:
                rated_at = None
                if (row := self._best_rated(values)) >= 0:
                    return row
            row = self._first(values)
            if row < 0 or states.misses - self.misses >= MOST_ADMISSIONS:
                return -1
            if self._confirmed(row, values):
                return row
            if rated_at is None and values[row] > NEVER:
                rated_at = states.misses  # It fits, but others may be better.

    def _best_rated(self, values: Scores) -> int:
        """The best row of those whose scores are no estimates; -1 without any."""
        rated = np.zeros(len(values), np.bool_)
        rated[list(self.asked)] = True
        verified = [number for number, one in self.vectors.states.items() if one.verified]
        if not looks_at_others(self.cycle.shape):
            rated |= np.isin(self.columns.state, np.array(verified))
        values = np.where(rated, values, NEVER)
        while (row := self._first(values)) >= 0:
            if self._confirmed(row, values):
                break
        return row

    def _first(self, values: Scores) -> int:
        """The row with the highest score, with the fewest pods, first by name; -1 without any."""
        count, order = len(self.columns.names), self.columns.order
        values = values[:count]
        best = int(values.argmax()) if count else 0
        if not count or (highest := values[best]) == NEVER:
            return -1
        equal = values >= highest - _ROUNDING
        equals = np.count_nonzero(equal)
        if equals == 1:
            return best
        if equals > _MANY_EQUAL:
            return int(np.where(equal, order[:count], _LAST).argmin())
        rows = equal.nonzero()[0]
        return int(rows[order[rows].argmin()])

    def _confirmed(self, row: int, values: Scores) -> bool:
        """Whether the node is the best by what it answers itself; else the values are corrected."""
        node = self.cycle.cluster.by_row[row]
        assert node is not None
        points = self.cycle.cluster.points
        for number, plugin in self.inexact:
            points.begin("Filter")
            rejection = plugin.filter(self.cycle, node)
            points.end()
            if rejection is not None:
                self._reject(row, number, plugin, rejection, values)
                return False
        if self.nominated and not self._fits_beside(row, node, values):
            return False
        return not self.estimated or self._rescored(row, node, values)

    def _fits_beside(self, row: int, node: NodeInfo, values: Scores) -> bool:
        """Whether the pod fits beside the pods for which this node is nominated; `values` are a copy."""
        rejection = filtering.beside_nominated(self.cycle.filters, self.cycle, node)
        if rejection is None:
            return True
        self.beside[row], values[row] = rejection, NEVER
        self.blame[row] = next(number for number, one in self.filters if one.name == rejection.plugin)
        return False

    def _reject(
        self, row: int, number: int, plugin: FilterPlugin, rejection: Rejection, values: Scores
    ) -> None:
        rows = np.array([row])
        for_state = getattr(plugin, "for_state", None)
        if for_state is not None and for_state(self.cycle, rejection):
            state = int(self.columns.state[row])
            self.vectors.states[state].blame = number
            rows = np.flatnonzero((self.columns.state == state) & (values > NEVER))
        if plugin.scope is Scope.ROW:
            self.vectors.reject(rows[self.vectors.total[rows] > NEVER], number)
        values[rows] = NEVER
        if self.blame is not None:
            self.blame[rows] = number

    def _rescored(self, row: int, node: NodeInfo, values: Scores) -> bool:
        """Replace estimates by what the scores say of the node; whether it stays the best."""
        state = int(self.columns.state[row])
        verdict = self.vectors.states[state]
        detailed = looks_at_others(self.cycle.shape)
        if verdict.verified or (detailed and row in self.asked):
            return True
        points = self.cycle.cluster.points
        points.begin("Score")
        exact = sum(weight * plugin.score(self.cycle, node) for plugin, weight in self.estimated)
        points.end()
        change = exact - verdict.estimate
        if detailed:
            rows = np.array([row])
            self.asked.add(row)
        else:
            rows = np.flatnonzero(self.columns.state == state)
            verdict.verified, verdict.score, verdict.estimate = True, verdict.score + change, exact
        if abs(change) <= _ROUNDING:
            return True
        if not detailed:
            self.vectors.total[rows] += change
        if detailed or values is not self.vectors.total:
            values[rows] += change
        return False
