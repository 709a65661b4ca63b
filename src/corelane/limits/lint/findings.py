"""Rules, their remarks, and the findings of a report; and how these write amounts, costs and patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from inspect import cleandoc
from typing import Any, Final

from corelane.limits.lint.located import Position
from corelane.limits.lint.manifests import POD_PATHS, ManifestContainer, ManifestObject
from corelane.limits.lint.pod_context import PodContext, QuotaCost
from corelane.limits.lint.policy import Severity
from corelane.workload.request import ContainerKind


@dataclass(frozen=True, slots=True)
class Remark:
    """A rule's remark at a position: the fact with its numbers, and the fix."""

    place: Position
    message: str
    fix: str
    severity: Severity | None = None
    """None for the rule's own."""
    container: str = ""
    cost: QuotaCost | None = None
    patch: Mapping[str, Any] | None = None
    """A strategic merge patch for the object (`kubectl patch --patch`)."""


Check = Callable[[PodContext], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class LintRule:
    """A rule and its explanation; `check` is a pure function of an object in its context."""

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    check: Check


def rule(name: str, severity: Severity, fix: str) -> Callable[[Check], LintRule]:
    """Make a rule of a check: its docstring's first line is the title, the rest why it matters."""

    def made(check: Check) -> LintRule:
        title, _, why = cleandoc(check.__doc__ or "").partition("\n\n")
        title = title[:1].lower() + title[1:].removesuffix(".")
        return LintRule(name, severity, title, " ".join(why.split()), fix, check)

    return made


@dataclass(frozen=True, slots=True)
class Finding:
    """A remark on an object in a file. `source` is the Helm template of the object."""

    rule: str
    severity: Severity
    file: str
    place: Position
    kind: str
    namespace: str
    name: str
    container: str
    message: str
    fix: str
    cost: QuotaCost | None = None
    patch: Mapping[str, Any] | None = None
    source: str = ""
    ignored: str = field(default="")
    """The reason to ignore it; empty where it counts."""

    @property
    def qualified(self) -> str:
        """Namespace, kind, name and container of the object, as far as it has them."""
        return "/".join(filter(None, (self.namespace, self.kind, self.name, self.container)))


# How findings write amounts, costs and patches.

PATCHED: Final = {kind: path for kind, path in POD_PATHS.items() if kind not in ("Pod", "Job")}
"""Kinds for strategic merge patches: running pods and jobs keep their resources, CRDs have no merge."""


_HUNDREDTH: Final = Decimal("0.01")
_MICROSECOND: Final = Decimal("0.001")


def cpus(milli: int) -> str:
    """MilliCPU as manifests write it: `250m`, `2`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def ms(value: float) -> str:
    """Milliseconds with up to two decimals, halves rounded up; less than that in microseconds."""
    exact = Decimal(repr(round(value, 6)))
    step = _HUNDREDTH if exact == 0 or exact >= _HUNDREDTH / 2 else _MICROSECOND
    return f"{exact.quantize(step, ROUND_HALF_UP).normalize():f} ms"


def many(count: int, word: str) -> str:
    """A count and its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def stall(cost: QuotaCost) -> str:
    """Phrase what a quota does to busy threads."""
    verb = "is" if cost.threads == 1 else "are"
    who = "one busy thread uses it up" if cost.threads == 1 else f"{cost.threads} busy threads use it up"
    return f"{who} in {ms(cost.after_ms)} and {verb} stopped for {ms(cost.stall_ms)}"


def container_patch(
    subject: ManifestObject, container: ManifestContainer, resources: Mapping[str, Any]
) -> Any:
    """A strategic merge patch that changes a container's resources; None where no patch can."""
    if subject.kind not in PATCHED or not container.name or subject.pod is None:
        return None
    key = "containers" if container.kind is ContainerKind.APP else "initContainers"
    return nested(subject.pod.path, {"spec": {key: [{"name": container.name, "resources": resources}]}})


def nested(path: Sequence[str], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The patch of an object that changes what stands at a path."""
    for step in reversed(path):
        patch = {step: patch}
    return patch


@rule("bad-ignore", Severity.WARNING, "Write `# corelane: ignore RULE reason`.")
def _bad_ignore(context: PodContext) -> Iterator[Remark]:
    """A comment that ignores nothing.

    A `# corelane: ignore` that names no rule, a rule that does not exist, or gives no reason.
    """
    yield from ()


COMMENT_RULES: Final = (_bad_ignore,)
