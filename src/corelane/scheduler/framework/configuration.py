"""The scheduler's configuration: YAML in the form of kube-scheduler's KubeSchedulerConfiguration (v1).

Accepted as they stand are settings that change nothing here: all nodes are considered, whatever
`percentageOfNodesToScore` says, and one thread decides, whatever `parallelism` says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from corelane.kube.yaml_keys import DuplicateKeyError, UniqueKeyLoader
from corelane.scheduler.framework.binding import BindPlugin, PostBindPlugin, PreBindPlugin
from corelane.scheduler.framework.field_faults import first_fault, shown
from corelane.scheduler.framework.plugin import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from corelane.scheduler.framework.plugin_args import arguments_fault
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.framework.registry import Factory
from corelane.workload import SchedulerDefaults

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
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
_BEGINNING: Final = f'begin it with "apiVersion: {API_VERSION}" and "kind: {KIND}"'
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_DURATIONS: Final = ("leaseDuration", "renewDeadline", "retryPeriod")
_MOST_WEIGHT: Final = 2**31 - 1
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class ConfigurationError(ValueError):
    """A configuration that cannot be used: names the file, the field, its value and what to do."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _Named(_Strict, frozen=True):
    name: str
    weight: int | float = 0
    """0 as without one, as upstream: Go does not tell them apart."""


class _Set(_Strict, frozen=True):
    enabled: tuple[_Named, ...] = ()
    disabled: tuple[_Named, ...] = ()


class _Args(_Strict, frozen=True):
    name: str
    args: dict[str, Any] = {}


class _Profile(_Strict, frozen=True):
    scheduler_name: str = "corelane-scheduler"
    plugins: dict[str, _Set] = {}
    plugin_config: tuple[_Args, ...] = ()
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
    """Of these only `kubeconfig` has an effect; requests are not limited in their rate."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class _File(_Strict, frozen=True):
    api_version: str
    kind: str
    profiles: tuple[_Profile, ...] = ()
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
    file = _decoded(text, source)
    _check(file, source)
    profiles = [_profile(one, f"profiles[{i}]", source, offer) for i, one in enumerate(file.profiles)]
    names = [profile.name for profile in profiles]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise _invalid(source, f"profiles[{i}].schedulerName", name, "each profile needs another name")
    if not profiles:
        profiles = [_profile(_Profile(), "profiles[0]", source, offer)]
    return Configuration(
        tuple(profiles),
        file.leader_election,
        file.client_connection.kubeconfig or "",
        file.pod_initial_backoff_seconds,
        file.pod_max_backoff_seconds,
    )


def duration(text: str, source: str, name: str) -> float:
    """Return seconds of a duration such as `15s` or `1m30s`. Raises ConfigurationError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise _invalid(source, name, text, 'use a duration such as "15s"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _decoded(text: str, source: str) -> _File:
    tree = _tree(text, source)
    if tree is None:
        raise ConfigurationError(f"{source}: the file is empty: {_BEGINNING}")
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{source}: the file is {shown(tree)}, not a mapping: {_BEGINNING}")
    if fault := first_fault(tree, _File):
        raise ConfigurationError(f"{source}: {fault.path}: {fault.problem}: {fault.remedy}")
    return msgspec.convert(tree, _File)


def _tree(text: str, source: str) -> Any:
    """The file as plain values; a field with null counts as absent, as in kube-scheduler."""
    try:
        tree = yaml.load(text, UniqueKeyLoader)  # noqa: S506 - a SafeLoader
        _check_nulls(tree, source)
        return _without_nulls(tree)
    except ConfigurationError:
        raise
    except DuplicateKeyError as error:
        raise ConfigurationError(f"{source}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or error.context
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigurationError(f"{source}: {where}not YAML: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        why = "nested too deeply, or an alias within its own anchor"
        raise ConfigurationError(f"{source}: not YAML: {why}") from None


def _check_nulls(tree: Any, source: str) -> None:
    """As upstream: the only profile may be null, a duration may not."""
    if not isinstance(tree, dict):
        return
    if tree.get("profiles") == [None]:
        tree["profiles"] = [{}]
    election = tree.get("leaderElection")
    if not isinstance(election, dict):
        return
    for name in _DURATIONS:
        if election.get(name, "") is None:
            remedy = 'use a duration such as "15s", or remove the field'
            raise ConfigurationError(f"{source}: leaderElection.{name}: null is invalid: {remedy}")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _check(file: _File, source: str) -> None:
    if file.api_version != API_VERSION:
        raise _invalid(source, "apiVersion", file.api_version, f"use {API_VERSION}")
    if file.kind != KIND:
        raise _invalid(source, "kind", file.kind, f"use {KIND}")
    if file.extenders:
        found = shown(list(file.extenders))
        raise ConfigurationError(f"{source}: extenders: {found}: no extender is called: remove the field")
    if file.leader_election.resource_lock not in {None, "leases"}:
        raise _invalid(
            source, "leaderElection.resourceLock", file.leader_election.resource_lock, "use leases"
        )
    if file.parallelism is not None and file.parallelism <= 0:
        raise _invalid(source, "parallelism", file.parallelism, "use more than 0, or remove the field")
    shares = {f"profiles[{i}].": one.percentage_of_nodes_to_score for i, one in enumerate(file.profiles)}
    for where, share in {"": file.percentage_of_nodes_to_score, **shares}.items():
        if share is not None and not 0 <= share <= 100:
            raise _invalid(
                source, f"{where}percentageOfNodesToScore", share, "use 0 to 100, or remove the field"
            )
    if file.pod_initial_backoff_seconds <= 0:
        value = file.pod_initial_backoff_seconds
        raise _invalid(source, "podInitialBackoffSeconds", value, "use more than 0")
    if file.pod_max_backoff_seconds < file.pod_initial_backoff_seconds:
        value = file.pod_max_backoff_seconds
        raise _invalid(source, "podMaxBackoffSeconds", value, "use at least podInitialBackoffSeconds")


def _profile(one: _Profile, where: str, source: str, offer: Offer) -> Profile:
    if not one.scheduler_name:
        raise _invalid(source, f"{where}.schedulerName", "", "use a name")
    for point in one.plugins:
        if point != "multiPoint" and point not in POINTS:
            allowed = ", ".join(("multiPoint", *POINTS))
            raise _invalid(source, f"{where}.plugins", point, f"use one of {allowed}")
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
            raise _invalid(source, f"{where}.plugins", f"{name} disabled", remedy)
    _check_points(one, points, made, where, source)
    order = [*offer.defaults, *made]
    plugins = tuple(made[name] for name in dict.fromkeys(order) if name in made)
    defaults = next((found for plugin in plugins if (found := _defaults(plugin))), SchedulerDefaults())
    return Profile(one.scheduler_name, plugins, _weights(one, offer), defaults, points)


def _defaults(plugin: Plugin) -> SchedulerDefaults | None:
    found = getattr(plugin, "defaults", None)
    return found if isinstance(found, SchedulerDefaults) else None


def _names(one: _Profile, where: str, source: str, offer: Offer) -> dict[str, list[str]]:
    """The plugins at each extension point, in their order; as upstream, those of a point go before."""
    everywhere = one.plugins.get("multiPoint", _Set())
    names = {}
    for point in POINTS:
        here = one.plugins.get(point, _Set())
        for part, chosen in (("multiPoint", everywhere), (point, here)):
            for kind, listed in (("enabled", chosen.enabled), ("disabled", chosen.disabled)):
                _check_known(listed, f"{where}.plugins.{part}.{kind}", source, offer, kind)
        found = _without(list(offer.defaults), everywhere.disabled)
        found += [named.name for named in everywhere.enabled if named.name not in found]
        found = _without(found, here.disabled)
        names[point] = found + [named.name for named in here.enabled if named.name not in found]
    return names


def _without(names: list[str], disabled: Sequence[_Named]) -> list[str]:
    gone = {named.name for named in disabled}
    return [] if "*" in gone else [name for name in names if name not in gone]


def _check_known(listed: Sequence[_Named], where: str, source: str, offer: Offer, kind: str) -> None:
    for i, named in enumerate(listed):
        if kind == "disabled" and named.name == "*":
            continue
        if named.name not in offer.factories:
            raise _unknown(source, f"{where}[{i}].name", named.name, offer)
        if named.name in [other.name for other in listed[:i]]:
            raise _invalid(source, f"{where}[{i}].name", named.name, "name a plugin once in a list")
        if named.weight < 0:
            raise _invalid(
                source, f"{where}[{i}].weight", named.weight, "use 1 or more, or name it in disabled"
            )
        if named.weight != int(named.weight) or named.weight > _MOST_WEIGHT:
            remedy = f"use a whole number from 1 to {_MOST_WEIGHT}"
            raise _invalid(source, f"{where}[{i}].weight", named.weight, remedy)


def _unknown(source: str, place: str, name: str, offer: Offer) -> ConfigurationError:
    known = {one.lower(): one for one in sorted(offer.factories)}
    close = get_close_matches(name.lower(), known, 1, cutoff=0.8)
    remedy = known[close[0]] if close else f"one of {', '.join(known.values())}"
    return _invalid(source, place, name, f"there is no such plugin; use {remedy}")


def _arguments(one: _Profile, where: str, source: str, offer: Offer) -> dict[str, tuple[str, dict[str, Any]]]:
    """The place in the file and the arguments, by the plugin's name."""
    args: dict[str, tuple[str, dict[str, Any]]] = {}
    for i, entry in enumerate(one.plugin_config):
        place = f"{where}.pluginConfig[{i}]"
        if entry.name not in offer.factories:
            raise _unknown(source, f"{place}.name", entry.name, offer)
        if entry.name in args:
            raise _invalid(source, f"{place}.name", entry.name, "give the arguments of a plugin once")
        given = {key: value for key, value in entry.args.items() if key not in _TYPE_KEYS}
        args[entry.name] = f"{place}.args", given
    return args


_TYPE_KEYS: Final = frozenset({"apiVersion", "kind"})
"""Of upstream's typed arguments."""


def _made(name: str, args: Mapping[str, Any], place: str, source: str, offer: Offer) -> Plugin:
    if fault := arguments_fault(offer.factories[name], args):
        raise ConfigurationError(f"{source}: {place}.{fault.path}: {fault.problem}: {fault.remedy}")
    try:
        return offer.factories[name](**args)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        why = str(error).removeprefix(f"{name}: ")
        if not any(key in why for key in args):
            why = f"{', '.join(f'{key}: {shown(value)}' for key, value in args.items()) or 'none'}: {why}"
        raise ConfigurationError(f"{source}: {place} of {name}: {why}") from error


def _check_points(
    one: _Profile,
    points: Mapping[str, Sequence[Plugin]],
    made: Mapping[str, Plugin],
    where: str,
    source: str,
) -> None:
    """An explicitly enabled plugin must have the extension point; exactly one orders the queue."""
    for point, chosen in one.plugins.items():
        for i, named in enumerate(chosen.enabled if point in POINTS else ()):
            if not isinstance(made[named.name], POINTS[point]):
                place = f"{where}.plugins.{point}.enabled[{i}].name"
                there = [name for name, kind in POINTS.items() if isinstance(made[named.name], kind)]
                remedy = f"the plugin has nothing to do at {point}; use {' or '.join(there)}"
                raise _invalid(source, place, named.name, remedy)
    bind = one.plugins.get("bind", _Set())
    if not points["bind"] and any(named.name == "*" for named in bind.disabled):
        remedy = "enable a plugin that binds, or remove the field: the scheduler binds by itself"
        raise _invalid(source, f"{where}.plugins.bind.disabled", "*", remedy)
    if len(points["queueSort"]) != 1:
        found = [plugin.name for plugin in points["queueSort"]]
        raise _invalid(
            source, f"{where}.plugins.queueSort", found, "enable exactly one, such as PrioritySort"
        )


def _weights(one: _Profile, offer: Offer) -> dict[str, float]:
    """As upstream, a plugin that the file enables without a weight has weight 1."""
    weights = dict(offer.weights)
    for point in ("multiPoint", "score"):
        for named in one.plugins.get(point, _Set()).enabled:
            weights[named.name] = named.weight or 1
    return weights


def _invalid(source: str, name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"{source}: {name}: {value!r} is invalid: {remedy}")
