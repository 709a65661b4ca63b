"""A lint report as lines to grep, as JSON with stable keys, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from corelane.limits.lint.findings import Finding, LintRule
from corelane.limits.lint.linter import LintReport
from corelane.limits.lint.pod_context import QuotaCost
from corelane.limits.lint.policy import Severity
from corelane.node.explain.json_values import json_value
from corelane.view.cpumap import plural
from corelane.view.tables import printable

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
_STDIN: Final = "-"
_FAULT: Final = ("file", "line", "column", "message")


def lines(report: LintReport, *, ignored: bool = False) -> Iterator[str]:
    """One line a finding: file:line:column, severity, rule, object, container, the fact and the fix."""
    for one in report.findings:
        yield _line(one)
    for one in report.ignored if ignored else ():
        yield f"{_line(one)}; ignored: {printable(one.ignored)}"


def _line(one: Finding) -> str:
    where = f"{one.file}:{one.place.line}:{one.place.column}"
    text = f"{where}: {one.severity} {one.rule}: {_title(one)}{one.message}; fix: {one.fix}"
    return printable(text).replace("\n", " ")


def _title(one: Finding) -> str:
    """`Deployment prod/web from chart/templates/web.yaml, container app: `, as far as these are known."""
    parts = []
    if one.kind:
        named = f"{one.kind} {'/'.join(filter(None, (one.namespace, one.name)))}".strip()
        parts.append(f"{named} from {one.source}" if one.source else named)
    if one.container:
        parts.append(f"container {one.container}")
    return ", ".join(parts) + ": " if parts else ""


def summary(report: LintReport) -> str:
    """The number of findings, in a sentence."""
    counts = Counter(one.severity for one in report.findings)
    found = ", ".join(
        plural(counts[level], str(level)) if level != Severity.INFO else f"{counts[level]} info"
        for level in sorted(Severity, reverse=True)
        if counts[level]
    )
    ignored = f"; {len(report.ignored)} ignored" if report.ignored else ""
    patches = f"; patches, judged by what they set: {report.patches}" if report.patches else ""
    unjudged = "".join(f"; {why}, not judged: {count}" for why, count in report.unjudged.items())
    known = f"; {report.known} in the baseline" if report.known else ""
    kinds = [f"{count} {kind}" for kind, count in report.skipped.items() if kind and "." not in kind]
    foreign = [f"{count} {kind}" for kind, count in report.skipped.items() if "." in kind]
    if other := report.skipped.get("", 0):
        kinds.append(plural(other, "other document"))
    skipped = f"; skipped, without containers: {', '.join(kinds)}" if kinds else ""
    skipped += f"; kinds not known here: {', '.join(foreign)}" if foreign else ""
    rest = f"{ignored}{known}{patches}{unjudged}{skipped}"
    return f"{plural(report.workloads, 'workload')}: {found or 'nothing found'}{rest}"


def plain(report: LintReport, notes: Sequence[str] = ()) -> dict[str, Any]:
    """JSON with stable keys; amounts of time in milliseconds."""
    counts = Counter(str(one.severity) for one in report.findings)
    return {
        "findings": [_plain(one) for one in report.findings],
        "ignored": [{**_plain(one), "reason": one.ignored} for one in report.ignored],
        "faults": [{key: getattr(one, key) for key in _FAULT} for one in report.faults],
        "notes": list(notes),
        "summary": {
            "workloads": report.workloads,
            **{str(level): counts[str(level)] for level in Severity},
            "skipped": dict(report.skipped),
            "unjudged": dict(report.unjudged),
        },
    }


def _plain(one: Finding) -> dict[str, Any]:
    return {
        "file": one.file,
        "line": one.place.line,
        "column": one.place.column,
        "source": None,
        **json_value(one, {"place": "", "ignored": ""}),
        "severity": str(one.severity),
        **{name: getattr(one, name) or None for name in ("source", "container")},
        "cost": _cost(one.cost),
    }


def _cost(cost: QuotaCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "threads": cost.threads,
        "quotaMs": cost.quota_ms,
        "periodMs": cost.period_ms,
        "stallMs": round(cost.stall_ms, 3),
        "lostMsPerSecond": round(cost.lost_ms_per_s, 3),
    }


def sarif(report: LintReport, rules: Iterable[LintRule], version: str) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run; ignored findings are results with a suppression."""
    table = list(rules)
    index = {rule.id: i for i, rule in enumerate(table)}
    results = [_result(one, index) for one in (*report.findings, *report.ignored)]
    driver = {
        "name": "corelane limits lint",
        "version": version,
        "semanticVersion": version,
        "rules": [_descriptor(rule) for rule in table],
    }
    notifications = [
        {
            "level": "error",
            "message": {"text": fault.message},
            "locations": [_physical(fault.file, fault.line, fault.column)],
        }
        for fault in report.faults
    ]
    invocation = {
        "executionSuccessful": not report.faults,
        "toolExecutionNotifications": notifications,
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: LintRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix, "markdown": f"{rule.why}\n\n**Fix.** {rule.fix}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(one: Finding, index: dict[str, int]) -> dict[str, Any]:
    named = {"fullyQualifiedName": one.qualified, "kind": "resource"}
    result: dict[str, Any] = {
        "ruleId": one.rule,
        **({"ruleIndex": index[one.rule]} if one.rule in index else {}),
        "level": _LEVELS[one.severity],
        "message": {"text": f"{_title(one)}{one.message}. Fix: {one.fix}."},
        "locations": [{**_physical(one.file, one.place.line, one.place.column), "logicalLocations": [named]}],
        "partialFingerprints": {"object/v1": f"{one.rule}:{one.file}:{one.qualified}"},
        "properties": {"fix": one.fix, "cost": _cost(one.cost), "patch": one.patch},
    }
    if one.source:
        template = {**_physical(one.source, 0, 0), "message": {"text": "the Helm template of the object"}}
        result["relatedLocations"] = [{"id": 1, **template}]
    if one.ignored:
        result["suppressions"] = [{"kind": "inSource", "justification": one.ignored}]
    return result


def _physical(file: str, line: int, column: int) -> dict[str, Any]:
    region = {"region": {"startLine": line, "startColumn": column}} if line else {}
    path = "stdin" if file == _STDIN else file.replace("\\", "/").removeprefix("./")
    uri = ("file://" if path.startswith("/") else "") + quote(path)
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **region}}


def listing(rules: Iterable[LintRule]) -> Iterator[str]:
    """Yield a line for every rule."""
    for rule in rules:
        yield f"{rule.id:<26} {rule.severity!s:<8} {rule.title}"


def explanation(rule: LintRule) -> str:
    """Explain a rule."""
    return f"{rule.id} ({rule.severity}): {rule.title}\n\nWhy: {rule.why}\n\nFix: {rule.fix}"
