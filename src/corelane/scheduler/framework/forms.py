"""The forms in which a profile's Filter and Score plugins are asked, resolved once for each profile.

A plugin has its answer for one node, and optionally the same over rows, for kinds of rows, and by canonical
state. Where one is missing, the form here is made of the others, or None: nothing asks a plugin what it has
but this module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from corelane.scheduler.cluster.columns import Columns, Mask, RowKind, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.framework.plugin import (
    Cycle,
    DependentPlugin,
    Depends,
    DetailedScorePlugin,
    ExactPlugin,
    FilterPlugin,
    GroupingFilterPlugin,
    KindFilterPlugin,
    KindRoomPlugin,
    KindScorePlugin,
    NormalizePlugin,
    PreScorePlugin,
    Rejection,
    RoomFilterPlugin,
    Scope,
    ScorePlugin,
    Skip,
    StateFilterPlugin,
    SummedScorePlugin,
    VectorFilterPlugin,
    VectorScorePlugin,
)

RowFilter: TypeAlias = Callable[[Cycle, Columns, Rows], Mask]
RowScore: TypeAlias = Callable[[Cycle, Columns, Rows], Scores]
RowGroups: TypeAlias = Callable[[Cycle, Columns, Rows], Iterable[tuple[Rejection, Rows]]]
KindFilter: TypeAlias = Callable[[Cycle, RowKind], bool]
KindScore: TypeAlias = Callable[[Cycle, RowKind], float]
Normalize: TypeAlias = Callable[[Cycle, Scores], Scores]
PreScore: TypeAlias = Callable[[Cycle, Sequence[NodeInfo]], Skip | None]
Details: TypeAlias = Callable[[Cycle, NodeInfo], Mapping[str, float]]
ForState: TypeAlias = Callable[[Cycle, Rejection], bool]


@dataclass(frozen=True, slots=True)
class FilterForms:
    """A Filter; `number` is its place in the profile, from 1."""

    number: int
    plugin: FilterPlugin
    name: str
    scope: Scope
    depends: Depends
    exact: bool
    """Whether `feasible` needs no second question."""
    by_row: bool
    """Whether `feasible` asks the plugin about each node."""
    feasible: RowFilter
    groups: RowGroups
    """Rows that the Filter rejects, by their rejection."""
    grouping: bool
    """Whether `groups` is the plugin's own, which costs little for each row."""
    room: RowFilter | None
    """Of a Filter that depends on CPUS: what also depends on pods."""
    of_kind: KindFilter | None
    """What `feasible`, or where there is one `room`, says of a kind of rows."""
    for_state: ForState | None

    @property
    def depends_on_pods(self) -> bool:
        return self.depends is Depends.PODS or self.room is not None


@dataclass(frozen=True, slots=True)
class ScoreForms:
    """A Score and its weight; `parts` have what differs in what it depends on, most have none."""

    plugin: ScorePlugin
    name: str
    weight: float
    scope: Scope
    depends: Depends
    estimate: bool
    """Whether `scores` are upper bounds only."""
    by_row: bool
    """Whether `scores` asks the plugin about each node."""
    scores: RowScore
    of_kind: KindScore | None
    normalize: Normalize | None
    pre_score: PreScore | None
    details: Details | None
    parts: "tuple[ScoreForms, ...]"

    def summands(self) -> "tuple[ScoreForms, ...]":
        """Return the parts, or the score itself."""
        return self.parts or (self,)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plugins of a profile for pods that skip some, sorted by how they are asked."""

    profile: str
    skipped: frozenset[str]
    pre_filters: tuple[str, ...]
    """Names of those that did not skip."""
    filters: tuple[FilterForms, ...]
    plugins: tuple[FilterPlugin, ...]
    row_filters: tuple[FilterForms, ...]
    cluster_filters: tuple[FilterForms, ...]
    inexact: tuple[FilterForms, ...]
    """Filters that are asked about finalists."""
    row_scores: tuple[ScoreForms, ...]
    cluster_scores: tuple[ScoreForms, ...]


@dataclass(frozen=True, slots=True)
class PluginForms:
    """The Filters and Scores of a profile."""

    filters: tuple[FilterForms, ...]
    scores: tuple[ScoreForms, ...]

    def plan(self, profile: str, pre_filters: Iterable[str], skipped: frozenset[str]) -> Plan:
        """Return the plan for pods that skip the plugins of these names."""
        filters = tuple(one for one in self.filters if one.name not in skipped)
        return Plan(
            profile,
            skipped,
            tuple(name for name in pre_filters if name not in skipped),
            filters,
            tuple(one.plugin for one in filters),
            tuple(one for one in filters if one.scope is Scope.ROW),
            tuple(one for one in filters if one.scope is Scope.CLUSTER),
            tuple(one for one in filters if not one.exact),
            tuple(one for one in self.scores if one.scope is Scope.ROW),
            tuple(one for one in self.scores if one.scope is Scope.CLUSTER),
        )


def resolve(filters: Iterable[FilterPlugin], scores: Iterable[tuple[ScorePlugin, float]]) -> PluginForms:
    """Return the forms of plugins with checked answers, in their order."""
    return PluginForms(
        tuple(filter_forms(plugin, number) for number, plugin in enumerate(filters, 1)),
        tuple(score_forms(plugin, weight) for plugin, weight in scores),
    )


def filter_forms(plugin: FilterPlugin, number: int = 1) -> FilterForms:
    """Return the forms of one Filter."""
    depends, over_rows = _depends(plugin), isinstance(plugin, VectorFilterPlugin)
    room = plugin.room if depends is Depends.CPUS and isinstance(plugin, RoomFilterPlugin) else None
    of_kind: KindFilter | None = None
    if depends is Depends.PODS and isinstance(plugin, KindFilterPlugin):
        of_kind = plugin.passes_kind
    elif room is not None and isinstance(plugin, KindRoomPlugin):
        of_kind = plugin.room_of_kind
    return FilterForms(
        number,
        plugin,
        plugin.name,
        plugin.scope,
        depends,
        not over_rows or (isinstance(plugin, ExactPlugin) and bool(plugin.exact)),
        not over_rows,
        plugin.feasible if isinstance(plugin, VectorFilterPlugin) else _filter_by_row(plugin),
        plugin.rejections if isinstance(plugin, GroupingFilterPlugin) else groups_by_row(plugin),
        isinstance(plugin, GroupingFilterPlugin),
        room,
        of_kind,
        plugin.for_state if isinstance(plugin, StateFilterPlugin) else None,
    )


def score_forms(plugin: ScorePlugin, weight: float = 1.0, scope: Scope | None = None) -> ScoreForms:
    """Return the forms of one Score, and of its parts, which have its `scope`."""
    over_rows, normalizes = isinstance(plugin, VectorScorePlugin), isinstance(plugin, NormalizePlugin)
    parts = plugin.parts if isinstance(plugin, SummedScorePlugin) else ()
    return ScoreForms(
        plugin,
        plugin.name,
        weight,
        scope or plugin.scope,
        _depends(plugin),
        over_rows and isinstance(plugin, ExactPlugin) and not plugin.exact,
        not over_rows,
        plugin.scores if isinstance(plugin, VectorScorePlugin) else _score_by_row(plugin),
        plugin.score_of_kind if isinstance(plugin, KindScorePlugin) and not normalizes else None,
        plugin.normalize if isinstance(plugin, NormalizePlugin) else None,
        plugin.pre_score if isinstance(plugin, PreScorePlugin) else None,
        plugin.details if isinstance(plugin, DetailedScorePlugin) else None,
        tuple(score_forms(part, weight, plugin.scope) for part in parts),
    )


def _depends(plugin: FilterPlugin | ScorePlugin) -> Depends:
    """What counts most for a plugin: pods, unless it depends on Node objects or canonical states alone."""
    depends = plugin.depends if isinstance(plugin, DependentPlugin) else Depends.PODS
    return depends if depends in (Depends.NODE, Depends.CPUS) else Depends.PODS


def _filter_by_row(plugin: FilterPlugin) -> RowFilter:
    def feasible(cycle: Cycle, _columns: Columns, rows: Rows) -> Mask:
        nodes = cycle.cluster.by_row
        passed = (plugin.filter(cycle, node) is None for row in rows if (node := nodes[row]))
        return np.fromiter(passed, dtype=np.bool_, count=len(rows))

    return feasible


def groups_by_row(plugin: FilterPlugin) -> RowGroups:
    """Return a form that asks a Filter about each of the rows, those that it passes left out."""

    def groups(cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        alike: dict[Rejection, list[int]] = {}
        for row in rows.tolist():
            node = cycle.cluster.by_row[row]
            if rejection := plugin.filter(cycle, node) if node else None:
                alike.setdefault(rejection, []).append(row)
        for rejection, some in alike.items():
            yield rejection, np.array(some, dtype=np.intp)

    return groups


def _score_by_row(plugin: ScorePlugin) -> RowScore:
    def scores(cycle: Cycle, _columns: Columns, rows: Rows) -> Scores:
        nodes = cycle.cluster.by_row
        values = (plugin.score(cycle, node) for row in rows if (node := nodes[row]))
        return np.fromiter(values, dtype=np.float64, count=len(rows))

    return scores
