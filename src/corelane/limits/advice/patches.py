"""Patches that `kubectl patch` takes: strategic merge, of what makes the pods, quoted for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corelane.limits.advice.facts import Subject

__all__ = ["Patch", "annotation", "container", "cpus"]

_TEMPLATE: Final = ("spec", "template")
_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch's content; the whole command, empty where none can do it; and what is to be known of it."""

    content: Mapping[str, Any]
    command: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The content as kubectl would get it, for pasting into a manifest."""
        return json.dumps(self.content, separators=(",", ":"))


def cpus(milli: int) -> str:
    """MilliCPU as manifests write it: `250m`, `2`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def container(subject: Subject, change: Mapping[str, Any], *, resize: bool = False) -> Patch | None:
    """Change something of the container. `resize` says that a running pod can be given these resources.

    None where it is not known to whom the container belongs.
    """
    if not subject.known:
        return None
    key = "initContainers" if subject.init else "containers"
    spec: Mapping[str, Any] = {"spec": {key: [{"name": subject.container, **change}]}}
    return _patch(subject, spec, resize=resize)


def annotation(subject: Subject, key: str, value: str) -> Patch | None:
    """Annotate the pods that the workload makes."""
    if not subject.known:
        return None
    return _patch(subject, {"metadata": {"annotations": {key: value}}}, resize=False)


def _patch(subject: Subject, template: Mapping[str, Any], *, resize: bool) -> Patch:
    path = _PATHS.get(subject.kind)
    if path is not None:
        content: Mapping[str, Any] = template
        for step in reversed(path):
            content = {step: content}
        note = "the pods are replaced" if subject.kind in ("Deployment", "StatefulSet", "DaemonSet") else ""
        return Patch(content, _command(subject, content), note or "for pods made from now on")
    if subject.kind == "Pod" and resize:
        note = (
            "in place, Kubernetes 1.33 and later, while the QoS class stays the same; elsewhere, and under "
            "corelane up, a pod's resources cannot be changed: delete it and create it anew with this"
        )
        return Patch(template, _command(subject, template, "--subresource=resize"), note)
    if subject.kind == "Pod":
        return Patch(template, note="a pod's cannot be changed: delete it and create it anew with this")
    if subject.kind == "Job":
        return Patch(template, note="a Job's pod template cannot be changed: create it anew with this")
    return Patch(template, note=f"{subject.kind} knows no strategic merge: write this into its pod template")


def _command(subject: Subject, content: Mapping[str, Any], *flags: str) -> str:
    """Names come from a file: as parts of longer words none can pass for an option."""
    words = ["kubectl", "patch", f"{subject.kind.lower()}/{subject.name}"]
    words += [f"--namespace={subject.namespace or 'default'}", *flags, "--type=strategic", "-p"]
    return shlex.join([*words, json.dumps(content, separators=(",", ":"), ensure_ascii=True)])
