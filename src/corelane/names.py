"""Formats of Kubernetes names, labels and keys: each function returns what is wrong; [] is valid.

Rules: apimachinery's `pkg/util/validation` and `pkg/api/validate/content`.
"""

import re
from functools import lru_cache

_ENDS = "with a letter or digit at both ends"
_LABEL_FORM = f"1 to 63 lower-case letters, digits and '-', {_ENDS}"
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LONGEST_CHECKED = 4096  # nested repeats make regular expressions slow on what is far too long anyway


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches; what is longer than any name does not."""
    return len(text) <= _LONGEST_CHECKED and re.fullmatch(pattern, text, re.ASCII) is not None


def dns_label(text: str) -> list[str]:
    if len(text) <= 63 and matches(LABEL, text):
        return []
    return [f"must be {_LABEL_FORM}"]


def dns_subdomain(text: str) -> list[str]:
    if len(text) <= 253 and matches(SUBDOMAIN, text):
        return []
    return [f"must be labels joined by '.', at most 253 characters; a label is {_LABEL_FORM}"]


def name_prefix(text: str) -> str:
    """Return the text to check for a `generateName`, whose final dash will not end the name."""
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def qualified_name(text: str) -> list[str]:
    """The key of a label, a taint, a condition: a name with or without a domain before it."""
    return list(_qualified_name_faults(text))


@lru_cache(maxsize=1024)
def _qualified_name_faults(text: str) -> tuple[str, ...]:
    """Cached: the keys of labels and annotations are few, and checked with every write of their object."""
    prefix, slash, name = text.rpartition("/")
    faults = [f"prefix {fault}" for fault in dns_subdomain(prefix)] if slash else []
    if len(name) > 63 or not matches(KEY_NAME, name):
        faults.append(f"name must be 1 to 63 letters, digits, '-', '_' and '.', {_ENDS}")
    return tuple(faults)


def label_value(text: str) -> list[str]:
    if not text or (len(text) <= 63 and matches(KEY_NAME, text)):
        return []
    return [f"must be empty or at most 63 letters, digits, '-', '_' and '.', {_ENDS}"]


def path_segment(text: str) -> list[str]:
    """Check that a name can be a segment of a URL's path."""
    if text in {".", ".."}:
        return [f"must not be '{text}'"]
    return [f"must not contain '{letter}'" for letter in "/%" if letter in text]
