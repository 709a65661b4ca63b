"""The outcome of one attempt to place a pod: the node and how it compares, or why no node fits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from corelane.reasons import Reason, sentence
from corelane.scheduler.cluster.columns import Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cycle.vectors import NEVER, ScoredNodes, ShapeVectors, contributes
from corelane.scheduler.framework.plugin import Cycle, NodeReason, Rejection, Rejections
from corelane.scheduler.framework.profile import FilterForms, Plan, ScoreForms, groups_by_row

MOST_REASONS: Final = 8
"""With more distinct reasons, their details are left out."""
RANKED: Final = 3
"""Nodes that an attempt names, the best first."""
ASKED_EACH: Final = 16
"""Groups of alike nodes asked for the record of a pod that was placed, of each plugin that has groups."""
ASKED_ALONE: Final = 256
"""Nodes asked for it of each plugin that has none."""
_NO_REJECTIONS: Final = Rejections()


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one attempt: a node, or why there is none."""

    cycle: Cycle
    node: NodeInfo | None = None
    rejected: Rejection | None = None
    """A pre-filter rejected the pod on all nodes."""
    rejections: Rejections = _NO_REJECTIONS
    """By node name; only of a pod that fits nowhere."""
    unfinished: bool = False
    """Too many nodes must be asked for one attempt: what was answered is kept, try again at once."""
    plan: Plan | None = None
    """The plugins asked after the pre-filters; None where none was."""
    scored: tuple[str, ...] = ()
    """Names of the Score plugins that concern the pod."""
    comparison: "Comparison | None" = None
    """For a pod with a node: how the nodes compare, to be read before the next change of the cluster."""

    @property
    def ranked(self) -> tuple[NodeInfo, ...]:
        """The best of the nodes that fit, `node` first."""
        return tuple(self.comparison.ranked())[:RANKED] if self.comparison else ()

    def terms(self, nodes: Iterable[NodeInfo]) -> tuple[tuple[str, float, tuple[float, ...]], ...]:
        """Return each Score's name, its weight, and its values for some of the nodes that fit."""
        return tuple(self.comparison.terms([node.row for node in nodes])) if self.comparison else ()

    @property
    def feasible(self) -> int:
        """Number of nodes that fit, or that the columns leave."""
        return int((self.comparison.values > NEVER).sum()) if self.comparison else 0

    @property
    def considered(self) -> int:
        """Number of nodes that were considered."""
        return len(rows_in_question(self.cycle)) if self.comparison else len(self.rejections)

    def groups(
        self, names: int, named: int | None = None
    ) -> Iterator[tuple[Rejection, int, tuple[str, ...]]]:
        """Yield each distinct rejection, that of most nodes first: how many nodes, and the first `names`.

        With `named`, only of so many. Of a pod that fits somewhere, a rejection without reasons stands for
        nodes that were not asked.
        """
        if self.comparison:
            yield from self.comparison.samples(names)
            return
        by_size = sorted(self.rejections.groups, key=lambda item: -len(item[1]))
        for number, (rejection, rows) in enumerate(by_size):
            first = rows[: names if named is None or number < named else 0]
            yield rejection, len(rows), tuple(self.rejections.names[row] for row in first)

    @property
    def plugins(self) -> frozenset[str]:
        """Names of the plugins that rejected the pod somewhere."""
        everywhere = {self.rejected.plugin} if self.rejected else set()
        return frozenset(everywhere.union(rejection.plugin for rejection, _ in self.rejections.groups))


# Why no node fits.


def message(attempt: Attempt, count: int) -> str:
    """Return why no node of `count` fits, in kube-scheduler's form."""
    prefix = f"0/{count} nodes are available: "
    if attempt.rejected:
        return f"{prefix}{'; '.join(map(str, attempt.rejected.reasons))}."
    # Equal rejections are mostly one object, and hashing one takes some µs: identity tells them apart.
    numbers: dict[int, tuple[Rejection, int]] = {}
    for rejection, rows in attempt.rejections.groups:
        _, number = numbers.get(id(rejection), (rejection, 0))
        numbers[id(rejection)] = rejection, number + len(rows)
    reasons = [(reason, number) for rejection, number in numbers.values() for reason in rejection.reasons]
    if not reasons:
        return "no nodes available to schedule pods"
    counts: Counter[NodeReason | Reason] = Counter()
    many = _are_many(reason for reason, _ in reasons)
    for reason, number in reasons:
        counts[reason.reason if many else reason] += number
    # Each text is made once, and details are looked at only if they are printed.
    texts: Counter[str] = Counter()
    for distinct, number in counts.items():
        texts[sentence(distinct) if isinstance(distinct, Reason) else str(distinct)] += number
    return f"{prefix}{', '.join(sorted(f'{number} {text}' for text, number in texts.items()))}."


def _are_many(reasons: Iterable[NodeReason]) -> bool:
    distinct: set[NodeReason] = set()
    for reason in reasons:
        distinct.add(reason)
        if len(distinct) > MOST_REASONS:
            return True
    return False


def grouped_rejections(
    cycle: Cycle, filters: Iterable[FilterForms], blame: Any, rows: Rows
) -> Iterator[tuple[Rejection, Rows]]:
    """Yield rejections, each once, and their rows; `blame` has the number of the filter that rejects a row.

    Equal ones are told apart as in a message.
    """
    parts: dict[int, tuple[Rejection, list[Rows]]] = {}
    for one in filters:
        blamed = rows[blame[rows] == one.number]
        if len(blamed):
            for rejection, some in one.groups(cycle, cycle.cluster.columns, blamed):
                parts.setdefault(id(rejection), (rejection, []))[1].append(some)
    for rejection, groups in parts.values():
        yield rejection, groups[0] if len(groups) == 1 else np.sort(np.concatenate(groups))


# How the nodes compare.


@dataclass(frozen=True, slots=True)
class Comparison:
    """The vectors of an attempt that chose a row; what follows from them is worked out when it is read."""

    cycle: Cycle
    plan: Plan
    vectors: ShapeVectors
    row: int
    values: Scores
    """By row, `NEVER` where the pod does not fit."""
    blame: Any
    """By row, the number of the filter that rejects it, 0 for none."""

    def ranked(self) -> Iterator[NodeInfo]:
        """The chosen node, and those that come next by what the columns say and fit."""
        left, columns = np.flatnonzero(self.values > NEVER), self.cycle.cluster.columns
        if len(left) > RANKED:
            left = left[self.values[left] >= np.partition(self.values[left], -RANKED)[-RANKED]]
        left = left[np.lexsort((columns.order[left], -self.values[left]))][:RANKED]
        for row in (self.row, *(other for other in left.tolist() if other != self.row)):
            node = self.cycle.cluster.by_row[row]
            if node is None:
                continue
            rejections = (one.plugin.filter(self.cycle, node) for one in self.plan.inexact)
            if row == self.row or not any(rejections):
                yield node

    def terms(self, rows: Sequence[int]) -> Iterator[tuple[str, float, tuple[float, ...]]]:
        """Yield each Score's name, its weight, and its last word for some of the rows that fit."""
        nodes, left = ScoredNodes(self.cycle.cluster, self.values), np.flatnonzero(self.values > NEVER)
        of_cluster = [one for one in self.plan.cluster_scores if contributes(one, self.cycle, nodes)]
        for one in (*self.vectors.scores, *of_cluster):
            values = self._final(one, np.array(rows, dtype=np.intp), left)
            yield one.name, one.weight, tuple(map(float, values))
            if one.details is None:
                continue
            # The values that make up a score weigh nothing; -1 where a node has no such value.
            placed = (self.cycle.cluster.by_row[row] for row in rows)
            details = [one.details(self.cycle, node) for node in placed if node]
            for name in next(filter(None, details), {}):
                yield f"{one.name}.{name}", 0.0, tuple(float(of_node.get(name, -1)) for of_node in details)

    def _final(self, score: ScoreForms, rows: Rows, left: Rows) -> Iterable[float]:
        cycle, columns = self.cycle, self.cycle.cluster.columns
        if score.estimate:
            nodes = (cycle.cluster.by_row[row] for row in rows)
            return [score.plugin.score(cycle, node) for node in nodes if node]
        raw = self.vectors.raw.get(score.name)
        if score.normalize is None:
            return score.scores(cycle, columns, rows) if raw is None else raw[rows]
        every = score.scores(cycle, columns, left) if raw is None else raw[left]
        return score.normalize(cycle, every)[np.searchsorted(left, rows)]

    def samples(self, names: int) -> Iterator[tuple[Rejection, int, tuple[str, ...]]]:
        """Yield for each plugin that rejects nodes: a rejection, how many, and the first `names`.

        A plugin's own groups are exact; where there are too many, the last rejection has no reasons and
        stands for the nodes that were not asked.
        """
        rows = rows_in_question(self.cycle)
        highest = max((one.number for one in self.plan.filters), default=0)
        counts = np.bincount(self.blame[rows], minlength=highest + 1)
        rejecting = [one for one in self.plan.filters if counts[one.number]]
        for one in sorted(rejecting, key=lambda one: -int(counts[one.number])):
            groups = self._grouped(one, rows[self.blame[rows] == one.number])
            for rejection, alike in sorted(groups.items(), key=lambda item: -len(item[1])):
                named = tuple(self.cycle.cluster.columns.names[row] for row in alike[:names])
                yield rejection, len(alike), named

    def _grouped(self, one: FilterForms, blamed: Rows) -> dict[Rejection, Rows]:
        """The rows by their rejection; those that were not asked by one without reasons."""
        parts: dict[Rejection, list[Rows]] = {}
        columns = self.cycle.cluster.columns
        asked = groups_by_row(self.cycle, columns, blamed[:ASKED_ALONE], one.plugin)
        if one.grouping and len(blamed) > ASKED_EACH:
            asked = islice(one.groups(self.cycle, columns, blamed), ASKED_EACH)
        for rejection, rows in asked:
            parts.setdefault(rejection, []).append(rows)
        groups = {rejection: np.sort(np.concatenate(rows)) for rejection, rows in parts.items()}
        rest = np.setdiff1d(blamed, np.concatenate([*groups.values(), blamed[:0]]), assume_unique=True)
        if len(rest):
            bare = Rejection(one.name, ())
            groups[bare] = np.sort(np.concatenate((rest, groups[bare]))) if bare in groups else rest
        return groups


def rows_in_question(cycle: Cycle) -> Rows:
    """Return the rows of all nodes, or of the only ones in question, in ascending order."""
    rows = cycle.cluster.columns.live_rows()
    if cycle.only is None:
        return rows
    return np.intersect1d(rows, rows_of(cycle.cluster, cycle.only), assume_unique=True)


def rows_of(cluster: NodeCache, names: Iterable[str]) -> Rows:
    """Return the rows of these nodes, those that exist, in ascending order."""
    rows = sorted(info.row for name in names if (info := cluster.get(name)))
    return np.array(rows, dtype=np.intp)
