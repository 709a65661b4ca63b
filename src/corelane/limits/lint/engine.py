"""Texts in, report out: reads documents, puts objects side by side, asks every rule, applies ignores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.limits.lint import ignores, manifest, reading
from corelane.limits.lint.amounts import Nanos
from corelane.limits.lint.findings import Finding, Remark, Rule, Severity
from corelane.limits.lint.ignores import Ignore, Ignores
from corelane.limits.lint.manifest import Object
from corelane.limits.lint.nodes import items, text
from corelane.limits.lint.policy import Exemption, Policy
from corelane.limits.lint.reading import Fault
from corelane.limits.lint.rules import BY_ID, RULES
from corelane.limits.lint.scene import PodContext, range_default

__all__ = ["BAD_IGNORE", "FileFault", "Report", "lint"]

BAD_IGNORE: Final = "bad-ignore"
_BESIDE: Final = frozenset({"LimitRange", "ResourceQuota", "HorizontalPodAutoscaler", "KubeletConfiguration"})
_KNOWN: Final = frozenset({*BY_ID, BAD_IGNORE})


@dataclass(frozen=True, slots=True)
class FileFault:
    """Why a file, or a document in it, could not be read; line and column count from 1, 0 for all of it."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        where = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Report:
    """Findings that count and those ignored, in order of file and line; what could not be read; what else."""

    findings: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = ()
    faults: tuple[FileFault, ...] = ()
    workloads: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Kinds without containers, and documents that are no manifests (""), with how many there were."""

    def at_least(self, severity: int) -> bool:
        """Whether a finding that counts is that severe."""
        return any(one.severity >= severity for one in self.findings)


def lint(texts: Mapping[str, str], policy: Policy, nanos: Nanos) -> Report:
    """Lint files, name to content; objects in all of them are considered side by side.

    `nanos` reads a Kubernetes quantity to billionths and raises ValueError. Broken documents become faults.
    """
    faults: list[FileFault] = []
    objects: list[Object] = []
    skipped: Counter[str] = Counter()
    for file, content in texts.items():
        for document in reading.read(content):
            if isinstance(document, Fault):
                faults.append(FileFault(file, document.line, document.column, document.message))
                continue
            found = list(manifest.objects(document.root, file, document.source, nanos))
            objects += found
            skipped.update([""] * (not found))
    skipped.update(one.kind for one in objects if one.pod is None and one.kind not in _BESIDE)
    comments = {file: Ignores(ignores.read(content, _KNOWN)) for file, content in texts.items()}
    return _report(objects, faults, skipped, comments, policy, nanos)


def _report(
    objects: list[Object],
    faults: list[FileFault],
    skipped: Counter[str],
    comments: dict[str, Ignores],
    policy: Policy,
    nanos: Nanos,
) -> Report:
    scenes = list(_scenes(objects, policy, nanos))
    found = [_excused(one, comments, policy) for scene in scenes for one in _findings(scene)]
    found += [one for file, all_of in comments.items() for one in _bad_ignores(file, all_of.all, policy)]
    found.sort(key=lambda one: (one.file, one.place.line, one.place.column, one.rule))
    return Report(
        tuple(one for one in found if not one.ignored),
        tuple(one for one in found if one.ignored),
        tuple(faults),
        sum(one.pod is not None for one in objects),
        dict(sorted(skipped.items())),
    )


def _scenes(objects: list[Object], policy: Policy, nanos: Nanos) -> Iterator[PodContext]:
    """Every object with those of its namespace that matter beside it."""
    by_namespace: dict[str, list[Object]] = {}
    for one in objects:
        by_namespace.setdefault(one.namespace or "default", []).append(one)
    for together in by_namespace.values():
        beside: dict[str, list[Object]] = {}
        for one in together:
            if one.pod or one.kind in _BESIDE:
                beside.setdefault(one.kind, []).append(one)
        ranges = [_range(one, nanos) for one in together if one.kind == "LimitRange"]
        defaults = {resource: range_default(ranges, resource) for resource in ("cpu", "memory")}
        for one in together:
            yield PodContext(one, policy, defaults, beside)


def _range(limits: Object, nanos: Nanos) -> tuple[str, dict[str, tuple[int, int, int, int]]]:
    found: dict[str, tuple[int, int, int, int]] = {}
    for item in items(limits.node, "spec", "limits"):
        if text(item, "type") == "Container":
            for resource in ("cpu", "memory"):
                keys = ("default", "defaultRequest", "max", "min")
                default, request, most, least = (_read(text(item, key, resource), nanos) for key in keys)
                found[resource] = (default, request, most, least)
    return limits.name, found


def _read(written: str, nanos: Nanos) -> int:
    try:
        return max(nanos(written), 0) if written else 0
    except ValueError:
        return 0


def _findings(scene: PodContext) -> Iterator[Finding]:
    for rule in RULES:
        if scene.policy.severities.get(rule.id, rule.severity) is not None:
            for remark in rule.check(scene):
                yield _finding(scene, rule, remark)


def _finding(scene: PodContext, rule: Rule, remark: Remark) -> Finding:
    one = scene.object
    severity = scene.policy.severities.get(rule.id) or remark.severity or rule.severity
    return Finding(
        rule.id,
        severity,
        one.file,
        remark.place,
        one.kind,
        one.namespace,
        one.name,
        remark.container,
        remark.message,
        remark.fix,
        remark.cost,
        remark.patch,
        one.source,
    )


def _excused(found: Finding, comments: dict[str, Ignores], policy: Policy) -> Finding:
    reason = comments[found.file].reason_for(found.rule, found.place)
    reason = reason or _exempted(found, policy.exemptions)
    return replace(found, ignored=reason) if reason else found


def _exempted(found: Finding, exemptions: Iterable[Exemption]) -> str:
    what = (found.rule, found.kind, found.namespace, found.name, found.container)
    return next((one.reason for one in exemptions if one.covers(*what)), "")


def _bad_ignores(file: str, comments: list[Ignore], policy: Policy) -> Iterator[Finding]:
    severity = policy.severities.get(BAD_IGNORE, Severity.WARNING)
    for one in comments:
        if one.fault and severity is not None:
            message = f"this comment {one.fault}, so it excuses nothing"
            fix = "write # corelane: ignore RULE reason"
            yield Finding(BAD_IGNORE, severity, file, one.place, "", "", "", "", message, fix)
