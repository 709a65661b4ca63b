"""Lint texts: read documents, put objects into context, apply every rule, then the comments that ignore."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.limits.lint import bundles, injectors, manifests, yaml_documents
from corelane.limits.lint.custom_resources import by_kind
from corelane.limits.lint.findings import Finding
from corelane.limits.lint.located import Located, Position
from corelane.limits.lint.manifests import ManifestObject
from corelane.limits.lint.pod_context import PodContext, range_default
from corelane.limits.lint.policy import Policy, Severity
from corelane.limits.lint.rules import BY_ID, RULES, amounts
from corelane.limits.lint.yaml_documents import YAMLDocument, YAMLFault, inline_patches

_ANY: Final = "all"
_COMMENT: Final = re.compile(r"(?:^|\s)#\s*corelane:\s*ignore\b[ \t]*([^\s#]*)[ \t]*(.*)")
_ALONE: Final = re.compile(r"^\s*#")
BAD_IGNORE: Final = "bad-ignore"
_BESIDE: Final = frozenset(
    {"LimitRange", "ResourceQuota", "HorizontalPodAutoscaler", "KubeletConfiguration", "ScaledObject"}
)
_GOVERNING: Final = frozenset({"LimitRange", "ResourceQuota"})
_LACKING: Final = frozenset(
    {
        "exclusive-cpus-lost",
        "limit-from-range",
        "memory-limit-missing",
        "no-cpu-request",
        "limitrange-refuses-pod",
        "quota-refuses-pod",
        "request-from-limit",
        "threads-follow-limit",
    }
)
"""Rules about what is missing, which a patch cannot answer."""
_ALWAYS: Final = frozenset(
    {*(rule.id for rule in amounts.RULES), "limitrange-refuses-pod", "quota-refuses-pod"}
)
"""Rules about what the API server rejects, on any node and for any time."""
_GROUP_NAMES: Final = """
    admissionregistration apiextensions apiregistration authentication authorization certificates coordination
    discovery events flowcontrol.apiserver gateway.networking metrics networking node rbac.authorization
    resource scheduling snapshot.storage storage storagemigration
"""
_OWN_GROUPS: Final = frozenset(f"{name}.k8s.io" for name in _GROUP_NAMES.split())
"""Kubernetes' API groups of kinds without containers, beside those without a domain."""
_REFUSES: Final = frozenset({"limitrange-refuses-pod", "no-node-fits"})
_ABOUT_LIMITS: Final = frozenset({"cpu-limit", "limit-from-range"})
_KNOWN: Final = frozenset(BY_ID)


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file, or a document in it, that could not be read; line and column from 1, 0 for the whole file."""

    file: str
    line: int
    column: int
    message: str
    helm: bool = False
    """Whether it is a template of Helm."""

    def __str__(self) -> str:
        where = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class LintReport:
    """Findings that count and those ignored, by file and line; what could not be read or was skipped."""

    findings: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = ()
    faults: tuple[FileFault, ...] = ()
    workloads: int = 0
    patches: int = 0
    """Workloads, of these, that are patches: judged by what they set."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of kinds without containers, others' as `Kind.group`, and of other documents ("")."""
    unjudged: Mapping[str, int] = field(default_factory=dict)
    """Workloads, of these, judged by what the API server rejects only: why, and how many."""
    known: int = 0
    """Findings left out, as they are in a baseline."""

    def at_least(self, severity: int) -> bool:
        """Whether any finding that counts is at least that severe."""
        return any(finding.severity >= severity for finding in self.findings)


def lint(texts: Mapping[str, str], policy: Policy) -> LintReport:
    """Lint files, name to content; objects of all files are each other's context.

    Invalid documents become faults.
    """
    faults: list[FileFault] = []
    objects: list[ManifestObject] = []
    roots: list[tuple[str, Located]] = []
    skipped: Counter[str] = Counter()
    custom = by_kind(policy.custom_resources)
    for file, content in texts.items():
        for document in _readable(file, yaml_documents.read(content), faults):
            roots.append((file, document.root))
            inside = list(manifests.objects(document.root, file, document.source, custom=custom))
            objects += inside
            skipped.update([""] * (not inside))
            if bundles.is_kustomization(file, document.root):
                for patch in _readable(file, inline_patches(document.root, content), faults):
                    made = manifests.objects(patch.root, file, custom=custom)
                    objects += (replace(patched, partial=True) for patched in made if patched.pod)
    named = bundles.kustomized(roots)
    placed = bundles.with_variants(bundles.placed(manifest, named) for manifest in objects)
    objects = injectors.marked(placed, policy.sidecar_injectors)
    for manifest in objects:
        if manifest.pod is None and manifest.kind not in _BESIDE:
            own = "." not in manifest.group or manifest.group in _OWN_GROUPS
            skipped[manifest.kind if own else f"{manifest.kind}.{manifest.group}"] += 1
    comments = {file: Ignores(read_ignores(content, _KNOWN)) for file, content in texts.items()}
    return _report(objects, faults, skipped, comments, policy)


def _readable(
    file: str, documents: Iterable[YAMLDocument | YAMLFault], faults: list[FileFault]
) -> Iterator[YAMLDocument]:
    """The documents; what cannot be read goes to `faults`, once for all templates of a file."""
    templates: list[YAMLFault] = []
    for document in documents:
        if not isinstance(document, YAMLFault):
            yield document
        elif document.template:
            templates.append(document)
        else:
            faults.append(FileFault(file, document.line, document.column, document.message))
    if templates:
        first, count = templates[0], len(templates)
        message = first.message + (f" ({count} documents)" if count > 1 else "")
        faults.append(FileFault(file, first.line, first.column, message, first.helm))


def _report(
    objects: list[ManifestObject],
    faults: list[FileFault],
    skipped: Counter[str],
    comments: dict[str, Ignores],
    policy: Policy,
) -> LintReport:
    contexts = _contexts(objects, policy)
    findings = [_excused(finding, comments, policy) for context in contexts for finding in _findings(context)]
    severity = policy.severities.get(BAD_IGNORE, Severity.WARNING)
    for file, ignores in comments.items():
        for ignore in ignores.all:
            if ignore.fault and severity is not None:
                message = f"this comment {ignore.fault}, so it ignores nothing"
                fix = "write # corelane: ignore RULE reason"
                where = (file, ignore.place, "", "", "", "")
                findings.append(Finding(BAD_IGNORE, severity, *where, message, fix))
    findings.sort(key=lambda finding: (finding.file, finding.place.line, finding.place.column, finding.rule))
    return LintReport(
        tuple(finding for finding in findings if not finding.ignored),
        tuple(finding for finding in findings if finding.ignored),
        tuple(faults),
        sum(manifest.pod is not None for manifest in objects),
        sum(each.pod is not None and each.partial and not each.pod.embedded for each in objects),
        dict(sorted(skipped.items())),
        dict(sorted(Counter(manifest.unjudged for manifest in objects if manifest.unjudged).items())),
    )


def _contexts(objects: list[ManifestObject], policy: Policy) -> Iterator[PodContext]:
    """Every object with the objects of its namespace that rules look at."""
    by_namespace: dict[str, list[ManifestObject]] = {}
    for manifest in objects:
        by_namespace.setdefault(manifest.namespace or "default", []).append(manifest)
    for together in by_namespace.values():
        beside: dict[str, list[ManifestObject]] = {}
        for manifest in together:
            if manifest.pod or manifest.kind in _BESIDE:
                beside.setdefault(manifest.kind, []).append(manifest)
        if not _GOVERNING & beside.keys():
            yield from (PodContext(manifest, policy, {}, beside) for manifest in together)
            continue
        for manifest in together:
            around = _governed(manifest, beside)
            ranges = () if manifest.partial else around.get("LimitRange", ())
            defaults = {resource: range_default(ranges, resource) for resource in ("cpu", "memory")}
            yield PodContext(manifest, policy, defaults, around)


def _governed(
    manifest: ManifestObject, beside: Mapping[str, list[ManifestObject]]
) -> dict[str, list[ManifestObject]]:
    """The objects beside one, without the LimitRanges and ResourceQuotas of other deployments."""
    if manifest.kind in _GOVERNING:
        return {kind: [each for each in of if bundles.governs(manifest, each)] for kind, of in beside.items()}
    mine = {
        kind: [each for each in beside[kind] if bundles.governs(each, manifest)]
        for kind in _GOVERNING & beside.keys()
    }
    return {**beside, **mine}


def _findings(context: PodContext) -> list[Finding]:
    """Without advice about CPU limits of containers that are refused for their amounts."""
    findings = []
    for rule in RULES:
        lacking = context.object.partial and rule.id in _LACKING
        if lacking or (context.object.unjudged and rule.id not in _ALWAYS):
            continue
        if context.policy.severities.get(rule.id, rule.severity) is not None:
            for remark in rule.check(context):
                manifest = context.object
                severity = context.policy.severities.get(rule.id) or remark.severity or rule.severity
                message, fix = remark.message, remark.fix
                for name, own in manifest.fields.items():
                    message, fix = message.replace(name, own), fix.replace(name, own)
                made = Finding(
                    rule.id,
                    severity,
                    manifest.file,
                    remark.place,
                    manifest.kind,
                    manifest.namespace,
                    manifest.name,
                    remark.container,
                    message,
                    fix,
                    remark.cost,
                    remark.patch,
                    manifest.source,
                )
                findings.append(made)
    refused = {finding.container for finding in findings if finding.rule in _REFUSES}
    return [
        finding
        for finding in findings
        if not (finding.rule in _ABOUT_LIMITS and finding.container in refused)
    ]


def _excused(finding: Finding, comments: dict[str, Ignores], policy: Policy) -> Finding:
    what = (finding.rule, finding.kind, finding.namespace, finding.name, finding.container)
    reason = comments[finding.file].reason_for(finding.rule, finding.place)
    reason = reason or next(
        (exemption.reason for exemption in policy.exemptions if exemption.covers(*what)), ""
    )
    return replace(finding, ignored=reason) if reason else finding


# Comments that ignore findings.


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment that ignores the rules it names on `line` and in everything that begins there."""

    rules: tuple[str, ...]
    reason: str
    line: int
    place: Position
    fault: str = ""
    """Reason why it ignores nothing."""


def read_ignores(content: str, rules: Collection[str]) -> list[Ignore]:
    """The comments of a file. One on a line of its own is about the next line without one."""
    lines = content.splitlines()
    about = following = 0
    ignores: list[Ignore] = []
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        if _ALONE.match(line):
            about = following or number
        else:
            about = number
            following = number if line.strip() else following
        if comment := _COMMENT.search(line):
            names = tuple(filter(None, comment[1].split(",")))
            unknown = [name for name in names if name != _ANY and name not in rules]
            reason = comment[2].strip(" :-")
            fault = "" if reason else "gives no reason"
            if unknown or not names:
                fault = f"names {', '.join(unknown)}, which is not a rule" if names else "names no rule"
            place = Position(number, comment.start() + 1, (number,))
            ignores.insert(0, Ignore(names, reason, about, place, fault))
    return ignores


class Ignores:
    """The comments of a file, by the line that each is about."""

    def __init__(self, ignores: Iterable[Ignore]) -> None:
        self.all = list(ignores)
        self._by_line: dict[int, list[Ignore]] = {}
        for ignore in self.all:
            if not ignore.fault:
                self._by_line.setdefault(ignore.line, []).append(ignore)

    def reason_for(self, rule: str, place: Position) -> str:
        """The reason to ignore a finding; empty where it counts."""
        about = (ignore for line in {*place.trail, place.line} for ignore in self._by_line.get(line, ()))
        return next((ignore.reason for ignore in about if rule in ignore.rules or _ANY in ignore.rules), "")
