"""The rules on single values that the tables name."""

from typing import Any

from corelane import names
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import item, key
from corelane.embedded.apiserver.validation.table_rules import Scope, format_rule, rule

FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def _at_least(low: int, text: str) -> Any:
    return lambda number: [] if number >= low else [text]


def _within(low: int, high: int, text: str = "") -> Any:
    return lambda number: [] if low <= number <= high else [text or formats.between(low, high)]


for _name, _check in {
    "dns-label": names.dns_label,
    "dns-subdomain": names.dns_subdomain,
    "qualified-name": names.qualified_name,
    "env-name": formats.env_name,
    "config-key": formats.config_key,
    "port": formats.port,
    "port-or-name": formats.port_or_name,
    "port-name": formats.port_name,
    "user-id": formats.user_id,
    "ip": formats.ip_address,
    "local-path": formats.local_path,
    "no-backsteps": formats.no_backsteps,
    "not-negative": _at_least(0, causes.NEGATIVE),
    "positive": _at_least(1, "must be greater than zero"),
    "above-0": _at_least(1, "must be greater than 0"),
    "file-mode": _within(0, 0o777, FILE_MODE),
    "weight": _within(1, 100, "must be in the range 1-100"),
    "deadline": _within(1, formats.MAX_INT32),
}.items():
    format_rule(_name, _check)


@rule("not-empty")
def _not_empty(value: str, path: str, _scope: Scope) -> list[StatusCause]:
    """For a field that may be left out, but not be said without a value."""
    return [] if value else [causes.required(path)]


@rule("name-prefix")
def _name_prefix(value: str, path: str, _scope: Scope) -> list[StatusCause]:
    """A name that something may be put after."""
    return causes.all_invalid(path, value, names.dns_subdomain(names.name_prefix(value)))


@rule("labels")
def _labels(value: dict[str, str], path: str, _scope: Scope) -> list[StatusCause]:
    return labels(value, path)


def labels(value: dict[str, str], path: str) -> list[StatusCause]:
    """The keys and values of labels; the faults name the map."""
    found: list[StatusCause] = []
    for name, text in value.items():
        found += causes.all_invalid(path, name, names.qualified_name(name))
        found += causes.all_invalid(path, text, names.label_value(text))
    return found


@rule("label-values")
def _label_values(value: list[str], path: str, _scope: Scope) -> list[StatusCause]:
    return _each(value, path, names.label_value)


@rule("group-ids")
def _group_ids(value: list[int], path: str, _scope: Scope) -> list[StatusCause]:
    return _each(value, path, formats.user_id)


@rule("dns-subdomains")
def _dns_subdomains(value: list[str], path: str, _scope: Scope) -> list[StatusCause]:
    return _each(value, path, names.dns_subdomain)


def config_keys(value: dict[str, Any], path: str) -> list[StatusCause]:
    """The names in a config map."""
    return [
        cause
        for name in value
        for cause in causes.all_invalid(key(path, name), name, formats.config_key(name))
    ]


def _each(values: list[Any], path: str, check: Any) -> list[StatusCause]:
    return [
        cause
        for index, value in enumerate(values)
        for cause in causes.all_invalid(item(path, index), value, check(value))
    ]
