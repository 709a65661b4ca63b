"""A baseline for lint: the findings of an earlier report, so that a run reports new ones only."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corelane.limits.lint.linter import LintReport
from corelane.limits.lint.policy import Severity

_LEVELS: Final = {"note": Severity.INFO, "warning": Severity.WARNING, "error": Severity.ERROR}
Baseline = dict[str, list[Severity]]
"""Severities of the findings by rule, file, object and container: lines move, these do not."""


class BaselineError(ValueError):
    """A baseline that cannot be used; the message states why."""


def load(path: Path) -> Baseline:
    """Read a report that `-o json` or `-o sarif` wrote. Raises BaselineError."""
    try:
        tree = json.loads(path.read_bytes())
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


def _plain(tree: Any) -> Iterator[tuple[str, Severity]]:
    for one in tree["findings"]:
        parts = (one[name] for name in ("namespace", "kind", "name", "container"))
        yield _key(one["rule"], one["file"], "/".join(filter(None, parts))), Severity[one["severity"].upper()]


def _sarif(tree: Any) -> Iterator[tuple[str, Severity]]:
    for run in tree["runs"]:
        for one in run["results"]:
            if not one.get("suppressions"):
                rule, _, rest = one["partialFingerprints"]["object/v1"].partition(":")
                file, _, name = rest.rpartition(":")
                yield _key(rule, file, name), _LEVELS[one["level"]]


def _key(rule: str, file: str, name: str) -> str:
    return f"{rule}:{posixpath.normpath(file)}:{name}"


def without(report: LintReport, baseline: Baseline) -> LintReport:
    """The report without the findings of a baseline; one that has become more severe is new."""
    left = {key: sorted(severities) for key, severities in baseline.items()}
    new = []
    for one in report.findings:
        name = "/".join(filter(None, (one.namespace, one.kind, one.name, one.container)))
        severities = left.get(_key(one.rule, one.file, name), [])
        match = next((each for each in severities if each >= one.severity), None)
        if match is None:
            new.append(one)
        else:
            severities.remove(match)
    return replace(report, findings=tuple(new), known=len(report.findings) - len(new))
