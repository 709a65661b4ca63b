"""A baseline for lint: the findings of an earlier report, so that a run reports new ones only."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from corelane import input_files
from corelane.limits.lint.findings import Finding
from corelane.limits.lint.linter import LintReport
from corelane.limits.lint.policy import Severity

_STDIN: Final = "-"
_LEVELS: Final = {"note": Severity.INFO, "warning": Severity.WARNING, "error": Severity.ERROR}
Key: TypeAlias = tuple[str, str, str]
"""Rule, file, and object with container: lines move, these do not."""
Baseline: TypeAlias = dict[Key, list[Severity]]
"""Severities of the findings."""


class BaselineError(ValueError):
    """A baseline that cannot be used; the message states why."""


def load(path: Path) -> Baseline:
    """Read a report that `-o json` or `-o sarif` wrote. Raises BaselineError."""
    try:
        tree = json.loads(input_files.read(path, input_files.OBJECTS_BYTES))
        found = list(_sarif(tree) if "runs" in tree else _plain(tree))
    except OSError as error:
        raise BaselineError(error.strerror or str(error)) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BaselineError(
            "is not a report of corelane limits lint: write it with -o json or -o sarif"
        ) from None
    baseline: Baseline = {}
    for key, severity in found:
        baseline.setdefault(key, []).append(severity)
    return baseline


def _plain(tree: Any) -> Iterator[tuple[Key, Severity]]:
    for one in tree["findings"]:
        parts = (one[name] for name in ("namespace", "kind", "name", "container"))
        yield _key(one["rule"], one["file"], "/".join(filter(None, parts))), Severity[one["severity"].upper()]


def _sarif(tree: Any) -> Iterator[tuple[Key, Severity]]:
    for run in tree["runs"]:
        for one in run["results"]:
            if not one.get("suppressions"):
                rule, _, rest = one["partialFingerprints"]["object/v1"].partition(":")
                file, _, name = rest.rpartition(":")
                yield _key(rule, file, name), _LEVELS[one["level"]]


def _key(rule: str, file: str, name: str) -> Key:
    return rule, posixpath.normpath(file), name


def without(report: LintReport, baseline: Baseline) -> LintReport:
    """The report without the findings of a baseline; one that has become more severe is new.

    A file of the baseline that is gone has been renamed, or was linted by another path: what is left of its
    findings is looked for in the other files.
    """
    left = {key: sorted(severities) for key, severities in baseline.items()}
    new = [one for one in report.findings if not _drop(left, _key_of(one), one.severity)]
    gone = {file for _, file, _ in left if file != _STDIN and not Path(file).exists()}
    moved: dict[Key, list[Severity]] = {}
    for (rule, file, name), severities in left.items():
        if file in gone:
            moved.setdefault((rule, "", name), []).extend(severities)
    new = [one for one in new if not _drop(moved, (one.rule, "", _name(one)), one.severity)]
    return replace(report, findings=tuple(new), known=len(report.findings) - len(new))


def _drop(left: dict[Key, list[Severity]], key: Key, severity: Severity) -> bool:
    """Whether a baseline has a finding as severe; each of its findings counts once."""
    severities = left.get(key, [])
    match = min((each for each in severities if each >= severity), default=None)
    if match is not None:
        severities.remove(match)
    return match is not None


def _key_of(one: Finding) -> Key:
    return _key(one.rule, one.file, _name(one))


def _name(one: Finding) -> str:
    return "/".join(filter(None, (one.namespace, one.kind, one.name, one.container)))
