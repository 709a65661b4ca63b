"""What a search for a node says afterwards: why nodes were rejected, terms of scores, the next best nodes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from corelane.scheduler.attempts import RANKED
from corelane.scheduler.cache.columns import Rows, Scores
from corelane.scheduler.cache.nodes import NodeCache, NodeInfo
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, Rejection, ScorePlugin
from corelane.scheduler.plans import Plan, has_a_say
from corelane.scheduler.plugin_forms import is_estimate, normalizes, scores
from corelane.scheduler.vectors import NEVER, ShapeVectors

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
