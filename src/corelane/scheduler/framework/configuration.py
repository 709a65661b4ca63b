"""The scheduler's configuration: YAML in the form of kube-scheduler's KubeSchedulerConfiguration (v1).

Accepted as they stand are settings that change nothing here: all nodes are considered, whatever
`percentageOfNodesToScore` says, and one thread decides, whatever `parallelism` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from corelane.scheduler.framework import configuration_file
from corelane.scheduler.framework.configuration_file import (
    ConfigurationError,
    LeaderElection,
    PluginEntry,
    PluginSet,
    ProfileEntry,
    arguments_fault,
    invalid,
    shown,
)
from corelane.scheduler.framework.plugin import (
    BindPlugin,
    DefaultsPlugin,
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
    ReservePlugin,
    Scope,
    ScorePlugin,
)
from corelane.scheduler.framework.profile import Factory, Profile
from corelane.workload import SchedulerDefaults

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
_MOST_WEIGHT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says. Times are in seconds."""

    profiles: tuple[Profile, ...]
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    kubeconfig: str = ""
    """Path from `clientConnection.kubeconfig`."""
    initial_backoff: float = 1.0
    max_backoff: float = 10.0


@dataclass(frozen=True, slots=True)
class Offer:
    """The plugins that there are, and which of them every profile has unless it says otherwise."""

    factories: Mapping[str, Factory]
    defaults: Sequence[str]
    """Names in their order."""
    weights: Mapping[str, float]
    required: Sequence[str] = ()
    """Names of those without which CPUs could be given twice."""


def parse(text: str, source: str, offer: Offer) -> Configuration:
    """Return the configuration. Raises ConfigurationError."""
    file = configuration_file.read(text, source)
    profiles = [_profile(one, f"profiles[{i}]", source, offer) for i, one in enumerate(file.profiles)]
    names = [profile.name for profile in profiles]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise invalid(source, f"profiles[{i}].schedulerName", name, "each profile needs another name")
    _check_queue_sorts(profiles, source)
    if not profiles:
        profiles = [_profile(ProfileEntry(), "profiles[0]", source, offer)]
    return Configuration(
        tuple(profiles),
        file.leader_election,
        file.client_connection.kubeconfig or "",
        file.pod_initial_backoff_seconds,
        file.pod_max_backoff_seconds,
    )


def _check_queue_sorts(profiles: Sequence[Profile], source: str) -> None:
    """As upstream: pods of all profiles wait in one queue."""
    sorts = [profile.points["queueSort"][0] for profile in profiles]
    for i, plugin in enumerate(sorts):
        if plugin.name != sorts[0].name:
            remedy = f"use {sorts[0].name}, as profiles[0]: all profiles share one queue"
            raise invalid(source, f"profiles[{i}].plugins.queueSort", plugin.name, remedy)


def _profile(one: ProfileEntry, where: str, source: str, offer: Offer) -> Profile:
    if not one.scheduler_name:
        raise invalid(source, f"{where}.schedulerName", "", "use a name")
    for point in one.plugins:
        if point != "multiPoint" and point not in POINTS:
            allowed = ", ".join(("multiPoint", *POINTS))
            raise invalid(source, f"{where}.plugins", point, f"use one of {allowed}")
    names = _names(one, where, source, offer)
    args = _arguments(one, where, source, offer)
    made: dict[str, Plugin] = {}
    for name in dict.fromkeys(name for of_point in names.values() for name in of_point):
        place, given = args.get(name, (f"{where}.plugins", {}))
        made[name] = _made(name, given, place, source, offer)
    points = {
        point: tuple(made[name] for name in of_point if isinstance(made[name], POINTS[point]))
        for point, of_point in names.items()
    }
    for name in offer.required:
        if name not in made or not any(made[name] in points[point] for point in ("preFilter", "filter")):
            remedy = "enable it: without it CPUs could be given twice"
            raise invalid(source, f"{where}.plugins", f"{name} disabled", remedy)
    _check_points(one, points, made, where, source)
    order = [*offer.defaults, *made]
    plugins = tuple(made[name] for name in dict.fromkeys(order) if name in made)
    return Profile(
        one.scheduler_name, plugins, _weights(one, offer), _defaults(plugins, where, source), points
    )


def _defaults(plugins: Sequence[Plugin], where: str, source: str) -> SchedulerDefaults:
    """What the plugins' arguments say together of pods that name no policy."""
    defaults: dict[str, Any] = {}
    plugin_of: dict[str, str] = {}
    for plugin in plugins:
        if not (isinstance(plugin, DefaultsPlugin) and isinstance(plugin.defaults, SchedulerDefaults)):
            continue
        for name, value in asdict(plugin.defaults).items():
            if value is None:
                continue
            if defaults.setdefault(name, value) != value:
                other = f"{plugin_of[name]} has {defaults[name]} for the same"
                remedy = f"{other}: use one value, or remove one of them"
                raise invalid(source, f"{where}.pluginConfig", f"{plugin.name}: {value}", remedy)
            plugin_of.setdefault(name, plugin.name)
    return SchedulerDefaults(**defaults)


def _names(one: ProfileEntry, where: str, source: str, offer: Offer) -> dict[str, list[str]]:
    """The plugins at each extension point, in upstream's order (expandMultiPointPlugins).

    First those of multiPoint that the point names, too, then the others of multiPoint, then the point's own.
    """
    everywhere = one.plugins.get("multiPoint", PluginSet())
    names = {}
    for point in POINTS:
        here = one.plugins.get(point, PluginSet())
        for part, chosen in (("multiPoint", everywhere), (point, here)):
            for kind, listed in (("enabled", chosen.enabled), ("disabled", chosen.disabled)):
                _check_known(listed, f"{where}.plugins.{part}.{kind}", source, offer, kind)
        general = _without(list(offer.defaults), everywhere.disabled)
        general += [named.name for named in everywhere.enabled if named.name not in general]
        general, chosen_here = _without(general, here.disabled), [named.name for named in here.enabled]
        first = [name for name in chosen_here if name in general]
        names[point] = list(dict.fromkeys((*first, *general, *chosen_here)))
    return names


def _without(names: list[str], disabled: Sequence[PluginEntry]) -> list[str]:
    gone = {named.name for named in disabled}
    return [] if "*" in gone else [name for name in names if name not in gone]


def _check_known(listed: Sequence[PluginEntry], where: str, source: str, offer: Offer, kind: str) -> None:
    for i, named in enumerate(listed):
        if kind == "disabled" and named.name == "*":
            continue
        if named.name not in offer.factories:
            raise _unknown(source, f"{where}[{i}].name", named.name, offer)
        if named.name in [other.name for other in listed[:i]]:
            raise invalid(source, f"{where}[{i}].name", named.name, "name a plugin once in a list")
        if named.weight < 0:
            raise invalid(
                source, f"{where}[{i}].weight", named.weight, "use 1 or more, or name it in disabled"
            )
        if named.weight != int(named.weight) or named.weight > _MOST_WEIGHT:
            remedy = f"use a whole number from 1 to {_MOST_WEIGHT}"
            raise invalid(source, f"{where}[{i}].weight", named.weight, remedy)


def _unknown(source: str, place: str, name: str, offer: Offer) -> ConfigurationError:
    offered = {plugin.lower(): plugin for plugin in sorted(offer.factories)}
    close = get_close_matches(name.lower(), offered, 1, cutoff=0.8)
    remedy = offered[close[0]] if close else f"one of {', '.join(offered.values())}"
    return invalid(source, place, name, f"there is no such plugin; use {remedy}")


def _arguments(
    one: ProfileEntry, where: str, source: str, offer: Offer
) -> dict[str, tuple[str, dict[str, Any]]]:
    """The place in the file and the arguments, by the plugin's name."""
    args: dict[str, tuple[str, dict[str, Any]]] = {}
    for i, entry in enumerate(one.plugin_config):
        place = f"{where}.pluginConfig[{i}]"
        if entry.name not in offer.factories:
            raise _unknown(source, f"{place}.name", entry.name, offer)
        if entry.name in args:
            raise invalid(source, f"{place}.name", entry.name, "give the arguments of a plugin once")
        types = {"apiVersion": configuration_file.API_VERSION, "kind": f"{entry.name}Args"}
        for key, expected in types.items():
            if (value := entry.args.get(key, expected)) != expected:
                raise invalid(source, f"{place}.args.{key}", value, f"use {expected}, or remove it")
        given = {key: value for key, value in entry.args.items() if key not in types}
        args[entry.name] = f"{place}.args", given
    return args


def _made(name: str, args: Mapping[str, Any], place: str, source: str, offer: Offer) -> Plugin:
    factory = offer.factories[name]
    if not callable(factory):
        what = f"the entry point is a {type(factory).__name__}, and cannot be called"
        raise ConfigurationError(f"{source}: {place.rpartition('.')[0]}: plugin {name}: {what}")
    if fault := arguments_fault(factory, args):
        raise ConfigurationError(f"{source}: {place}.{fault.path}: {fault.problem}: {fault.remedy}")
    try:
        plugin = factory(**args)
    except Exception as error:  # a third party's factory may raise anything
        why = str(error).removeprefix(f"{name}: ")
        if not isinstance(error, (TypeError, ValueError, msgspec.MsgspecError)):
            why = f"{type(error).__name__}: {why}"
        if not any(key in why for key in args):
            why = f"{', '.join(f'{key}: {shown(value)}' for key, value in args.items()) or 'none'}: {why}"
        raise ConfigurationError(f"{source}: {place} of {name}: {why}") from error
    if why := _plugin_fault(plugin, name):
        raise ConfigurationError(f"{source}: {place.rpartition('.')[0]}: plugin {name}: {why}")
    return plugin


def _plugin_fault(plugin: Any, name: str) -> str:
    """What an entry point's plugin lacks; "" if it can be used."""
    if (own := plugin.name if isinstance(plugin, Plugin) else None) != name:
        return f'its attribute "name" is {own!r}: use {name!r}, the name of its entry point'
    methods = [method for method in ("filter", "score") if hasattr(plugin, method)]
    if methods and not isinstance(getattr(plugin, "scope", None), Scope):
        remedy = "add Scope.CLUSTER, or Scope.ROW if its answers follow from that node and the pod alone"
        return f'it has {" and ".join(methods)}, but no attribute "scope": {remedy}'
    return ""


def _check_points(
    one: ProfileEntry,
    points: Mapping[str, Sequence[Plugin]],
    made: Mapping[str, Plugin],
    where: str,
    source: str,
) -> None:
    """As upstream: enabled plugins must have the extension point, one sorts the queue, at least one binds."""
    for point, chosen in one.plugins.items():
        for i, named in enumerate(chosen.enabled if point in POINTS else ()):
            if not isinstance(made[named.name], POINTS[point]):
                place = f"{where}.plugins.{point}.enabled[{i}].name"
                there = [name for name, kind in POINTS.items() if isinstance(made[named.name], kind)]
                remedy = f"the plugin has nothing to do at {point}; use {' or '.join(there)}"
                raise invalid(source, place, named.name, remedy)
    if not points["bind"]:
        raise invalid(source, f"{where}.plugins.bind", [], "enable at least one, such as DefaultBinder")
    if len(points["queueSort"]) != 1:
        sorting = [plugin.name for plugin in points["queueSort"]]
        raise invalid(
            source, f"{where}.plugins.queueSort", sorting, "enable exactly one, such as PrioritySort"
        )


def _weights(one: ProfileEntry, offer: Offer) -> dict[str, float]:
    """As upstream, a plugin that the file enables without a weight has weight 1."""
    weights = dict(offer.weights)
    for point in ("multiPoint", "score"):
        for named in one.plugins.get(point, PluginSet()).enabled:
            weights[named.name] = named.weight or 1
    return weights
