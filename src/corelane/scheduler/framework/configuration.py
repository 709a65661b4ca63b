"""The scheduler's configuration: YAML in the form of kube-scheduler's KubeSchedulerConfiguration (v1).

Accepted as they stand are settings that change nothing here: all nodes are considered, whatever
`percentageOfNodesToScore` says, and one thread decides, whatever `parallelism` says.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from corelane import durations, settings
from corelane.scheduler.framework.plugin import DefaultsPlugin, Plugin, Scope
from corelane.scheduler.framework.profile import POINTS, Factory, Profile
from corelane.settings import SettingsError
from corelane.workload import SchedulerDefaults

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
_BEGINNING: Final = f'begin it with "apiVersion: {API_VERSION}" and "kind: {KIND}"'
_SHARE: Final = "use 0 to 100, or remove the field"
_DURATION: Final = 'use a duration such as "15s"'
_MOST_WEIGHT: Final = 2**31 - 1


class ConfigurationError(ValueError):
    """A configuration that cannot be used: names the file, the field, its value and what to do."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class PluginEntry(_Strict, frozen=True):
    """A plugin that is enabled or disabled."""

    name: str
    weight: int | float = 0
    """0 as without one, as upstream: Go does not tell them apart."""


class PluginSet(_Strict, frozen=True):
    """Plugins enabled and disabled at an extension point; `*` disables all."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()


class PluginConfig(_Strict, frozen=True):
    """Arguments of a plugin, by their names."""

    name: str
    args: dict[str, Any] = {}


class ProfileEntry(_Strict, frozen=True):
    """A profile; `plugins` has extension points as keys."""

    scheduler_name: str = "corelane-scheduler"
    plugins: dict[str, PluginSet] = {}
    plugin_config: tuple[PluginConfig, ...] = ()
    percentage_of_nodes_to_score: int | None = None


class LeaderElection(_Strict, frozen=True):
    """Settings of leader election, None where the file says nothing; durations as text, such as `15s`."""

    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ClientConnection(_Strict, frozen=True):
    """Settings of which only `kubeconfig` has an effect; requests are not limited in their rate."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class _File(_Strict, frozen=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    profiles: tuple[ProfileEntry, ...] = ()
    leader_election: LeaderElection = LeaderElection()
    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10
    parallelism: int | None = None
    percentage_of_nodes_to_score: int | None = None
    client_connection: ClientConnection = ClientConnection()
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    delay_cache_until_active: bool = False
    extenders: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The contents of a configuration file. Times are in seconds."""

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
    try:
        file = _read(text)
        profiles = [_profile(one, f"profiles[{i}]", offer) for i, one in enumerate(file.profiles)]
        for i, profile in enumerate(profiles):
            if profile.name in [other.name for other in profiles[:i]]:
                where = f"profiles[{i}].schedulerName"
                raise _invalid(where, profile.name, "each profile needs another name")
        sorts = [profile.points["queueSort"][0].name for profile in profiles]
        for i, name in enumerate(sorts):  # As upstream: pods of all profiles wait in one queue.
            if name != sorts[0]:
                remedy = f"use {sorts[0]}, as profiles[0]: all profiles share one queue"
                raise _invalid(f"profiles[{i}].plugins.queueSort", name, remedy)
        return Configuration(
            tuple(profiles or [_profile(ProfileEntry(), "profiles[0]", offer)]),
            file.leader_election,
            file.client_connection.kubeconfig or "",
            file.pod_initial_backoff_seconds,
            file.pod_max_backoff_seconds,
        )
    except SettingsError as error:
        raise ConfigurationError(f"{source}: {error}") from error.__cause__
    except RecursionError:
        raise ConfigurationError(f"{source}: not YAML: nested too deeply") from None


def duration(text: str, source: str, name: str) -> float:
    """Return seconds of a duration as Go reads it, such as `15s` or `1m30s`. Raises ConfigurationError."""
    try:
        nanoseconds = durations.parse(text)
    except durations.DurationError:
        nanoseconds = -1
    if nanoseconds < 0:
        raise ConfigurationError(f"{source}: {_invalid(name, text, _DURATION)}")
    return nanoseconds / 1e9


def _invalid(name: str, value: object, remedy: str) -> SettingsError:
    return SettingsError(f"{name}: {value!r} is invalid: {remedy}")


def _read(text: str) -> _File:
    """Return the file with valid values. Raises SettingsError."""
    tree = settings.load_yaml(text.encode())
    if not isinstance(tree, dict):
        raise SettingsError(f"the file is {'empty' if tree is None else 'not a mapping'}: {_BEGINNING}")
    # As upstream: the only profile may be null, a duration may not.
    if tree.get("profiles") == [None]:
        tree["profiles"] = [{}]
    election = tree.get("leaderElection")
    for name in ("leaseDuration", "renewDeadline", "retryPeriod"):
        if isinstance(election, dict) and election.get(name, "") is None:
            raise SettingsError(f"leaderElection.{name}: null is invalid: {_DURATION}, or remove the field")
    file = settings.convert(_without_nulls(tree, ""), _File)
    burst, lock, threads = file.client_connection.burst, file.leader_election.resource_lock, file.parallelism
    first, most = file.pod_initial_backoff_seconds, file.pod_max_backoff_seconds
    shares = {"": file.percentage_of_nodes_to_score}
    shares |= {f"profiles[{i}].": one.percentage_of_nodes_to_score for i, one in enumerate(file.profiles)}
    rules = [
        (file.api_version == API_VERSION, "apiVersion", file.api_version, f"use {API_VERSION}"),
        (file.kind == KIND, "kind", file.kind, f"use {KIND}"),
        (burst is None or burst >= 0, "clientConnection.burst", burst, "use 0 or more, or remove the field"),
        (lock in {None, "", "leases"}, "leaderElection.resourceLock", lock, "use leases"),
        (threads is None or threads > 0, "parallelism", threads, "use more than 0, or remove the field"),
        *(
            (share is None or 0 <= share <= 100, f"{where}percentageOfNodesToScore", share, _SHARE)
            for where, share in shares.items()
        ),
        (first > 0, "podInitialBackoffSeconds", first, "use more than 0"),
        (most >= first, "podMaxBackoffSeconds", most, "use at least podInitialBackoffSeconds"),
        (not file.extenders, "extenders", list(file.extenders), "no extender is called: remove the field"),
    ]
    for valid, name, value, remedy in rules:
        if not valid:
            raise _invalid(name, value, remedy)
    return file


def _without_nulls(value: Any, name: str) -> Any:
    """Drop null fields, as kube-scheduler does. Raises SettingsError for numbers that are not finite."""
    if isinstance(value, float) and not isfinite(value):
        raise _invalid(name, value, "use a finite number")
    if isinstance(value, dict):
        named = ((key, item, f"{name}.{key}" if name else str(key)) for key, item in value.items())
        return {key: _without_nulls(item, path) for key, item, path in named if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, f"{name}[{i}]") for i, item in enumerate(value)]
    return value


def _profile(one: ProfileEntry, where: str, offer: Offer) -> Profile:
    if not one.scheduler_name:
        raise _invalid(f"{where}.schedulerName", "", "use a name")
    for point in one.plugins:
        if point != "multiPoint" and point not in POINTS:
            allowed = ", ".join(("multiPoint", *POINTS))
            raise _invalid(f"{where}.plugins", point, f"use one of {allowed}")
    names = _names(one, where, offer)
    args = _arguments(one, where, offer)
    made: dict[str, Plugin] = {}
    for name in dict.fromkeys(name for of_point in names.values() for name in of_point):
        place, given = args.get(name, (f"{where}.plugins", {}))
        made[name] = _made(name, given, place, offer)
    points = {
        point: tuple(made[name] for name in of_point if isinstance(made[name], POINTS[point]))
        for point, of_point in names.items()
    }
    for name in offer.required:
        if name not in made or not any(made[name] in points[point] for point in ("preFilter", "filter")):
            remedy = "enable it: without it CPUs could be given twice"
            raise _invalid(f"{where}.plugins", f"{name} disabled", remedy)
    _check_points(one, points, made, where)
    order = [*offer.defaults, *made]
    plugins = tuple(made[name] for name in dict.fromkeys(order) if name in made)
    weights = dict(offer.weights)
    for point in ("multiPoint", "score"):  # As upstream, an enabled plugin without a weight has weight 1.
        for named in one.plugins.get(point, PluginSet()).enabled:
            weights[named.name] = named.weight or 1
    return Profile(one.scheduler_name, plugins, weights, _defaults(plugins, where), points)


def _defaults(plugins: Sequence[Plugin], where: str) -> SchedulerDefaults:
    """Return the plugins' arguments about pods that name no policy, together."""
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
                raise _invalid(f"{where}.pluginConfig", f"{plugin.name}: {value}", remedy)
            plugin_of.setdefault(name, plugin.name)
    return SchedulerDefaults(**defaults)


def _names(one: ProfileEntry, where: str, offer: Offer) -> dict[str, list[str]]:
    """Return the plugins at each extension point, in upstream's order (expandMultiPointPlugins).

    First those of multiPoint that the point names, too, then the others of multiPoint, then the point's own.
    """
    everywhere = one.plugins.get("multiPoint", PluginSet())
    names = {}
    for point in POINTS:
        here = one.plugins.get(point, PluginSet())
        for part, chosen in (("multiPoint", everywhere), (point, here)):
            for kind, listed in (("enabled", chosen.enabled), ("disabled", chosen.disabled)):
                _check_known(listed, f"{where}.plugins.{part}.{kind}", offer)
        general = _without(list(offer.defaults), everywhere.disabled)
        general += [named.name for named in everywhere.enabled if named.name not in general]
        general, chosen_here = _without(general, here.disabled), [named.name for named in here.enabled]
        first = [name for name in chosen_here if name in general]
        names[point] = list(dict.fromkeys((*first, *general, *chosen_here)))
    return names


def _without(names: list[str], disabled: Sequence[PluginEntry]) -> list[str]:
    gone = {named.name for named in disabled}
    return [] if "*" in gone else [name for name in names if name not in gone]


def _check_known(listed: Sequence[PluginEntry], where: str, offer: Offer) -> None:
    for i, named in enumerate(listed):
        if named.name == "*" and where.endswith(".disabled"):
            continue
        if named.name not in offer.factories:
            raise _unknown(f"{where}[{i}].name", named.name, offer)
        if named.name in [other.name for other in listed[:i]]:
            raise _invalid(f"{where}[{i}].name", named.name, "name a plugin once in a list")
        if named.weight < 0:
            raise _invalid(f"{where}[{i}].weight", named.weight, "use 1 or more, or name it in disabled")
        if named.weight != named.weight // 1 or named.weight > _MOST_WEIGHT:
            remedy = f"use a whole number from 1 to {_MOST_WEIGHT}"
            raise _invalid(f"{where}[{i}].weight", named.weight, remedy)


def _unknown(place: str, name: str, offer: Offer) -> SettingsError:
    offered = {plugin.lower(): plugin for plugin in sorted(offer.factories)}
    close = get_close_matches(name.lower(), offered, 1, cutoff=0.8)
    remedy = offered[close[0]] if close else f"one of {', '.join(offered.values())}"
    return _invalid(place, name, f"there is no such plugin; use {remedy}")


def _arguments(one: ProfileEntry, where: str, offer: Offer) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the place in the file and the arguments, by the plugin's name."""
    args: dict[str, tuple[str, dict[str, Any]]] = {}
    for i, entry in enumerate(one.plugin_config):
        place = f"{where}.pluginConfig[{i}]"
        if entry.name not in offer.factories:
            raise _unknown(f"{place}.name", entry.name, offer)
        if entry.name in args:
            raise _invalid(f"{place}.name", entry.name, "give the arguments of a plugin once")
        types = {"apiVersion": API_VERSION, "kind": f"{entry.name}Args"}
        for key, expected in types.items():
            if (value := entry.args.get(key, expected)) != expected:
                raise _invalid(f"{place}.args.{key}", value, f"use {expected}, or remove it")
        given = {key: value for key, value in entry.args.items() if key not in types}
        args[entry.name] = f"{place}.args", given
    return args


def _made(name: str, args: Mapping[str, Any], place: str, offer: Offer) -> Plugin:
    factory, entry = offer.factories[name], place.rpartition(".")[0]
    if not callable(factory):
        what = f"the entry point is a {type(factory).__name__}, and cannot be called"
        raise SettingsError(f"{entry}: plugin {name}: {what}")
    try:
        _check_arguments(factory, args)
    except SettingsError as error:
        raise SettingsError(f"{place}.{error}") from None
    try:
        plugin = factory(**args)
    except Exception as error:  # a third party's factory may raise anything
        why = str(error).removeprefix(f"{name}: ")
        if not isinstance(error, (TypeError, ValueError, msgspec.MsgspecError)):
            why = f"{type(error).__name__}: {why}"
        if not any(key in why for key in args):
            why = f"{', '.join(f'{key}: {value!r:.80}' for key, value in args.items()) or 'none'}: {why}"
        raise SettingsError(f"{place} of {name}: {why}") from error
    if why := _plugin_fault(plugin, name):
        raise SettingsError(f"{entry}: plugin {name}: {why}")
    return plugin


def _check_arguments(factory: Callable[..., Any], args: Mapping[str, Any]) -> None:
    """Raise SettingsError for an argument that the factory does not have, or of another type."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return  # Of some builtins it is not known.
    try:
        annotated = vars(factory).get("__init__") if isinstance(factory, type) else factory
        hints = get_type_hints(annotated)
    except (NameError, TypeError):
        hints = {}  # They cannot be read.
    names = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    fields = [(name, _checked_type(hints.get(name, Any)), msgspec.field(default=UNSET)) for name in names]
    known = len(names) == len(parameters)
    settings.convert(args, msgspec.defstruct("Arguments", fields, forbid_unknown_fields=known))


def _checked_type(hint: Any) -> Any:
    """Return the type that an argument is checked for: Any but for plain values, mappings and lists."""
    origin, inner = get_origin(hint) or hint, [one for one in get_args(hint) if one is not NoneType]
    if origin in (Union, UnionType):
        return _checked_type(inner[0]) if len(inner) == 1 else Any
    if origin in (Mapping, dict):
        return dict[Any, Any]
    if origin in (Sequence, list, tuple):
        return list[Any]
    if origin is Literal and any(type(value) not in (str, int) for value in inner):
        return Any
    return hint if origin is Literal or origin in (str, bool, int, float) else Any


def _plugin_fault(plugin: Any, name: str) -> str:
    """Return what an entry point's plugin lacks; "" if it can be used."""
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
) -> None:
    """Check, as upstream: enabled plugins have the extension point, one sorts the queue, one or more bind."""
    for point, chosen in one.plugins.items():
        for i, named in enumerate(chosen.enabled if point in POINTS else ()):
            if not isinstance(made[named.name], POINTS[point]):
                place = f"{where}.plugins.{point}.enabled[{i}].name"
                there = [name for name, kind in POINTS.items() if isinstance(made[named.name], kind)]
                remedy = f"the plugin has nothing to do at {point}; use {' or '.join(there)}"
                raise _invalid(place, named.name, remedy)
    if not points["bind"]:
        raise _invalid(f"{where}.plugins.bind", [], "enable at least one, such as DefaultBinder")
    if len(points["queueSort"]) != 1:
        sorting = [plugin.name for plugin in points["queueSort"]]
        raise _invalid(f"{where}.plugins.queueSort", sorting, "enable exactly one, such as PrioritySort")
