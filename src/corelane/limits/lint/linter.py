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
    """Why a file, or a document in it, could not be read; line and column from 1, 0 for the whole file."""

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
        return any(one.severity >= severity for one in self.findings)


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
            found = list(manifests.objects(document.root, file, document.source, custom=custom))
            objects += found
            skipped.update([""] * (not found))
            if bundles.is_kustomization(file, document.root):
                for patch in _readable(file, inline_patches(document.root, content), faults):
                    made = manifests.objects(patch.root, file, custom=custom)
                    objects += (replace(one, partial=True) for one in made if one.pod)
    named = bundles.kustomized(roots)
    placed = bundles.with_variants(bundles.placed(one, named) for one in objects)
    objects = injectors.marked(placed, policy.sidecar_injectors)
    for one in objects:
        if one.pod is None and one.kind not in _BESIDE:
            own = "." not in one.group or one.group in _OWN_GROUPS
            skipped[one.kind if own else f"{one.kind}.{one.group}"] += 1
    comments = {file: Ignores(read_ignores(content, _KNOWN)) for file, content in texts.items()}
    return _report(objects, faults, skipped, comments, policy)


def _readable(
    file: str, documents: Iterable[YAMLDocument | YAMLFault], faults: list[FileFault]
) -> Iterator[YAMLDocument]:
    """The documents; what cannot be read goes to `faults`, once for all templates of a file."""
    templates: list[YAMLFault] = []
    for one in documents:
        if not isinstance(one, YAMLFault):
            yield one
        elif one.template:
            templates.append(one)
        else:
            faults.append(FileFault(file, one.line, one.column, one.message))
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
    found = [_excused(one, comments, policy) for context in contexts for one in _findings(context)]
    severity = policy.severities.get(BAD_IGNORE, Severity.WARNING)
    for file, ignores in comments.items():
        for one in ignores.all:
            if one.fault and severity is not None:
                message = f"this comment {one.fault}, so it ignores nothing"
                fix = "write # corelane: ignore RULE reason"
                found.append(Finding(BAD_IGNORE, severity, file, one.place, "", "", "", "", message, fix))
    found.sort(key=lambda one: (one.file, one.place.line, one.place.column, one.rule))
    return LintReport(
        tuple(one for one in found if not one.ignored),
        tuple(one for one in found if one.ignored),
        tuple(faults),
        sum(one.pod is not None for one in objects),
        sum(one.pod is not None and one.partial and not one.pod.embedded for one in objects),
        dict(sorted(skipped.items())),
        dict(sorted(Counter(one.unjudged for one in objects if one.unjudged).items())),
    )


def _contexts(objects: list[ManifestObject], policy: Policy) -> Iterator[PodContext]:
    """Every object with the objects of its namespace that rules look at."""
    by_namespace: dict[str, list[ManifestObject]] = {}
    for one in objects:
        by_namespace.setdefault(one.namespace or "default", []).append(one)
    for together in by_namespace.values():
        beside: dict[str, list[ManifestObject]] = {}
        for one in together:
            if one.pod or one.kind in _BESIDE:
                beside.setdefault(one.kind, []).append(one)
        if not _GOVERNING & beside.keys():
            yield from (PodContext(one, policy, {}, beside) for one in together)
            continue
        for one in together:
            around = _governed(one, beside)
            ranges = () if one.partial else around.get("LimitRange", ())
            defaults = {resource: range_default(ranges, resource) for resource in ("cpu", "memory")}
            yield PodContext(one, policy, defaults, around)


def _governed(
    one: ManifestObject, beside: Mapping[str, list[ManifestObject]]
) -> dict[str, list[ManifestObject]]:
    """The objects beside one, without the LimitRanges and ResourceQuotas of other deployments."""
    if one.kind in _GOVERNING:
        return {kind: [each for each in of if bundles.governs(one, each)] for kind, of in beside.items()}
    mine = {
        kind: [each for each in beside[kind] if bundles.governs(each, one)]
        for kind in _GOVERNING & beside.keys()
    }
    return {**beside, **mine}


def _findings(context: PodContext) -> list[Finding]:
    """Without advice about CPU limits of containers that are refused for their amounts."""
    found = []
    for rule in RULES:
        lacking = context.object.partial and rule.id in _LACKING
        if lacking or (context.object.unjudged and rule.id not in _ALWAYS):
            continue
        if context.policy.severities.get(rule.id, rule.severity) is not None:
            for remark in rule.check(context):
                one = context.object
                severity = context.policy.severities.get(rule.id) or remark.severity or rule.severity
                message, fix = remark.message, remark.fix
                for name, own in one.fields.items():
                    message, fix = message.replace(name, own), fix.replace(name, own)
                made = Finding(
                    rule.id,
                    severity,
                    one.file,
                    remark.place,
                    one.kind,
                    one.namespace,
                    one.name,
                    remark.container,
                    message,
                    fix,
                    remark.cost,
                    remark.patch,
                    one.source,
                )
                found.append(made)
    refused = {one.container for one in found if one.rule in _REFUSES}
    return [one for one in found if not (one.rule in _ABOUT_LIMITS and one.container in refused)]


def _excused(found: Finding, comments: dict[str, Ignores], policy: Policy) -> Finding:
    what = (found.rule, found.kind, found.namespace, found.name, found.container)
    reason = comments[found.file].reason_for(found.rule, found.place)
    reason = reason or next((one.reason for one in policy.exemptions if one.covers(*what)), "")
    return replace(found, ignored=reason) if reason else found


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

    def __init__(self, found: Iterable[Ignore]) -> None:
        self.all = list(found)
        self._by_line: dict[int, list[Ignore]] = {}
        for one in self.all:
            if not one.fault:
                self._by_line.setdefault(one.line, []).append(one)

    def reason_for(self, rule: str, place: Position) -> str:
        """The reason to ignore a finding; empty where it counts."""
        about = (one for line in {*place.trail, place.line} for one in self._by_line.get(line, ()))
        return next((one.reason for one in about if rule in one.rules or _ANY in one.rules), "")
