"""Formats of Kubernetes names, labels and keys: each function returns what is wrong; [] is valid.

Upstream: apimachinery's `pkg/util/validation` and `pkg/api/validate/content`.
"""

import re
from functools import lru_cache

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_UNDERSCORED = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_UNDERSCORED = rf"{_LABEL_UNDERSCORED}(\.{_LABEL_UNDERSCORED})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ALNUM_ENDS = "and must start and end with an alphanumeric character"
_LABEL_TEXT = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM_ENDS}"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALNUM_ENDS}"
)
_SUBDOMAIN_UNDERSCORED_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    f"{_ALNUM_ENDS}"
)
_KEY_TEXT = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALNUM_ENDS}"
)
_LONGEST_CHECKED = 4096  # nested repeats make regular expressions slow on what is far too long anyway


def matches(pattern: str, text: str) -> bool:
    return len(text) <= _LONGEST_CHECKED and re.fullmatch(pattern, text, re.ASCII) is not None


def explained_format(text: str, pattern: str, *examples: str) -> str:
    cases = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {cases}regex used for validation is '{pattern}')"


def too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def dns_label(text: str) -> list[str]:
    faults = too_long(text, 63)
    if not matches(_LABEL, text):
        if matches(_SUBDOMAIN, text):
            return [*faults, "must not contain dots"]
        faults.append(explained_format(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return faults


def dns_subdomain(text: str, unit: str = "characters") -> list[str]:
    faults = too_long(text, 253, unit)
    if not matches(_SUBDOMAIN, text):
        faults.append(explained_format(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return faults


def dns_subdomain_underscored(text: str) -> list[str]:
    faults = too_long(text, 253)
    if not matches(_SUBDOMAIN_UNDERSCORED, text):
        faults.append(explained_format(_SUBDOMAIN_UNDERSCORED_TEXT, _SUBDOMAIN_UNDERSCORED, "example.com"))
    return faults


def name_prefix(text: str) -> str:
    """Return the text to check for a `generateName`, whose final dash will not end the name."""
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def qualified_name(text: str) -> list[str]:
    """The key of a label, a taint, a condition: a name with or without a domain before it."""
    return list(_qualified_name_faults(text))


@lru_cache(maxsize=1024)
def _qualified_name_faults(text: str) -> tuple[str, ...]:
    """Cached: the keys of labels and annotations are few, and checked with every write of their object."""
    return tuple(_checked_qualified_name(text))


def _checked_qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        form = explained_format(_KEY_TEXT, _NAME, "MyName", "my.name", "123-abc")
        prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {form} {prefix}"]
    faults = _prefix_faults(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    faults += [f"name part {fault}" for fault in too_long(name, 63, "bytes")]
    if not matches(_NAME, name):
        faults.append(f"name part {explained_format(_KEY_TEXT, _NAME, 'MyName', 'my.name', '123-abc')}")
    return faults


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    return [f"prefix part {fault}" for fault in dns_subdomain(prefix, "bytes")]


def label_value(text: str) -> list[str]:
    faults = too_long(text, 63, "bytes")
    if not matches(f"({_NAME})?", text):
        faults.append(explained_format(_VALUE_TEXT, f"({_NAME})?", "MyValue", "my_value", "12345"))
    return faults


def path_segment(text: str) -> list[str]:
    """Check that a name can be a segment of a URL's path."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]
