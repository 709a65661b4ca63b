"""A profile: the plugins that decide about pods of one schedulerName, by extension point."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.checked import checked
from corelane.scheduler.framework.forms import Plan, PluginForms, resolve
from corelane.scheduler.framework.plugin import (
    BindPlugin,
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from corelane.workload import SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

DEFAULT_NAME: Final = "corelane-scheduler"
_ANY_CHANGE: Final[Mapping[ChangeKind, Hint]] = {~ChangeKind.NOTHING: always}


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

    def of(self, info: PodInfo) -> "Profile":
        """Return the part that decides about a pod."""
        return self.parts.get(info.pod.spec.scheduler_name, self)

    @cached_property
    def forms(self) -> PluginForms:
        """The forms in which filters and scores are asked."""
        return resolve(self.filters, self.scores)

    @cached_property
    def plans(self) -> dict[frozenset[str], Plan]:
        """Plans by the names of the plugins that are skipped."""
        return {}

    @cached_property
    def pre_enqueue(self) -> tuple[PreEnqueuePlugin, ...]:
        return self._having("preEnqueue", PreEnqueuePlugin)

    @cached_property
    def queue_sort(self) -> QueueSortPlugin:
        """The first of the plugins that order the queue. Raises ValueError without any."""
        plugins: tuple[QueueSortPlugin, ...] = self._having("queueSort", QueueSortPlugin)
        if plugins:
            return plugins[0]
        raise ValueError(f"profile {self.name}: no plugin orders the queue; enable PrioritySort")

    @cached_property
    def pre_filters(self) -> tuple[PreFilterPlugin, ...]:
        return self._having("preFilter", PreFilterPlugin)

    @cached_property
    def of_plain(self) -> WeakKeyDictionary[Shape, tuple[tuple[PreFilterPlugin, ...], frozenset[str]]]:
        """By the shape of plain pods: the pre-filters that are asked, and the names of those that skip."""
        return WeakKeyDictionary()

    @cached_property
    def filters(self) -> tuple[FilterPlugin, ...]:
        return self._having("filter", FilterPlugin)

    @cached_property
    def post_filters(self) -> tuple[PostFilterPlugin, ...]:
        return self._having("postFilter", PostFilterPlugin)

    @cached_property
    def scores(self) -> tuple[tuple[ScorePlugin, float], ...]:
        """Plugins with their weights, without those of weight 0."""
        weighted = (
            (plugin, self.weights.get(plugin.name, 1.0)) for plugin in self._having("score", ScorePlugin)
        )
        return tuple((plugin, weight) for plugin, weight in weighted if weight)

    @cached_property
    def reserves(self) -> tuple[ReservePlugin, ...]:
        return self._having("reserve", ReservePlugin)

    @cached_property
    def permits(self) -> tuple[PermitPlugin, ...]:
        return self._having("permit", PermitPlugin)

    @cached_property
    def pre_binds(self) -> tuple[PreBindPlugin, ...]:
        """Looked up once: the check of a protocol takes 20 µs."""
        return self._having("preBind", PreBindPlugin)

    @cached_property
    def binds(self) -> tuple[BindPlugin, ...]:
        return self._having("bind", BindPlugin)

    @cached_property
    def post_binds(self) -> tuple[PostBindPlugin, ...]:
        return self._having("postBind", PostBindPlugin)

    def hints(self, name: str) -> Mapping[ChangeKind, Hint]:
        """Return which changes can help pods that the plugin of this name rejected."""
        hints = self._hints.get(name)
        if hints is None:
            plugin = next((one for one in self.plugins if one.name == name), None)
            hints = self._hints[name] = self._hints_of(plugin)
        return hints

    def _hints_of(self, plugin: Plugin | None) -> Mapping[ChangeKind, Hint]:
        """Return a plugin's hints; every change may help where it has none, or fails to say."""
        if plugin is None or not isinstance(plugin, EnqueueExtensions):
            return _ANY_CHANGE
        try:
            hints: Mapping[ChangeKind, Hint] = self._checked(plugin).hints()
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            self.faults.append((plugin.name, "hints", error))
            return _ANY_CHANGE
        return hints

    @cached_property
    def _hints(self) -> dict[str, Mapping[ChangeKind, Hint]]:
        return {}

    @cached_property
    def faults(self) -> list[tuple[str, str, Exception]]:
        """Plugins that failed to give their hints: plugin, method, error."""
        return []

    @cached_property
    def _with_checks(self) -> dict[int, Any]:
        """Plugins with checked answers, by the plugin's identity."""
        return {}

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

    def _having(self, point: str, protocol: Any) -> tuple[Any, ...]:
        plugins = self.points.get(point, self.plugins)
        return tuple(self._checked(plugin) for plugin in plugins if isinstance(plugin, protocol))


def united(profiles: Sequence[Profile]) -> Profile:
    """Return a profile with all plugins of several; of those of one name, the first one's."""
    if len(profiles) == 1:
        return profiles[0]
    plugins = {plugin.name: plugin for profile in reversed(profiles) for plugin in profile.plugins}
    order = dict.fromkeys(plugin.name for profile in profiles for plugin in profile.plugins)
    parts = {profile.name: profile for profile in profiles}
    return Profile(profiles[0].name, tuple(plugins[name] for name in order), profiles[0].weights, parts=parts)


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
