"""Manifests for lint: a Deployment of containers in as few words as possible, and what lint says of texts."""

import textwrap

from corelane.limits.lint.findings import Finding
from corelane.limits.lint.linter import LintReport, lint
from corelane.limits.lint.policy import Policy


def report(*texts: str, policy: Policy | None = None) -> LintReport:
    """Lint texts as files f0.yaml, f1.yaml and so on."""
    files = {f"f{i}.yaml": textwrap.dedent(text) for i, text in enumerate(texts)}
    return lint(files, policy or Policy())


def findings(*texts: str, policy: Policy | None = None) -> list[Finding]:
    return list(report(*texts, policy=policy).findings)


def rules(*texts: str, policy: Policy | None = None) -> set[str]:
    return {one.rule for one in findings(*texts, policy=policy)}


def only(rule: str, *texts: str, policy: Policy | None = None) -> Finding:
    """The one finding of a rule."""
    (found,) = [one for one in findings(*texts, policy=policy) if one.rule == rule]
    return found


def container(resources: str = "{}", *, name: str = "app", more: str = "") -> str:
    """A container in flow style; `more` is further members, each after a comma."""
    return f"{{name: {name}, image: app{more}, resources: {resources}}}"


def amounts(cpu: str = "", memory: str = "1Gi", *, limit: str = "", memory_limit: str = "1Gi") -> str:
    """Resources; what is empty is left out."""
    requests = _amounts(cpu, memory)
    return f"{{requests: {requests}, limits: {_amounts(limit, memory_limit)}}}"


def _amounts(cpu: str, memory: str) -> str:
    both = [f"{name}: {value}" for name, value in (("cpu", cpu), ("memory", memory)) if value]
    return "{" + ", ".join(both) + "}"


def workload(
    *containers: str, kind: str = "Deployment", init: tuple[str, ...] = (), spec: str = "", meta: str = "{}"
) -> str:
    """A manifest of any kind; `spec` is further lines of the pod's spec, `meta` the pod's metadata."""
    pod = f"{{initContainers: [{', '.join(init)}], containers: [{', '.join(containers)}]{spec}}}"
    template = f"{{metadata: {meta}, spec: {pod}}}"
    body = {
        "Pod": f"metadata: {{name: web, {meta.strip('{}')}}}\nspec: {pod}",
        "CronJob": f"metadata: {{name: web}}\nspec: {{jobTemplate: {{spec: {{template: {template}}}}}}}",
        "PodTemplate": f"metadata: {{name: web}}\ntemplate: {template}",
    }.get(kind, f"metadata: {{name: web}}\nspec: {{template: {template}}}")
    return f"apiVersion: apps/v1\nkind: {kind}\n{body}\n"


def limit_range(item: str, name: str = "lr", namespace: str = "") -> str:
    """A LimitRange with one item for containers, `item` in flow style without braces."""
    meta = f"{{name: {name}, namespace: '{namespace}'}}"
    limits = f"[{{type: Container, {item}}}]"
    return f"apiVersion: v1\nkind: LimitRange\nmetadata: {meta}\nspec: {{limits: {limits}}}\n"
