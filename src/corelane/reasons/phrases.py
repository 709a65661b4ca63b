"""Parts of sentences, and how a reason's phrase becomes its sentence."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from corelane.cpuset import format_list
from corelane.reasons.codes import Code, Reason

Phrase: TypeAlias = str | Callable[..., str]
"""A format string of the values by position, or a function of them."""


def render(table: Mapping[Code, tuple[str, Phrase]], reason: Reason) -> str:
    """Return the sentence of a reason whose code is in the table."""
    phrase = table[reason.code][1]
    return phrase.format(*reason.values) if isinstance(phrase, str) else phrase(*reason.values)


def count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def numa_nodes(mask: int) -> str:
    return f"NUMA node{'s' if mask & mask - 1 else ''} {format_list(mask)}"
