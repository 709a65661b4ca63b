"""`# corelane: ignore RULE reason`: which lines excuse which findings, and comments that excuse nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from corelane.limits.lint.nodes import Place

__all__ = ["ANY", "Ignore", "Ignores", "read"]

ANY: Final = "all"
_COMMENT: Final = re.compile(r"(?:^|\s)#\s*corelane:\s*ignore\b[ \t]*([^\s#]*)[ \t]*(.*?)\s*$")
_ALONE: Final = re.compile(r"^\s*#")


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment that excuses the rules it names on `line` and in everything that begins there."""

    rules: tuple[str, ...]
    reason: str
    line: int
    place: Place
    fault: str = ""
    """Why it excuses nothing."""


def read(content: str, known: Collection[str]) -> list[Ignore]:
    """The comments of a file. One on a line of its own is about the next line that is none."""
    lines = content.splitlines()
    return [
        _ignore(found, number, _meant(lines, number), known)
        for number, line in enumerate(lines, 1)
        if (found := _COMMENT.search(line))
    ]


def _meant(lines: list[str], number: int) -> int:
    """The line that a comment in line `number` is about."""
    if not _ALONE.match(lines[number - 1]):
        return number
    rest = range(number + 1, len(lines) + 1)
    return next((n for n in rest if lines[n - 1].strip() and not _ALONE.match(lines[n - 1])), number)


def _ignore(found: re.Match[str], number: int, line: int, known: Collection[str]) -> Ignore:
    rules = tuple(filter(None, found[1].split(",")))
    reason = found[2].strip(" :-")
    return Ignore(
        rules, reason, line, Place(number, found.start() + 1, (number,)), _fault(rules, reason, known)
    )


def _fault(rules: tuple[str, ...], reason: str, known: Collection[str]) -> str:
    unknown = [rule for rule in rules if rule != ANY and rule not in known]
    if not rules:
        return "names no rule"
    if unknown:
        return f"names {', '.join(unknown)}, which is no rule"
    return "" if reason else "gives no reason"


class Ignores:
    """The comments of a file, by the line that each is about."""

    def __init__(self, found: Iterable[Ignore]) -> None:
        self.all = list(found)
        self._by_line: dict[int, list[Ignore]] = {}
        for one in self.all:
            if not one.fault:
                self._by_line.setdefault(one.line, []).append(one)

    def reason_for(self, rule: str, place: Place) -> str:
        """The reason that is given for leaving a finding be; empty where there is none."""
        about = (one for line in {*place.trail, place.line} for one in self._by_line.get(line, ()))
        return next((one.reason for one in about if rule in one.rules or ANY in one.rules), "")
