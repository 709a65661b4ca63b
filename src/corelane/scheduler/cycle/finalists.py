"""One attempt to place a pod: pre-filters, columns, then finalists in the order of their scores.

Theory of operation. `begin` asks the pre-filters; the plugins that they do not skip are the plan. Filters
and scores of scope ROW are vectors per pod shape (`vectors`); those of scope CLUSTER are computed for this
pod, over the rows that are left. The best row by these is a finalist: filters and scores that only gave
estimates are asked about its node. A rejection, or a lower score, holds for all rows that the plugin says are
alike, and the next best is taken. So "no node fits" is only said when every node that the columns leave has
been asked. Pure; the claim is the caller's.

`Attempts` makes the attempts of waiting pods: on the nominated node first, then on all, then PostFilter, and
each of these in portions where it takes long.
"""

from typing import Final, TypeAlias

import numpy as np

from corelane.scheduler.cluster.columns import Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, NodeCache
from corelane.scheduler.cluster.pod_index import Unfinished
from corelane.scheduler.cluster.pods import PodInfo, with_defaults
from corelane.scheduler.cycle.attempts import (
    Attempt,
    Comparison,
    grouped_rejections,
    rows_in_question,
    rows_of,
)
from corelane.scheduler.cycle.vectors import NEVER, ScoredNodes, ShapeVectors, contributes
from corelane.scheduler.framework import trials
from corelane.scheduler.framework.plugin import (
    Cycle,
    IdlePlugin,
    Nomination,
    NotNominated,
    Rejection,
    Rejections,
    Scope,
    Skip,
)
from corelane.scheduler.framework.profile import FilterForms, Plan, Profile, ScoreForms
from corelane.scheduler.queue.waiting import Waiting

MOST_ADMISSIONS: Final = 64
"""Admissions that one attempt computes, 10 to 25 ms; then the pod is tried again at once."""
COUNTED_AT_ONCE: Final = 2048
"""Pods that one attempt sorts by a label that is looked at for the first time, 5 to 15 ms."""
JUDGED_AT_ONCE: Final = 512
"""Canonical states that one attempt judges for a shape, about 8 ms where nodes publish zones only."""
FEW_NODES: Final = 8
"""Nodes of an attempt on some nodes only, up to which no others are judged."""
MOST_BETTER: Final = 8
"""Admissions computed to find a better node than the first that fits; then the best rated one is taken."""
MOST_SHAPES: Final = 256
"""Shapes whose vectors are kept: about 20 bytes for each node."""
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
    nodes.index.steps = None if most_judged is None else COUNTED_AT_ONCE
    try:
        nodes.points.begin("PreFilter")
        cycle, skipped, rejected = begin(profile, nodes, pod, only)
        if rejected:
            nodes.points.end(UNSCHEDULABLE if rejected.resolvable else UNRESOLVABLE)
            return Attempt(cycle, rejected=rejected)
        nodes.points.end()
        plan = profile.plan(skipped)
        cycle.filters = plan.plugins
        vectors = vectors_of(plan, cycle)
        if cycle.only is not None and len(cycle.only) <= FEW_NODES:
            vectors.update_only(cycle, rows_of(nodes, cycle.only))
        elif not vectors.update(cycle, most_judged):
            return Attempt(cycle, unfinished=True)
        return _Finalists(cycle, plan, vectors).attempt()
    except Unfinished:
        return Attempt(Cycle(pod, pod.shape, only=only, cluster=nodes), unfinished=True)
    finally:
        nodes.index.steps = None


# Pre-filters, plan and vectors.


def begin(
    profile: Profile, nodes: NodeCache, pod: PodInfo, only: frozenset[str] | None = None
) -> tuple[Cycle, frozenset[str], Rejection | None]:
    """Return a new cycle after its pre-filters, the names of the plugins that skip, and the rejection.

    Of a plain pod, those that skip all pods of its shape are not asked.
    """
    nodes.settle()
    cycle = Cycle(pod, with_defaults(nodes.shape_of(pod), profile.defaults), only=only, cluster=nodes)
    asked, skipped = profile.pre_filters, frozenset[str]()
    if pod.plain:
        split = profile.of_plain.get(pod.shape)
        if split is None:
            idle = frozenset(one.name for one in asked if isinstance(one, IdlePlugin) and one.idle(pod))
            split = profile.of_plain[pod.shape] = tuple(one for one in asked if one.name not in idle), idle
        asked, skipped = split
    skipping = []
    for plugin in asked:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Rejection):
            return cycle, frozenset(), answer
        if isinstance(answer, Skip):
            skipping.append(plugin.name)
    return cycle, skipped.union(skipping), None


def rejection_on(profile: Profile, nodes: NodeCache, pod: PodInfo, node: NodeInfo) -> Rejection | None:
    """Return why the pod does not fit on a node, which may differ from the one among `nodes`."""
    cycle, skipped, rejected = begin(profile, nodes, pod, frozenset({node.name}))
    filters = (plugin for plugin in profile.filters if plugin.name not in skipped)
    return rejected or trials.first_rejection(filters, cycle, node)


def vectors_of(plan: Plan, cycle: Cycle) -> ShapeVectors:
    """Return the vectors of the pod's shape, not updated yet."""
    columns = cycle.cluster.columns
    key = plan.profile, cycle.shape.id, plan.skipped, columns.any_koordinator
    vectors: ShapeVectors | None = columns.vectors.pop(key, None)
    if vectors is None:
        scores = [one for one in plan.row_scores if contributes(one, cycle, ())]
        vectors = ShapeVectors(columns, plan.row_filters, scores, cycle.shape)
        if len(columns.vectors) >= MOST_SHAPES:
            del columns.vectors[next(iter(columns.vectors))]
    columns.vectors[key] = vectors
    return vectors


# Finalists.


class _Finalists:
    """The rows of one attempt in the order of their scores, corrected by what their nodes answer."""

    def __init__(self, cycle: Cycle, plan: Plan, vectors: ShapeVectors) -> None:
        self._cycle, self._columns, self._points = cycle, cycle.cluster.columns, cycle.cluster.points
        self._plan, self._vectors = plan, vectors
        self._nominated = cycle.cluster.nominations.matter_to(cycle.pod)
        self._detailed = cycle.shape.looks_at_others
        self._scored = vectors.names
        self._blame = vectors.blame
        """A copy where filters of scope CLUSTER put blame, or only some nodes are in question."""
        self._late_scores: Scores | None = None
        """The part of the values that is of this attempt only, where there is one."""
        self._values = self._of_columns()
        """The scores of all rows, `NEVER` where the pod does not fit; a copy, too, or `vectors.total`."""
        self._beside: dict[int, Rejection] = {}
        """Rows where the pod does not fit beside the pods for which the node is nominated."""
        self._asked: set[int] = set()
        """Rows whose own scores are in the values of this attempt only."""
        self._misses = 0

    def attempt(self) -> Attempt:
        """Return the best node that fits by every plugin's last word, or why there is none."""
        row = self._best()
        cycle, plan, states = self._cycle, self._plan, self._cycle.cluster.states
        if row >= 0:
            comparison = Comparison(cycle, plan, self._vectors, row, self._values, self._blame)
            node = cycle.cluster.by_row[row]
            return Attempt(cycle, node, plan=plan, scored=self._scored, comparison=comparison)
        if plan.inexact and states.misses - self._misses >= MOST_ADMISSIONS:
            return Attempt(cycle, unfinished=True, plan=plan)
        beside = np.fromiter(self._beside, np.intp)
        own = np.setdiff1d(rows_in_question(cycle), beside, assume_unique=True)
        groups = list(grouped_rejections(cycle, plan.filters, self._blame, own))
        groups += [(rejection, np.array([row], np.intp)) for row, rejection in self._beside.items()]
        return Attempt(cycle, rejections=Rejections(groups, self._columns.names), plan=plan)

    # What the columns say.

    def _of_columns(self) -> Scores:
        cycle, total, filters = self._cycle, self._vectors.total, self._plan.cluster_filters
        late = [] if filters else self._late(total)
        if not filters and not late and cycle.only is None and not self._nominated:
            return total.copy() if self._detailed else total
        values, self._blame = total.copy(), self._blame.copy()
        if cycle.only is not None:
            rows = np.intersect1d(np.flatnonzero(total > NEVER), rows_of(cycle.cluster, cycle.only))
            values[:] = NEVER
            values[rows] = total[rows]
        self._points.begin("Filter")
        for one in filters:
            rows = np.flatnonzero(values > NEVER)
            rejected = rows[~one.feasible(cycle, self._columns, rows)]
            self._blame[rejected], values[rejected] = one.number, NEVER
        self._points.end()
        if late := self._late(values) if filters else late:
            rows = np.flatnonzero(values > NEVER)
            sums = np.zeros(len(rows))
            self._points.begin("Score")
            for score in late:
                raw = self._vectors.raw.get(score.name)
                scores = score.scores(cycle, self._columns, rows) if raw is None else raw[rows]
                if score.normalize is not None and len(rows):
                    scores = score.normalize(cycle, scores)
                sums += score.weight * scores
            self._points.end()
            values[rows] += sums
            self._late_scores = np.zeros(len(values))
            self._late_scores[rows] = sums
        return values

    def _late(self, values: Scores) -> list[ScoreForms]:
        """The scores of scope CLUSTER, and those to normalise, that make a difference."""
        vectors, nodes = self._vectors, ScoredNodes(self._cycle.cluster, values)
        differing = [one for one in vectors.normalized if vectors.differs(one.name, self._columns)]
        self._points.begin("PreScore")
        of_cluster = [one for one in self._plan.cluster_scores if contributes(one, self._cycle, nodes)]
        if of_cluster:
            self._scored = (*vectors.names, *(one.name for one in of_cluster))
        self._points.end()
        return differing + of_cluster

    # What the nodes answer.

    def _best(self) -> int:
        """The best row that fits by every plugin's last word; -1 without any."""
        self._columns.sort()
        states, values = self._cycle.cluster.states, self._values
        self._misses, rated_at = states.misses, None
        while True:
            if rated_at is not None and states.misses - rated_at >= MOST_BETTER:
                rated_at = None
                if (row := self._best_rated()) >= 0:
                    return row
            row = self._first(values)
            if row < 0 or states.misses - self._misses >= MOST_ADMISSIONS:
                return -1
            if self._confirmed(row, values):
                return row
            if rated_at is None and values[row] > NEVER:
                rated_at = states.misses  # It fits, but others may be better.

    def _best_rated(self) -> int:
        """The best row of those whose scores are no estimates; -1 without any."""
        rated = np.zeros(len(self._values), np.bool_)
        rated[list(self._asked)] = True
        if not self._detailed:
            verified = [number for number, verdict in self._vectors.states.items() if verdict.verified]
            rated |= np.isin(self._columns.state, np.array(verified))
        values = np.where(rated, self._values, NEVER)
        while (row := self._first(values)) >= 0:
            if self._confirmed(row, values):
                break
        return row

    def _first(self, values: Scores) -> int:
        """The row with the highest score, with the fewest pods, first by name; -1 without any."""
        count, order = len(self._columns.names), self._columns.order
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
        cycle, node = self._cycle, self._cycle.cluster.by_row[row]
        assert node is not None
        for one in self._plan.inexact:
            self._points.begin("Filter")
            rejection = one.plugin.filter(cycle, node)
            self._points.end()
            if rejection is not None:
                self._reject(row, one, rejection, values)
                return False
        if self._nominated and (rejection := trials.beside_nominated(cycle.filters, cycle, node)):
            # The values are a copy.
            self._beside[row], values[row] = rejection, NEVER
            self._blame[row] = next(one.number for one in self._plan.filters if one.name == rejection.plugin)
            return False
        return not self._vectors.estimated or self._rescored(row, node, values)

    def _reject(self, row: int, one: FilterForms, rejection: Rejection, values: Scores) -> None:
        rows, vectors = np.array([row]), self._vectors
        if one.for_state is not None and one.for_state(self._cycle, rejection):
            state = int(self._columns.state[row])
            vectors.states[state].blame = one.number
            rows = np.flatnonzero((self._columns.state == state) & (values > NEVER))
        if one.scope is Scope.ROW:
            vectors.reject(rows[vectors.total[rows] > NEVER], one.number)
        values[rows], self._blame[rows] = NEVER, one.number

    def _rescored(self, row: int, node: NodeInfo, values: Scores) -> bool:
        """Replace estimates by what the scores say of the node; whether it stays the best.

        Values are those that are computed where nothing was an estimate, to the last bit.
        """
        state, vectors = int(self._columns.state[row]), self._vectors
        verdict = vectors.states[state]
        if verdict.verified or (self._detailed and row in self._asked):
            return True
        self._points.begin("Score")
        exact = sum(one.weight * one.plugin.score(self._cycle, node) for one in vectors.estimated)
        self._points.end()
        change, score = exact - verdict.estimate, verdict.fixed + exact
        if self._detailed:
            self._asked.add(row)
        else:
            verdict.verified, verdict.score, verdict.estimate = True, score, exact
        if not change:
            return True
        rows = np.array([row]) if self._detailed else np.flatnonzero(self._columns.state == state)
        rows = rows[vectors.total[rows] > NEVER]
        total = vectors.total_with(rows, score)
        if not self._detailed:
            vectors.total[rows] = total
        if self._detailed or values is not vectors.total:
            late = 0.0 if self._late_scores is None else self._late_scores[rows]
            values[rows] = np.where(values[rows] > NEVER, total + late, NEVER)
        return abs(change) <= _ROUNDING


# The attempts of waiting pods, in portions.


MOST_KEPT: Final = 8
"""Attempts kept; one takes up to 1 MB where 5,000 nodes reject a pod for different reasons."""
MANY_REASONS: Final = 1024
"""Different reasons after which PostFilter waits for the next portion: finding these took 15 ms."""
_Positions: TypeAlias = tuple[int, int]


class Attempts:
    """Makes an attempt for a waiting pod, or its next portion; nothing is claimed.

    An attempt that found no node is kept while preemption goes on: the next one would find the same, and to
    find out again why each of 5,000 nodes rejects a pod takes 10 to 20 ms, as much as a portion itself. It
    holds until a row changes, a node is nominated, or `clear`, due at every event.
    """

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[PodInfo, _Positions, Attempt]] = {}
        self._popped: Attempt | None = None
        """The attempt that was used again last; None where it was a new one."""

    def attempt(self, waiting: Waiting, profile: Profile) -> tuple[Attempt, Nomination | NotNominated | None]:
        """Return the attempt, and of one that found no node what the PostFilter plugins say.

        Raises what a plugin raises.
        """
        cluster, info, result = self._cluster, waiting.info, None
        tried = self.pop(info)
        if tried is None and (nominated := cluster.nominations.of(waiting.uid)):
            tried = attempt(profile, cluster, info, frozenset({nominated}), JUDGED_AT_ONCE)
            if tried.node is None and not tried.unfinished:
                tried = None
        tried = tried or attempt(profile, cluster, info, most_judged=JUDGED_AT_ONCE)
        if tried.node is None and not tried.unfinished and cluster.count():
            result = self._post_filtered(waiting, profile, tried)
            if isinstance(result, NotNominated) and result.unfinished:
                self.keep(info, tried)
                tried = Attempt(tried.cycle, unfinished=True)
        return tried, result

    def _post_filtered(self, waiting: Waiting, profile: Profile, tried: Attempt) -> Nomination | NotNominated:
        """Ask the PostFilter plugins until one nominates a node; messages of the others are joined.

        They have a portion of their own after a search for many reasons.
        """
        waiting.rejected = not waiting.rejected and self._is_worth_a_portion(tried)
        if waiting.rejected:
            return NotNominated("", keep=True, unfinished=True)
        points, result, messages = self._cluster.points, NotNominated(""), []
        points.begin("PostFilter")
        for plugin in profile.post_filters:
            answer = plugin.post_filter(tried.cycle, tried.rejections)
            if isinstance(answer, Nomination) or answer.unfinished:
                points.end(SUCCESS if isinstance(answer, Nomination) else UNSCHEDULABLE)
                return answer
            messages.append(answer.message)
            keep, plugins = result.keep or answer.keep, result.plugins | answer.plugins
            result = NotNominated(" ".join(messages), keep=keep, plugins=plugins)
        points.end(UNSCHEDULABLE)
        return result

    # Attempts that found no node, by pod, while preemption goes on.

    def clear(self) -> None:
        """Forget kept attempts: an event may have changed anything."""
        if self._kept:
            self._kept.clear()

    def _is_worth_a_portion(self, tried: Attempt) -> bool:
        """Whether it took long to find out why the nodes reject the pod, and that can be kept."""
        many = len(tried.rejections.groups) > MANY_REASONS
        return many and tried is not self._popped and self._can_keep(tried)

    def _can_keep(self, tried: Attempt) -> bool:
        """Whether it is an attempt on all nodes, while none is nominated for a pod."""
        return not self._cluster.nominations and tried.cycle.only is None

    def keep(self, info: PodInfo, tried: Attempt) -> None:
        """Keep an attempt, if it may be kept at all."""
        if not self._can_keep(tried):
            return
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[info.uid] = info, _positions(self._cluster), tried

    def pop(self, info: PodInfo) -> Attempt | None:
        """Return the attempt of a pod, if the next one would find the same; it is kept no longer."""
        self._popped = None
        if info.uid not in self._kept:
            return None
        of, positions, tried = self._kept.pop(info.uid)
        holds = of is info and positions == _positions(self._cluster) and not self._cluster.nominations
        self._popped = tried if holds else None
        return self._popped


def _positions(cluster: NodeCache) -> _Positions:
    """Where the logs of changes are."""
    return cluster.columns.nodes_log.position, cluster.columns.pods_log.position
