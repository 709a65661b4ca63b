"""The file of a configuration: its fields, and what makes it unusable whichever plugins there are."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Struct

from corelane import durations
from corelane.yaml_keys import DuplicateKeyError, UniqueKeyLoader

_USE: Final[Mapping[Any, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
}


class FieldFault(NamedTuple):
    """A field, "" for the whole file; what is wrong with its value, and the remedy."""

    path: str
    problem: str
    remedy: str


def first_fault(tree: Any, of_type: Any) -> FieldFault | None:
    """Return the first fault of a tree of dicts, lists and scalars; None where it has the type."""
    return next(_faults(tree, of_type, ""), None)


def _faults(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    origin = get_origin(of_type)
    if of_type is Any:
        return
    if origin in {Union, UnionType}:
        kinds = [one for one in get_args(of_type) if one is not type(None)]
        if len(kinds) == 1:
            yield from _faults(value, kinds[0], path)
            return
    if isinstance(of_type, type) and issubclass(of_type, Struct):
        yield from _of_struct(value, of_type, path)
    elif origin is tuple:
        yield from _of_list(value, get_args(of_type)[0], path)
    elif origin is dict:
        yield from _of_mapping(value, get_args(of_type)[1], path)
    else:
        yield from _of_scalar(value, of_type, path)


def _of_struct(value: Any, of_type: type[Struct], path: str) -> Iterator[FieldFault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(of_type)}
    listed = ", ".join(fields)
    if not isinstance(value, dict):
        yield FieldFault(path, _invalid(value), f"use a mapping with the fields {listed}")
        return
    for key in value:
        if key not in fields:
            close = get_close_matches(str(key), fields, 1)
            remedy = f"use {close[0]}, or remove the field" if close else f"use one of {listed}"
            yield FieldFault(_joined(path, key), f"{shown(value[key])}: there is no such field", remedy)
    for name, field in fields.items():
        if name in value:
            yield from _faults(value[name], field.type, _joined(path, name))
        elif field.required:
            yield FieldFault(_joined(path, name), "missing", "add the field")


def _of_list(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, list):
        yield FieldFault(path, _invalid(value), "use a list, or remove the field")
        return
    for i, one in enumerate(value):
        yield from _faults(one, of_type, f"{path}[{i}]")


def _of_mapping(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, dict):
        yield FieldFault(path, _invalid(value), "use a mapping, or remove the field")
        return
    for key, one in value.items():
        if not isinstance(key, str):
            yield FieldFault(path, _invalid(key), "use text as the name of a field")
        else:
            yield from _faults(one, of_type, _joined(path, key))


def _of_scalar(value: Any, of_type: Any, path: str) -> Iterator[FieldFault]:
    types = [one for one in get_args(of_type) or (of_type,) if one is not type(None)]
    remedy = f"use {_USE[types[-1]]}, or remove the field"
    if isinstance(value, float) and not math.isfinite(value):
        yield FieldFault(path, _invalid(value), remedy)
        return
    try:
        msgspec.convert(value, of_type)
    except msgspec.ValidationError:
        yield FieldFault(path, _invalid(value), remedy)


def _invalid(value: object) -> str:
    return f"{shown(value)} is invalid"


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def shown(value: object) -> str:
    """Return a value on one line, shortened to 80 characters; None as null."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
_BEGINNING: Final = f'begin it with "apiVersion: {API_VERSION}" and "kind: {KIND}"'
_SHARE: Final = "use 0 to 100, or remove the field"
_DURATIONS: Final = ("leaseDuration", "renewDeadline", "retryPeriod")


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
    """What is enabled and disabled at an extension point; `*` is disabled for all."""

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
    """Of these only `kubeconfig` has an effect; requests are not limited in their rate."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class File(_Strict, frozen=True):
    """The whole file."""

    api_version: str
    kind: str
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


def read(text: str, source: str) -> File:
    """Return what the file says, with valid values. Raises ConfigurationError."""
    file = _decoded(text, source)
    _check(file, source)
    return file


def duration(text: str, source: str, name: str) -> float:
    """Return seconds of a duration as Go reads it, such as `15s` or `1m30s`. Raises ConfigurationError."""
    try:
        nanoseconds = durations.parse(text)
    except durations.DurationError:
        nanoseconds = -1
    if nanoseconds < 0:
        raise invalid(source, name, text, 'use a duration such as "15s"')
    return nanoseconds / 1e9


def _decoded(text: str, source: str) -> File:
    tree = _tree(text, source)
    if tree is None:
        raise ConfigurationError(f"{source}: the file is empty: {_BEGINNING}")
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{source}: the file is {shown(tree)}, not a mapping: {_BEGINNING}")
    if fault := first_fault(tree, File):
        raise ConfigurationError(f"{source}: {fault.path}: {fault.problem}: {fault.remedy}")
    return msgspec.convert(tree, File)


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


def _check(file: File, source: str) -> None:
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
    ]
    for valid, name, value, remedy in rules:
        if not valid:
            raise invalid(source, name, value, remedy)
    if file.extenders:
        why = f"{shown(list(file.extenders))}: no extender is called: remove the field"
        raise ConfigurationError(f"{source}: extenders: {why}")


def invalid(source: str, name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"{source}: {name}: {value!r} is invalid: {remedy}")


_MAPPINGS: Final = (Mapping, dict)
_LISTS: Final = (list, tuple, Sequence)


def arguments_fault(factory: Callable[..., Any], args: Mapping[str, Any]) -> FieldFault | None:
    """Return the first argument that there is not, or that has another type; None without any."""
    return next(_argument_faults(factory, args), None)


def _argument_faults(factory: Callable[..., Any], args: Mapping[str, Any]) -> Iterator[FieldFault]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return  # Of some builtins it is not known.
    names = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(names) == len(parameters):
        for name in (name for name in args if name not in names):
            yield FieldFault(name, f"{shown(args[name])}: there is no such argument", _remedy(name, names))
    hints = _hints(factory)
    for name, value in args.items():
        if name in hints and (fault := _fault(value, hints[name], name)):
            yield fault


def _remedy(name: str, names: Sequence[str]) -> str:
    if not names:
        return "remove it: the plugin has no arguments"
    close = get_close_matches(name, names, 1)
    return f"use {close[0]}, or remove it" if close else f"use one of {', '.join(names)}"


def _hints(factory: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of arguments; of a class, those of its `__init__`; none where they cannot be read."""
    try:
        return get_type_hints(vars(factory).get("__init__") if isinstance(factory, type) else factory)
    except (NameError, TypeError):
        return {}


def _fault(value: Any, hint: Any, path: str) -> FieldFault | None:
    if get_origin(hint) in {Union, UnionType}:
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return _fault(value, kinds[0], path) if len(kinds) == 1 else None
    origin = get_origin(hint) or hint
    if origin is Literal:
        allowed = ", ".join(map(str, get_args(hint)))
        return None if value in get_args(hint) else _invalid_argument(value, path, f"use one of {allowed}")
    for types, kind, what in ((_MAPPINGS, dict, "a mapping"), (_LISTS, list, "a list")):
        if origin in types:
            valid = isinstance(value, kind)
            return None if valid else _invalid_argument(value, path, f"use {what}, or remove it")
    if hint not in {str, bool, int, float}:
        return None
    fault = first_fault(value, hint)
    return _invalid_argument(value, path, fault.remedy) if fault else None


def _invalid_argument(value: Any, path: str, remedy: str) -> FieldFault:
    return FieldFault(path, f"{shown(value)} is invalid", remedy)
