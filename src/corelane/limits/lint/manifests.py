"""Documents to the Kubernetes objects in them: workloads with their pods and containers, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from corelane.limits.lint.custom_resources import CustomResource, below, by_kind
from corelane.limits.lint.idle import (
    ends_at_once,
    ends_soon,
    only_prepares_files,
    only_waits,
    waits_for_another,
)
from corelane.limits.lint.located import (
    Located,
    LocatedList,
    LocatedMapping,
    LocatedMember,
    ManifestResources,
    Position,
    at,
    items,
    pairs,
    place,
    resources,
    text,
)
from corelane.limits.lint.thread_settings import ThreadSetting, settings
from corelane.workload import PodQOS
from corelane.workload.request import ContainerKind

_TEMPLATE: Final = ("spec", "template")
POD_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Path of a kind's pod template. Another kind with containers at the usual place counts too."""
CustomKinds: TypeAlias = Mapping[tuple[str, str], CustomResource]
_CUSTOM: Final[CustomKinds] = by_kind()
_BATCH: Final = frozenset({"Job", "CronJob"})


@dataclass(frozen=True, slots=True)
class ManifestContainer:
    """A container of a pod, at the place where its entry begins."""

    name: str
    kind: ContainerKind
    node: Located
    place: Position
    resources: ManifestResources
    settings: tuple[ThreadSetting, ...] = ()
    """Settings of its number of threads."""
    waits: bool = False
    """Whether it does nothing but wait, or end."""
    ends_soon: bool = False
    """Whether `timeout` ends it within ten minutes."""
    prepares: bool = False
    """Whether it only copies files and sets permissions, or, as an init container, waits for a service."""

    @property
    def image(self) -> str:
        return text(self.node, "image")


@dataclass(frozen=True, slots=True)
class InjectedContainer:
    """A container without a CPU request that an injector adds, and the annotation that gives it one."""

    container: str
    injector: str
    annotation: str


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """The pod that a workload makes. `path` is where its metadata and spec stand in the object."""

    path: tuple[str, ...]
    node: Located
    place: Position
    containers: tuple[ManifestContainer, ...]
    resources: ManifestResources | None
    """Those of the pod as a whole (KEP-2837)."""
    annotations: Mapping[str, LocatedMember] = field(default_factory=dict)
    labels: Mapping[str, LocatedMember] = field(default_factory=dict)
    embedded: bool = False
    """Whether an operator makes it, of containers that a custom resource describes in part."""
    injected: tuple[InjectedContainer, ...] = ()
    whole: bool = False
    """Whether no operator or sidecar injector adds containers or amounts, as far as is known."""


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """A Kubernetes object in a file; `pod` is None for one that makes no pods."""

    kind: str
    group: str
    namespace: str
    name: str
    file: str
    source: str
    node: Located
    place: Position
    pod: ManifestPod | None
    partial: bool = False
    """Whether it is a patch: what it lacks stands in another object."""
    kustomization: str = ""
    """The kustomization that lists its file as a resource."""
    to_its_end: bool = False
    """Whether it is a custom resource for batch work."""
    variant: bool = False
    """Whether several files define it: they are not deployed together."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Names of its amounts, where an operator makes containers of other fields."""

    @property
    def batch(self) -> bool:
        """Whether it is batch work, without requests that wait for milliseconds."""
        hook = self.kind == "Pod" and bool(self._hooks)
        return self.kind in _BATCH or self.to_its_end or hook or self.koordinator_class == PodQOS.BE

    @property
    def unjudged(self) -> str:
        """Reason why cost and share are not judged; empty for most.

        Windows caps CPU time by job objects and has neither CFS quotas nor weights in cgroups; a test of a
        Helm release only runs when `helm test` does.
        """
        spec = at(self.pod.node, "spec") if self.pod else None
        labels = ("kubernetes.io/os", "beta.kubernetes.io/os")
        systems = [text(spec, "os", "name"), *(text(spec, "nodeSelector", label) for label in labels)]
        if "windows" in systems or at(spec, "securityContext", "windowsOptions") is not None:
            return "Windows pods"
        return "Helm tests" if self.pod and any(hook.startswith("test") for hook in self._hooks) else ""

    @property
    def _hooks(self) -> tuple[str, ...]:
        """The events of Helm at which it is created, instead of with the release."""
        written = dict(pairs(self.node, "metadata", "annotations")).get("helm.sh/hook")
        return tuple(event.strip() for event in text(written.value).split(",")) if written else ()

    @property
    def koordinator_class(self) -> str:
        """Koordinator's QoS class by the pod's label; empty where there is none."""
        label = self.pod.labels.get("koordinator.sh/qosClass") if self.pod else None
        return text(label.value) if label else ""


def objects(
    root: Located, file: str, source: str = "", implied: str = "", custom: CustomKinds = _CUSTOM
) -> Iterator[ManifestObject]:
    """The objects in a document, those in lists included; none if it is not a manifest.

    `implied` is the kind of a list's items without one, as in an API server's PodList; `custom` is the
    custom resources with containers.
    """
    kind = text(root, "kind") or implied
    if not isinstance(root, LocatedMapping) or not kind or (at(root, "apiVersion") is None and not implied):
        return
    group = text(root, "apiVersion").rpartition("/")[0]
    if kind == "Template" and group in ("", "template.openshift.io"):
        for item in openshift_objects(root):
            yield from objects(item, file, source, custom=custom)
        return
    if at(root, "items") is not None:
        for item in items(root, "items"):
            yield from objects(item, file, source, kind.removesuffix("List"), custom)
        return
    resource = custom.get((kind, group))
    whole = _object(root, (kind, group), file, source, resource)
    parts = []
    for path in resource.each if resource else ():
        for node in below(root, path):
            made = _written(resource, root, path, node) if resource else node
            if isinstance(made, LocatedMapping):
                parts.append(_object(made, (kind, group), file, source, resource))
    parts = [part for part in parts if part.pod]
    for part in parts:
        yield replace(part, namespace=whole.namespace, name=whole.name)
    if not parts:
        yield whole


def _written(custom: CustomResource, root: Located, path: tuple[str, ...], node: Located) -> Located:
    return custom.written(root, path, node) if custom.written else node


_PARAMETER: Final = re.compile(r"\$\{\{(\w+)\}\}|\$\{(\w+)\}", re.ASCII)


def openshift_objects(template: Located) -> Iterator[Located]:
    """The objects of an OpenShift Template, with the values of its parameters in them.

    `${NAME}` stands for text, and `${{NAME}}` for a value of any kind; without a value it stays as it is.
    """
    values = {
        text(item, "name"): text(item, "value")
        for item in items(template, "parameters")
        if text(item, "value")
    }
    for item in items(template, "objects"):
        yield _filled(item, values)


def _filled(node: Located, values: Mapping[str, str]) -> Located:
    if isinstance(node, LocatedMapping):
        members = {
            key: replace(each, value=_filled(each.value, values)) for key, each in node.members.items()
        }
        return replace(node, members=members)
    if isinstance(node, LocatedList):
        return replace(node, items=tuple(_filled(each, values) for each in node.items))
    return replace(
        node, text=_PARAMETER.sub(lambda match: values.get(match[1] or match[2], match[0]), node.text)
    )


def _object(
    root: LocatedMapping, of: tuple[str, str], file: str, source: str, custom: CustomResource | None
) -> ManifestObject:
    namespace, name = text(root, "metadata", "namespace"), text(root, "metadata", "name")
    name = name or text(root, "metadata", "generateName")
    pod = _pod(root, of[0], custom)
    partial = bool(pod and pod.embedded and custom and not custom.complete)
    batch = bool(custom and custom.batch)
    fields = custom.fields if custom else {}
    return ManifestObject(
        *of, namespace, name, file, source, root, root.place, pod, partial, to_its_end=batch, fields=fields
    )


def _pod(root: LocatedMapping, kind: str, custom: CustomResource | None) -> ManifestPod | None:
    path = custom.pod if custom and custom.pod is not None else POD_PATHS.get(kind, _TEMPLATE)
    if custom and custom.containers and custom.pod is None:
        return _embedded(root, custom)
    spec = (*path, "spec")
    if not items(root, *spec, "containers"):
        return _embedded(root, custom) if custom else None
    written = at(root, *spec)
    level = resources(written, place(root, *spec, "resources")) if at(written, "resources") else None
    starting = [
        _container(
            node,
            ContainerKind.SIDECAR if text(node, "restartPolicy") == "Always" else ContainerKind.INIT,
        )
        for node in items(written, "initContainers")
    ]
    return ManifestPod(
        path,
        at(root, *path) or root,
        place(root, *spec),
        (*starting, *(_container(node, ContainerKind.APP) for node in items(written, "containers"))),
        level,
        dict(pairs(root, *path, "metadata", "annotations")),
        dict(pairs(root, *path, "metadata", "labels")),
        whole=custom.whole if custom else kind in POD_PATHS,
    )


def _embedded(root: LocatedMapping, custom: CustomResource) -> ManifestPod | None:
    """The containers that an operator makes from a custom resource, as far as the object describes them."""
    made = [
        replace(_container(node, ContainerKind.APP), name=name)
        for name, path in custom.containers
        for node in (_written(custom, root, path, described) for described in below(root, path))
        if custom.complete or at(node, "resources")
    ]
    # Of further containers, those without an image are patches of the operator's own.
    more = items(root, *custom.more) if custom.more else ()
    made += [_container(node, ContainerKind.APP) for node in more if text(node, "image")]
    here = place(root, "spec")
    return ManifestPod((), root, here, tuple(made), None, embedded=True) if made else None


def _container(node: Located, kind: ContainerKind) -> ManifestContainer:
    own = resources(node, place(node, "resources"))
    name, threads = text(node, "name"), settings(node, own)
    waits = only_waits(node) or ends_at_once(node)
    prepares = only_prepares_files(node) or (kind is ContainerKind.INIT and waits_for_another(node))
    return ManifestContainer(name, kind, node, node.place, own, threads, waits, ends_soon(node), prepares)


@dataclass(frozen=True, slots=True)
class UtilisationTarget:
    """A target CPU utilisation, in percent of requests, of a container or ("") of the whole pod."""

    percent: int
    container: str
    place: Position


SCALERS: Final = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
"""Kubernetes' autoscaler, and KEDA's, which makes one of it."""


def scaled_workload(scaler: ManifestObject) -> tuple[str, str]:
    """Kind and name of what an autoscaler scales."""
    spec = ("spec", "scaleTargetRef")
    kind = text(scaler.node, *spec, "kind")
    if scaler.kind == "ScaledObject":
        kind = kind or "Deployment"
    return kind, text(scaler.node, *spec, "name")


def utilisation_targets(scaler: ManifestObject) -> Iterator[UtilisationTarget]:
    """autoscaling/v1's one number, v2's metrics of type Utilization, and KEDA's triggers of type cpu."""
    spec = ("spec", "targetCPUUtilizationPercentage")
    written = [(text(scaler.node, *spec), "", place(scaler.node, *spec))]
    for metric in items(scaler.node, "spec", "metrics"):
        for part in ("resource", "containerResource"):
            if text(metric, part, "name") == "cpu":
                path = (part, "target", "averageUtilization")
                written.append((text(metric, *path), text(metric, part, "container"), place(metric, *path)))
    for trigger in items(scaler.node, "spec", "triggers"):
        kind = text(trigger, "metricType") or text(trigger, "metadata", "type") or "Utilization"
        if text(trigger, "type") == "cpu" and kind == "Utilization":
            value = ("metadata", "value")
            container = text(trigger, "metadata", "containerName")
            written.append((text(trigger, *value), container, place(trigger, *value)))
    for percent, container, where in written:
        if percent.isdecimal() and 0 < int(percent[:9]) < 10**6:
            yield UtilisationTarget(int(percent), container, where)


def other_metrics(scaler: ManifestObject) -> bool:
    """Whether it scales by anything beside CPU utilisation: the largest of all proposals counts."""
    triggers = items(scaler.node, "spec", "triggers")
    if any(text(trigger, "type") != "cpu" for trigger in triggers):
        return True
    metrics = items(scaler.node, "spec", "metrics")
    of_cpu = [
        metric
        for metric in metrics
        for part in ("resource", "containerResource")
        if text(metric, part, "name") == "cpu" and text(metric, part, "target", "averageUtilization")
    ]
    return len(metrics) > len(of_cpu)
