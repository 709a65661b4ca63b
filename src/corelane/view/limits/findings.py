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
    for finding in report.findings:
        yield _line(finding)
    for finding in report.ignored if ignored else ():
        yield f"{_line(finding)}; ignored: {printable(finding.ignored)}"


def _line(finding: Finding) -> str:
    where = f"{finding.file}:{finding.place.line}:{finding.place.column}: {finding.severity}"
    text = f"{where} {finding.rule}: {_title(finding)}{finding.message}; fix: {finding.fix}"
    return printable(text).replace("\n", " ")


def _title(finding: Finding) -> str:
    """`Deployment prod/web from chart/templates/web.yaml, container app: `, as far as these are known."""
    parts = []
    if finding.kind:
        named = f"{finding.kind} {'/'.join(filter(None, (finding.namespace, finding.name)))}".strip()
        parts.append(f"{named} from {finding.source}" if finding.source else named)
    if finding.container:
        parts.append(f"container {finding.container}")
    return ", ".join(parts) + ": " if parts else ""


def summary(report: LintReport) -> str:
    """The number of findings, in a sentence."""
    counts = Counter(finding.severity for finding in report.findings)
    severities = ", ".join(
        plural(counts[level], str(level)) if level != Severity.INFO else f"{counts[level]} info"
        for level in sorted(Severity, reverse=True)
        if counts[level]
    )
    ignored = f"; {len(report.ignored)} ignored" if report.ignored else ""
    patches = f"; patches, judged by what they set: {report.patches}" if report.patches else ""
    unjudged = "".join(f"; {why}, not judged: {count}" for why, count in report.unjudged.items())
    baseline = f"; {report.known} in the baseline" if report.known else ""
    kinds = [f"{count} {kind}" for kind, count in report.skipped.items() if kind and "." not in kind]
    foreign = [f"{count} {kind}" for kind, count in report.skipped.items() if "." in kind]
    if other := report.skipped.get("", 0):
        kinds.append(plural(other, "other document"))
    skipped = f"; skipped, without containers: {', '.join(kinds)}" if kinds else ""
    skipped += f"; kinds not known here: {', '.join(foreign)}" if foreign else ""
    rest = f"{ignored}{baseline}{patches}{unjudged}{skipped}"
    return f"{plural(report.workloads, 'workload')}: {severities or 'nothing found'}{rest}"


def plain(report: LintReport, notes: Sequence[str] = ()) -> dict[str, Any]:
    """JSON with stable keys; amounts of time in milliseconds."""
    counts = Counter(str(finding.severity) for finding in report.findings)
    return {
        "findings": [_plain(finding) for finding in report.findings],
        "ignored": [{**_plain(finding), "reason": finding.ignored} for finding in report.ignored],
        "faults": [{key: getattr(fault, key) for key in _FAULT} for fault in report.faults],
        "notes": list(notes),
        "summary": {
            "workloads": report.workloads,
            **{str(level): counts[str(level)] for level in Severity},
            "skipped": dict(report.skipped),
            "unjudged": dict(report.unjudged),
        },
    }


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "file": finding.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "source": None,
        **json_value(finding, {"place": "", "ignored": ""}),
        "severity": str(finding.severity),
        **{name: getattr(finding, name) or None for name in ("source", "container")},
        "cost": _cost(finding.cost),
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
    results = [_result(finding, index) for finding in (*report.findings, *report.ignored)]
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


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    named, place = {"fullyQualifiedName": finding.qualified, "kind": "resource"}, finding.place
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        **({"ruleIndex": index[finding.rule]} if finding.rule in index else {}),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{_title(finding)}{finding.message}. Fix: {finding.fix}."},
        "locations": [{**_physical(finding.file, place.line, place.column), "logicalLocations": [named]}],
        "partialFingerprints": {"object/v1": f"{finding.rule}:{finding.file}:{finding.qualified}"},
        "properties": {"fix": finding.fix, "cost": _cost(finding.cost), "patch": finding.patch},
    }
    if finding.source:
        template = {**_physical(finding.source, 0, 0), "message": {"text": "the Helm template of the object"}}
        result["relatedLocations"] = [{"id": 1, **template}]
    if finding.ignored:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.ignored}]
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
