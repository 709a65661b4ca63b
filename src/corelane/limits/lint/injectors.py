"""Sidecar injectors: webhooks that add containers to a pod, by its labels and annotations or its namespace's.

What they add has requests of its own (Istio's proxy 100m and 128Mi by default), so the QoS class of such a
pod does not follow from its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from msgspec import Meta, Struct

from corelane.limits.lint.bundles import deployed_with
from corelane.limits.lint.located import Located, LocatedMember, pairs, text
from corelane.limits.lint.manifests import InjectedContainer, ManifestObject
from corelane.settings import SettingsError

_OFF: Final = frozenset({"false", "disabled", "no", "n", "off", "f", "0"})
_NAMESPACE: Final = "Namespace"
_TELEMETRY: Final = ("java", "nodejs", "python", "dotnet", "go", "apache-httpd", "nginx")


@dataclass(frozen=True, slots=True)
class SidecarInjector:
    """The keys, of labels or annotations, with which an injector is switched on for a pod or a namespace.

    Any value switches it on, as some keys name a revision or an instance, except those that say no.
    """

    name: str
    pod: tuple[str, ...]
    namespace: tuple[str, ...] = ()
    source: str = ""
    container: str = ""
    """The container that it adds, where that has no CPU request by default."""
    request: str = ""
    """The annotation that gives it one, of the pod or, as all of Linkerd's, of its namespace."""


TABLE: Final = (
    SidecarInjector(
        "Istio",
        ("sidecar.istio.io/inject", "istio.io/rev"),
        ("istio-injection", "istio.io/rev"),
        "istio.io: Installing the Sidecar; Resource Labels",
    ),
    SidecarInjector(
        "Linkerd",
        ("linkerd.io/inject",),
        ("linkerd.io/inject",),
        "linkerd.io: Automatic Proxy Injection, Proxy Configuration",
        "linkerd-proxy",
        "config.linkerd.io/proxy-cpu-request",
    ),
    SidecarInjector(
        "Dapr",
        ("dapr.io/enabled",),
        source="docs.dapr.io: Dapr arguments and annotations",
        container="daprd",
        request="dapr.io/sidecar-cpu-request",
    ),
    SidecarInjector(
        "Vault Agent",
        ("vault.hashicorp.com/agent-inject",),
        source="developer.hashicorp.com: Vault Agent Injector, Annotations",
    ),
    SidecarInjector(
        "Consul",
        ("consul.hashicorp.com/connect-inject",),
        ("consul.hashicorp.com/connect-inject",),
        "developer.hashicorp.com: Consul on Kubernetes, Annotations and labels",
        "consul-dataplane",
        "consul.hashicorp.com/sidecar-proxy-cpu-request",
    ),
    SidecarInjector(
        "Kuma",
        ("kuma.io/sidecar-injection",),
        ("kuma.io/sidecar-injection",),
        "kuma.io: Kubernetes annotations and labels",
    ),
    SidecarInjector(
        "OpenTelemetry",
        ("sidecar.opentelemetry.io/inject",),
        ("sidecar.opentelemetry.io/inject",),
        "opentelemetry-operator: README, Sidecar injection",
    ),
    *(
        SidecarInjector(
            "OpenTelemetry",
            (f"instrumentation.opentelemetry.io/inject-{language}",),
            (f"instrumentation.opentelemetry.io/inject-{language}",),
            "opentelemetry-operator: README, auto-instrumentation injection",
        )
        for language in _TELEMETRY
    ),
    SidecarInjector(
        "Jaeger",
        ("sidecar.jaegertracing.io/inject",),
        ("sidecar.jaegertracing.io/inject",),
        "Red Hat OpenShift: Automatically injecting sidecars (also on the Deployment itself)",
    ),
    SidecarInjector(
        "GKE's Cloud Storage FUSE",
        ("gke-gcsfuse/volumes",),
        source="GoogleCloudPlatform/gcs-fuse-csi-driver: docs/usage.md, pkg/webhook",
    ),
)
"""Known without a policy; a policy's `sidecarInjectors` adds to these."""


def marked(objects: Iterable[ManifestObject], more: Iterable[SidecarInjector] = ()) -> list[ManifestObject]:
    """The objects, their pods not `whole` where an injector adds containers."""
    every = list(objects)
    available = (*TABLE, *more)
    keys = frozenset(key for injector in available for key in (*injector.pod, *injector.namespace))
    namespaces = [each for each in every if each.kind == _NAMESPACE and keys & _written(each.node).keys()]
    return [_injected(manifest, available, keys, namespaces) for manifest in every]


def _injected(
    manifest: ManifestObject,
    available: Sequence[SidecarInjector],
    keys: frozenset[str],
    namespaces: Sequence[ManifestObject],
) -> ManifestObject:
    pod = manifest.pod
    if pod is None or not pod.whole:
        return manifest
    members = {**pod.labels, **pod.annotations}
    object_level = dict(pairs(manifest.node, "metadata", "annotations"))
    if not namespaces and not keys & (members.keys() | object_level.keys()):
        return manifest
    own, outer = _texts(members), _texts(object_level)
    # The Namespaces that it may be in: that of its name, or those deployed with it.
    homes: Sequence[ManifestObject] = [each for each in namespaces if each.name == manifest.namespace]
    if not manifest.namespace:
        homes = deployed_with(manifest, namespaces) if namespaces else ()
    around = [_written(each.node) for each in homes]
    adding = [each for each in available if _adds(each, own, outer, around)]
    if not adding:
        return manifest
    given = own.keys() | {key for each in around for key in each}
    injected = tuple(
        InjectedContainer(each.container, each.name, each.request)
        for each in adding
        if each.container and each.request not in given
    )
    return replace(manifest, pod=replace(pod, whole=False, injected=injected))


def _adds(
    injector: SidecarInjector,
    own: Mapping[str, str],
    outer: Mapping[str, str],
    around: Iterable[Mapping[str, str]],
) -> bool:
    """Whether it adds to a pod: by the pod template's keys, else by its object's or a namespace's."""
    switched = _on(injector.pod, own)
    if switched is not None:
        return switched
    return bool(_on(injector.pod, outer)) or any(_on(injector.namespace, each) for each in around)


def _on(keys: Iterable[str], written: Mapping[str, str]) -> bool | None:
    """Whether every key that is written switches it on; None where none is."""
    switches = [written[key].strip().lower() not in _OFF for key in keys if written.get(key)]
    return all(switches) if switches else None


def _written(node: Located) -> dict[str, str]:
    """Labels and annotations of an object."""
    return _texts({**dict(pairs(node, "metadata", "labels")), **dict(pairs(node, "metadata", "annotations"))})


def _texts(members: Mapping[str, LocatedMember]) -> dict[str, str]:
    return {key: text(member.value) for key, member in members.items()}


_Key = Annotated[
    str, Meta(pattern=r"\S", description="the key of a label or an annotation, as acme.io/inject")
]


class SidecarInjectorSetting(Struct, forbid_unknown_fields=True):
    """An entry of a policy's `sidecarInjectors`."""

    pod: _Key | None = None
    namespace: _Key | None = None

    def read(self, field: str) -> SidecarInjector:
        """Return the injector. Raises SettingsError with `field`, the entry's place."""
        if self.pod is None and self.namespace is None:
            raise SettingsError(f"{field}: has neither pod nor namespace (each a label or annotation key)")
        pod, namespace = ((key.strip(),) if key else () for key in (self.pod, self.namespace))
        return SidecarInjector("policy", pod, namespace, "policy")
