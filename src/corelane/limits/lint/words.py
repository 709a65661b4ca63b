"""Amounts and patches as findings show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corelane.limits.lint.cost import Cost
from corelane.limits.lint.manifest import Container, Object
from corelane.workload import ContainerKind

__all__ = ["container_patch", "cpus", "many", "ms", "stall"]

_PATCHED: Final = frozenset(
    {
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "ReplicationController",
        "CronJob",
        "PodTemplate",
    }
)
"""What a strategic merge patch may change: running pods and jobs keep their resources, CRDs know no merge."""


def cpus(milli: int) -> str:
    """MilliCPU as manifests write it: `250m`, `2`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def ms(value: float) -> str:
    """Milliseconds to a tenth, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0") + " ms"


def many(count: int, word: str) -> str:
    """A count and its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def stall(cost: Cost) -> str:
    """What a quota does to busy threads, in a sentence's part."""
    who = "one busy thread uses it up" if cost.threads == 1 else f"{cost.threads} busy threads use it up"
    return f"{who} in {ms(cost.after_ms)} and stand{'s' * (cost.threads == 1)} still for {ms(cost.stall_ms)}"


def container_patch(subject: Object, container: Container, resources: Mapping[str, Any]) -> Any:
    """A strategic merge patch that changes a container's resources; None where no patch can."""
    if subject.kind not in _PATCHED or not container.name or subject.pod is None:
        return None
    key = "containers" if container.kind is ContainerKind.APP else "initContainers"
    patch: Any = {"spec": {key: [{"name": container.name, "resources": resources}]}}
    for step in reversed(subject.pod.path):
        patch = {step: patch}
    return patch
