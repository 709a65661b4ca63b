"""Pods as slim structs, in a line."""

from collections.abc import Mapping

from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements, Toleration


def container(
    name: str, requests: str = "", limits: str | None = None, restart_policy: str = ""
) -> Container:
    """`requests` and `limits` as "cpu=2 memory=1Gi"; without `limits` they are the requests."""
    asked = amounts(requests)
    limited = asked if limits is None else amounts(limits)
    resources = ResourceRequirements(asked, limited)
    return Container(name=name, resources=resources, restart_policy=restart_policy)


def amounts(text: str) -> dict[str, str | int]:
    return dict(part.split("=", 1) for part in text.split())


def pod(
    name: str,
    *containers: Container,
    init: tuple[Container, ...] = (),
    node: str = "",
    annotations: Mapping[str, str] | None = None,
    phase: str = "Pending",
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> Pod:
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        resource_version="1",
        creation_timestamp="2026-01-01T00:00:00Z",
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
    )
    parts = PodSpec(containers=containers, init_containers=init, node_name=node, **spec)  # type: ignore[arg-type]
    return Pod(metadata=meta, spec=parts, status=PodStatus(phase=phase))


def guaranteed(name: str, cpus: str, memory: str = "1Gi", **more: object) -> Pod:
    """One container with equal requests and limits."""
    return pod(name, container("main", f"cpu={cpus} memory={memory}"), **more)  # type: ignore[arg-type]


def tolerating_everything() -> tuple[Toleration, ...]:
    return (Toleration(operator="Exists"),)
