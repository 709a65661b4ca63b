"""Feasibility and scores of one pod shape over all nodes, computed again only for rows that changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from corelane.scheduler.cluster.columns import Columns, Mask, RowKind, Rows, Scores, sorted_values
from corelane.scheduler.cluster.pods import Shape
from corelane.scheduler.framework.plugin import Cycle, Depends, FilterPlugin, ScorePlugin

NumberedForm: TypeAlias = tuple[int, Callable[[Cycle, Columns, Rows], Mask]]
"""A filter's number in the profile, and its form over rows."""
WeightedForm: TypeAlias = tuple[str, float, Callable[[Cycle, Columns, Rows], Scores]]
"""A score's name and weight, and its form over rows."""


def feasible(plugin: FilterPlugin, cycle: Cycle, rows: Rows) -> Mask:
    """Return which of the rows a Filter may pass, by its vectorised form or row by row."""
    return filter_of(plugin)(cycle, cycle.cluster.columns, rows)


def scores(plugin: ScorePlugin, cycle: Cycle, rows: Rows) -> Scores:
    """Return the scores of a Score for rows, not normalised, by its vectorised form or row by row."""
    return score_of(plugin)(cycle, cycle.cluster.columns, rows)


def filter_of(plugin: FilterPlugin) -> Callable[[Cycle, Columns, Rows], Mask]:
    """The vectorised form of a Filter, or one that asks it row by row."""

    def by_row(cycle: Cycle, _columns: Columns, rows: Rows) -> Mask:
        nodes = cycle.cluster.by_row
        passed = (plugin.filter(cycle, node) is None for row in rows if (node := nodes[row]))
        return np.fromiter(passed, dtype=np.bool_, count=len(rows))

    found: Callable[[Cycle, Columns, Rows], Mask] = getattr(plugin, "feasible", by_row)
    return found


def score_of(plugin: ScorePlugin) -> Callable[[Cycle, Columns, Rows], Scores]:
    """The vectorised form of a Score, or one that asks it row by row."""

    def by_row(cycle: Cycle, _columns: Columns, rows: Rows) -> Scores:
        nodes = cycle.cluster.by_row
        values = (plugin.score(cycle, node) for row in rows if (node := nodes[row]))
        return np.fromiter(values, dtype=np.float64, count=len(rows))

    found: Callable[[Cycle, Columns, Rows], Scores] = getattr(plugin, "scores", by_row)
    return found


def is_exact(plugin: FilterPlugin) -> bool:
    """Return whether what a Filter says over columns needs no second question."""
    return not hasattr(plugin, "feasible") or bool(getattr(plugin, "exact", False))


def is_estimate(plugin: ScorePlugin) -> bool:
    """Return whether a Score over columns is an upper bound only."""
    return hasattr(plugin, "scores") and not getattr(plugin, "exact", True)


def normalizes(plugin: ScorePlugin) -> bool:
    """Return whether scores must be normalised over all nodes that fit."""
    return hasattr(plugin, "normalize")


def parts_of(plugin: ScorePlugin) -> Sequence[ScorePlugin]:
    """The summands of a score that depend on different things; most have one, the score itself."""
    summands: Sequence[ScorePlugin] = getattr(plugin, "parts", (plugin,))
    return summands


def depends_on(plugin: Any) -> Depends:
    """What counts most for a plugin: pods, unless it depends on Node objects or canonical states alone."""
    found: Depends = getattr(plugin, "depends", Depends.PODS)
    return found if found in (Depends.NODE, Depends.CPUS) else Depends.PODS


# What plugins that look at amounts and CPUs only say of kinds of rows, asked once for each kind.
#
# They are asked in plain numbers (`passes_kind`, `score_of_kind`): numpy takes a microsecond for each of
# some fifty calls, however few rows there are.


Passes: TypeAlias = Callable[[Cycle, RowKind], bool]
Scored: TypeAlias = Callable[[Cycle, RowKind], float]
_MOST: Final = 1024


@dataclass(slots=True, eq=False)
class StateVerdict:
    """What plugins that depend on CPUS only say of a canonical state."""

    blame: int
    score: float
    estimate: float = 0.0
    """The part of the score that is an estimate."""
    verified: bool = False
    """Whether the estimate was replaced by what a node in this state answered."""


@dataclass(slots=True, eq=False)
class KindVerdict:
    """What is said of a kind of rows, but for their Node objects."""

    of_state: StateVerdict
    blame: int
    """Number of the filter of amounts that rejects, 0 for none."""
    score: float
    """The weighted sum of the scores of amounts."""


@dataclass(slots=True, frozen=True)
class KindForms:
    """The plugins of one shape that depend on pods, as they are asked about kinds."""

    filters: tuple[tuple[int, Passes], ...]
    scores: tuple[tuple[float, Scored], ...]

    @classmethod
    def of(
        cls, filters: Sequence[tuple[int, FilterPlugin]], scores: Iterable[tuple[ScorePlugin, float]]
    ) -> "KindForms | None":
        """Return the forms of these plugins; None where one of them has none."""
        of_pods: list[tuple[int, Any]] = [one for one in filters if depends_on(one[1]) is Depends.PODS]
        passes = [(number, getattr(one, "passes_kind", None)) for number, one in of_pods]
        with_room: list[tuple[int, Any]] = [one for one in filters if depends_on(one[1]) is Depends.CPUS]
        passes += [(i, getattr(one, "room_of_kind", None)) for i, one in with_room if hasattr(one, "room")]
        scored = [
            (weight, None if normalizes(one) else getattr(one, "score_of_kind", None))
            for one, weight in scores
            if depends_on(one) is Depends.PODS
        ]
        if any(one is None for _, one in (*passes, *scored)):
            return None
        return cls(tuple(passes), tuple(scored))  # type: ignore[arg-type]

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


class KindVerdicts(dict[RowKind, KindVerdict]):
    """What was said, by kind; a bounded number."""

    __slots__ = ()

    def keep(self, verdicts: Mapping[RowKind, KindVerdict]) -> None:
        if len(self) + len(verdicts) > _MOST:
            self.clear()
        self.update(verdicts)


NEVER: Final = -np.inf
"""Score of a row that a filter rejects."""
_PARTS: Final = (Depends.NODE, Depends.CPUS, Depends.PODS)
_MANY: Final = 256
ROWS_AT_ONCE: Final = 1024
"""Rows computed in one attempt where a plugin is asked row by row."""
_NO_ROWS: Final = np.zeros(0, dtype=np.intp)
_MOST_STATES: Final = 16_384


class ShapeVectors:
    """The plugins of scope ROW over all rows, for pods of one shape that skip the same plugins.

    `total` is the weighted sum of the scores that are not normalised, `NEVER` where a filter rejects;
    `blame` the number of the filter that rejects, 0 for none.
    """

    __slots__ = (
        "_blame_of_node",
        "_by_kind",
        "_by_row",
        "_cpus",
        "_differs",
        "_estimates",
        "_exact",
        "_kinds",
        "_nodes",
        "_nodes_at",
        "_plain",
        "_pods",
        "_pods_at",
        "_rest_of_nodes",
        "_rest_of_pods",
        "_rooms",
        "_shape",
        "_total_of_node",
        "blame",
        "estimated",
        "names",
        "normalized",
        "raw",
        "states",
        "total",
        "weighted",
    )

    def __init__(
        self,
        columns: Columns,
        filters: Sequence[tuple[int, FilterPlugin]],
        weighted: Sequence[tuple[ScorePlugin, float]],
        shape: Shape,
    ) -> None:
        self._shape = shape
        """Lives as long as its vectors: else what is known of it depended on when garbage is collected."""
        parts = [(part, weight) for plugin, weight in weighted for part in parts_of(plugin)]
        self._nodes, self._cpus, self._pods = (
            (
                [(number, filter_of(one)) for number, one in filters if depends_on(one) is part],
                [(one.name, weight, score_of(one)) for one, weight in parts if depends_on(one) is part],
            )
            for part in _PARTS
        )
        self.weighted = weighted
        self.names = tuple(plugin.name for plugin, _ in weighted)
        self.estimated = [one for one in parts if is_estimate(one[0])]
        """Scores that are upper bounds, and their weights."""
        self.normalized = [one for one in weighted if normalizes(one[0])]
        self._by_row = not all(hasattr(one, "feasible") for _, one in filters) or not all(
            hasattr(one, "scores") for one, _ in weighted
        )
        """Whether a plugin is asked row by row: then only so many rows are computed in one attempt."""
        of_cpus = [one for one in filters if depends_on(one[1]) is Depends.CPUS]
        self._rooms = [(number, one.room) for number, one in of_cpus if hasattr(one, "room")]
        by_cpus = [one for one in parts if depends_on(one[0]) is Depends.CPUS]
        self._estimates, self._exact = (
            [(one.name, weight, score_of(one)) for one, weight in by_cpus if is_estimate(one) is estimate]
            for estimate in (True, False)
        )
        self.states: dict[int, StateVerdict] = {}
        """By the id of the state."""
        self._by_kind, self._kinds = KindForms.of(filters, parts), KindVerdicts()
        self._differs: dict[str, bool] = {}
        self._nodes_at = self._pods_at = -1
        self._allocate(columns.capacity)

    def _allocate(self, capacity: int) -> None:
        self._rest_of_nodes = self._rest_of_pods = _NO_ROWS
        self._plain = True
        """Whether no plugin that depends on Node objects alone rejects a row, or adds to its score."""
        self.total = np.full(capacity, NEVER)
        self.blame = np.zeros(capacity, dtype=np.int16)
        self.raw = {plugin.name: np.zeros(capacity) for plugin, _ in self.normalized}
        """Scores that are to be normalised, by plugin."""
        self._total_of_node = np.zeros(capacity)
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
        columns, known = cycle.cluster.columns, self._kinds
        rows = columns.pods_log.few_since(self._pods_at, _MANY)
        if rows is None or self._nodes_at != columns.nodes_log.position or len(self.states) > _MOST_STATES:
            return False
        if len(self._rest_of_pods) or len(self.total) != columns.capacity or columns.has_gaps:
            return False
        self._pods_at = columns.pods_log.position
        kinds = columns.kinds.of(columns, rows)
        verdicts: list[Any] = [known.get(kind) for kind in kinds]
        if None in verdicts:
            new = self._judge_kinds(cycle, plugins, rows, kinds)
            verdicts = [new.get(kind) or known[kind] for kind in kinds]
            known.keep(new)
        blames = [one.of_state.blame or one.blame for one in verdicts]
        values = [
            NEVER if blame else one.of_state.score + one.score
            for one, blame in zip(verdicts, blames, strict=True)
        ]
        at = np.array(rows, dtype=np.intp)
        self.total[at], self.blame[at] = values, blames
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
        """What follows from Node objects alone; rows without one are as if filter -1 rejected them."""
        self._blame_of_node[rows] = -1
        rows = rows[cycle.cluster.columns.topology.live[rows]]
        blame = np.zeros(len(rows), dtype=np.int16)
        self._put_blame(cycle, rows, self._nodes[0], blame)
        total = self._sum(cycle, rows, self._nodes[1])
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
        self._blame_pods(cycle, rows, blame)
        total += self._sum(cycle, rows, self._pods[1])
        if np.count_nonzero(blame):
            total[blame != 0] = NEVER
        self.total[rows], self.blame[rows] = total, blame

    def _judge_kinds(
        self, cycle: Cycle, plugins: KindForms, rows: list[int], kinds: list[RowKind]
    ) -> dict[RowKind, KindVerdict]:
        """Ask about the kinds of rows that are new here."""
        points, known = cycle.cluster.points, self._kinds
        new = {kind: row for kind, row in zip(kinds, rows, strict=True) if kind not in known}
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
            _blame_also(blame, blamed if place is None else blamed[place.reshape(-1)])
        return score

    def _verdicts(self, cycle: Cycle, rows: Rows) -> list[StateVerdict]:
        """What is said of the canonical states of rows."""
        numbers: list[int] = cycle.cluster.columns.state[rows].tolist()
        known = self.states
        if missing := {number: i for i, number in enumerate(numbers) if number not in known}:
            self._judge(cycle, rows[list(missing.values())], list(missing))
        return [known[number] for number in numbers]

    def _judge(self, cycle: Cycle, rows: Rows, numbers: list[int]) -> None:
        blame = np.zeros(len(rows), dtype=np.int16)
        self._put_blame(cycle, rows, self._cpus[0], blame)
        estimate = self._sum(cycle, rows, self._estimates)
        score = self._sum(cycle, rows, self._exact) + estimate
        for i, number in enumerate(numbers):
            self.states[number] = StateVerdict(int(blame[i]), float(score[i]), float(estimate[i]))

    def _blame_pods(self, cycle: Cycle, rows: Rows, blame: Any) -> None:
        """Put the blame on filters that depend on pods."""
        self._put_blame(cycle, rows, self._pods[0], blame)
        for number, room in self._rooms:
            _put(blame, room(cycle, cycle.cluster.columns, rows), number)

    @staticmethod
    def _put_blame(cycle: Cycle, rows: Rows, filters: Sequence[NumberedForm], blame: Any) -> None:
        points, columns = cycle.cluster.points, cycle.cluster.columns
        points.begin("Filter")
        for number, passes in filters:
            _put(blame, passes(cycle, columns, rows), number)
        points.end()

    def _sum(self, cycle: Cycle, rows: Rows, weighted: Sequence[WeightedForm]) -> Scores:
        points, columns = cycle.cluster.points, cycle.cluster.columns
        points.begin("Score")
        total = np.zeros(len(rows))
        for name, weight, scored in weighted:
            if name in self.raw:
                self.raw[name][rows] = scored(cycle, columns, rows)
                self._differs.pop(name, None)
            else:
                total += weight * scored(cycle, columns, rows)
        points.end()
        return total

    def differs(self, name: str, columns: Columns) -> bool:
        """Return whether the scores of a plugin that normalises differ at all."""
        found = self._differs.get(name)
        if found is None:
            live = self.raw[name][columns.live_rows()]
            found = self._differs[name] = bool(len(live)) and bool(live.min() != live.max())
        return found

    def reject(self, rows: Rows, number: int) -> None:
        """Take note that a filter rejects rows after all."""
        self.total[rows], self.blame[rows] = NEVER, number


def _blame_also(blame: Any, others: Any) -> None:
    """Put the blame by the numbers of filters where no earlier one has it."""
    blame[:] = np.where(blame == 0, others, blame)


def _put(blame: Any, passed: Mask, number: int) -> None:
    """Put the blame for rows that do not pass on a filter, unless an earlier one has it."""
    if np.count_nonzero(passed) < len(passed):
        blame[~passed & (blame == 0)] = number


def _united(some: Rows, others: Rows) -> Rows:
    """Rows that are in one of two ascending arrays, or in both."""
    if not len(some):
        return others
    return sorted_values(np.concatenate((some, others))) if len(others) else some
