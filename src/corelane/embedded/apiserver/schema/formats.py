"""Formats that the tables name: each function returns what is wrong with a value; [] is valid."""

from collections.abc import Callable, Mapping
from typing import Any

from corelane import names

_CONFIG_KEY = "[-._a-zA-Z0-9]{1,253}"
_ENV_NAME = "[ -<>-~]+"
_PORT_NAME = "(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?"
_PERCENT = "[0-9]+%"
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


def config_key(text: str) -> list[str]:
    """The name of a value in a ConfigMap or Secret: it becomes the name of a file."""
    if names.matches(_CONFIG_KEY, text) and text != "." and not text.startswith(".."):
        return []
    return ["must be 1 to 253 letters, digits, '-', '_' and '.', other than '.' and not starting with '..'"]


def env_name(text: str) -> list[str]:
    return [] if names.matches(_ENV_NAME, text) else ["must be printable ASCII characters other than '='"]


def port_name(text: str) -> list[str]:
    if names.matches(_PORT_NAME, text):
        return []
    why = "must be at most 15 lower-case letters, digits and single '-', with a letter and no '-' at the ends"
    return [why]


def port_or_name(value: int | str) -> list[str]:
    if isinstance(value, str):
        return port_name(value)
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535"]


def count_or_percentage(value: int | str) -> list[str]:
    """A number that is not negative, or a whole number of per cent up to 100."""
    if isinstance(value, int):
        return [] if value >= 0 else ["must be at least 0"]
    if names.matches(_PERCENT, value) and len(value.lstrip("0")) <= 4 and int(value[:-1]) <= 100:
        return []
    return ["must be a whole number of per cent from 0% to 100%"]


def reason(text: str) -> list[str]:
    """Why a condition has its status: one word in camel case."""
    if names.matches(_REASON, text):
        return []
    return [
        "must start with a letter, go on with letters, digits, '_', ',' and ':', and not end with ',' or ':'"
    ]


def generated_name(text: str) -> list[str]:
    """A name that something may be put after."""
    return names.dns_subdomain(names.name_prefix(text))


def trimmed(text: str) -> list[str]:
    return [] if text == text.strip() else ["must not start or end with white space"]


def no_backsteps(text: str) -> list[str]:
    return ["must not contain '..'"] if ".." in text.split("/") else []


def local_path(text: str) -> list[str]:
    """A relative path that does not begin with two dots, which atomic writers keep for themselves."""
    if text.startswith(("/", "..")):
        return ["must be a relative path that does not start with '..'"]
    return no_backsteps(text)


FORMATS: Mapping[str, Callable[[Any], list[str]]] = {
    "dns-label": names.dns_label,
    "dns-subdomain": names.dns_subdomain,
    "generated-name": generated_name,
    "qualified-name": names.qualified_name,
    "label-value": names.label_value,
    "config-key": config_key,
    "env-name": env_name,
    "port-name": port_name,
    "port-or-name": port_or_name,
    "count-or-percentage": count_or_percentage,
    "reason": reason,
    "trimmed": trimmed,
    "no-backsteps": no_backsteps,
    "local-path": local_path,
}
PATTERNS: Mapping[str, str] = {
    "dns-label": names.LABEL,
    "dns-subdomain": names.SUBDOMAIN,
    "config-key": _CONFIG_KEY,
    "env-name": _ENV_NAME,
    "reason": _REASON,
}
"""Formats that a regular expression describes well enough for a reader of OpenAPI."""
