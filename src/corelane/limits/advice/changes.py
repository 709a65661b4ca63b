"""Consequences of a change for others: requests that a node still guarantees, the QoS class, autoscalers.

Requests are weights: of the kubelet's cgroups, Guaranteed pods and the Burstable class compete at the top,
then Burstable pods among themselves (pkg/kubelet/cm, qos_container_manager). Exclusive CPUs do not compete.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from corelane.kernel import cfs
from corelane.limits.advice.effects import Range
from corelane.limits.advice.subjects import NodeOccupancy, NodePod, Subject
from corelane.limits.lint.findings import PATCHED, nested
from corelane.workload.request import QOSClass, qos_class

Weight = Callable[[int], int]
"""From cpu.shares to the kernel's weight: the same in cgroup v1, `cfs.pod_weight` in v2."""
_ENOUGH: Final = 0.95
"""Weights are integers: a share this close to the request is the request."""
_NAMED: Final = 3


class RiskLevel(StrEnum):
    """Risk that other pods lose CPU time."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """A pod's least CPU time, in milliCPU, when all pods on its node are fully busy."""

    pod: NodePod
    milli: float

    @property
    def short(self) -> bool:
        return self.milli < _ENOUGH * self.pod.request


@dataclass(frozen=True, slots=True)
class NodeRisk:
    """The risk on one node. CPU in milliCPU; `short` are other pods that would get less than requested."""

    name: str
    milli: int
    requested: int
    pods: int
    without_request: tuple[str, ...]
    short: tuple[Share, ...]

    @property
    def level(self) -> RiskLevel:
        if self.requested > self.milli:
            return RiskLevel.HIGH
        return RiskLevel.MEDIUM if self.without_request or self.short else RiskLevel.LOW


@dataclass(frozen=True, slots=True)
class Risk:
    """The risk of a change to other pods, the reason, and every node where the workload runs."""

    level: RiskLevel
    why: str
    nodes: tuple[NodeRisk, ...] = ()


def shares(node: NodeOccupancy, weight: Weight = cfs.pod_weight) -> list[Share]:
    """Every pod's least share of the CPUs that are not exclusive."""
    free = node.milli - 1000 * sum(pod.exclusive for pod in node.pods)
    sharing = [pod for pod in node.pods if not pod.exclusive]
    classes = {qos: [pod for pod in sharing if pod.qos is qos] for qos in QOSClass}
    burstable = classes[QOSClass.BURSTABLE]
    total = weight(cfs.shares(sum(pod.request for pod in burstable))) if burstable else 0
    best = weight(cfs.MIN_SHARES) if classes[QOSClass.BEST_EFFORT] else 0
    top = {pod: weight(cfs.shares(pod.request)) for pod in classes[QOSClass.GUARANTEED]}
    everything = max(sum(top.values()) + total + best, 1)
    guaranteed = [Share(pod, free * own / everything) for pod, own in top.items()]
    guaranteed += _split(burstable, free * total / everything, weight)
    return guaranteed + _split(classes[QOSClass.BEST_EFFORT], free * best / everything, weight)


def _split(pods: Sequence[NodePod], milli: float, weight: Weight) -> list[Share]:
    weights = [weight(cfs.shares(pod.request)) for pod in pods]
    return [Share(pod, milli * own / sum(weights)) for pod, own in zip(pods, weights, strict=True)]


def unlimited_risk(
    nodes: Sequence[NodeOccupancy], limit: float | None, weight: Weight = cfs.pod_weight, request: int = 0
) -> Risk:
    """The container uses all CPU time that it can get, or up to `limit` CPUs; now it requests `request`."""
    sized = [node for node in nodes if node.milli]
    if not sized:
        return Risk(RiskLevel.UNKNOWN, _unknown(nodes))
    risks = tuple(_node_risk(node, weight) for node in sized)
    # Whether every node has CPUs for the limit and the requests of all other pods together.
    if limit is not None and all(
        requested_milli(node, 1000 * limit, request) <= node.milli
        and all(pod.request or pod.own for pod in node.pods)
        for node in sized
    ):
        return Risk(RiskLevel.NONE, f"even at {limit:g} CPUs every other pod gets what it requests", risks)
    worst = max(risks, key=lambda risk: list(RiskLevel).index(risk.level))
    return Risk(worst.level, _sentence(worst), risks)


def _unknown(nodes: Sequence[NodeOccupancy]) -> str:
    if nodes:
        return "CPU count of its node unknown: add the nodes to --pods, or give --node-cpus"
    return "other pods on its node unknown: give --pods"


def requested_milli(node: NodeOccupancy, new: float, request: int) -> float:
    """MilliCPU on the node once the container takes `new` in each of its own pods, instead of `request`."""
    return sum(pod.request + (new - request if pod.own else 0) for pod in node.pods)


def crowded_risk(nodes: Sequence[NodeOccupancy], new: int, request: int) -> Risk | None:
    """Return why its pods would not fit their nodes with a request of `new` milliCPU; None where they fit."""
    for node in nodes:
        requested = requested_milli(node, new, request)
        if node.milli and new > request and requested > node.milli:
            of = f"{requested / 1000:g} of {node.milli / 1000:g} CPUs"
            why = f"{node_title(node.name)}: {of} would be requested"
            return Risk(RiskLevel.HIGH, why)
    return None


def node_title(name: str) -> str:
    return f"node {name}" if name else "its node"


def _node_risk(node: NodeOccupancy, weight: Weight) -> NodeRisk:
    others = [share for share in shares(node, weight) if not share.pod.own]
    return NodeRisk(
        node.name,
        node.milli,
        sum(pod.request for pod in node.pods),
        len(node.pods),
        tuple(share.pod.title for share in others if not share.pod.request),
        tuple(share for share in others if share.pod.request and share.short),
    )


def _sentence(worst: NodeRisk) -> str:
    requests = (
        f"{node_title(worst.name)}: {worst.requested / 1000:g} of {worst.milli / 1000:g} CPUs requested"
    )
    if worst.requested > worst.milli:
        return f"{requests}, more than there are: no pod is guaranteed its request"
    parts = [f"{requests}, so every pod with a request keeps its share"]
    if worst.short:
        least = min(worst.short, key=lambda share: share.milli / share.pod.request)
        share = f"{least.pod.title} is guaranteed {least.milli:.0f}m of its {least.pod.request}m only"
        more = f", and {len(worst.short) - 1} more less than requested" if len(worst.short) > 1 else ""
        parts = [f"{requests}, but weights are integers: {share}{more}"]
    if names := worst.without_request:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts.append(f"pods without a request may starve: {', '.join(names[:_NAMED])}{more}")
    return "; ".join(parts)


def exclusive_risk(nodes: Sequence[NodeOccupancy], cpus: int, request: int = 0) -> Risk:
    """The container has `cpus` exclusive CPUs in every pod of the workload; all others share the rest."""
    sized = [node for node in nodes if node.milli]
    if not sized:
        return Risk(RiskLevel.UNKNOWN, _unknown(nodes))
    if full := crowded_risk(sized, 1000 * cpus, request):
        return full
    free = (sized[0].milli - requested_milli(sized[0], 1000 * cpus, request)) / 1000
    own = "its exclusive CPU" if cpus == 1 else f"its {cpus} exclusive CPUs"
    left = f"{free:g} of {sized[0].milli / 1000:g} CPUs remain for requests"
    return Risk(RiskLevel.LOW, f"{left}; no other pod can use {own}, idle or not")


# To the pod itself, and to its autoscalers.


@dataclass(frozen=True, slots=True)
class NewResources:
    """The container's resources after a change, in milliCPU and bytes; 0 for none.

    `others_complete`: the other containers, too, get what a Guaranteed pod requires.
    """

    request: int
    limit: int
    memory_request: int
    memory_limit: int
    others_complete: bool = False


def qos_after(subject: Subject, new: NewResources) -> QOSClass:
    """The pod's QoS class after the change; pod-level resources alone decide where there are any."""
    if subject.pod_level:
        return subject.qos
    requests = {"cpu": new.request * 10**6, "memory": new.memory_request * 10**9}
    limits = {"cpu": new.limit * 10**6, "memory": new.memory_limit * 10**9}
    others = () if new.others_complete else subject.siblings.values()
    return qos_class([(requests, limits), *others])


def qos_text(subject: Subject, after: QOSClass) -> str:
    """The change of the QoS class, and its consequences."""
    before = subject.qos
    if after is before:
        return f"QoS class stays {before}"
    if after is QOSClass.GUARANTEED:
        return (
            f"QoS class changes from {before} to Guaranteed: killed last when memory runs out; an integer "
            "CPU request gets exclusive CPUs where the CPU manager is static"
        )
    if before is QOSClass.GUARANTEED:
        return (
            f"QoS class changes from Guaranteed to {after}: no longer among the last killed when memory runs "
            "out (within its memory request it is evicted last); no exclusive CPUs"
        )
    return f"QoS class changes from {before} to {after}"


def utilisation(subject: Subject, request: int, used: float, after: Range) -> Iterator[str]:
    """Say what autoscalers read: use over request. `used` and `after` are the container's, in ms a second."""
    for scaler in subject.scalers:
        whole = scaler.request_milli if not scaler.container else subject.request
        if not whole:
            yield f"{scaler.name} fails: utilisation is use over requests, and there is no CPU request"
            continue
        new = whole - subject.request + request
        part = "this container's part of " if not scaler.container and whole != subject.request else ""
        grows = "" if 100 * after.high / new <= scaler.percent else "; it adds replicas while this load lasts"
        yield (
            f"{scaler.name} (target {scaler.percent} %): {part}utilisation {100 * used / whole:.0f} % now, "
            f"then {_percent(after, new)}{grows}"
        )
    if subject.scalers or not subject.listed:
        return
    if not request:
        yield "an autoscaler on CPU utilisation would fail: there is no CPU request"
        return
    changed = "" if request == subject.request else f" ({request}m instead of {subject.request}m)"
    yield f"an autoscaler on CPU utilisation would read {_percent(after, request)} of the request{changed}"


def _percent(after: Range, request: int) -> str:
    low, high = 100 * after.low / request, 100 * after.high / request
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"


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


def container_patch(subject: Subject, change: Mapping[str, Any], *, resize: bool = False) -> Patch | None:
    """Change fields of the container. `resize`: a running pod can be resized to these resources.

    None where the workload of the container is unknown.
    """
    if not subject.listed:
        return None
    key = "initContainers" if subject.init else "containers"
    spec: Mapping[str, Any] = {"spec": {key: [{"name": subject.container, **change}]}}
    return _patch(subject, spec, resize=resize)


def annotation_patch(subject: Subject, key: str, value: str) -> Patch | None:
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


def threads_patch(subject: Subject, count: int) -> tuple[str, Patch | None]:
    """Return what to set so that `count` threads run, in words, and the patch.

    By the settings that the container has, else by what its image reads. None where the setting is not an
    environment variable, or only guessed.
    """
    if subject.settings:
        # Processes share the count; then each has one thread. A pool beside others stays where it is small.
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
        words += [
            f"{setting.name} {number} in its arguments" for setting, number in numbers if not setting.env
        ]
        complete = len(env) == len(numbers)
        return ", ".join(words), container_patch(subject, {"env": env}) if complete else None
    if not subject.runtime:
        return _GUESS.format(count), None
    if not subject.runtime.isupper():
        return f"{subject.runtime} {count}", None
    value = f"-XX:ActiveProcessorCount={count}" if subject.runtime == _JAVA else str(count)
    patch = container_patch(subject, {"env": [{"name": subject.runtime, "value": value}]})
    return f"{subject.runtime}={value}", patch
