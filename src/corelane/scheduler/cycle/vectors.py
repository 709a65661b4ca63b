"""Feasibility and scores of one pod shape over all nodes, computed again only for rows that changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from corelane.scheduler.cluster.columns import Columns, Mask, RowKind, Rows, Scores, sorted_values
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import Shape
from corelane.scheduler.framework.plugin import Cycle, Depends, Skip
from corelane.scheduler.framework.profile import FilterForms, KindFilter, KindScore, ScoreForms

NEVER: Final = -np.inf
"""Score of a row that a filter rejects."""
_MANY: Final = 256
ROWS_AT_ONCE: Final = 1024
"""Rows computed in one attempt where a plugin is asked row by row."""
_NO_ROWS: Final = np.zeros(0, dtype=np.intp)
_MOST_STATES: Final = 16_384
_MOST_KINDS: Final = 1024


# What plugins that look at amounts and CPUs only say of kinds of rows, asked once for each kind.
#
# They are asked in plain numbers (`FilterForms.of_kind`, `ScoreForms.of_kind`): numpy takes a microsecond for
# each of some fifty calls, however few rows there are.


@dataclass(slots=True, eq=False)
class StateVerdict:
    """The answer of plugins that depend on CPUS only, for a canonical state."""

    blame: int
    score: float
    """The sum of the next two."""
    fixed: float
    estimate: float
    """The part of the score that is an estimate, until it is `verified`."""
    verified: bool = False
    """Whether the estimate was replaced by what a node in this state answered."""


@dataclass(slots=True, eq=False)
class KindVerdict:
    """The answer for a kind of rows, but for their Node objects."""

    of_state: StateVerdict
    blame: int
    """Number of the filter of amounts that rejects, 0 for none."""
    score: float
    """The weighted sum of the scores of amounts."""


@dataclass(slots=True, frozen=True)
class KindForms:
    """The plugins of one shape that depend on pods, as they are asked about kinds."""

    filters: tuple[tuple[int, KindFilter], ...]
    scores: tuple[tuple[float, KindScore], ...]

    @classmethod
    def of(cls, filters: Iterable[FilterForms], scores: Iterable[ScoreForms]) -> "KindForms | None":
        """Return the forms of these plugins; None where one of them has none."""
        # Rooms last, as in `ShapeVectors._put_blame`: the first filter that rejects has the blame.
        of_pods = sorted(
            (one for one in filters if one.depends_on_pods), key=lambda one: one.room is not None
        )
        scored = [one for one in scores if one.depends is Depends.PODS]
        passes = tuple((one.number, one.of_kind) for one in of_pods if one.of_kind)
        values = tuple((one.weight, one.of_kind) for one in scored if one.of_kind)
        complete = len(passes) == len(of_pods) and len(values) == len(scored)
        return cls(passes, values) if complete else None

    def blame(self, cycle: Cycle, kind: RowKind) -> int:
        """Return the number of the first filter that rejects, 0 for none."""
        for number, passes in self.filters:
            if not passes(cycle, kind):
                return number
        return 0

    def score(self, cycle: Cycle, kind: RowKind) -> float:
        """Return the weighted sum of the scores."""
        total = 0.0
        for weight, scored in self.scores:
            total += weight * scored(cycle, kind)
        return total


class ShapeVectors:
    """The plugins of scope ROW over all rows, for pods of one shape that skip the same plugins.

    `total` is the weighted sum of the scores that are not normalised, `NEVER` where a filter rejects;
    `blame` the number of the filter that rejects, 0 for none.
    """

    def __init__(
        self, columns: Columns, filters: Iterable[FilterForms], scores: Iterable[ScoreForms], shape: Shape
    ) -> None:
        """`scores` are those that concern pods of the shape."""
        self._shape = shape
        """Lives as long as its vectors: else what is known of it depended on when garbage is collected."""
        filters, self.scores = tuple(filters), tuple(scores)
        summands = [part for one in self.scores for part in one.summands()]
        self.names = tuple(one.name for one in self.scores)
        self.estimated = [one for one in summands if one.estimate]
        """Scores that are upper bounds."""
        self.normalized = [one for one in self.scores if one.normalize]
        self._of_nodes, self._of_states, self._of_pods = (
            (
                [one for one in filters if one.depends is depends],
                [one for one in summands if one.depends is depends],
            )
            for depends in (Depends.NODE, Depends.CPUS, Depends.PODS)
        )
        self._rooms = [(one.number, one.room) for one in filters if one.room]
        self._by_row = any(one.by_row for one in filters) or any(one.by_row for one in self.scores)
        """Whether a plugin is asked row by row: then only so many rows are computed in one attempt."""
        self.states: dict[int, StateVerdict] = {}
        """By the id of the state."""
        self._by_kind = KindForms.of(filters, summands)
        self._kinds: dict[RowKind, KindVerdict] = {}
        """A bounded number."""
        self._differs: dict[str, bool] = {}
        self._nodes_at = self._pods_at = -1
        self._allocate(columns.capacity)

    def _allocate(self, capacity: int) -> None:
        self._rest_of_nodes = self._rest_of_pods = _NO_ROWS
        self._plain = True
        """Whether no plugin that depends on Node objects alone rejects a row, or adds to its score."""
        self.total = np.full(capacity, NEVER)
        self.blame = np.zeros(capacity, dtype=np.int16)
        self.raw = {one.name: np.zeros(capacity) for one in self.normalized}
        """Scores that are to be normalised, by plugin."""
        self._total_of_node, self._total_of_pods = np.zeros(capacity), np.zeros(capacity)
        self._blame_of_node = np.zeros(capacity, dtype=np.int16)

    def update(self, cycle: Cycle, most: int | None = None) -> bool:
        """Compute rows again that changed since the last time; return whether all are up to date.

        With `most`, at most about so many canonical states are judged; the next call goes on. Where a plugin
        raises an error, the next call computes all rows.
        """
        try:
            return self._update(cycle, most)
        except Exception:
            self._nodes_at = self._pods_at = -1
            raise

    def _update(self, cycle: Cycle, most: int | None) -> bool:
        columns = cycle.cluster.columns
        if self._by_kind is not None and self._plain and self._update_few(cycle, self._by_kind):
            return True
        of_nodes = columns.nodes_log.since(self._nodes_at)
        of_pods = columns.pods_log.since(self._pods_at)
        if len(self.states) > max(_MOST_STATES, 2 * columns.capacity):
            self.states.clear()
            self._kinds.clear()
            of_nodes = None
        if of_nodes is None or of_pods is None or len(self.total) != columns.capacity:
            self._allocate(columns.capacity)
            self._nodes_at = self._pods_at = -1
            of_nodes = of_pods = np.arange(len(columns.names))
        of_nodes = _united(of_nodes, self._rest_of_nodes)
        of_pods = _united(_united(of_nodes, of_pods), self._rest_of_pods)
        if most is not None and not self._judged(cycle, of_pods, most):
            return False
        self._nodes_at, self._pods_at = columns.nodes_log.position, columns.pods_log.position
        self._rest_of_nodes = self._rest_of_pods = _NO_ROWS
        if most is not None and self._by_row and len(of_pods) > ROWS_AT_ONCE:
            of_pods, self._rest_of_pods = of_pods[:ROWS_AT_ONCE], of_pods[ROWS_AT_ONCE:]
            left = np.isin(of_nodes, self._rest_of_pods)
            of_nodes, self._rest_of_nodes = of_nodes[~left], of_nodes[left]
        if len(of_nodes):
            self._compute_nodes(cycle, of_nodes)
        if len(of_pods):
            self._compute(cycle, of_pods)
        return not len(self._rest_of_pods)

    def _update_few(self, cycle: Cycle, plugins: KindForms) -> bool:
        """Compute the rows on which pods came or went, if these are few and nothing else changed.

        They are asked about by their kinds, and no Node object makes a difference.
        """
        columns, by_kind = cycle.cluster.columns, self._kinds
        rows = columns.pods_log.few_since(self._pods_at, _MANY)
        if rows is None or self._nodes_at != columns.nodes_log.position or len(self.states) > _MOST_STATES:
            return False
        if len(self._rest_of_pods) or len(self.total) != columns.capacity or columns.has_gaps:
            return False
        self._pods_at = columns.pods_log.position
        kinds = columns.kinds.of(columns, rows)
        verdicts: list[Any] = [by_kind.get(kind) for kind in kinds]
        if None in verdicts:
            new = self._judge_kinds(cycle, plugins, rows, kinds)
            verdicts = [new.get(kind) or by_kind[kind] for kind in kinds]
            if len(by_kind) + len(new) > _MOST_KINDS:
                by_kind.clear()
            by_kind.update(new)
        blames = [one.of_state.blame or one.blame for one in verdicts]
        values = [
            NEVER if blame else one.of_state.score + one.score
            for one, blame in zip(verdicts, blames, strict=True)
        ]
        at = np.array(rows, dtype=np.intp)
        self.total[at], self.blame[at] = values, blames
        self._total_of_pods[at] = [one.score for one in verdicts]
        return True

    def update_only(self, cycle: Cycle, rows: Rows) -> None:
        """Compute a few rows, whatever the others are: these stay to be computed."""
        if len(self.total) != cycle.cluster.columns.capacity:
            self._allocate(cycle.cluster.columns.capacity)
            self._nodes_at = self._pods_at = -1
        try:
            if len(rows):
                self._compute_nodes(cycle, rows)
                self._compute(cycle, rows)
        except Exception:
            self._nodes_at = self._pods_at = -1
            raise

    def _judged(self, cycle: Cycle, rows: Rows, most: int) -> bool:
        """Judge `most` of the states that are new here; return whether few are left to be judged."""
        if len(rows) <= most:
            return True
        columns = cycle.cluster.columns
        rows = rows[columns.topology.live[rows]]
        ids, first = np.unique(columns.state[rows], return_index=True)
        numbers: list[int] = ids.tolist()
        missing = [i for i, number in enumerate(numbers) if number not in self.states]
        if len(missing) <= most:
            return True
        del missing[most:]
        self._judge(cycle, rows[first[missing]], [numbers[i] for i in missing])
        return False

    def _compute_nodes(self, cycle: Cycle, rows: Rows) -> None:
        """Compute what follows from Node objects alone; for rows without one, filter -1 rejects."""
        self._blame_of_node[rows] = -1
        rows = rows[cycle.cluster.columns.topology.live[rows]]
        blame = np.zeros(len(rows), dtype=np.int16)
        filters, scores = self._of_nodes
        self._put_blame(cycle, rows, filters, blame)
        total = self._sum(cycle, rows, scores)
        self._blame_of_node[rows], self._total_of_node[rows] = blame, total
        self._plain &= not (np.count_nonzero(blame) or np.count_nonzero(total))

    def _compute(self, cycle: Cycle, rows: Rows) -> None:
        columns = cycle.cluster.columns
        if columns.has_gaps:
            # No filter is asked about a row without a Node: nothing is known of it.
            live = columns.topology.live[rows]
            gone, rows = rows[~live], rows[live]
            self.total[gone], self.blame[gone] = NEVER, -1
        if not len(rows):
            return
        blame, total = self._blame_of_node[rows], self._total_of_node[rows]
        total += self._by_state(cycle, rows, blame)
        filters, scores = self._of_pods
        self._put_blame(cycle, rows, filters, blame)
        for number, room in self._rooms:
            _put(blame, room(cycle, columns, rows), number)
        self._total_of_pods[rows] = of_pods = self._sum(cycle, rows, scores)
        total += of_pods
        if np.count_nonzero(blame):
            total[blame != 0] = NEVER
        self.total[rows], self.blame[rows] = total, blame

    def _judge_kinds(
        self, cycle: Cycle, plugins: KindForms, rows: list[int], kinds: list[RowKind]
    ) -> dict[RowKind, KindVerdict]:
        """Ask about the kinds of rows that are new here."""
        points = cycle.cluster.points
        new = {kind: row for kind, row in zip(kinds, rows, strict=True) if kind not in self._kinds}
        of_states = self._verdicts(cycle, np.array(list(new.values()), dtype=np.intp))
        points.begin("Filter")
        blames = [plugins.blame(cycle, kind) for kind in new]
        points.end()
        points.begin("Score")
        scores = [plugins.score(cycle, kind) for kind in new]
        points.end()
        return dict(zip(new, map(KindVerdict, of_states, blames, scores), strict=True))

    def _by_state(self, cycle: Cycle, rows: Rows, blame: Any) -> Scores:
        """Scores of the rows by their canonical states; puts the blame on filters that reject these."""
        ids, place = cycle.cluster.columns.state[rows], None
        if len(rows) > _MANY:
            ids, first, place = np.unique(ids, return_index=True, return_inverse=True)
            rows = rows[first]
        verdicts = self._verdicts(cycle, rows)
        score, blames = np.array([one.score for one in verdicts]), [one.blame for one in verdicts]
        if place is not None:
            score = score[place.reshape(-1)]
        if any(blames):
            blamed = np.array(blames, dtype=np.int16)
            others = blamed if place is None else blamed[place.reshape(-1)]
            blame[:] = np.where(blame == 0, others, blame)
        return score

    def _verdicts(self, cycle: Cycle, rows: Rows) -> list[StateVerdict]:
        """Return the verdicts on the canonical states of rows."""
        numbers: list[int] = cycle.cluster.columns.state[rows].tolist()
        states = self.states
        if missing := {number: i for i, number in enumerate(numbers) if number not in states}:
            self._judge(cycle, rows[list(missing.values())], list(missing))
        return [states[number] for number in numbers]

    def _judge(self, cycle: Cycle, rows: Rows, numbers: list[int]) -> None:
        blame = np.zeros(len(rows), dtype=np.int16)
        filters, scores = self._of_states
        self._put_blame(cycle, rows, filters, blame)
        estimate = self._sum(cycle, rows, [one for one in scores if one.estimate])
        fixed = self._sum(cycle, rows, [one for one in scores if not one.estimate])
        parts = ((fixed + estimate).tolist(), fixed.tolist(), estimate.tolist())
        for number, *verdict in zip(numbers, blame.tolist(), *parts, strict=True):
            self.states[number] = StateVerdict(*verdict)

    @staticmethod
    def _put_blame(cycle: Cycle, rows: Rows, filters: Iterable[FilterForms], blame: Any) -> None:
        points, columns = cycle.cluster.points, cycle.cluster.columns
        points.begin("Filter")
        for one in filters:
            _put(blame, one.feasible(cycle, columns, rows), one.number)
        points.end()

    def _sum(self, cycle: Cycle, rows: Rows, scores: Iterable[ScoreForms]) -> Scores:
        """The weighted sum; scores that are to be normalised go to `raw`."""
        points, columns = cycle.cluster.points, cycle.cluster.columns
        points.begin("Score")
        total = np.zeros(len(rows))
        for one in scores:
            if one.name in self.raw:
                self.raw[one.name][rows] = one.scores(cycle, columns, rows)
                self._differs.pop(one.name, None)
            else:
                total += one.weight * one.scores(cycle, columns, rows)
        points.end()
        return total

    def differs(self, name: str, columns: Columns) -> bool:
        """Return whether the scores of a plugin that normalises differ at all."""
        differs = self._differs.get(name)
        if differs is None:
            live = self.raw[name][columns.live_rows()]
            differs = self._differs[name] = bool(len(live)) and bool(live.min() != live.max())
        return differs

    def total_with(self, rows: Rows, score: float) -> Scores:
        """Return what the total of rows is with this score of their canonical state."""
        total: Scores = self._total_of_node[rows] + score + self._total_of_pods[rows]
        return total

    def reject(self, rows: Rows, number: int) -> None:
        """Take note that a filter rejects rows after all."""
        self.total[rows], self.blame[rows] = NEVER, number


def _put(blame: Any, passed: Mask, number: int) -> None:
    """Put the blame for rows that do not pass on a filter, unless an earlier one has it."""
    if np.count_nonzero(passed) < len(passed):
        blame[~passed & (blame == 0)] = number


def _united(some: Rows, others: Rows) -> Rows:
    """Rows that are in one of two ascending arrays, or in both."""
    if not len(some):
        return others
    return sorted_values(np.concatenate((some, others))) if len(others) else some


def contributes(score: ScoreForms, cycle: Cycle, nodes: Sequence[NodeInfo]) -> bool:
    """Return whether a Score concerns the pod."""
    return score.pre_score is None or not isinstance(score.pre_score(cycle, nodes), Skip)


class ScoredNodes(Sequence[NodeInfo]):
    """The nodes with a score, as a sequence that costs nothing before it is read."""

    def __init__(self, cluster: NodeCache, values: Scores) -> None:
        self._cluster, self._values = cluster, values

    @cached_property
    def _rows(self) -> Rows:
        return np.flatnonzero(self._values > NEVER)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._cluster.by_row[row] for row in self._rows[index]]
        return self._cluster.by_row[self._rows[index]]
