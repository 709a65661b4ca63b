"""Patches for `kubectl patch`: strategic merges of the object that makes the pods, quoted for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corelane.limits.advice.subjects import Subject
from corelane.limits.lint.findings import PATCHED, nested

_JAVA: Final = "JAVA_TOOL_OPTIONS"
_GUESS: Final = "GOMAXPROCS={} (or OMP_NUM_THREADS, a worker count: the setting that its runtime reads)"


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch's content; the whole command, empty where no command can apply it; and how it takes effect."""

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
    """Change fields of the container. `resize`: a running pod can be resized to these resources.

    None where the workload of the container is unknown.
    """
    if not subject.listed:
        return None
    key = "initContainers" if subject.init else "containers"
    spec: Mapping[str, Any] = {"spec": {key: [{"name": subject.container, **change}]}}
    return _patch(subject, spec, resize=resize)


def annotation(subject: Subject, key: str, value: str) -> Patch | None:
    """Annotate the pods that the workload makes."""
    if not subject.listed:
        return None
    return _patch(subject, {"metadata": {"annotations": {key: value}}}, resize=False)


def _patch(subject: Subject, template: Mapping[str, Any], *, resize: bool) -> Patch:
    if path := PATCHED.get(subject.kind):
        content = nested(path, template)
        note = "the pods are replaced" if subject.kind in ("Deployment", "StatefulSet", "DaemonSet") else ""
        return Patch(content, _command(subject, content), note or "for pods created from now on")
    if subject.kind == "Pod" and resize:
        note = (
            "resized in place by Kubernetes 1.33 and later while the QoS class stays the same; older "
            "versions and corelane up cannot change a pod's resources: delete the pod and create it with this"
        )
        return Patch(template, _command(subject, template, "--subresource=resize"), note)
    if subject.kind == "Pod":
        return Patch(template, note="a pod cannot be changed: delete it and create it with this")
    if subject.kind == "Job":
        return Patch(template, note="a Job's pod template cannot be changed: create the Job again with this")
    return Patch(template, note=f"{subject.kind} has no strategic merge: write this into its pod template")


def _command(subject: Subject, content: Mapping[str, Any], *flags: str) -> str:
    """Names come from a file: as parts of longer words they cannot be read as options."""
    words = ["kubectl", "patch", f"{subject.kind.lower()}/{subject.name}"]
    words += [f"--namespace={subject.namespace or 'default'}", *flags, "--type=strategic", "-p"]
    return shlex.join([*words, json.dumps(content, separators=(",", ":"), ensure_ascii=True)])


def threads(subject: Subject, count: int) -> tuple[str, Patch | None]:
    """What to set so that `count` threads run, in words, and the patch.

    By the settings that the container has, else by what its image reads. None where the setting is not an
    environment variable, or only guessed.
    """
    if subject.settings:
        return _changed_settings(subject, count)
    if not subject.runtime:
        return _GUESS.format(count), None
    if not subject.runtime.isupper():
        return f"{subject.runtime} {count}", None
    value = f"-XX:ActiveProcessorCount={count}" if subject.runtime == _JAVA else str(count)
    patch = container(subject, {"env": [{"name": subject.runtime, "value": value}]})
    return f"{subject.runtime}={value}", patch


def _changed_settings(subject: Subject, count: int) -> tuple[str, Patch | None]:
    """Processes share the count; then each has one thread. A pool beside others stays where it is small."""
    each = 1 if any(setting.processes for setting in subject.settings) else count
    numbers = [
        (setting, count if setting.processes else each)
        for setting in subject.settings
        if not setting.partial or (setting.count or 0) > count
    ]
    # A value replaces whatever set the variable: a merge by name keeps what is not named.
    env = [
        {"name": setting.name, "value": str(number), "valueFrom": None}
        for setting, number in numbers
        if setting.env
    ]
    words = [f"{setting.name}={number}" for setting, number in numbers if setting.env]
    words += [f"{setting.name} {number} in its arguments" for setting, number in numbers if not setting.env]
    complete = len(env) == len(numbers)
    return ", ".join(words), container(subject, {"env": env}) if complete else None
