"""One attempt to place a pod: pre-filters, columns, then finalists in the order of their scores.

Theory of operation. Filters and scores of scope ROW are vectors per pod shape (`vectors`); those of scope
CLUSTER are computed for this pod, over the rows that are left. The best row by these is a finalist: filters
and scores that only gave estimates are asked about its node. A rejection, or a lower score, holds for all
rows that the plugin says are alike, and the next best is taken. So "no node fits" is only said when every
node that the columns leave has been asked. Pure; the claim is the caller's.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from corelane.scheduler.cluster.columns import Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, NodeCache
from corelane.scheduler.cluster.pod_index import Unfinished
from corelane.scheduler.cluster.pods import PodInfo, with_defaults
from corelane.scheduler.cycle.plan import Plan, Weighted, has_a_say, plan_of, pre_filters_of, vectors_of
from corelane.scheduler.cycle.vectors import NEVER, ShapeVectors, feasible, is_estimate, normalizes, scores
from corelane.scheduler.framework import filtering
from corelane.scheduler.framework.attempts import RANKED, Attempt, Rejections, rejections
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, Rejection, Scope, ScorePlugin, Skip
from corelane.scheduler.framework.profile import Profile

ASKED_EACH: Final = 16
"""Groups of alike nodes asked for the record of a pod that was placed, of each plugin that has groups."""
ASKED_ALONE: Final = 256
"""Nodes asked for it of each plugin that has none."""


class Searched:
    """A search in one attempt: its plugins, vectors, and the rows in question."""

    def __init__(self, cycle: Cycle, plan: Plan, vectors: ShapeVectors) -> None:
        self.cycle, self.columns = cycle, cycle.cluster.columns
        self.plan, self.vectors = plan, vectors
        self.filters, self.inexact = plan.filters, plan.inexact
        self.blame: Any = None
        """As in the vectors, with filters of scope CLUSTER; None where these have nothing to do."""

    def _nodes(self, values: Scores) -> "_Nodes":
        """The nodes with a score."""
        return _Nodes(self.cycle.cluster, values)

    def rows_of(self, names: Iterable[str]) -> Rows:
        """Return the rows of these nodes, those that exist, in ascending order."""
        found = sorted(info.row for name in names if (info := self.cycle.cluster.get(name)))
        return np.array(found, dtype=np.intp)

    def _only(self, rows: Rows) -> Rows:
        only = self.cycle.only
        if only is None:
            return rows
        chosen = self.rows_of(only)
        outside = np.ones(len(self.blame), dtype=np.bool_)
        outside[chosen] = False
        self.blame[outside] = 0
        return np.intersect1d(rows, chosen, assume_unique=True)

    def _asked(self) -> Rows:
        """The rows in question."""
        rows = self.columns.live_rows()
        return rows if self.cycle.only is None else self._only(rows)

    def blamed(self) -> Any:
        """The number of the filter that rejects each row."""
        return self.vectors.blame if self.blame is None else self.blame

    def considered(self) -> int:
        """Number of nodes in question."""
        return len(self._asked())

    def samples(self, names: int) -> Iterator[tuple[Rejection, int, tuple[str, ...]]]:
        """Yield for each plugin that rejects nodes: a rejection, how many, and the first `names`.

        A plugin's own groups are exact; where there are too many, the last rejection has no reasons and
        stands for the nodes that were not asked.
        """
        rows, blame = self._asked(), self.blamed()
        counts = np.bincount(blame[rows], minlength=1)
        rejecting = [one for one in self.filters if one[0] < len(counts) and counts[one[0]]]
        for number, plugin in sorted(rejecting, key=lambda one: -int(counts[one[0]])):
            blamed = rows[blame[rows] == number]
            groups = self._alike(plugin, blamed)
            for rejection, alike in sorted(groups.items(), key=lambda item: -len(item[1])):
                yield rejection, len(alike), tuple(self.columns.names[row] for row in alike[:names])

    def _alike(self, plugin: FilterPlugin, blamed: Rows) -> dict[Rejection, Rows]:
        """The rows by their rejection; those that were not asked by one without reasons."""
        parts: dict[Rejection, list[Rows]] = {}
        for rejection, rows in self._asked_again(plugin, blamed):
            parts.setdefault(rejection, []).append(rows)
        groups = {rejection: np.sort(np.concatenate(rows)) for rejection, rows in parts.items()}
        rest = np.setdiff1d(blamed, np.concatenate([*groups.values(), blamed[:0]]), assume_unique=True)
        if len(rest):
            bare = Rejection(plugin.name, ())
            groups[bare] = np.sort(np.concatenate((rest, groups[bare]))) if bare in groups else rest
        return groups

    def _asked_again(self, plugin: FilterPlugin, blamed: Rows) -> Iterator[tuple[Rejection, Rows]]:
        grouping = getattr(plugin, "rejections", None)
        if grouping is not None and len(blamed) > ASKED_EACH:
            yield from islice(grouping(self.cycle, self.columns, blamed), ASKED_EACH)
            return
        for row in blamed[:ASKED_ALONE]:
            node = self.cycle.cluster.by_row[row]
            if rejection := plugin.filter(self.cycle, node) if node else None:
                yield rejection, np.array([row], np.intp)

    def terms(self, rows: Rows, values: Scores) -> Iterator[tuple[str, float, tuple[float, ...]]]:
        """Yield each Score's name, its weight, and its last word for some of the rows that fit."""
        left = np.flatnonzero(values > NEVER)
        cluster = [one for one in self.plan.cluster_scores if has_a_say(one, self.cycle, self._nodes(values))]
        for plugin, weight in (*self.vectors.weighted, *cluster):
            yield plugin.name, weight, tuple(map(float, self._term(plugin, rows, left)))
            yield from self._details(plugin, rows)

    def _details(self, plugin: ScorePlugin, rows: Rows) -> Iterator[tuple[str, float, tuple[float, ...]]]:
        """What a Score is made of, for people: it weighs nothing; -1 where a node has no such value."""
        details = getattr(plugin, "details", None)
        if details is None:
            return
        found = [details(self.cycle, node) for row in rows if (node := self.cycle.cluster.by_row[row])]
        for name in next(filter(None, found), {}):
            yield f"{plugin.name}.{name}", 0.0, tuple(float(one.get(name, -1)) for one in found)

    def _term(self, plugin: ScorePlugin, rows: Rows, left: Rows) -> Iterable[float]:
        if is_estimate(plugin):
            found = (self.cycle.cluster.by_row[row] for row in rows)
            return [plugin.score(self.cycle, node) for node in found if node]
        raw = self.vectors.raw.get(plugin.name)
        if not normalizes(plugin):
            return scores(plugin, self.cycle, rows) if raw is None else raw[rows]
        every = scores(plugin, self.cycle, left) if raw is None else raw[left]
        normal: Scores = plugin.normalize(self.cycle, every)  # type: ignore[attr-defined]
        return normal[np.searchsorted(left, rows)]

    def ranked(self, row: int, values: Scores) -> Iterator[NodeInfo]:
        """The chosen node, and those that come next by what the columns say and fit."""
        left = np.flatnonzero(values > NEVER)
        if len(left) > RANKED:
            left = left[values[left] >= np.partition(values[left], -RANKED)[-RANKED]]
        left = left[np.lexsort((self.columns.order[left], -values[left]))][:RANKED]
        for one in (row, *(int(other) for other in left if other != row)):
            node = self.cycle.cluster.by_row[one]
            if node is None:
                continue
            if one == row or all(plugin.filter(self.cycle, node) is None for _, plugin in self.inexact):
                yield node


class _Nodes(Sequence[NodeInfo]):
    """The nodes with a score, as a sequence that costs nothing before it is read."""

    def __init__(self, cluster: NodeCache, values: Scores) -> None:
        self._cluster, self._values = cluster, values
        self._known: Rows | None = None

    @property
    def _rows(self) -> Rows:
        if self._known is None:
            self._known = np.flatnonzero(self._values > NEVER)
        return self._known

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._cluster.by_row[row] for row in self._rows[index]]
        return self._cluster.by_row[self._rows[index]]


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
            detailed = self.cycle.shape.looks_at_others
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
        if not self.cycle.shape.looks_at_others:
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
        detailed = self.cycle.shape.looks_at_others
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
