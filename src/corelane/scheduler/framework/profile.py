"""A profile: the plugins that decide about pods of one schedulerName, by extension point, and their forms.

A plugin has its answer for one node, and optionally the same over rows, for kinds of rows, and by canonical
state. Where one is missing, the form here is made of the others, or None: nothing asks a plugin what it has
but this module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from corelane.scheduler.cluster.columns import Columns, Mask, RowKind, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.checked import checked
from corelane.scheduler.framework.plugin import (
    BindPlugin,
    Cycle,
    Depends,
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    Rejection,
    ReservePlugin,
    Scope,
    ScorePlugin,
    Skip,
)
from corelane.workload import SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

P = TypeVar("P")
DEFAULT_NAME: Final = "corelane-scheduler"
_ANY_CHANGE: Final[Mapping[ChangeKind, Hint]] = {~ChangeKind.NOTHING: always}
POINTS: Final[Mapping[str, Any]] = {
    "preEnqueue": PreEnqueuePlugin,
    "queueSort": QueueSortPlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "preScore": PreScorePlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
    "permit": PermitPlugin,
    "preBind": PreBindPlugin,
    "bind": BindPlugin,
    "postBind": PostBindPlugin,
}
"""Extension point to what a plugin has that is asked there."""

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
    """The part that also depends on pods, of a Filter that depends on CPUS."""
    of_kind: KindFilter | None
    """The answer of `feasible`, or where there is one `room`, for a kind of rows."""
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


class _PluginsAt(cached_property[tuple[P, ...]]):
    """The plugins of an extension point, looked up once: the check of a protocol takes 20 µs."""

    def __init__(self, point: str) -> None:
        super().__init__(lambda profile: profile.at(point))


OfPlain: TypeAlias = WeakKeyDictionary[Shape, tuple[tuple[PreFilterPlugin, ...], frozenset[str]]]


@dataclass(frozen=True)
class Profile:
    """Plugins in their order, which is the order at every extension point, and weights of their scores.

    Filters run cheap ones first. A Score without a weight counts once, with weight 0 not at all.
    """

    name: str = DEFAULT_NAME
    plugins: tuple[Plugin, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    defaults: SchedulerDefaults = NO_DEFAULTS
    """Bind, exclusive, NUMA allocation and NUMA topology policy of pods and nodes that name none."""
    points: Mapping[str, tuple[Plugin, ...]] = field(default_factory=dict)
    """Extension point, in the configuration's words, to its plugins; without it, all that have the point."""

    parts: Mapping[str, "Profile"] = field(default_factory=dict)
    """The profiles that this one unites, by name."""

    of_plain: OfPlain = field(init=False, compare=False, default_factory=WeakKeyDictionary)
    """By the shape of plain pods: the pre-filters that are asked, and the names of those that skip."""
    faults: list[tuple[str, str, Exception]] = field(init=False, compare=False, default_factory=list)
    """Plugins that failed to give their hints: plugin, method, error."""
    _plans: dict[frozenset[str], Plan] = field(init=False, compare=False, default_factory=dict)
    _hints: dict[str, Mapping[ChangeKind, Hint]] = field(init=False, compare=False, default_factory=dict)
    _with_checks: dict[int, Any] = field(init=False, compare=False, default_factory=dict)
    """Plugins with checked answers, by the plugin's identity."""

    pre_enqueue = _PluginsAt[PreEnqueuePlugin]("preEnqueue")
    pre_filters = _PluginsAt[PreFilterPlugin]("preFilter")
    filters = _PluginsAt[FilterPlugin]("filter")
    post_filters = _PluginsAt[PostFilterPlugin]("postFilter")
    reserves = _PluginsAt[ReservePlugin]("reserve")
    permits = _PluginsAt[PermitPlugin]("permit")
    pre_binds = _PluginsAt[PreBindPlugin]("preBind")
    binds = _PluginsAt[BindPlugin]("bind")
    post_binds = _PluginsAt[PostBindPlugin]("postBind")

    def of(self, info: PodInfo) -> "Profile":
        """Return the part that decides about a pod."""
        return self.parts.get(info.pod.spec.scheduler_name, self)

    @cached_property
    def filter_forms(self) -> tuple[FilterForms, ...]:
        return tuple(_filter_forms(plugin, number) for number, plugin in enumerate(self.filters, 1))

    @cached_property
    def score_forms(self) -> tuple[ScoreForms, ...]:
        return tuple(_score_forms(plugin, weight) for plugin, weight in self.scores)

    def plan(self, skipped: frozenset[str]) -> Plan:
        """Return the plan for pods that skip the plugins of these names."""
        if (plan := self._plans.get(skipped)) is not None:
            return plan
        filters, scores = self.filter_forms, self.score_forms
        filters = tuple(one for one in filters if one.name not in skipped)
        plan = self._plans[skipped] = Plan(
            self.name,
            skipped,
            tuple(one.name for one in self.pre_filters if one.name not in skipped),
            filters,
            tuple(one.plugin for one in filters),
            tuple(one for one in filters if one.scope is Scope.ROW),
            tuple(one for one in filters if one.scope is Scope.CLUSTER),
            tuple(one for one in filters if not one.exact),
            tuple(one for one in scores if one.scope is Scope.ROW),
            tuple(one for one in scores if one.scope is Scope.CLUSTER),
        )
        return plan

    @cached_property
    def queue_sort(self) -> QueueSortPlugin:
        """The first of the plugins that order the queue. Raises ValueError without any."""
        plugins: tuple[QueueSortPlugin, ...] = self.at("queueSort")
        if plugins:
            return plugins[0]
        raise ValueError(f"profile {self.name}: no plugin orders the queue; enable PrioritySort")

    @cached_property
    def scores(self) -> tuple[tuple[ScorePlugin, float], ...]:
        """Plugins with their weights, without those of weight 0."""
        weighted = ((plugin, self.weights.get(plugin.name, 1.0)) for plugin in self.at("score"))
        return tuple((plugin, weight) for plugin, weight in weighted if weight)

    def hints(self, name: str) -> Mapping[ChangeKind, Hint]:
        """Return which changes can help pods that the plugin of this name rejected.

        Every change may, where it has no hints, or fails to return them.
        """
        hints = self._hints.get(name)
        if hints is None:
            hints = _ANY_CHANGE
            plugin = next((one for one in self.plugins if one.name == name), None)
            if isinstance(plugin, EnqueueExtensions):
                try:
                    hints = self._checked(plugin).hints()
                except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
                    self.faults.append((plugin.name, "hints", error))
            self._hints[name] = hints
        return hints

    def _checked(self, plugin: Any) -> Any:
        with_checks = self._with_checks.get(id(plugin))
        if with_checks is None:
            with_checks = self._with_checks[id(plugin)] = checked(plugin)
        return with_checks

    def helped_by(self, names: Iterable[str]) -> ChangeKind:
        """Return the kinds of change that can help a pod which these plugins rejected."""
        kinds = ChangeKind.NOTHING
        for name in names:
            for kind in self.hints(name):
                kinds |= kind
        return kinds

    def at(self, point: str) -> tuple[Any, ...]:
        """Return the plugins that are asked at an extension point, with checked answers."""
        plugins = self.points.get(point, self.plugins)
        return tuple(self._checked(plugin) for plugin in plugins if isinstance(plugin, POINTS[point]))


def united(profiles: Sequence[Profile]) -> Profile:
    """Return a profile with all plugins of several; of those of one name, the first one's."""
    if len(profiles) == 1:
        return profiles[0]
    plugins = {plugin.name: plugin for profile in reversed(profiles) for plugin in profile.plugins}
    order = dict.fromkeys(plugin.name for profile in profiles for plugin in profile.plugins)
    parts = {profile.name: profile for profile in profiles}
    return Profile(profiles[0].name, tuple(plugins[name] for name in order), profiles[0].weights, parts=parts)


# The forms of one plugin with checked answers.


def _filter_forms(plugin: FilterPlugin, number: int) -> FilterForms:
    depends, feasible, groups = _depends(plugin), _member(plugin, "feasible"), _member(plugin, "rejections")
    room = _member(plugin, "room") if depends is Depends.CPUS else None
    of_kind = _member(plugin, "room_of_kind") if room else None
    return FilterForms(
        number,
        plugin,
        plugin.name,
        plugin.scope,
        depends,
        not feasible or bool(_member(plugin, "exact")),
        not feasible,
        feasible or partial(_feasible_by_row, plugin=plugin),
        groups or partial(groups_by_row, plugin=plugin),
        groups is not None,
        room,
        _member(plugin, "passes_kind") if depends is Depends.PODS else of_kind,
        _member(plugin, "for_state"),
    )


def _score_forms(plugin: ScorePlugin, weight: float, scope: Scope | None = None) -> ScoreForms:
    """Return the forms of a Score, and of its parts, which have its `scope`."""
    scores, normalize = _member(plugin, "scores"), _member(plugin, "normalize")
    return ScoreForms(
        plugin,
        plugin.name,
        weight,
        scope or plugin.scope,
        _depends(plugin),
        scores is not None and _member(plugin, "exact") not in (None, True),
        not scores,
        scores or partial(_scores_by_row, plugin=plugin),
        None if normalize else _member(plugin, "score_of_kind"),
        normalize,
        _member(plugin, "pre_score"),
        _member(plugin, "details"),
        tuple(_score_forms(part, weight, plugin.scope) for part in _member(plugin, "parts") or ()),
    )


def _member(plugin: Plugin, name: str) -> Any:
    return getattr(plugin, name, None)


def _depends(plugin: FilterPlugin | ScorePlugin) -> Depends:
    """Return what counts most: pods, unless it depends on Node objects or canonical states alone."""
    depends = _member(plugin, "depends")
    return depends if depends in (Depends.NODE, Depends.CPUS) else Depends.PODS


def _feasible_by_row(cycle: Cycle, _columns: Columns, rows: Rows, plugin: FilterPlugin) -> Mask:
    nodes = cycle.cluster.by_row
    passed = (plugin.filter(cycle, node) is None for row in rows if (node := nodes[row]))
    return np.fromiter(passed, dtype=np.bool_, count=len(rows))


def groups_by_row(
    cycle: Cycle, _columns: Columns, rows: Rows, plugin: FilterPlugin
) -> Iterator[tuple[Rejection, Rows]]:
    """Ask a Filter about each of the rows; yield its rejections with their rows, without those it passes."""
    alike: dict[Rejection, list[int]] = {}
    for row in rows.tolist():
        node = cycle.cluster.by_row[row]
        if rejection := plugin.filter(cycle, node) if node else None:
            alike.setdefault(rejection, []).append(row)
    for rejection, some in alike.items():
        yield rejection, np.array(some, dtype=np.intp)


def _scores_by_row(cycle: Cycle, _columns: Columns, rows: Rows, plugin: ScorePlugin) -> Scores:
    nodes = cycle.cluster.by_row
    values = (plugin.score(cycle, node) for row in rows if (node := nodes[row]))
    return np.fromiter(values, dtype=np.float64, count=len(rows))


# The plugins that corelane ships, and those that other packages add by entry points.
#
# An entry point of the group `corelane.scheduler.plugins` names a callable that takes the plugin's `args` of
# the configuration as keywords, and returns the plugin.


Factory: TypeAlias = Callable[..., Plugin]
GROUP: Final = "corelane.scheduler.plugins"


class RegistryError(ValueError):
    """A plugin that cannot be loaded, or a name that two packages use; says what to do."""


def added() -> Mapping[str, Factory]:
    """Return the factories of other packages by name. Raises RegistryError."""
    from importlib.metadata import entry_points  # 0.8 MB, and only a configuration file names such plugins

    factories: dict[str, Factory] = {}
    for point in entry_points(group=GROUP):
        if point.name in factories:
            raise RegistryError(f"scheduler plugin {point.name}: two packages offer it; uninstall one")
        try:
            factories[point.name] = point.load()
        except Exception as error:  # a third party's import may raise anything
            raise RegistryError(f"scheduler plugin {point.name} ({point.value}): {error}") from error
    return factories
